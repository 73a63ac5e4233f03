#!/usr/bin/env python3
"""Figure 3, the neighbour: does a client that fetches hot files feel one that waits for the disk?

A client fetches a hot file on a schedule (client.py: RATE requests a second by one keep-alive
connection, latency from the moment a request was due), first from an idle server, then while 100
other clients fetch cold files from diskbed.  The 44-byte file and the 100 KB file by turns.  The
figure is the 99th percentile under load over that of the idle server.

`control` tells what of it is the machine's doing: there the hot client asks a floor that nobody
else uses, while the cold clients keep diskbed's own server busy.
"""
import contextlib
import json
import os
import subprocess
import sys

import bed
import client
import rig
import servers

SIZES = {"44 B": "/hot/small.html", "100 KB": "/hot/100k.bin"}
CONTROL = ["-r", "64", "-s", "64"]


def main():
    ap = rig.arguments(__doc__, "lighty,lighty:auto+pool,nginx,nginx:aio,lighttpd,control")
    bed.arguments(ap)
    ap.add_argument("--rate", type=float, default=250, help="hot requests a second (%(default)s)")
    ap.add_argument("--secs", type=float, default=20, help="of each measurement (%(default)s)")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--parallel", type=int, default=100, help="cold clients (%(default)s)")
    args = ap.parse_args()
    names = args.servers.split(",")
    args.servers = ",".join(n for n in names if n != "control")
    rows = {}
    with bed.up(args) as (diskbed, disk):
        write_hot_files(disk.www)
        urls = cold_urls(disk)
        makers = dict(servers.chosen(args, servers.Tuning(idle_s=300, cache_files=True),
                                     root=disk.www))
        for _ in range(args.rounds):
            for name, make in makers.items():
                for size in SIZES:
                    try:
                        with started(args, diskbed, name, make, disk) as port:
                            one_round(args, diskbed, disk, urls, port, port, size, rows, name)
                    except rig.RigError as e:
                        rig.say(f"{name} is left out: {e}")
            if "control" in names and servers.binary(args, "floor"):
                control_round(args, diskbed, disk, urls, rows)
    show(rows)
    rig.save(args, "neighbour", {"speed": args.speed, "rate": args.rate, "servers": rows},
             servers.versions(args, makers))


def write_hot_files(www):
    """Beside the mount, and so in the host's cache: what is measured is waiting, not eviction."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(www + "/hot")
    rig.write_once(www + "/hot/small.html", rig.SMALL)
    rig.write_once(www + "/hot/100k.bin", rig.pattern("100k.bin", 100 * 1024))


def cold_urls(disk):
    """diskbed's list of URLs, seen from one directory higher."""
    with open(disk.urls) as f:
        lines = ["/data" + line for line in f]
    path = disk.state + "/urls.neighbour"
    with open(path, "w") as f:
        f.writelines(lines)
    return path


@contextlib.contextmanager
def started(args, diskbed, name, make, disk):
    """The server in a memory group of its own, the disk cold; gives its port."""
    disk.cold()
    with diskbed.MemoryGroup(args.memory) as group:
        argv, port = make()
        with rig.serving(name, argv, port, disk.state + "/server.out", core=None,
                         enter=group.enter):
            yield port


def one_round(args, diskbed, disk, urls, hot_port, cold_port, size, rows, name):
    """Idle, then loaded; the server was started for this, so that the metadata are cold."""
    row = rows.setdefault(name, {}).setdefault(size, {"idle": [], "loaded": [], "cold": []})
    path = SIZES[size]
    hot(hot_port, path, args.rate, 1)
    idle = hot(hot_port, path, args.rate, args.secs)
    with cold_load(args, diskbed, disk, urls, cold_port) as cold:
        loaded = hot(hot_port, path, args.rate, args.secs)
    row["idle"].append(idle)
    row["loaded"].append(loaded)
    row["cold"].append(cold["fetches_per_sec"])
    rig.say(f"{name:20s} {size:7s} p99 idle {idle['p99_ms']:.3f} ms, loaded"
            f" {loaded['p99_ms']:.3f} ms, failed {loaded['failed']},"
            f" cold {cold['fetches_per_sec']:.0f}/s")


def control_round(args, diskbed, disk, urls, rows):
    def refserve():
        port = rig.free_port()
        return [diskbed.SRC + "/refserve", *CONTROL, str(port), disk.www], port

    with started(args, diskbed, "refserve", refserve, disk) as cold_port:
        make = servers.maker(args, "floor", servers.Tuning())
        make()      # its directory
        with servers.serving(args, "floor", make, core=None) as floor:
            one_round(args, diskbed, disk, urls, floor.port, cold_port, "44 B", rows, "control")


def hot(port, path, rate, secs, core=None):
    argv = [sys.executable, client.__file__, str(port), path, str(rate), str(secs)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True,
                          preexec_fn=lambda: rig.pin(core))
    return json.loads(done.stdout)


@contextlib.contextmanager
def cold_load(args, diskbed, disk, urls, port):
    """fetchload in the background for the length of the block; its results come at the end."""
    out, result = disk.state + "/fetchload.json", {}
    seconds = args.secs + 2
    load = subprocess.Popen([diskbed.SRC + "/fetchload", "-parallel", str(args.parallel),
                             "-seconds", str(seconds), "-json", out, f"127.0.0.1:{port}", urls],
                            stdout=subprocess.DEVNULL)
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            load.wait(1)        # the queue at the disk is to be full when the clock starts
        yield result
        load.wait(90)
    finally:
        load.terminate()
        load.wait()
    with open(out) as f:
        result.update(json.load(f))


def p99(row, size, state):
    return rig.median([r["p99_ms"] for r in row[size][state]])


def show(rows):
    rig.say("\n99th percentile in ms, medians of the rounds")
    for name, row in rows.items():
        for size in row:
            idle, loaded = p99(row, size, "idle"), p99(row, size, "loaded")
            rig.say(f"  {name:20s} {size:7s} idle {idle:8.3f}  loaded {loaded:9.3f}"
                    f"  x{rig.ratio(loaded, idle):8.2f}")


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"neighbour: {e}")
