#!/usr/bin/env python3
"""What 1,000 virtual hosts cost a request.

lighty serves one small file with no condition, with 1,000 `$HTTP["host"]` blocks of one directive
each, and with as many of eight; wrk asks for the first host and for the last.  CPU per request,
interleaved rounds, as in hot.py.  A condition is looked up, not tried, and what it sets is merged
once: neither the place of the host nor the number of directives may show.
"""
import os
import sys

import rig

HOSTS = 1000
DIRECTIVES = [
    'server.tag = "host-{i}"',
    "server.max-keep-alive-idle = {n}",
    "server.max-read-idle = {n}",
    "server.max-write-idle = {n}",
    'server.range-requests = "enable"',
    'etag.use-inode = "disable"',
    'server.follow-symlink = "disable"',
    'debug.log-file-not-found = "disable"',
]
CASES = {"no condition": 0, "1 directive each": 1, "8 directives each": len(DIRECTIVES)}


def main():
    ap = rig.arguments(__doc__, "lighty")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--secs", type=int, default=3, help="length of a round")
    ap.add_argument("--conns", type=int, default=64)
    args = ap.parse_args()
    os.makedirs(args.out, exist_ok=True)
    running = {label: start(args, label, count) for label, count in CASES.items()}
    rows = {}
    try:
        for _ in range(args.rounds):
            for label, server in running.items():
                for host in (0, HOSTS - 1):
                    url = f"http://127.0.0.1:{server.port}/index.html"
                    r = rig.loaded_round(server, url, args.conns, args.secs, asks_for(args, host))
                    row = rows.setdefault(f"{label}, host {host}", {"us": [], "bad": 0})
                    row["us"].append(r["us_per_request"])
                    row["bad"] += r["bad"]
    finally:
        for server in running.values():
            server.stop()
    show(rows)
    rig.save(args, "vhosts", rows, {})


def start(args, label, count):
    port = rig.free_port()
    name = f"{args.out}/vhosts-{count}"
    with open(name + ".conf", "w") as f:
        f.write(configuration(rig.document_root(args.out), port, count))
    return rig.start(label, [args.lighty, "-f", name + ".conf"], port, name + ".log")


def configuration(root, port, count):
    lines = [f'server.document-root = "{root}"', 'server.bind = "127.0.0.1"',
             f"server.port = {port}", "server.max-worker = 1",
             "server.max-keep-alive-requests = 1000000"]
    for i in range(HOSTS if count else 0):
        body = "\n".join("    " + d.format(i=i, n=10 + i % 90) for d in DIRECTIVES[:count])
        lines.append(f'$HTTP["host"] == "host-{i}.example" {{\n{body}\n}}')
    return "\n".join(lines) + "\n"


def asks_for(args, host):
    """A script for wrk that names the host."""
    path = f"{args.out}/vhosts-{host}.lua"
    with open(path, "w") as f:
        f.write(f'wrk.headers["Host"] = "host-{host}.example"\n')
    return path


def show(rows):
    rig.say(f"\n{HOSTS} hosts: CPU microseconds per request, median [range]")
    base = rig.median(next(iter(rows.values()))["us"])
    for label, row in rows.items():
        us = row["us"]
        rig.say(f"  {label:28s} {rig.median(us):6.2f} [{min(us):.2f}-{max(us):.2f}]"
                f"  x{rig.ratio(rig.median(us), base):5.2f}  bad {row['bad']}")


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"vhosts: {e}")
