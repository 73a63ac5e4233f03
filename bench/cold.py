#!/usr/bin/env python3
"""Figure 3: files that are not in memory, on a disk that seeks.

100 clients fetch random 100 KB files, ten times as many as the server's memory holds, from
diskbed: a simulated mirror of two 7200 rpm disks.  Metadata are cold too.  Every byte is checked.

    fetches/s       what the disk allows is what 32 nginx workers reach (`limit`)
    loop blocked    share of the time in which the event loop was in uninterruptible wait
    first, fetch    median time to the first byte and to the last

lighty's own base is `linux-sendfile+inline`: it looks paths up and reads in the event loop, as the
ancestor did and the peers do.  Rounds are interleaved; ratios are of medians.
"""
import sys

import bed
import rig
import servers

BASE = "lighty:linux-sendfile+inline"
LIMIT = "nginx:32w"
DEFAULT = ",".join([
    BASE, "lighty:linux-sendfile", "lighty:writev", "lighty:linux-aio-sendfile",
    "lighty:posix-aio", "lighty:gthread-aio", "lighty:gthread-sendfile", "lighty:io-uring",
    "lighty:auto+ring", "lighty:auto+pool", "nginx", "nginx:aio", LIMIT, "lighttpd", "control"])
CONTROL = ["-r", "64", "-s", "64"]


def main():
    ap = rig.arguments(__doc__, DEFAULT)
    bed.arguments(ap)
    ap.add_argument("--repeat", type=int, default=3, help="runs of each server (%(default)s)")
    ap.add_argument("--fetches", type=int, default=2000, help="in a run (%(default)s)")
    ap.add_argument("--parallel", type=int, default=100, help="clients (%(default)s)")
    args = ap.parse_args()
    rig.raise_descriptors()
    names = args.servers.split(",")
    args.servers = ",".join(n for n in names if n != "control")
    runs = {}
    with bed.up(args) as (diskbed, disk):
        makers = dict(servers.chosen(args, servers.Tuning(), root=disk.data))
        if "control" in names:
            makers["control"] = control(diskbed, disk)
        for turn in range(args.repeat):
            for name, make in list(makers.items()):
                try:
                    r = bed.measured(diskbed, disk, make, args, turn, args.parallel, args.fetches)
                except diskbed.BedError as e:
                    rig.say(f"{name} is left out: {e}")
                    del makers[name]
                    continue
                rig.say(diskbed.summary_line(name, r))
                runs.setdefault(name, []).append(bed.kept(r))
    results = {name: bed.medians(rs) for name, rs in runs.items()}
    show(results)
    rig.save(args, "cold", {"speed": args.speed, "servers": results},
             servers.versions(args, makers))


def control(diskbed, disk):
    """diskbed's own server with 64 read and 64 stat threads: what an event loop can reach."""
    def make():
        port = rig.free_port()
        return [diskbed.SRC + "/refserve", *CONTROL, str(port), disk.data], port
    return make


def show(results):
    base = results.get(BASE, {}).get("fetches_s", 0)
    limit = results.get(LIMIT, {}).get("fetches_s", 0)
    rig.say(f"\n{'server':30s} fetches/s     x base  of limit  blocked  first/fetch ms  errors")
    for name, r in results.items():
        rig.say(f"{name:30s} {r['fetches_s']:6.1f} [{r['lowest']:.0f}-{r['highest']:.0f}]"
                f"  x{rig.ratio(r['fetches_s'], base):5.2f}"
                f"   {rig.ratio(r['fetches_s'], limit):5.2f}   {r['blocked_pct']:5.1f} %"
                f"  {r['first_ms']:.0f} / {r['fetch_ms']:.0f}  {r['errors']:g}")
    if any(r["backing_late"] > bed.LATE_READS_MAX for r in results.values()):
        rig.say("the host's own disk was late: this run is worth nothing")


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"cold: {e}")
