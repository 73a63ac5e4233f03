#!/usr/bin/env python3
"""Figures of the filters: what compressing costs, and what it does to the neighbours.

1. Bytes of plain text that the server encodes per second of its CPU time, and how short they
   become: a page of 100 KB and a log of 10 MB, gzip at level 6 and br at quality 5, the server on
   one core.
2. The 99th percentile of a client that fetches 44 bytes on a schedule (client.py), alone and while
   ten clients fetch the log compressed; one worker.
4. Answers that no filter touches, without the modules and with them: CPU per request, and
   instructions per request as callgrind counts them.

Rounds are interleaved. Quote ratios of medians.
"""
import random
import subprocess
import sys
import threading

import callgrind
import neighbour
import rig
import servers

LOG_BYTES = 10 << 20
PAGE_BYTES = 100 << 10
CODINGS = ("gzip", "br")
PEERS = {"gzip": "lighty,nginx,h2o", "br": "lighty,h2o"}


def main():
    ap = rig.arguments(__doc__, "lighty,nginx,h2o")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--secs", type=int, default=3, help="length of a round")
    ap.add_argument("--rate", type=float, default=250,
                    help="requests a second of the neighbour (%(default)s)")
    args = ap.parse_args()
    write_documents(args.out)
    results = {"speed": {}, "neighbour": {}, "idle": {}, "instructions": {}}
    seen, asked = {}, args.servers.split(",")
    for coding in CODINGS:
        names = [n for n in PEERS[coding].split(",") if n in asked]
        results["speed"][coding] = measure_speed(args, coding, names, seen)
        results["neighbour"][coding] = measure_neighbour(args, coding, names)
    results["idle"] = measure_untouched(args)
    results["instructions"] = count_instructions(args)
    rig.save(args, "deflate", results, servers.versions(args, seen))


def write_documents(out):
    """A page and a log with the redundancy of real ones; the same on every machine."""
    root = rig.document_root(out)
    chance = random.Random(1)
    words = ["".join(chance.choices("etaoinshrdlucmfw", k=chance.randint(2, 9)))
             for _ in range(3000)]
    lines = []
    size = 0
    while size < PAGE_BYTES:
        text = " ".join(chance.choices(words, k=12))
        lines.append(f'<li class="item"><a href="/{chance.choice(words)}/{size}">{text}</a></li>\n')
        size += len(lines[-1])
    rig.write_once(f"{root}/page.html", "".join(lines)[:PAGE_BYTES].encode())
    lines, size = [], 0
    while size < LOG_BYTES:
        lines.append(f"10.{chance.randrange(256)}.{chance.randrange(9)}.7 - - [21/Nov/2026:"
                     f"{chance.randrange(24):02}:{chance.randrange(60):02}:00 +0000] \"GET "
                     f"/{chance.choice(words)}/{chance.choice(words)}.html HTTP/1.1\" 200 "
                     f"{chance.randrange(99999)} \"-\" \"Mozilla/5.0 (X11; Linux x86_64)\"\n")
        size += len(lines[-1])
    rig.write_once(f"{root}/log.html", "".join(lines)[:LOG_BYTES].encode())


def header(args, coding):
    """A script by which wrk says what it accepts."""
    path = f"{args.out}/accept-{coding}.lua"
    with open(path, "w") as f:
        f.write(f'wrk.headers["Accept-Encoding"] = "{coding}"\n')
    return path


def measure_speed(args, coding, names, seen):
    args.servers = ",".join(names)
    running = servers.start_all(args, servers.chosen(args, servers.Tuning(deflate=coding)))
    seen.update(running)
    rows = {name: {} for name in running}
    try:
        for label, path, size in (("100 KB", "/page.html", PAGE_BYTES),
                                  ("10 MB", "/log.html", LOG_BYTES)):
            for name in running:
                rows[name][label] = {"mb_per_cpu_s": [], "encoded": 0}
            for _ in range(args.rounds):
                for name, server in running.items():
                    url = f"http://127.0.0.1:{server.port}{path}"
                    r = rig.loaded_round(server, url, 4, args.secs, header(args, coding))
                    row = rows[name][label]
                    row["encoded"] = encoded_bytes(url, coding)
                    # By bytes: bodies of which a part came out count by that part.
                    plain_mb = rig.ratio(r["bytes"], row["encoded"]) * size / 1e6
                    row["mb_per_cpu_s"].append(rig.ratio(plain_mb, r["cpu_s"]))
            for name in running:
                rig.say(coding, label, name, rows[name][label])
    finally:
        for server in running.values():
            server.stop()
    return rows


def encoded_bytes(url, coding):
    done = subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{size_download}",
                           "-H", f"Accept-Encoding: {coding}", url],
                          capture_output=True, text=True)
    return int(done.stdout or 0)


def measure_neighbour(args, coding, names):
    args.servers = ",".join(names)
    running = servers.start_all(args, servers.chosen(args, servers.Tuning(deflate=coding)))
    rows = {name: {"idle_ms": [], "loaded_ms": [], "mb_s": []} for name in running}
    try:
        for _ in range(args.rounds):
            for name, server in running.items():
                one_round(args, server, coding, rows[name])
    finally:
        for server in running.values():
            server.stop()
    for name, row in rows.items():
        rig.say("neighbour", coding, name, row)
    return rows


def one_round(args, server, coding, row):
    """Idle, then beside ten clients who want the log."""
    secs = 4 * args.secs

    def p99_ms(seconds):
        hot = neighbour.hot(server.port, "/index.html", args.rate, seconds, rig.CLIENT_CORE)
        return hot["p99_ms"]

    p99_ms(1)
    row["idle_ms"].append(p99_ms(secs))
    url, done = f"http://127.0.0.1:{server.port}/log.html", {}
    load = threading.Thread(
        target=lambda: done.update(rig.wrk(url, 10, secs + 1, header(args, coding))))
    load.start()
    row["loaded_ms"].append(p99_ms(secs))
    load.join()
    row["mb_s"].append(done["requests"] * LOG_BYTES / 1e6 / (secs + 1))


# ---------------------------------------------------------------- nothing to do

UNTOUCHED = {"44 B": "/index.html", "100 KB": "/100k.bin"}


def measure_untouched(args):
    """44 B and 100 KB that are not of a type to be compressed."""
    rows = {}
    args.servers = "lighty,lighty:deflate"
    running = servers.start_all(args, servers.chosen(args))
    try:
        for label, path in UNTOUCHED.items():
            rows[label] = {name: [] for name in running}
            for _ in range(args.rounds + 2):
                for name, server in running.items():
                    url = f"http://127.0.0.1:{server.port}{path}"
                    r = rig.loaded_round(server, url, 64, args.secs)
                    rows[label][name].append(r["us_per_request"])
    finally:
        for server in running.values():
            server.stop()
    rig.say("untouched", rows)
    return rows


def count_instructions(args, requests=1000):
    """{document: {server: instructions per request}}; nothing where valgrind is not installed."""
    if not servers.binary(args, "valgrind"):
        rig.say("skipped: instructions; valgrind is not installed")
        return {}
    args.servers = "lighty:pool,lighty:pool+deflate"
    rows = {label: {} for label in UNTOUCHED}
    for name, make in servers.chosen(args):
        for label, path in UNTOUCHED.items():
            counter = callgrind.Counter(f"{args.out}/servers/callgrind")
            argv, port = make()
            with rig.serving(name, counter.tool + argv, port, servers.log_of(args, name)) as server:
                rows[label][name] = counter.per_request(server, path, requests)
    rig.say("instructions", rows)
    return rows


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"deflate: {e}")
