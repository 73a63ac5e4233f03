#!/usr/bin/env python3
"""Large files on a disk that seeks: how much a read should bring in, and how many clients it bears.

Two of the ancestor's figures, on diskbed at four times its speed.

chunks     clients fetch random files of 10 MB, ten times as many as memory holds, with
           server.read-chunk from 64 to 2048 KB.  The ancestor fell from 58 to 21 MB/s below 384 KB.
           Required: the default is within 0.9 of the best, and 1.5 times the event loop that reads.
clients    one file of 200 MB, more than memory holds, fetched by 1, 2, 5 and 10 clients at a time.
           Required: with each number of clients at least what the event loop that reads has.

Megabytes a second are those of clients; every byte is checked.
"""
import sys

import bed
import rig
import servers

BASE = "lighty:linux-sendfile+inline"
CHUNKS = [f"lighty:chunk{kib}" for kib in (64, 128, 256, 512, 1024, 2048)]
DEFAULT_KIB = 512       # of server.read-chunk
CLIENTS = (1, 2, 5, 10)
OF_CLIENTS = [BASE, "lighty", "lighty:chunk1024", "nginx", "nginx:aio"]


def main():
    ap = rig.arguments(__doc__, ",".join([BASE, *CHUNKS, "nginx", "nginx:aio", "lighttpd"]))
    bed.arguments(ap)
    ap.set_defaults(speed=4, memory=100)
    ap.add_argument("--repeat", type=int, default=3, help="runs of each server (%(default)s)")
    ap.add_argument("--parallel", type=int, default=20, help="clients of 10 MB (%(default)s)")
    ap.add_argument("--fetches", type=int, default=100, help="of 10 MB in a run (%(default)s)")
    args = ap.parse_args()
    rig.raise_descriptors()
    results = {"speed": args.speed, "chunks": chunks(args), "clients": clients(args)}
    rig.save(args, "large", results, servers.versions(args, ["lighty", "nginx", "lighttpd"]))


def chunks(args):
    with bed.up(args, "diskbed-10mb", (10, 10, 10 << 20)) as (diskbed, disk):
        makers = servers.chosen(args, servers.Tuning(), root=disk.data)
        return rounds(diskbed, disk, makers, args, args.parallel, args.fetches)


def clients(args):
    args.servers = ",".join(OF_CLIENTS)
    with bed.up(args, "diskbed-200mb", (1, 1, 200 << 20)) as (diskbed, disk):
        makers = servers.chosen(args, servers.Tuning(), root=disk.data)
        return {n: rounds(diskbed, disk, makers, args, n, 2 * n) for n in CLIENTS}


def rounds(diskbed, disk, makers, args, parallel, fetches):
    """{server: its figures}, the medians of interleaved runs."""
    runs = {}
    for turn in range(args.repeat):
        for name, make in makers:
            r = bed.measured(diskbed, disk, make, args, turn, parallel, fetches)
            rig.say(diskbed.summary_line(f"{name} x{parallel}", r))
            runs.setdefault(name, []).append(bed.kept(r))
    return {name: bed.medians(rs) for name, rs in runs.items()}


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"large: {e}")
