#!/usr/bin/env python3
"""Metrics: what recording them costs, and what it costs to ask for them.

Four things, each by a server of one worker:

cost      CPU per request of a small file with mod_status and without, in interleaved rounds.
share     What recording is of the CPU by perf's samples, of a small file and of a small response that
          is proxied (required: <= 2 %): the clock cannot tell so little.
scrape    1,000 backends in 10 upstreams: how long a scrape takes in each format (required: <= 20 ms),
          and the latencies of a client that asks for a small file 500 times a second beside a scrape
          every 100 ms and without (required: p99 at most 1 ms more).
series    Series after 100,000 requests under as many host names and methods, and after as many under 100
          names (required: no more).
"""
import functools
import json
import re
import subprocess
import sys
import threading
import time

import client
import proxy
import rig
import sampled
import servers

BACKENDS, UPSTREAMS = 1000, 10
FORMATS = {"text": "text/plain", "OpenMetrics": "application/openmetrics-text",
           "protocol buffers": "application/vnd.google.protobuf"}
# The stamps of a request and what becomes of them; reading the clock; who asks for what, for the page.
RECORDING = {
    "stamps and series": r"exchange/(stage|span)|machine/(metrics|histogram)|modules/src/status|"
                         r"done_hooks",
    "clock": r"src/clock\.rs|clock_gettime",
    "connections": r"conn_table",
}
STATUS = 'status.metrics-url = "/metrics"\n'


def main():
    ap = rig.arguments(__doc__, "lighty")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--secs", type=int, default=2, help="length of a round")
    ap.add_argument("--scrapes", type=int, default=50, metavar="N", help="(%(default)s)")
    ap.add_argument("--hosts", type=int, default=100000, metavar="N", help="(%(default)s)")
    args = ap.parse_args()
    results = {"cost": cost(args), "share": share(args), "scrape": scrape(args),
               "series": series(args)}
    wanted = servers.chosen(args)
    rig.save(args, "metrics", results, servers.versions(args, dict(wanted)))


def server(args, lines):
    """How a server with these lines is started."""
    tuning = servers.Tuning(rules={"lighty": lines})
    (_, make), = servers.chosen(args, tuning)
    return make


def cost(args):
    """{"on" or "off": CPU us per request, by round}"""
    found = {"off": [], "on": []}
    make = {"off": server(args, ""), "on": server(args, STATUS)}
    # One after the other is written and started: both have the same name.
    with servers.serving(args, "lighty", make["off"]) as off, \
            servers.serving(args, "lighty", make["on"]) as on:
        for at in range(args.rounds + 1):
            for name, running in (("off", off), ("on", on)):
                url = f"http://127.0.0.1:{running.port}/index.html"
                done = rig.loaded_round(running, url, 64, args.secs,
                                        client=functools.partial(rig.asker, args.asker))
                # The first round warms.
                if at > 0:
                    found[name].append(done["us_per_request"])
    for name, rounds in found.items():
        rig.say(f"metrics {name:3s} {rig.median(rounds):6.2f} us per request")
    return found


def share(args):
    """{what is asked: {subject: per cent of the CPU}}; nothing where perf is not installed."""
    missing = sampled.missing(args)
    if missing:
        rig.say(f"skipped: the share of recording; {' and '.join(missing)} not installed")
        return {}
    found = {}
    with proxy.backend(args) as behind:
        proxied = (f'proxy-core.protocol = "http"\n'
                   f'proxy-core.backends = ( "127.0.0.1:{behind.port}" )\n')
        for name, lines in {"44 B": STATUS, "44 B, proxied": STATUS + proxied}.items():
            with servers.serving(args, "lighty", server(args, lines)) as running:
                url = f"http://127.0.0.1:{running.port}/index.html"
                rig.wrk(url, 64, 1)
                ask = functools.partial(rig.wrk, url, 64, args.secs * args.rounds + 2)
                found[name] = sampled.shares(args, running, RECORDING, args.secs * args.rounds, ask)
                rig.say(f"recording, {name}: {json.dumps(found[name])}")
    return found


def upstreams():
    """Backends that nobody asks, so that they are up."""
    lines = [STATUS, 'proxy-core.protocol = "http"\n']
    share = BACKENDS // UPSTREAMS
    for upstream in range(UPSTREAMS):
        hosts = ", ".join(f'"127.1.{upstream}.{n + 1}:9"' for n in range(share))
        lines.append(f'$HTTP["url"] =^ "/u{upstream}/" {{ proxy-core.backends = ( {hosts} ) }}\n')
    return "".join(lines)


def scrape(args):
    with servers.serving(args, "lighty", server(args, upstreams())) as running:
        client.keep_alive_requests(running.port, "/index.html", 1000)
        found = {}
        for name, accept in FORMATS.items():
            times, size = [], 0
            for _ in range(args.scrapes):
                took_ms, size = one_scrape(running.port, accept)
                times.append(took_ms)
            found[name] = {"median_ms": rig.median(times), "max_ms": max(times), "bytes": size}
            rig.say(f"scrape of {BACKENDS} backends, {name}: {found[name]['median_ms']:.1f} ms, at "
                    f"most {found[name]['max_ms']:.1f} ms, {size} bytes")
        found["alone"] = neighbour(running.port, args.secs * args.rounds)
        over = threading.Event()
        asker = threading.Thread(target=scrape_until, args=(running.port, over))
        asker.start()
        try:
            found["beside"] = neighbour(running.port, args.secs * args.rounds)
        finally:
            over.set()
            asker.join()
    for name in ("alone", "beside"):
        rig.say(f"a neighbour {name}: {json.dumps(found[name])}")
    return found


def one_scrape(port, accept):
    begun = time.monotonic()
    with client.connect(port) as s:
        s.sendall(client.head("/metrics", f"Accept: {accept}\r\nConnection: close\r\n"))
        answer = client.read_answer(s)
    if not answer.whole:
        raise rig.RigError(f"/metrics: status {answer.status}, {len(answer.body)} bytes")
    return (time.monotonic() - begun) * 1e3, len(answer.body)


def scrape_until(port, over):
    while not over.wait(0.1):
        one_scrape(port, FORMATS["text"])


def neighbour(port, seconds):
    argv = [sys.executable, client.__file__, str(port), "/index.html", "500", str(seconds)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def series(args):
    with servers.serving(args, "lighty", server(args, STATUS)) as running:
        strangers(running.port, args.hosts, 100)
        before = count(running.port)
        strangers(running.port, args.hosts, args.hosts)
        after = count(running.port)
    rig.say(f"series after 100 hosts: {before}, after {args.hosts}: {after}")
    return {"before": before, "after": after, "hosts": args.hosts}


def strangers(port, requests, names):
    """Asks under so many names in turn.  What has an unknown method ends its connection, so only each
    hundredth request has one."""
    with client.connect(port) as s:
        for n in range(requests):
            name = n % names
            s.sendall(f"GET /index.html?{n} HTTP/1.1\r\nHost: h{name}.test\r\n\r\n".encode())
            client.read_message(s)
            if n % 100 == 0:
                with client.connect(port) as other:
                    other.sendall(f"M{name} / HTTP/1.1\r\nHost: h{name}.test\r\n\r\n".encode())
                    client.read_answer(other)


def count(port):
    """Every series, but a histogram's buckets are one (they are written up to the highest that holds
    something) and those of stages none (a stage has some once it took a microsecond).  The first
    scrape is a request of its own, which the second one shows."""
    for _ in range(2):
        with client.connect(port) as s:
            s.sendall(client.head("/metrics", "Connection: close\r\n"))
            text = client.read_answer(s).body.decode()
    samples = (line for line in text.splitlines()
               if not line.startswith(("#", "lighty_stage_seconds")))
    return len({re.sub(r',?le="[^"]*"|[^ ]*$', "", line) for line in samples})


if __name__ == "__main__":
    main()
