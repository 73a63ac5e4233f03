#!/usr/bin/env python3
"""Proxying: what a request that a backend answers costs the server in front of it.

The backend is the floor, which answers with 44 bytes of body at once; connections are kept alive on
both sides.  Each proxy runs pinned to one core; backend and wrk, with 64 connections, share the
other.  CPU is user and system time of the proxy's process tree (from /proc) per answered request;
rounds are interleaved.  Each proxy adds X-Forwarded-For, -Host and -Proto.

`floor` is the floor itself on the proxy's core, asked directly: one recv and one send.  A proxy does
both twice, so that twice the floor is what one would spend that did nothing else.

System calls are counted as in hot.py.
"""
import sys
import urllib.request

import hot
import rig
import servers

PATH = "/index.html"


def main():
    ap = rig.arguments(__doc__, "lighty,nginx,haproxy,h2o,lighttpd,caddy,floor")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--secs", type=int, default=2, help="length of a round")
    ap.add_argument("--conns", type=int, default=64)
    ap.add_argument("--more-conns", default="8,1000", metavar="N,...",
                    help="other numbers of connections (%(default)s)")
    ap.add_argument("--no-strace", action="store_true", help="do not count system calls")
    args = ap.parse_args()
    rig.raise_descriptors()
    more = {}
    with backend(args) as behind:
        tuning = servers.Tuning(idle_s=300, backends=(behind.port,))
        running = servers.start_all(args, servers.chosen(args, tuning))
        try:
            rows = hot.cpu(running, PATH, args)
            if not args.no_strace:
                for name, server in running.items():
                    rows[name]["calls"] = hot.calls_per_request(server, PATH, args.out)
            for conns in hot.numbers(args.more_conns):
                more[str(conns)] = hot.cpu(running, PATH, args, conns=conns)
                hot.show(f"proxied 44 B, {conns} connections", more[str(conns)])
        finally:
            for server in running.values():
                server.stop()
    hot.show("proxied 44 B", rows)
    rig.save(args, "proxy", {"servers": rows, "connections": more}, servers.versions(args, running))


def beside_backend(ap, name, label, start):
    """A table of servers that start(args, port) returns: each has or asks the backend at the port."""
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--secs", type=int, default=2, help="length of a round")
    ap.add_argument("--conns", type=int, default=64)
    ap.add_argument("--no-strace", action="store_true", help="do not count system calls")
    args = ap.parse_args()
    rig.raise_descriptors()
    with backend(args) as behind:
        running = start(args, behind.port)
        try:
            check(running)
            rows = hot.cpu(running, PATH, args)
            if not args.no_strace:
                for one, server in running.items():
                    rows[one]["calls"] = hot.calls_per_request(server, PATH, args.out)
        finally:
            for server in running.values():
                server.stop()
    hot.show(label, rows)
    rig.save(args, name, {"servers": rows}, servers.versions(args, args.servers.split(",")))


def check(running):
    """Asks each twice: a cache has the second answer."""
    for name, server in running.items():
        for _ in range(2):
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{PATH}", timeout=5) as answer:
                if answer.read() != rig.SMALL:
                    raise rig.RigError(f"{name} does not answer with the file")


def backend(args):
    port = rig.free_port()
    argv = [args.floor, str(port)]
    rig.document_root(args.out)
    return rig.serving("backend", argv, port, args.out + "/backend", core=rig.CLIENT_CORE)


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"proxy: {e}")
