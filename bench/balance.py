#!/usr/bin/env python3
"""Two backends of unequal speed, 2.27 : 1, behind one proxy: the ancestor's own experiment.

The backends (slow.py) serve a fixed number of requests at a time, each for a fixed time.  wrk keeps
16 connections busy: first against each backend alone, which gives its speed, then against each proxy
and balancer.  Sharing in turn makes every client wait for the slow one: twice its speed is the most
that can come of it.  Sending to the shortest queue keeps both busy, and shares as their speeds are.

Required of lighty's sqf: 1.51 times its round-robin (the ancestor's figure), 0.95 of the sum of both
alone (the ancestor: 0.79), and a share of the fast one within 5 % of the ratio of the speeds.
"""
import contextlib
import sys

import client
import rig
import servers

PLACES = 4
FAST_MS, SLOW_MS = 5.0, 5.0 * 2.27
SERVERS = ("lighty:sqf,lighty:round-robin,lighty:least-time,lighty:two-choices,"
           "nginx,nginx:least_conn,haproxy,haproxy:leastconn,lighttpd,lighttpd:least-connection")


def main():
    ap = rig.arguments(__doc__, SERVERS)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--secs", type=int, default=3, help="length of a round")
    ap.add_argument("--conns", type=int, default=16)
    args = ap.parse_args()
    rig.document_root(args.out)
    with contextlib.ExitStack() as stack:
        backends = [stack.enter_context(slow(args, ms)) for ms in (FAST_MS, SLOW_MS)]
        tuning = servers.Tuning(backends=tuple(b.port for b in backends))
        running = servers.start_all(args, servers.chosen(args, tuning))
        try:
            rows = measure(running, backends, args)
        finally:
            for server in running.values():
                server.stop()
    show(rows)
    rig.save(args, "balance", rows, servers.versions(args, running))


def slow(args, service_ms):
    port = rig.free_port()
    argv = [sys.executable, rig.HERE + "/slow.py", str(port), str(service_ms), str(PLACES)]
    return rig.serving("backend", argv, port, args.out + "/backend", core=rig.CLIENT_CORE)


def measure(running, backends, args):
    alone = [[], []]
    rows = {name: {"rps": [], "to_fast": 0, "to_slow": 0, "bad": 0, "p99_ms": []}
            for name in running}
    for _ in range(args.rounds):
        for rates, backend in zip(alone, backends):
            rates.append(load(backend.port, args)["rps"])
        for name, server in running.items():
            before = [count(b) for b in backends]
            r = load(server.port, args)
            after = [count(b) for b in backends]
            row = rows[name]
            row["rps"].append(r["rps"])
            row["p99_ms"].append(r["p99_ms"])
            row["bad"] += r["bad"]
            row["to_fast"] += after[0] - before[0]
            row["to_slow"] += after[1] - before[1]
    return {"alone": alone, "servers": rows}


def load(port, args):
    return rig.wrk(f"http://127.0.0.1:{port}/index.html", args.conns, args.secs)


def count(backend):
    return int(client.fetch(backend.port, "/count").body)


def speeds(results):
    """(requests per second of both alone together, ratio of the fast one to the slow one)"""
    fast, slow_one = map(rig.median, results["alone"])
    return fast + slow_one, rig.ratio(fast, slow_one)


def split(row):
    """Requests to the fast backend for one to the slow."""
    return rig.ratio(row["to_fast"], row["to_slow"])


def show(results):
    whole, ratio = speeds(results)
    rig.say(f"\nboth alone together {whole:.0f} requests/s, speeds {ratio:.3f} : 1")
    for name, row in results["servers"].items():
        rps = rig.median(row["rps"])
        rig.say(f"  {name:28s} {rps:6.0f} rps  {rig.ratio(rps, whole):.3f} of both"
                f"  split {split(row):.3f} : 1  p99 {rig.median(row['p99_ms']):.1f} ms"
                f"  bad {row['bad']}")


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"balance: {e}")
