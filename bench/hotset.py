#!/usr/bin/env python3
"""Figure 3, the hot set: does a backend that is good with cold files cost with warm ones?

100 MB of files in the page cache, once as 1000 files of 100 KB (64 connections) and once as 10 of
10 MB (20 connections), fetched at random.  Each of lighty's network backends against its own
`linux-sendfile`: MB/s and CPU per MB; the server on one core, wrk on the other, interleaved
rounds.  No default may be below 0.97 of linux-sendfile.
"""
import os
import sys

import rig
import servers

BASE = "lighty:linux-sendfile"
DEFAULT = ",".join([
    BASE, "lighty:auto+ring", "lighty:auto+pool", "lighty:writev", "lighty:linux-aio-sendfile",
    "lighty:posix-aio", "lighty:gthread-aio", "lighty:gthread-sendfile", "lighty:io-uring",
    "nginx", "lighttpd"])
SETS = {"100 KB": (1000, 100 * 1024, 64), "10 MB": (10, 10 << 20, 20)}

SCRIPT = """\
math.randomseed(1)
local requests = {}
function init()
  for i = 0, %d do requests[i] = wrk.format("GET", "/%s/" .. i .. ".bin") end
end
function request() return requests[math.random(0, %d)] end
"""


def main():
    ap = rig.arguments(__doc__, DEFAULT)
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--secs", type=int, default=3, help="length of a round")
    args = ap.parse_args()
    root = args.out + "/hotset"
    tuning = servers.Tuning(idle_s=300, cache_files=True)
    wanted = servers.chosen(args, tuning, root=root)
    scripts = {label: prepare(root, count, size) for label, (count, size, _) in SETS.items()}
    results, running = {}, servers.start_all(args, wanted)
    try:
        for label, (_, _, conns) in SETS.items():
            results[label] = measure(running, scripts[label], conns, args)
            show(label, results[label])
    finally:
        for server in running.values():
            server.stop()
    rig.save(args, "hotset", results, servers.versions(args, running))


def prepare(root, count, size):
    """The files, read once, and the script that makes wrk ask for them at random."""
    directory = f"{root}/{size}"
    os.makedirs(directory, exist_ok=True)
    for i in range(count):
        path = f"{directory}/{i}.bin"
        if not os.path.exists(path):
            rig.write_once(path, rig.pattern(path, size))
        with open(path, "rb") as f:
            f.read()
    script = f"{root}/{size}.lua"
    with open(script, "w") as f:
        f.write(SCRIPT % (count - 1, size, count - 1))
    return script


def measure(running, script, conns, args):
    rows = {name: {"mb_s": [], "us_per_mb": [], "bad": 0} for name in running}
    for server in running.values():
        rig.wrk(f"http://127.0.0.1:{server.port}/", conns, 1, script)       # warm
    for _ in range(args.rounds):
        for name, server in running.items():
            r = rig.loaded_round(server, f"http://127.0.0.1:{server.port}/", conns, args.secs,
                                 script)
            mb = r["bytes"] / 1e6
            rows[name]["mb_s"].append(mb / args.secs)
            rows[name]["us_per_mb"].append(rig.ratio(r["cpu_s"] * 1e6, mb))
            rows[name]["bad"] += r["bad"]
    return rows


def show(label, rows):
    rig.say(f"\n{label}: medians, and throughput against {BASE}")
    base = rig.median(rows[BASE]["mb_s"]) if BASE in rows else 0
    for name, r in rows.items():
        rate = rig.median(r["mb_s"])
        rig.say(f"  {name:28s} {rate:8.0f} MB/s  x{rig.ratio(rate, base):5.2f}"
                f"  {rig.median(r['us_per_mb']):7.1f} us CPU per MB"
                f"  [{min(r['us_per_mb']):.1f}-{max(r['us_per_mb']):.1f}]  bad {r['bad']}")


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"hotset: {e}")
