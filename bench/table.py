#!/usr/bin/env python3
"""Beside the peers: files of four sizes, warm, with one worker and two.

The client is `lighty load` on a core of its own, a closed loop of 64 connections; with two workers the
server has both cores and shares one with the client, so compare its CPU and not its rate.  Latencies
are those of a closed loop: they tell of queues, not of users.
"""
import functools
import json
import subprocess
import sys

import rig
import servers

SIZES = {"44 B": "/index.html", "10 KB": "/10k.bin", "100 KB": "/100k.bin", "10 MB": "/10m.bin"}
WORKERS = (1, 2)


def main():
    ap = rig.arguments(__doc__, "lighty,lighty:linux-sendfile,nginx,lighttpd,h2o,caddy")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--secs", type=int, default=2, help="length of a round")
    ap.add_argument("--conns", type=int, default=64)
    args = ap.parse_args()
    root = rig.document_root(args.out)
    rig.write_once(f"{root}/10k.bin", rig.pattern("10k.bin", 10 * 1024))
    rig.write_once(f"{root}/10m.bin", rig.pattern("10m.bin", 10 << 20))
    results = {str(workers): measured(args, workers) for workers in WORKERS}
    rig.save(args, "table", results, servers.versions(args, args.servers.split(",")))


def measured(args, workers):
    """{size: {server: [figures of a round]}}"""
    tuning = servers.Tuning(idle_s=300, cache_files=True, workers=workers)
    # With two workers every core may run the server.
    core = rig.SERVER_CORE if workers == 1 else None
    running = servers.start_all(args, servers.chosen(args, tuning), core)
    client = functools.partial(load, args.lighty)
    results = {}
    try:
        for size, path in SIZES.items():
            rows = results[size] = {name: [] for name in running}
            for turn in range(args.rounds + 1):
                for name, server in running.items():
                    url = f"http://127.0.0.1:{server.port}{path}"
                    r = rig.loaded_round(server, url, args.conns, args.secs, client=client)
                    r["memory_mb"] = rig.memory_kib(server.pid) / 1024
                    if turn:        # the first one warms
                        rows[name].append(r)
            show(f"{size}, {workers} worker{'s' * (workers > 1)}", rows)
    finally:
        for server in running.values():
            server.stop()
    return results


def load(program, url, conns, secs, more=()):
    """One run of `lighty load`, with further arguments."""
    argv = [program, "load", url, "-c", str(conns), "-d", str(secs), "--json", *more]
    done = subprocess.run(argv, capture_output=True, text=True,
                          preexec_fn=lambda: rig.pin(rig.CLIENT_CORE))
    if not done.stdout:
        raise rig.RigError("lighty load said: " + done.stderr.strip()[-300:])
    return figures(json.loads(done.stdout))


def figures(said):
    """Of what `lighty load --json` said."""
    return {"requests": said["responses"], "rps": said["responses_per_s"],
            "bad": sum(said["failures"].values()),
            **{f"p{share}_ms": (said["total_us"][key] or 0) / 1e3
               for share, key in (("50", "50"), ("90", "90"), ("99", "99"), ("999", "99_9"))}}


def show(label, rows):
    rig.say(f"\n{label}")
    for name, rounds in rows.items():
        us = [r["us_per_request"] for r in rounds]
        rig.say(f"  {name:24s} {rig.median(us):8.2f} [{min(us):.2f}-{max(us):.2f}] us"
                f"  {rig.median([r['rps'] for r in rounds]):8.0f}/s"
                f"  p99 {rig.median([r['p99_ms'] for r in rounds]):.2f} ms"
                f"  {rounds[-1]['memory_mb']:.0f} MB  bad {sum(r['bad'] for r in rounds)}")


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"table: {e}")
