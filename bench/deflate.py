#!/usr/bin/env python3
"""Figures of the filters: what compressing costs, and what it does to the neighbours.

1. Bytes of plain text that the server encodes per second of its CPU time: a page of 100 KB and a
   log of 10 MB, gzip at level 6 and br at quality 5, the server on one core.
2. The 99th percentile of a client that fetches 44 bytes, alone and while ten clients fetch the
   log compressed; one worker.
4. CPU per request of answers that no filter touches, without the module and with it.

Rounds are interleaved. Quote ratios of medians.
"""
import random
import subprocess
import threading

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
    args = ap.parse_args()
    write_documents(args.out)
    results = {"speed": {}, "neighbour": {}, "idle": {}}
    seen, asked = {}, args.servers.split(",")
    for coding in CODINGS:
        names = [n for n in PEERS[coding].split(",") if n in asked]
        results["speed"][coding] = measure_speed(args, coding, names, seen)
        results["neighbour"][coding] = measure_neighbour(args, coding)
    results["idle"] = measure_untouched(args)
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
                    row["mb_per_cpu_s"].append(rig.ratio(r["requests"] * size / 1e6, r["cpu_s"]))
                    row["encoded"] = encoded_bytes(url, coding)
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


def measure_neighbour(args, coding):
    args.servers = "lighty"
    running = servers.start_all(args, servers.chosen(args, servers.Tuning(deflate=coding)))
    server = running["lighty"]
    base = f"http://127.0.0.1:{server.port}"
    rows = {"idle_ms": [], "loaded_ms": []}
    try:
        rig.wrk(base + "/index.html", 1, 1)
        for _ in range(args.rounds):
            rows["idle_ms"].append(rig.wrk(base + "/index.html", 1, args.secs)["p99_ms"])
            load = threading.Thread(target=rig.wrk, args=(
                base + "/log.html", 10, args.secs + 2, header(args, coding)))
            load.start()
            rows["loaded_ms"].append(rig.wrk(base + "/index.html", 1, args.secs)["p99_ms"])
            load.join()
    finally:
        server.stop()
    rig.say("neighbour", coding, rows)
    return rows


def measure_untouched(args):
    """44 B and 100 KB that are not of a type to be compressed."""
    rows = {}
    args.servers = "lighty,lighty:deflate"
    running = servers.start_all(args, servers.chosen(args))
    try:
        for label, path in (("44 B", "/index.html"), ("100 KB", "/100k.bin")):
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


if __name__ == "__main__":
    main()
