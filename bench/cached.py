#!/usr/bin/env python3
"""Stored responses: what a hit of the cache costs, for 44 bytes and for 100 KB.

A backend is asked once for each document; each server has stored its answer.  `lighty static` is
lighty with the same bytes in files: a hit should cost about that.

Each server runs pinned to one core, wrk with 64 connections to the other.  CPU is user and system
time of the server's process tree (from /proc) per answered request; rounds are interleaved.  System
calls are counted as in hot.py.
"""
import copy
import http.server
import os
import sys
import threading
import time
import urllib.request

import caches
import hot
import rig
import servers

TRIES = 10
FILES = {"44 B": "/index.html", "100 KB": "/100k.bin"}


def main():
    ap = rig.arguments(__doc__, "lighty,nginx,varnish,squid,httpd,ats")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--secs", type=int, default=2, help="length of a round")
    ap.add_argument("--conns", type=int, default=64)
    ap.add_argument("--no-strace", action="store_true", help="do not count system calls")
    args = ap.parse_args()
    rig.raise_descriptors()
    backend = Backend(rig.document_root(args.out))
    results, running = {}, {}
    try:
        running = start(args, backend.port)
        for label, path in FILES.items():
            check(running, path, backend)
            results[label] = hot.cpu(running, path, args)
            if not args.no_strace:
                for name, server in running.items():
                    results[label][name]["calls"] = hot.calls_per_request(server, path, args.out)
            hot.show(f"{label} from the cache", results[label])
    finally:
        for server in running.values():
            server.stop()
    own = [name for name in running if name in caches.PROGRAMS]
    others = [name for name in running if name not in own and " " not in name]
    rig.save(args, "cached", results, servers.versions(args, others) | caches.versions(own))


def start(args, port):
    own, others = split(args.servers.split(","))
    apart = copy.copy(args)
    apart.servers = ",".join(others)
    running = servers.start_all(args, servers.chosen(apart, caching(port, args.out)))
    running |= caches.start_all(args, own, port)
    apart.out, apart.servers = f"{args.out}/static", "lighty"
    rig.document_root(apart.out)
    static = servers.chosen(apart, servers.Tuning(idle_s=300, cache_files=True))
    return running | {f"{name} static": one for name, one in servers.start_all(apart, static).items()}


def split(names):
    """Names of caches.py, and the others."""
    own = [name for name in names if name in caches.PROGRAMS]
    return own, [name for name in names if name not in own]


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


class Backend:
    """Serves the documents, and counts the requests."""

    def __init__(self, root):
        counter = self
        self.requests = 0

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                counter.requests += 1
                with open(root + os.path.normpath(self.path), "rb") as f:
                    body = f.read()
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Cache-Control", "max-age=600")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()


def check(running, path, backend):
    """Asks each until the store answers."""
    for name, server in running.items():
        for _ in range(TRIES):
            before = backend.requests
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=5) as answer:
                size = len(answer.read())
            if backend.requests == before:
                break
            time.sleep(0.1)
        if size != (len(rig.SMALL) if path == "/index.html" else 100 << 10):
            raise rig.RigError(f"{name} answers {path} with {size} bytes")
        if backend.requests > before:
            rig.say(f"{name} does not store {path}")


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"cached: {e}")
