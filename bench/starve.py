#!/usr/bin/env python3
"""How many reads at a time a disk should have: from starving to drowning.

100 clients fetch random 100 KB files that are not in memory, with 2 to 128 reads at a time
(server.max-read-threads), by threads and by a ring, on three disks: one spindle, two, and one that
hardly seeks.  lighttpd 1.5 came to the conclusion of twice as many threads as disks.

Required: the default of 64 is within 0.9 of the best of its curve, on each disk.
"""
import sys

import bed
import rig
import servers

READS = (2, 4, 8, 16, 32, 64, 128)
FAST = ["--seek-min", "0.02", "--seek-avg", "0.05", "--rpm", "300000", "--overhead", "0.05",
        "--rate", "400", "--bus", "600", "--depth", "32"]
DISKS = {"one spindle": ["--spindles", "1"], "two spindles": [], "fast": FAST}
# A disk that is fast already would be a test of the host at four times its speed.
SPEEDS = {"fast": 1}


def main():
    ap = rig.arguments(__doc__, "")
    bed.arguments(ap)
    ap.set_defaults(speed=4)
    ap.add_argument("--repeat", type=int, default=2, help="runs of each server (%(default)s)")
    ap.add_argument("--fetches", type=int, default=800, help="in a run (%(default)s)")
    ap.add_argument("--parallel", type=int, default=100, help="clients (%(default)s)")
    args = ap.parse_args()
    rig.raise_descriptors()
    results = {disk: one_disk(args, disk) for disk in DISKS}
    show(results)
    rig.save(args, "starve", results, servers.versions(args, ["lighty"]))


def one_disk(args, name):
    speed, args.speed = args.speed, SPEEDS.get(name, args.speed)
    args.servers = ",".join(f"lighty:{engine}+reads{n}" for n in READS for engine in ("pool", "ring"))
    runs = {}
    with bed.up(args, disk=DISKS[name]) as (diskbed, disk):
        makers = servers.chosen(args, servers.Tuning(), root=disk.data)
        for turn in range(args.repeat):
            for server, make in makers:
                r = bed.measured(diskbed, disk, make, args, turn, args.parallel, args.fetches)
                rig.say(diskbed.summary_line(f"{name} {server}", r))
                runs.setdefault(server, []).append(bed.kept(r))
    args.speed = speed
    medians = {server: bed.medians(rs) for server, rs in runs.items()}
    return {engine: {n: medians[f"lighty:{engine}+reads{n}"] for n in READS}
            for engine in ("pool", "ring")}


def show(results):
    for disk, engines in results.items():
        for engine, curve in engines.items():
            words = "  ".join(f"{n}: {r['fetches_s']:.0f}" for n, r in curve.items())
            rig.say(f"{disk:14s} {engine}  fetches/s with so many reads: {words}")
            words = "  ".join(f"{n}: {r['fetch_p99_ms']:.0f}" for n, r in curve.items())
            rig.say(f"{disk:14s} {engine}  99th percentile of a fetch, ms: {words}")
            words = "  ".join(f"{n}: {r['errors']:g}" for n, r in curve.items())
            rig.say(f"{disk:14s} {engine}  fetches that timed out or failed: {words}")


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"starve: {e}")
