#!/usr/bin/env python3
"""Figures 1 and 2: what a warm request costs the server.

CPU: user and system time of the server's process tree (from /proc) per answered request.  Each
server runs pinned to one core, wrk with 64 keep-alive connections to the other; rounds are
interleaved (A B C A B C ...), so that a drift of the machine hits all alike.  Quote the ratio of
the medians.  Requests per second say little: the client shares the machine.

wrk needs more of its core for a small file than the fastest servers do of theirs: these idle, and
wake for a few requests at a time.  So all is measured again with a client that is not the limit
(`asker`, crates/lighty-io/examples): what a request costs a server that has all its core to do.

System calls: strace counts those of N and of N+1000 keep-alive requests by one connection; the
difference is what 1000 requests took.  `wait` is epoll_wait and its kin, of which one connection
needs one per request and 64 share one.
"""
import functools
import os
import re
import signal
import subprocess
import sys
import time

import client
import rig
import servers

FILES = {"44 B": "/index.html", "100 KB": "/100k.bin"}
WAITS = {"epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "select"}


def main():
    ap = rig.arguments(__doc__, "lighty,nginx,lighttpd,h2o,caddy,floor")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--secs", type=int, default=3, help="length of a round")
    ap.add_argument("--conns", type=int, default=64)
    ap.add_argument("--more-conns", default="8,1000", metavar="N,...",
                    help="other numbers of connections, for the small file (%(default)s)")
    ap.add_argument("--no-strace", action="store_true", help="do not count system calls")
    args = ap.parse_args()
    rig.raise_descriptors()
    results = {}
    wanted = servers.chosen(args, servers.Tuning(idle_s=300, cache_files=True))
    running = servers.start_all(args, wanted)
    try:
        for label, path in FILES.items():
            # the floor has one answer only: it is measured beside the small file
            row = {n: r for n, r in running.items() if n != "floor" or label == "44 B"}
            results[label] = cpu(row, path, args)
            show(label, results[label])
            if os.access(args.asker, os.X_OK):
                asked = cpu(row, path, args, functools.partial(rig.asker, args.asker))
                show(label + ", a client that is not the limit", asked)
                for name, figures in asked.items():
                    results[label][name]["asked"] = figures
            else:
                rig.say(f"skipped: {args.asker} is not built")
            if not args.no_strace:
                for name, server in row.items():
                    results[label][name]["calls"] = calls_per_request(server, path, args.out)
                show(label + ", system calls", results[label])
        for conns in numbers(args.more_conns):
            label = f"44 B, {conns} connections"
            results[label] = cpu(running, FILES["44 B"], args, conns=conns)
            show(label, results[label])
    finally:
        for server in running.values():
            server.stop()
    rig.save(args, "hot", results, servers.versions(args, running))


def numbers(text):
    return [int(number) for number in text.split(",") if number]


def cpu(running, path, args, client=rig.wrk, conns=None):
    rows = {name: {"us": [], "rps": [], "bad": 0} for name in running}
    conns = conns or args.conns
    for server in running.values():
        rig.wrk(f"http://127.0.0.1:{server.port}{path}", conns, 1)     # warm
    for _ in range(args.rounds):
        for name, server in running.items():
            url = f"http://127.0.0.1:{server.port}{path}"
            r = rig.loaded_round(server, url, conns, args.secs, client=client)
            rows[name]["us"].append(r["us_per_request"])
            rows[name]["rps"].append(r["rps"])
            rows[name]["bad"] += r["bad"]
    return rows


def calls_per_request(server, path, out, requests=1000):
    """{system call: calls per request}, those that come to less than one in a hundred left out."""
    few = traced(server, path, requests, out)
    many = traced(server, path, 2 * requests, out)
    calls = {name: (many.get(name, 0) - few.get(name, 0)) / requests for name in many}
    return {name: round(n, 2) for name, n in sorted(calls.items()) if abs(n) >= 0.01}


def traced(server, path, requests, out):
    summary = f"{out}/strace"
    pids = ",".join(map(str, rig.tree(server.pid)))
    strace = subprocess.Popen(["strace", "-c", "-f", "-q", "-o", summary, "-p", pids],
                              stderr=subprocess.DEVNULL)
    try:
        wait_until_traced(server.pid, strace)
        client.keep_alive_requests(server.port, path, requests)
    finally:
        strace.send_signal(signal.SIGINT)
        strace.wait()
    with open(summary) as f:
        return parse_strace(f.read())


def wait_until_traced(pid, strace):
    """Until every thread has a tracer, but for the kernel's own io_uring workers (iou-...)."""
    end = time.monotonic() + 5
    while time.monotonic() < end and strace.poll() is None:
        tasks = [f"/proc/{p}/task/{t}" for p in rig.tree(pid)
                 for t in os.listdir(f"/proc/{p}/task")]
        if all(traced_or_kernel(t) for t in tasks):
            return
        time.sleep(0.02)
    raise rig.RigError("strace could not attach")


def traced_or_kernel(task):
    with open(task + "/comm") as comm, open(task + "/status") as status:
        tracer = re.search(r"TracerPid:\s+(\d+)", status.read()).group(1)
        return tracer != "0" or comm.read().startswith("iou-")


def parse_strace(text):
    """{call: count} of strace -c: columns % time, seconds, usecs/call, calls, [errors], call."""
    counts = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 5 and words[3].isdigit() and words[-1] != "total":
            counts[words[-1]] = int(words[3])
    return counts


def io_calls(calls):
    """Calls per request but for waiting."""
    return sum(n for name, n in calls.items() if name not in WAITS)


def show(label, rows):
    rig.say(f"\n{label}: CPU microseconds per request, median [range]")
    base = rig.median(next(iter(rows.values()))["us"]) if rows else 0
    for name, r in rows.items():
        us = r["us"]
        line = (f"  {name:18s} {rig.median(us):7.2f} [{min(us):.2f}-{max(us):.2f}]"
                f"  x{rig.ratio(rig.median(us), base):5.2f}  {rig.median(r['rps']):8.0f} rps"
                f"  bad {r['bad']}")
        if "calls" in r:
            names = " ".join(f"{k} {v:g}" for k, v in r["calls"].items())
            line += f"  calls {io_calls(r['calls']):g} + wait: {names}"
        rig.say(line)


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"hot: {e}")
