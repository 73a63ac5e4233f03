#!/usr/bin/env python3
"""Forward authentication: what a request costs whose service is asked first.

Each server has one small file and asks a service about every request: lighty by `auth.forward`,
nginx by `auth_request`, Caddy by `forward_auth`.  The service is the floor, which permits all at
once; connections to it are kept.  Beside them, `proxied` is each server before the same floor as a
plain proxy: a request for a file that a service permits should cost about that.

`lighty:cached` keeps verdicts for a minute.

Each server runs pinned to one core; the service and wrk, with 64 connections, share the other.
CPU is user and system time of the server's process tree (from /proc) per answered request; rounds
are interleaved.  System calls are counted as in hot.py.
"""
import copy
import sys

import proxy
import rig
import servers

PATH = "/index.html"


def main():
    ap = rig.arguments(__doc__, "lighty,nginx,caddy")
    proxy.beside_backend(ap, "forward_auth", "44 B behind forward authentication", start)


def start(args, port):
    """The servers that ask, the caching one, and the same as plain proxies."""
    running = {}
    for suffix, tuning in (("", asking(port, 0)), (":cached", asking(port, 60)),
                           (" proxied", servers.Tuning(idle_s=300, backends=(port,)))):
        apart = copy.copy(args)
        apart.out = f"{args.out}/{suffix.strip(': ') or 'asking'}"
        rig.document_root(apart.out)
        if suffix == ":cached":
            apart.servers = "lighty"
        started = servers.start_all(apart, servers.chosen(apart, tuning))
        running |= {name + suffix: server for name, server in started.items()}
    return running


def asking(port, cache_s):
    """Tuning of servers that ask the service at this port."""
    return servers.Tuning(
        idle_s=300, cache_files=True,
        above={"nginx": f"upstream service {{ server 127.0.0.1:{port}; keepalive 1024;"
                        " keepalive_requests 100000000; }"},
        rules={"lighty": f'auth.forward = ( "/" => ( "url" => "http://127.0.0.1:{port}/auth",'
                         f' "preset" => "nginx", "cache" => {cache_s} ) )',
               "nginx": NGINX, "caddy": CADDY.format(port)})


NGINX = """auth_request /auth;
        location = /auth {
            internal;
            auth_request off;
            proxy_pass http://service;
            proxy_pass_request_body off;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Content-Length "";
            proxy_set_header X-Original-URL $scheme://$http_host$request_uri;
        }"""


CADDY = """\tforward_auth 127.0.0.1:{} {{
\t\turi /auth
\t\tcopy_headers X-Auth-Request-User
\t}}"""


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"forward_auth: {e}")
