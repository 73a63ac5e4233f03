#!/usr/bin/env python3
"""Load generators beside each other: `lighty load`, wrk, and oha (`cargo install oha --locked`; it is
skipped if it is not in PATH) ask one server for one small file.

Each is a closed loop of 64 connections on one core, the server has the other; rounds are interleaved.
Requests per second are those of whichever of the two cores is full, so the CPU that the client itself
spends on a request tells more.  Percentiles are as each prints them: of the same server they should
agree, since all count from when a request is sent to when its response has ended.
"""
import json
import os
import re
import shutil
import subprocess
import sys

import rig
import servers
import table

SHARES = ("50", "90", "99", "999")


def main():
    ap = rig.arguments(__doc__, "lighty")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--secs", type=int, default=3, help="length of a round")
    ap.add_argument("--conns", type=int, default=64)
    args = ap.parse_args()
    clients = present(args)
    results = {}
    running = servers.start_all(args, servers.chosen(args, servers.Tuning(idle_s=300)))
    try:
        for name, server in running.items():
            url = f"http://127.0.0.1:{server.port}/index.html"
            results[name] = measured(args, clients, url)
            show(name, results[name])
    finally:
        for server in running.values():
            server.stop()
    rig.save(args, "generators", results, servers.versions(args, running))


def present(args):
    """{name: (command before the URL, what reads its output)} of those that are installed."""
    conns, secs = str(args.conns), str(args.secs)
    known = {
        "lighty load": ([args.lighty, "load", "--json", "-c", conns, "-d", secs], parse_load),
        "wrk": (["wrk", "-t1", "-c" + conns, f"-d{secs}s", "--latency"], parse_wrk),
        "oha": (["oha", "--no-tui", "--output-format", "json", "--worker-threads", "1",
                 "-c", conns, "-z", secs + "s"], parse_oha),
    }
    found = {name: one for name, one in known.items() if shutil.which(one[0][0])}
    for name in known.keys() - found.keys():
        rig.say(f"skipped: {name} is not installed")
    return found


def measured(args, clients, url):
    """{client: [figures of a round]}; the first round warms."""
    rows = {name: [] for name in clients}
    for turn in range(args.rounds + 1):
        for name, (argv, parse) in clients.items():
            text, cpu_s = run(argv + [url])
            r = parse(text)
            r["us_per_request"] = rig.ratio(cpu_s * 1e6, r["requests"])
            if turn:
                rows[name].append(r)
    return rows


def run(argv):
    """What it prints, and the CPU seconds it took."""
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             preexec_fn=lambda: rig.pin(rig.CLIENT_CORE))
    text = child.stdout.read()
    _, _, usage = os.wait4(child.pid, 0)
    child.returncode = 0    # it is waited for
    return text, usage.ru_utime + usage.ru_stime


def parse_load(text):
    try:
        return table.figures(json.loads(text))
    except ValueError as e:
        raise rig.RigError("lighty load said: " + text.strip()[-300:]) from e


def parse_wrk(text):
    r = rig.parse_wrk(text)
    unit_ms = {"us": 1e-3, "ms": 1, "s": 1e3, "m": 6e4}
    for share, value, unit in re.findall(r"(50|90|99)%\s+([\d.]+)(us|ms|s|m)\b", text):
        r[f"p{share}_ms"] = float(value) * unit_ms[unit]
    return r


def parse_oha(text):
    try:
        said = json.loads(text)
    except ValueError as e:
        raise rig.RigError("oha said: " + text.strip()[-300:]) from e
    statuses = {int(code): n for code, n in said["statusCodeDistribution"].items()}
    shares = zip(SHARES, ("p50", "p90", "p99", "p99.9"))
    # Requests that its deadline aborts are no errors of the server.
    errors = {words: n for words, n in said.get("errorDistribution", {}).items()
              if words != "aborted due to deadline"}
    return {"requests": sum(statuses.values()), "rps": said["summary"]["requestsPerSec"],
            "bad": sum(n for code, n in statuses.items() if code >= 400) + sum(errors.values()),
            **{f"p{share}_ms": (said["latencyPercentiles"][key] or 0) * 1e3
               for share, key in shares}}


def show(server, rows):
    rig.say(f"\n{server}, 44 B: requests a second, the client's CPU, percentiles; medians")
    for name, rounds in rows.items():
        us = [r["us_per_request"] for r in rounds]
        shares = "  ".join(f"p{share} {rig.median([r[f'p{share}_ms'] for r in rounds]):.3f}"
                           for share in SHARES if all(f"p{share}_ms" in r for r in rounds))
        rig.say(f"  {name:12s} {rig.median([r['rps'] for r in rounds]):8.0f}/s"
                f"  {rig.median(us):6.2f} [{min(us):.2f}-{max(us):.2f}] us  {shares} ms"
                f"  bad {sum(r['bad'] for r in rounds)}")


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"generators: {e}")
