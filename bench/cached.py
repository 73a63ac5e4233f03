#!/usr/bin/env python3
"""Stored responses: what a hit of the cache costs.

The backend is the floor, which answers with 44 bytes; each server has stored its answer.  `static`
is lighty with the same bytes in a file: a hit should cost about that.

Each server runs pinned to one core, wrk with 64 connections to the other.  CPU is user and system
time of the server's process tree (from /proc) per answered request; rounds are interleaved.  System
calls are counted as in hot.py.
"""
import copy
import sys

import proxy
import rig
import servers

PATH = "/index.html"


def main():
    ap = rig.arguments(__doc__, "lighty,nginx")
    proxy.beside_backend(ap, "cached", "44 B from the cache", start)


def start(args, port):
    running = servers.start_all(args, servers.chosen(args, caching(port, args.out)))
    apart = copy.copy(args)
    apart.out, apart.servers = f"{args.out}/static", "lighty"
    rig.document_root(apart.out)
    tuning = servers.Tuning(idle_s=300, cache_files=True)
    static = servers.start_all(apart, servers.chosen(apart, tuning))
    return running | {f"{name} static": server for name, server in static.items()}


def caching(port, out):
    """Tuning of servers that store what the backend at this port answers."""
    return servers.Tuning(
        idle_s=300,
        above={"nginx": f"proxy_cache_path {out}/nginx-cache keys_zone=pages:16m;"
                        f" upstream behind {{ server 127.0.0.1:{port}; keepalive 64; }}"},
        rules={"lighty": 'proxy-core.protocol = "http"\n'
                         f'proxy-core.backends = ( "127.0.0.1:{port}" )\n'
                         'cache.stores = ( "pages" => ( "memory" => "64M" ) )\n'
                         'cache.store = "pages"\ncache.valid = ( "200" => "10min" )',
               "nginx": """location / {
            proxy_pass http://behind;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_cache pages;
            proxy_cache_valid 200 10m;
        }"""})


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"cached: {e}")
