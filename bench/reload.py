#!/usr/bin/env python3
"""Reload with many sites, one file each: its time, the longest stall of a worker, the latency of a
client on a kept connection meanwhile, and memory.

    wall       lighty: from the request on the control socket to its reply; nginx: from HUP until a
               new connection gets the new configuration                    <= 1 s
    stall      lighty: longest delay of a worker's clock tick during the reloads, and before
                                                                            <= 5 ms
    p99        of a client that asks 500 times a second, reloading / quiet  <= 1.2
    peak       memory at most / memory of the running server                <= 2.2

With --priority the servers and the client run under chrt -r, lighty's workers before its other
threads, so that other programs of the machine do not count as stalls.  `waited` is the time for which lighty's
workers waited for a processor during the reloads, all together.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time

import client
import operated
import rig
import servers
import steady


def main():
    ap = operated.arguments(__doc__, "lighty,nginx")
    ap.add_argument("--sites", type=int, default=10_000, metavar="N")
    ap.add_argument("--settle", type=float, default=62, metavar="SECONDS",
                    help="wait after the start, whose stalls count for a minute (%(default)s)")
    ap.add_argument("--reloads", type=int, default=5, metavar="N")
    args = ap.parse_args()
    names = operated.installed(args)
    results = {}
    with operated.backends(args) as ports:
        for name in names:
            results[name] = measured(args, name, ports)
            rig.say(f"{name:15s} " + ", ".join(f"{k} {v}" for k, v in results[name].items()))
    rig.save(args, "reload", results, servers.versions(args, names))


def measured(args, name, ports):
    server = operated.Operated(args, name, ports)
    server.more = sites(args, server)
    server.start()
    is_lighty = server.base == "lighty"
    try:
        time.sleep(args.settle if is_lighty else 2)
        steady_kib = server.usage()["pss_kib"]
        quiet = Innocent(server).ended(4)
        before = stall_ms(server)
        busy, peak = Innocent(server), Peak(server)
        waited, walls = waited_ms(server), []
        for _ in range(args.reloads):
            walls.append(server.reload())
            time.sleep(0.5)
        waited = waited_ms(server) - waited
        peak_kib, busy = peak.ended(), busy.ended(0)
        return {
            "sites": args.sites, "wall_s": round(rig.median(walls), 3),
            "wall_max_s": round(max(walls), 3),
            "stall_ms": stall_ms(server), "stall_before_ms": before, "waited_ms": waited,
            "quiet_p99_ms": round(quiet["p99_ms"], 3), "p99_ms": round(busy["p99_ms"], 3),
            "max_ms": round(busy["max_ms"], 3), "failed": busy["failed"],
            "steady_kib": steady_kib, "peak_kib": peak_kib,
            "peak_over_steady": round(peak_kib / steady_kib, 2),
        }
    finally:
        server.stop()


def sites(args, server):
    """Writes a file for each site; returns the line that includes them."""
    directory = pathlib.Path(server.directory) / "sites"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    for site in range(args.sites):
        (directory / f"{site}.conf").write_text(SITES[server.base].format(
            n=site, root=server.root, port=server.port))
    include = 'include "{}/*.conf"\n' if server.base == "lighty" else "include {}/*.conf;\n"
    return include.format(directory)


SITES = {
    "lighty": '$HTTP["host"] == "site{n}.example" {{\n  server.document-root = "{root}"\n'
              '  server.tag = "site {n}"\n'
              '  setenv.add-response-header = ( "X-Site" => "{n}" )\n}}\n',
    "nginx": 'server {{\n  listen 127.0.0.1:{port};\n  server_name site{n}.example;\n  root {root};\n'
             '  add_header X-Site "{n}";\n}}\n',
}


class Innocent:
    """A client of one of the sites; client.py charges latency from when a request was due."""

    def __init__(self, server):
        argv = [sys.executable, __file__, "--innocent", str(server.port)]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ended(self, seconds):
        time.sleep(seconds)
        return json.loads(self.process.communicate("end\n")[0])


def innocent(port):
    """The client's process: asks until its standard input has a line."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(operated.PRIORITY))
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), over.set()), daemon=True).start()
    latencies, failed = [], 0
    while not over.is_set():
        some, more = client.paced(port, steady.STATIC, 500, 0.5)
        latencies, failed = latencies + some, failed + more
    print(json.dumps(client.summary(latencies, failed)))


class Peak(threading.Thread):
    """The most memory of the whole server, sampled."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.kib, self.over = server, 0, threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(0.05):
            self.kib = max(self.kib, sum(rss_kib(pid) for pid in self.server.pids()))

    def ended(self):
        self.over.set()
        self.join()
        return self.kib


def rss_kib(pid):
    try:
        return operated.field_kib(f"/proc/{pid}/smaps_rollup", "Pss")
    except OSError:
        return 0


def waited_ms(server):
    if server.base != "lighty":
        return 0
    base = f"/proc/{server.running.pid}/task"
    return round(sum(int(pathlib.Path(f"{base}/{task}/schedstat").read_text().split()[1])
                     for task in server.workers()) / 1e6, 1)


def stall_ms(server):
    if server.base != "lighty":
        return 0
    _, text = operated.ask(server.pid_file + ".ctl", "GET", "/status")
    return round(max(worker["late_us"] for worker in json.loads(text)["workers"]) / 1e3, 2)


if __name__ == "__main__":
    try:
        if sys.argv[1:2] == ["--innocent"]:
            innocent(int(sys.argv[2]))
        else:
            main()
    except rig.RigError as e:
        sys.exit(f"reload: {e}")
