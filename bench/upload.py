#!/usr/bin/env python3
"""Figure 21: uploads over a long way, by HTTP/2 beside HTTP/1.1.

curl puts a file into a WebDAV directory, over TLS, through a relay that holds all bytes for half of
a round trip in each direction and lets only so many a second pass.  A server that grants a stream
of HTTP/2 too small a window makes its client wait for each.  Required of lighty:

    100 MB at 50 ms and 100 Mbit/s by HTTP/2          rate >= 0.9 of that by HTTP/1.1

lighttpd and nginx stand beside it where they have WebDAV.
"""
import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque

import rig
import servers
import tls

DAV = {
    "lighty": 'server.modules += ( "mod_webdav" )\nwebdav.activate = "enable"\n'
              'webdav.is-readonly = "disable"\n',
    "lighttpd": 'server.modules += ( "mod_webdav" )\nwebdav.activate = "enable"\n'
                'webdav.is-readonly = "disable"\n',
    "nginx": "dav_methods PUT; client_max_body_size 0;\n",
}
PIECE_BYTES = 64 << 10


def main():
    ap = rig.arguments(__doc__, "lighty,nginx,lighttpd")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--bytes", type=int, default=100_000_000, help="of an upload (%(default)s)")
    ap.add_argument("--rtt-ms", type=float, default=50, help="(%(default)s)")
    ap.add_argument("--mbit", type=float, default=100, help="a second, each way (%(default)s)")
    args = ap.parse_args()
    root = args.out + "/upload"
    os.makedirs(root, exist_ok=True)
    rig.write_once(args.out + "/upload.bin", rig.pattern("upload.bin", args.bytes))
    tuning = servers.Tuning(pair=tls.make_pair(args.out), idle_s=300, rules=DAV)
    wanted = servers.chosen(args, tuning, root)
    found = {name: {"HTTP/1.1": [], "HTTP/2": []} for name, _ in wanted}
    for name, make in wanted:
        with servers.serving(args, name, make) as server, Link(server.port, args) as link:
            for nth in range(args.rounds):
                for kind, seconds in found[name].items():
                    seconds.append(put(link.port, kind, args, root, f"{name}-{nth}"))
    for name, kinds in found.items():
        rig.say(f"{name}: " + ", ".join(
            f"{kind} {rig.median(s):.2f} s [{min(s):.2f}-{max(s):.2f}]" for kind, s in kinds.items())
            + f", HTTP/2 at {rig.median(kinds['HTTP/1.1']) / rig.median(kinds['HTTP/2']):.2f}")
    rig.save(args, "upload", {"seconds": found, "rtt_ms": args.rtt_ms, "mbit": args.mbit,
                              "bytes": args.bytes}, servers.versions(args, dict(wanted)))


def put(port, kind, args, root, name):
    """Seconds of an upload."""
    target = f"{root}/{name}.bin"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(target)
    done = subprocess.run(["curl", "-sk", "-o", "/dev/null", "-w", "%{http_code} %{http_version} %{time_total}",
                           "--http1.1" if kind == "HTTP/1.1" else "--http2", "-H", "Expect:",
                           "-T", args.out + "/upload.bin",
                           f"https://127.0.0.1:{port}/{name}.bin"], capture_output=True, text=True)
    status, version, seconds = done.stdout.split()
    arrived = os.path.getsize(target) if os.path.exists(target) else 0
    if status not in ("201", "204") or version != kind[5:] or arrived != args.bytes:
        raise rig.RigError(f"{name}, {kind}: {done.stdout} {done.stderr}, {arrived} bytes arrived")
    os.unlink(target)
    return float(seconds)


class Link:
    """A relay in front of a port that is as far away, and as narrow, as it should be."""

    def __init__(self, port, args):
        self.target, self.delay_s = port, args.rtt_ms / 2000
        self.bytes_s = args.mbit * 1e6 / 8
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.target))
            for a, b in ((near, far), (far, near)):
                a.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                Way(a, b, self.delay_s, self.bytes_s)


class Way:
    """One direction of a connection.  It holds what is on its way, and a tenth of a second more."""

    def __init__(self, source, sink, delay_s, bytes_s):
        self.source, self.sink, self.delay_s, self.bytes_s = source, sink, delay_s, bytes_s
        self.held, self.held_bytes = deque(), 0
        self.changed = threading.Condition()
        self.held_max = (delay_s + 0.1) * bytes_s
        for work in (self.read, self.write):
            threading.Thread(target=work, daemon=True).start()

    def read(self):
        piece = b"-"
        while piece:
            try:
                piece = self.source.recv(PIECE_BYTES)
            except OSError:
                piece = b""
            with self.changed:
                self.changed.wait_for(lambda: self.held_bytes < self.held_max)
                self.held.append((time.monotonic() + self.delay_s, piece))
                self.held_bytes += len(piece)
                self.changed.notify_all()

    def write(self):
        free_at = 0.0
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.held)
                due, piece = self.held[0]
            # A timer that is late does not make the link narrower.
            free_at = max(due, free_at + len(piece) / self.bytes_s)
            time.sleep(max(0.0, free_at - time.monotonic()))
            with self.changed:
                self.held.popleft()
                self.held_bytes -= len(piece)
                self.changed.notify_all()
            try:
                if not piece:
                    return self.sink.shutdown(socket.SHUT_WR)
                self.sink.sendall(piece)
            except OSError:
                return None


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"upload: {e}")
