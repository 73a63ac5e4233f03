#!/usr/bin/env python3
"""Looking paths up on a disk that seeks: in the event loop, by fcgi-stat-accel, by the server's threads.

The shape of lighttpd 1.5's own table: 100 clients fetch random 100 KB files from diskbed (see
cold.py), which are read asynchronously in all rows (linux-aio-sendfile).  The rows differ in who
opens a file first, so that its directory and inode come into memory:

    inline       the event loop itself
    accel-tcp    fcgi-stat-accel with 20 threads, over 20 connections of TCP
    accel-unix   the same over a unix socket
    built-in     lighty's own threads

1.5 had 1 : 1.13 : 1.148 : 1.186, on 7200 rpm disks of 2006.  Rounds are interleaved; ratios are of
medians.
"""
import os
import shlex
import sys

import bed
import rig
import servers

BASE = "lighty:linux-aio-sendfile"
ANCESTOR = {"inline": 1, "accel-tcp": 1.13, "accel-unix": 1.148, "built-in": 1.186}
THREADS = 20
RULES = f"""proxy-core.protocol = "fastcgi"
proxy-core.backends = ( "@BACKEND@" )
proxy-core.allow-x-sendfile = "enable"
proxy-core.max-pool-size = {THREADS}
proxy-core.max-keep-alive-requests = 100000000
"""


def main():
    ap = rig.arguments(__doc__, ",".join(ANCESTOR))
    bed.arguments(ap)
    ap.add_argument("--repeat", type=int, default=3, help="runs of each row (%(default)s)")
    ap.add_argument("--fetches", type=int, default=2000, help="in a run (%(default)s)")
    ap.add_argument("--parallel", type=int, default=100, help="clients (%(default)s)")
    args = ap.parse_args()
    rows = args.servers.split(",")
    if set(rows) - set(ANCESTOR):
        raise rig.RigError(f"rows are {', '.join(ANCESTOR)}")
    rig.raise_descriptors()
    runs = {}
    with bed.up(args) as (diskbed, disk):
        makers = {name: maker(args, name, disk.data) for name in rows}
        for turn in range(args.repeat):
            for name, make in makers.items():
                r = bed.measured(diskbed, disk, make, args, turn, args.parallel, args.fetches)
                rig.say(diskbed.summary_line(name, r))
                runs.setdefault(name, []).append(bed.kept(r) | {"iowait": r["cpu_pct"]["iowait"]})
    results = {name: bed.medians(rs) for name, rs in runs.items()}
    show(results)
    rig.save(args, "stat_accel", {"speed": args.speed, "servers": results},
             servers.versions(args, ["lighty"]))


def maker(args, name, root):
    """A function that gives the command of a row, fcgi-stat-accel included, and its port."""
    server = BASE if name == "built-in" else BASE + "+inline"

    def make():
        socket = f"{args.out}/servers/stat-accel.sock"
        port = rig.free_port()
        listen = socket if name == "accel-unix" else f"127.0.0.1:{port}"
        backend = "unix:" + socket if name == "accel-unix" else listen
        is_helped = name.startswith("accel")
        rules = RULES.replace("@BACKEND@", backend) if is_helped else ""
        argv, server_port = servers.maker(args, server, servers.Tuning(rules={"lighty": rules}),
                                          root)()
        if not is_helped:
            return argv, server_port
        if os.path.exists(socket):
            os.unlink(socket)
        accel = [args.lighty, "stat-accel", "--listen", listen, "--threads", str(THREADS)]
        # Both are in the memory group, and end with it.
        return ["sh", "-c", f"{shlex.join(accel)} & exec {shlex.join(argv)}"], server_port
    return make


def show(results):
    base = results.get("inline", {}).get("fetches_s", 0)
    rig.say(f"\n{'row':12s} fetches/s     x inline  (1.5)   loop blocked  CPU  disk  fetch ms  errors")
    for name, r in results.items():
        rig.say(f"{name:12s} {r['fetches_s']:6.1f} [{r['lowest']:.0f}-{r['highest']:.0f}]"
                f"  x{rig.ratio(r['fetches_s'], base):5.3f}  {ANCESTOR[name]:5.3f}"
                f"   {r['blocked_pct']:5.1f} %  {r['cpu_pct']:4.1f} %  {r['disk_util_pct']:4.0f} %"
                f"  {r['fetch_ms']:.0f}  {r['errors']:g}")
    if any(r["backing_late"] > bed.LATE_READS_MAX for r in results.values()):
        rig.say("the host's own disk was late: this run is worth nothing")


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"stat_accel: {e}")
