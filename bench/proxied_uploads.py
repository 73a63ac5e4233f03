#!/usr/bin/env python3
"""Uploads through a proxy: 1 MB and 100 MB, by HTTP/1.1 and by HTTP/2 in the clear.

The backend reads each request to its end and answers with two bytes.  `lighty load` posts 1 MB on 16
connections (by HTTP/2 two streams of each), and 100 MB on two.  CPU is user and system time of the
proxy's process tree per megabyte; rounds are interleaved.  Required of lighty: at most 0.90 of the
better of nginx and HAProxy.
"""
import contextlib
import functools
import re
import socketserver
import sys
import threading

import rig
import rounds
import servers
import table

SIZES = {"1 MB": (1_000_000, 16, 2), "100 MB": (100_000_000, 2, 1)}     # bytes, connections, streams
RULES = {"nginx": "client_max_body_size 0; proxy_request_buffering off;"}


def main():
    ap = rig.arguments(__doc__, "lighty,nginx,haproxy")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--secs", type=int, default=3, help="length of a round")
    args = ap.parse_args()
    results = {}
    with sink() as port:
        for kind in ("HTTP/1.1", "HTTP/2"):
            tuning = servers.Tuning(idle_s=300, backends=(port,), http2=kind == "HTTP/2", rules=RULES)
            for size in SIZES:
                label = f"{size}, {kind}"
                of_round = functools.partial(posted, args, size, kind)
                results[label] = rounds.measured(args, tuning, of_round)
                rounds.show(label + ", a megabyte", results[label])
    rig.save(args, "proxied_uploads", results, servers.versions(args, args.servers.split(",")))


class Discard(socketserver.StreamRequestHandler):
    """Reads requests with a Content-Length, one after the other."""
    disable_nagle_algorithm = True

    def handle(self):
        # A client that has measured enough resets its connections.
        with contextlib.suppress(ConnectionError):
            self.discard()

    def discard(self):
        buffer = memoryview(bytearray(1 << 20))
        while head := self.head():
            length = re.search(rb"\r\ncontent-length:\s*(\d+)", head, re.IGNORECASE)
            left = int(length.group(1)) if length else 0
            while left:
                read = self.rfile.readinto(buffer[:min(left, len(buffer))])
                if not read:
                    return
                left -= read
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    def head(self):
        lines = b""
        for line in self.rfile:
            lines += line
            if line == b"\r\n":
                return lines
        return b""


class sink:
    """The backend, for a with block; gives its port."""

    def __enter__(self):
        class Threads(socketserver.ThreadingTCPServer):
            daemon_threads = allow_reuse_address = True
            request_queue_size = 128
        self.server = Threads(("127.0.0.1", 0), Discard)
        threading.Thread(target=self.serve, daemon=True).start()
        return self.server.server_address[1]

    def serve(self):
        rig.pin(rig.CLIENT_CORE)
        self.server.serve_forever()

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def posted(args, size, kind, server):
    """A round; its CPU is that of a megabyte."""
    content, conns, streams = SIZES[size]
    body = f"{args.out}/upload-{content}.bin"
    rig.write_once(body, rig.pattern("upload", content))
    more = ["-X", "POST", "--body", body]
    if kind == "HTTP/2":
        more += ["--http2", "-m", str(streams)]
    client = functools.partial(table.load, args.lighty, more=more)
    url = f"http://127.0.0.1:{server.port}/upload"
    figures = rig.loaded_round(server, url, conns, args.secs, client=client)
    figures["us_per_request"] /= content / 1e6
    return figures


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"proxied_uploads: {e}")
