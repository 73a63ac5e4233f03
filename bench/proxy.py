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
