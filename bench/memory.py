#!/usr/bin/env python3
"""Figure 4: what an idle keep-alive connection holds.

Opens 10,000 connections, makes one request on each, reads the answer, and leaves them open.  The
figure is the growth of resident memory of the server's process tree since it had answered its
first request, divided by the connections.  `slope` leaves the first tenth of the connections out,
where a server still fills its pools; `at start` is what it holds before (nginx allocates for all
its worker_connections then).
"""
import sys

import client
import rig
import servers

PER_SOURCE = 5000


def main():
    ap = rig.arguments(__doc__, "lighty,nginx,lighttpd,h2o,caddy")
    ap.add_argument("--conns", type=int, default=10_000)
    args = ap.parse_args()
    if rig.raise_descriptors() < args.conns + 100:
        raise rig.RigError(f"{args.conns} connections need more descriptors: run as root")
    tuning = servers.Tuning(connections=args.conns + 1000, descriptors=args.conns + 5000,
                            idle_s=600)
    results = {}
    wanted = servers.chosen(args, tuning)
    for name, make in wanted:
        try:
            with servers.serving(args, name, make) as server:
                results[name] = measure(server, args.conns)
        except (rig.RigError, OSError) as e:
            rig.say(f"{name} is left out: {e}")
            continue
        r = results[name]
        rig.say(f"{name:12s} {r['kib_per_connection']:6.2f} KiB per connection"
                f"  (slope {r['slope_kib']:.2f}, anonymous {r['anonymous_kib']:.2f})"
                f"  at start {r['start_kib']} KiB, served {r['served']}, still open {r['open']}")
    rig.save(args, "memory", {"conns": args.conns, "servers": results},
             servers.versions(args, dict(wanted)))


def measure(server, conns):
    if not client.fetch(server.port).whole:
        raise rig.RigError(f"{server.name} does not serve")
    start, anonymous = rig.memory_kib(server.pid), rig.memory_kib(server.pid, "RssAnon")
    sockets, early = [], start
    try:
        for i in range(conns):
            if i == conns // 10:
                early = rig.memory_kib(server.pid)
            sockets.append(client.connect(server.port, source=f"127.0.0.{2 + i // PER_SOURCE}"))
            sockets[-1].sendall(client.head("/index.html"))
            if not client.read_answer(sockets[-1]).whole:
                raise rig.RigError(f"{server.name}: connection {i} was not served")
        end = rig.memory_kib(server.pid)
        grown = rig.memory_kib(server.pid, "RssAnon") - anonymous
        return {"kib_per_connection": (end - start) / conns, "start_kib": start, "end_kib": end,
                "slope_kib": (end - early) / (conns - conns // 10),
                "anonymous_kib": grown / conns, "served": conns,
                "open": sum(still_open(s) for s in sockets)}
    finally:
        for s in sockets:
            s.close()


def still_open(s):
    s.setblocking(False)
    try:
        return bool(s.recv(1))
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"memory: {e}")
