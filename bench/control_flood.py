#!/usr/bin/env python3
"""Misuse of the control socket, 10 s of each, and a client of the server meanwhile.

    flood       eight threads ask for the status as fast as it is answered
    garbage     connections that send random bytes, or the beginning of a request
    slow        200 callers that ask for every metric and read nothing
    uid         user nobody connects: refused by the mode of the socket
    reload      eight threads ask for reloads at once

Required: the client's 99th percentile at most 1.2 times the quiet one and 1 ms, no request fails, and
afterwards the socket answers within a second, and descriptors, threads and memory are as before.
"""
import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time

import client
import operated
import rig
import servers
import steady

SECONDS = 10
THREADS = 8
NOBODY = 65534
FACTOR_MAX, ADDED_MS_MAX = 1.2, 1
SETTLE_S = 3


def main():
    ap = operated.arguments(__doc__, "lighty,lighty:sandbox")
    ap.add_argument("--secs", type=int, default=SECONDS, help="of each misuse (%(default)s)")
    args = ap.parse_args()
    names = [name for name in operated.installed(args) if name.startswith("lighty")]
    results = {}
    with operated.backends(args) as ports:
        for name in names:
            server = operated.Operated(args, name, ports)
            results[name] = rows = {}
            server.start()
            try:
                for kind, misuse in MISUSES.items():
                    rows[kind] = measured(args, server, misuse)
                    rig.say(f"{name:15s} {kind:8s} {told(rows[kind])}")
            finally:
                server.stop()
    rig.save(args, "control_flood", results, servers.versions(args, names))


def measured(args, server, misuse):
    before = server.usage()
    quiet = innocent(args, server)
    over, did = threading.Event(), {}
    callers = [threading.Thread(target=misuse, args=(server, over, did)) for _ in range(THREADS)]
    for one in callers:
        one.start()
    busy = innocent(args, server)
    over.set()
    for one in callers:
        one.join()
    began = time.monotonic()
    status, _ = operated.ask(server.pid_file + ".ctl", "GET", "/status")
    answered_s = time.monotonic() - began
    time.sleep(SETTLE_S)
    return {"quiet": quiet, "busy": busy, "did": did, "status": status, "answered_s": answered_s,
            "before": before, "after": server.usage(),
            "ok": busy["failed"] == 0 and status == 200 and answered_s <= 1
            and busy["p99_ms"] <= max(quiet["p99_ms"] * FACTOR_MAX, quiet["p99_ms"] + ADDED_MS_MAX)}


def innocent(args, server):
    argv = [sys.executable, client.__file__, str(server.port), steady.STATIC, "200", str(args.secs)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def note(did, what):
    did[what] = did.get(what, 0) + 1


def flood(server, over, did):
    while not over.is_set():
        try:
            note(did, str(operated.ask(server.pid_file + ".ctl", "GET", "/status", 5)[0]))
        except (OSError, IndexError) as e:
            note(did, type(e).__name__)


def reloads(server, over, did):
    while not over.is_set():
        try:
            note(did, str(operated.ask(server.pid_file + ".ctl", "POST", "/reload", 30)[0]))
        except (OSError, IndexError) as e:
            note(did, type(e).__name__)


def garbage(server, over, did):
    while not over.is_set():
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as s:
            s.settimeout(0.2)
            s.connect(server.pid_file + ".ctl")
            sent = random.randbytes(random.randrange(1, 100_000))
            if random.random() < 0.3:
                sent = b"GET /status HTTP/1.1\r\nHost: " + sent[:50]
            s.sendall(sent)
            note(did, "sent")
            s.recv(1000)


def slow(server, over, did):
    held = []
    while not over.is_set():
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(0.2)
        try:
            s.connect(server.pid_file + ".ctl")
            s.sendall(b"GET /connections HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50)
            note(did, "held")
            held.append(s)
        except OSError as e:
            note(did, type(e).__name__)
            s.close()
        if len(held) >= 200 // THREADS:
            held.pop(0).close()
        time.sleep(0.01)
    for s in held:
        s.close()


def uid(server, over, did):
    program = ("import socket, sys, time\n"
               "s = socket.socket(socket.AF_UNIX)\n"
               "try:\n    s.connect(sys.argv[1])\n    print('CONNECTED')\n"
               "except PermissionError:\n    print('refused')\n")
    while not over.is_set():
        done = subprocess.run([sys.executable, "-c", program, server.pid_file + ".ctl"],
                              user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True,
                              text=True, cwd="/")
        note(did, done.stdout.strip() or done.stderr.strip()[-60:])


MISUSES = {"flood": flood, "garbage": garbage, "slow": slow, "uid": uid, "reload": reloads}


def told(r):
    changed = [f"{field} {r['before'][field]} to {r['after'][field]}"
               for field in ("processes", "threads", "fds", "sockets")
               if r["before"][field] != r["after"][field]]
    return (f"{'' if r['ok'] else 'FAILS: '}p99 {r['quiet']['p99_ms']:.2f} to {r['busy']['p99_ms']:.2f}"
            f" ms (longest {r['busy']['max_ms']:.1f}), failed {r['busy']['failed']}; {r['did']}; then"
            f" {r['status']} in {r['answered_s'] * 1e3:.0f} ms; left behind:"
            f" {', '.join(changed) or 'nothing'}; private {r['before']['anon_kib']} to"
            f" {r['after']['anon_kib']} KiB")


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"control_flood: {e}")
