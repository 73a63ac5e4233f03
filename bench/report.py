#!/usr/bin/env python3
"""Turn the results of all scripts (RESULTS/*.json) into docs/experiments.md and its plots.

For each figure: what was required, what was measured, for each server, with which command, on
which machine.  A figure without results says so; with --keep it stays as it stands in the older
report, its own date and machine beside it.
"""
import argparse
import json
import math
import os
import re
import sys

import balance
import bed
import cold
import experiments
import failover
import hot
import hotset
import large
import magnet
import neighbour
import operations_report
import plot
import rig
import stat_accel
from tables import at_least, at_most, quotient, required, spread, table

HEAD = """\
# Experiments

Written by `bench/report.py` from what the scripts in `bench/` measured; the commands stand with
each figure and `bench/README.md` explains them. All servers of a table ran side by side in one
run. Absolute values belong to the machine: compare ratios.
"""
ASYNCHRONOUS = ["linux-aio-sendfile", "posix-aio", "gthread-aio", "gthread-sendfile"]


def main():
    ap = argparse.ArgumentParser(description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--results", default="/tmp/lighty-bench", metavar="DIR")
    ap.add_argument("--to", default=rig.REPO + "/docs", metavar="DIR",
                    help="experiments.md and plots/ are written there (%(default)s)")
    ap.add_argument("--keep", action="store_true",
                    help="figures that have no results stay as they are in the older report")
    args = ap.parse_args()
    os.makedirs(args.to + "/plots", exist_ok=True)
    older = sections(args.to + "/experiments.md") if args.keep else {}
    text = [HEAD] + ancestors()
    for title, name, write in FIGURES:
        text.append(f"## {title}\n")
        one = experiments.of(name)
        text.append(f"Claim: {one.shows} Disproved by: {one.disproved}.\n")
        document = load(args.results, name)
        if not document:
            text.append(without_promise(older.get(title, "Not measured yet.\n")))
            continue
        text += write(document["results"], args.to + "/plots")
        text.append(provenance(document))
    with open(args.to + "/experiments.md", "w") as f:
        f.write("\n".join(text))
    rig.say(f"written: {args.to}/experiments.md")


def sections(path):
    """{title: text} of an older report."""
    try:
        with open(path) as f:
            parts = re.split(r"^## (.*)\n\n", f.read(), flags=re.MULTILINE)
    except FileNotFoundError:
        return {}
    return {title: text.rstrip("\n") + "\n" for title, text in zip(parts[1::2], parts[2::2])}


def without_promise(text):
    """A figure's older text without the line that says what it shows."""
    first, _, rest = text.partition("\n\n")
    return rest if "Disproved by: " in first else text


def load(directory, name):
    try:
        with open(f"{directory}/{name}.json") as f:
            return json.load(f)
    except FileNotFoundError:
        return None


def provenance(d):
    m = d["machine"]
    said = "; ".join(v.strip() for v in d["versions"].values())
    return (f"`{d['command']}`, {d['date']}, Linux {m['kernel']} {m['arch']}, {m['cores']} cores"
            f" ({m['cpu']}), {m['memory_gib']} GiB. {said}\n")


# What lighttpd 1.5 published: its figure, what was measured, what it found, and how ours compares.
ANCESTORS = [
    ("F1", "100 KB files on a disk that seeks", "asynchronous over sendfile: 1.79 to 2.2"),
    ("F2", "10 MB files, by chunk size", "512 KB best: 1.93 of sendfile; 0.7 below 384 KB"),
    ("F3", "one 700 MB file, 1 to 10 clients", "1.7 to 2.05 of sendfile with one client"),
    ("F4", "moving buffers against copying them", "1.78"),
    ("F5", "shortest queue first over taking turns", "1.51"),
    ("F6", "opening by helper or by threads, over the loop", "1.13, 1.148, 1.186"),
    ("F7", "mod_magnet over PHP", "5.04"),
    ("F8", "system calls of a FastCGI request", "7 cold, 5 warm"),
    ("F9", "asynchronous reads of all reads", "0.70"),
    ("F11", "warm files by network backend", "direct I/O: 0.45 of sendfile"),
    ("F12", "a page cache of its own or the kernel's", "an open question then"),
]
NOT_REPEATED = {"F4": "there is no copying path left to compare with: figure 3c has what each backend costs"}


def ancestors():
    """lighttpd 1.5's figures, and where each is repeated."""
    body = []
    for name, what, found in ANCESTORS:
        figures = [f for one in experiments.ALL if name in one.ancestor for f in one.figures]
        words = ", ".join(f"figure {f}" for f in figures) or NOT_REPEATED[name]
        body.append([name, what, found, words])
    return ["lighttpd 1.5's own figures (2006 and 2007; F10 was about its market), and where they stand"
            " here:", ""] + table(["", "measured", "1.5 found", "here"], body)


# ---------------------------------------------------------------- one function for each figure

def small_files(results, plots):
    rows = results["44 B"]
    us = {name: rig.median(r["us"]) for name, r in rows.items()}
    calls = rows.get("lighty", {}).get("calls")
    asked = {n: rig.median(r["asked"]["us"]) for n, r in rows.items() if "asked" in r}
    checks = []
    for words, us_of in (("", asked), (", asked by wrk", us)):
        mine = us_of.get("lighty")
        checks += [
            at_most(f"CPU over nginx's{words}", quotient(mine, us_of.get("nginx")), 0.60),
            at_most(f"CPU over lighttpd's{words}", quotient(mine, us_of.get("lighttpd")), 0.95),
            at_most(f"CPU over the floor's{words}", quotient(mine, us_of.get("floor")), 1.20)]
    checks.append(at_most("system calls per request", calls and hot.io_calls(calls), 2))
    return (required(checks) + wrk_is_slow(us, asked) + hot_table("44 B file", rows, us, plots)
            + by_connections({label.split()[2]: rows for label, rows in results.items()
                              if label.endswith(" connections")}))


def by_connections(results):
    """{connections: rows of hot.cpu()}"""
    body = []
    for conns, rows in results.items():
        us = {name: rig.median(r["us"]) for name, r in rows.items()}
        body += [[conns, name, spread(r["us"]), ratio_of(us, name), f"{rig.median(r['rps']):.0f}",
                  r["bad"]] for name, r in rows.items()]
    return table(["connections", "server", "CPU us per request (range)", "lighty over it", "requests/s",
                  "failed"], body) if body else []


def ratio_of(us, name):
    over = quotient(us.get("lighty"), us[name])
    return "" if over is None else f"{over:.2f}"


def wrk_is_slow(us, asked):
    """What the two clients make of the floor, which no server on tokio gets below."""
    by_wrk = quotient(us.get("floor"), us.get("nginx"))
    by_asker = quotient(asked.get("floor"), asked.get("nginx"))
    if not by_wrk or not by_asker:
        return []
    return [f"The floor itself is at {by_asker:.2f} of nginx, and at {by_wrk:.2f} when wrk asks, which"
            " needs more of its core than a fast server of its own: that server idles, and wakes"
            " for a few requests at a time (decisions/0013).", ""]


def large_files(results, plots):
    rows = results["100 KB"]
    us = {name: rig.median(r["us"]) for name, r in rows.items()}
    asked = {n: rig.median(r["asked"]["us"]) for n, r in rows.items() if "asked" in r}
    checks = []
    for words, us_of in (("", asked), (", asked by wrk", us)):
        best = min((us_of[n] for n in ("nginx", "lighttpd") if n in us_of), default=None)
        checks.append(at_most(f"CPU over the better of nginx and lighttpd{words}",
                              quotient(us_of.get("lighty"), best), 1.0))
    return required(checks) + hot_table("100 KB file", rows, us, plots)


def hot_table(label, rows, us, plots):
    name = "hot-" + label.removesuffix(" file").replace(" ", "").lower() + ".svg"
    plot.bars(f"{plots}/{name}", f"CPU per request, {label}", list(us.items()), "us")
    body = []
    for server, r in rows.items():
        calls = r.get("calls") or {}
        over = rig.ratio(us.get("lighty", math.nan), us[server])
        body.append([server, spread(r["us"]), f"{over:.2f}",
                     f"{rig.median(r['rps']):.0f}", f"{hot.io_calls(calls):.2f}" if calls else "-",
                     " ".join(f"{k} {v:g}" for k, v in calls.items()), r["bad"]])
    return [f"![CPU per request](plots/{name})", ""] + asked_table(rows) + table(
        ["server", "CPU us per request (range)", "lighty over it", "requests/s", "calls",
         "with waiting (one connection)", "failed"], body)


def asked_table(rows):
    """The same by a client that is not the limit, where that was measured."""
    us = {n: rig.median(r["asked"]["us"]) for n, r in rows.items() if "asked" in r}
    body = [[n, spread(r["asked"]["us"]), f"{rig.ratio(us.get('lighty', math.nan), us[n]):.2f}",
             f"{rig.median(r['asked']['rps']):.0f}", r["asked"]["bad"]]
            for n, r in rows.items() if "asked" in r]
    return table(["server, asked by `asker`", "CPU us per request (range)", "lighty over it",
                  "requests/s", "failed"], body) + ["By wrk:", ""] if body else []


def proxied(results, plots):
    rows = results["servers"]
    us = {name: rig.median(r["us"]) for name, r in rows.items()}
    best = min((us[n] for n in ("nginx", "haproxy") if n in us), default=None)
    calls = rows.get("lighty", {}).get("calls")
    checks = [at_most("CPU over the better of nginx and HAProxy", quotient(us.get("lighty"), best),
                      0.90),
              at_most("system calls per request", calls and hot.io_calls(calls), 4)]
    bare = quotient(us.get("lighty"), us.get("floor"))
    words = [f"Twice the floor is what receiving and sending twice costs: lighty needs"
             f" {bare / 2:.2f} times that.", ""] if bare else []
    return (required(checks) + words + hot_table("proxied 44 B", rows, us, plots)
            + by_connections(results.get("connections", {})))


def before_php(results, plots):
    rows = results["servers"]
    us = {name: rig.median(r["us"]) for name, r in rows.items()}
    rates = {name: rig.median(r["rps"]) for name, r in rows.items()}
    calls = rows.get("lighty", {}).get("calls")
    checks = [at_most("CPU over nginx's with fastcgi_keep_conn",
                      quotient(us.get("lighty"), us.get("nginx:keep")), 1),
              at_least("requests/s over nginx's with fastcgi_keep_conn",
                       quotient(rates.get("lighty"), rates.get("nginx:keep")), 0.98),
              # Two receives, two sends; and the clock's beat, which is per time.
              at_most("system calls per request", calls and hot.io_calls(calls), 4.1)]
    return required(checks) + hot_table("44 B from PHP-FPM", rows, us, plots)


def balanced(results, _plots):
    whole, speed = balance.speeds(results)
    rows = results["servers"]
    rps = {name: rig.median(r["rps"]) for name, r in rows.items()}
    ours = rps.get("lighty:sqf")
    share = rows.get("lighty:sqf") and quotient(balance.split(rows["lighty:sqf"]), speed)
    off = None if share is None else 100 * abs(share - 1)
    checks = [at_least("sqf over round-robin", quotient(ours, rps.get("lighty:round-robin")), 1.51),
              at_least("sqf over the sum of both backends alone", quotient(ours, whole), 0.95),
              at_most("sqf's split off the ratio of the speeds, %", off, 5)]
    body = [[name, f"{rps[name]:.0f}", f"{rig.ratio(rps[name], whole):.3f}",
             f"{balance.split(r):.2f} : 1", f"{rig.median(r['p99_ms']):.1f}", r["bad"]]
            for name, r in rows.items()]
    return required(checks) + [
        f"Alone the backends answer {' and '.join(f'{rig.median(r):.0f}' for r in results['alone'])}"
        f" requests a second: {whole:.0f} together, {speed:.2f} : 1. The ancestor reached 1.51 and"
        " 0.79.", ""] + table(
        ["proxy and balancer", "requests/s", "of both alone", "split", "p99 ms", "failed"], body)


def failed_over(results, _plots):
    checks, lines = [], []
    for drill, rows in results.items():
        sums = {name: failover.summary(runs) for name, runs in rows.items()}
        if "lighty" in sums:
            checks.append(at_most(f"requests lost, {drill}", sums["lighty"]["lost"], 0))
        if "lighty" in sums and drill == "killed":
            checks.append(at_most("added p99, killed, ms", sums["lighty"]["added_ms"], 50))
        body = [[name, len(rows[name]), f"{s['lost']} of {s['requests']}", f"{s['before_ms']:.1f}",
                 f"{s['after_ms']:.1f}", f"{s['added_ms']:.1f}", f"{s['max_ms']:.0f}",
                 f"{s['down_ms']:.0f}"] for name, s in sums.items()]
        lines += [f"### {drill}", ""] + table(
            ["proxy", "runs", "lost", "p99 before, ms", "after", "added in the worst run",
             "longest", "backend away for"], body)
    return required(checks) + ["What each drill does stands in `bench/failover.py --help`.",
                               ""] + lines


def cold_files(results, plots):
    rows = results["servers"]
    rate = {name: r["fetches_s"] for name, r in rows.items()}
    base, limit = rate.get(cold.BASE), rate.get(cold.LIMIT)
    auto, pool = rate.get("lighty:auto+ring"), rate.get("lighty:auto+pool")
    checks = [at_least("auto over linux-sendfile", quotient(auto, base), 2.2),
              at_least("io-uring over linux-sendfile", quotient(rate.get("lighty:io-uring"), base),
                       2.2),
              at_least("auto over nginx with aio threads", quotient(auto, rate.get("nginx:aio")),
                       1.3),
              at_least("auto over the disk's limit", quotient(auto, limit), 0.95),
              at_least("threads over ring (auto)", quotient(pool, auto), 0.95)]
    checks += [at_least(f"{b} over linux-sendfile", quotient(rate.get("lighty:" + b), base), 1.79)
               for b in ASYNCHRONOUS]
    checks += [at_most(f"loop blocked, %, {n}", rows.get(n, {}).get("blocked_pct"), 2)
               for n in ("lighty:auto+ring", "lighty:auto+pool", "lighty:io-uring")]
    plot.bars(plots + "/cold.svg", "Cold files: fetches per second", list(rate.items()), "/s")
    body = [[n, f"{r['fetches_s']:.1f} ({r['lowest']:.1f}-{r['highest']:.1f})",
             f"{rig.ratio(r['fetches_s'], base):.2f}", f"{rig.ratio(r['fetches_s'], limit):.2f}",
             f"{r['blocked_pct']:.1f}", f"{r['first_ms']:.0f} / {r['fetch_ms']:.0f}",
             f"{r['disk_util_pct']:.0f}", f"{r['errors']:g}"] for n, r in rows.items()]
    late = max(r["backing_late"] for r in rows.values())
    warning = [f"**The host's own disk was late ({late:g} reads): this run is worth nothing.**", ""]
    return required(checks) + (warning if late > bed.LATE_READS_MAX else []) + [
        f"`{cold.BASE}` looks paths up in the event loop too, as the ancestor and the peers do;"
        f" `{cold.LIMIT}` is taken as the disk's limit; `control` is the bed's own event loop with"
        f" 64 read and 64 stat threads. Disk at {results['speed']:g} times its speed.", "",
        "![fetches per second](plots/cold.svg)", ""] + table(
        ["server", "fetches/s (range)", "over base", "over limit", "loop blocked %",
         "first byte / fetch ms", "disk busy %", "errors"], body)


def neighbours(results, _plots):
    rows, checks, body = results["servers"], [], []
    for name, sizes in rows.items():
        for size in sizes:
            idle = neighbour.p99(sizes, size, "idle")
            loaded = neighbour.p99(sizes, size, "loaded")
            over = rig.ratio(loaded, idle)
            if name.partition(":")[0] == "lighty":
                checks.append(at_most(f"{name}, {size}: p99 over idle", over, 2))
            body.append([name, size, f"{idle:.3f}", f"{loaded:.3f}", f"{over:.2f}",
                         f"{rig.median(sizes[size]['cold']):.0f}",
                         sum(r["failed"] for r in sizes[size]["loaded"]),
                         sum(r["samples"] for r in sizes[size]["loaded"])])
    return required(checks) + [
        "`control` asks a floor that nobody else uses: what it loses is the machine's doing.",
        ""] + table(["server", "hot file", "p99 idle ms", "p99 beside cold ms", "ratio",
                     "cold fetches/s", "failed", "samples"], body)


def hot_sets(results, _plots):
    lines = []
    for label, rows in results.items():
        rate = {name: rig.median(r["mb_s"]) for name, r in rows.items()}
        cost = {name: rig.median(r["us_per_mb"]) for name, r in rows.items()}
        base = rate.get(hotset.BASE)
        checks = [at_least(f"{n} over linux-sendfile, {label}", quotient(rate.get(n), base), 0.97)
                  for n in ("lighty:auto+ring", "lighty:auto+pool")]
        body = [[n, f"{rate[n]:.0f}", f"{rig.ratio(rate[n], base):.2f}", spread(r["us_per_mb"]),
                 f"{rig.ratio(cost[n], cost.get(hotset.BASE, 0)):.2f}", r["bad"]]
                for n, r in rows.items()]
        lines += [f"### {label}", ""] + required(checks) + table(
            ["server", "MB/s", "over linux-sendfile", "CPU us per MB (range)", "over it",
             "failed"], body)
    return lines


def idle_memory(results, plots):
    rows = results["servers"]
    per = {name: r["kib_per_connection"] for name, r in rows.items()}
    plot.bars(plots + "/memory.svg", "Resident memory of an idle connection", list(per.items()),
              "KiB")
    body = [[n, f"{r['kib_per_connection']:.2f}", f"{r['slope_kib']:.2f}",
             f"{r['anonymous_kib']:.2f}", r["start_kib"], r["open"]] for n, r in rows.items()]
    return required([at_most("KiB per idle connection", per.get("lighty"), 1.5)]) + [
        "![memory](plots/memory.svg)", ""] + table(
        ["server", "KiB per connection", "slope after the first tenth", "anonymous",
         "KiB at start", f"still open of {results['conns']}"], body)


def memory_in_flight(results, _plots):
    rows = results["servers"]
    per = {name: r["kib_per_request"] for name, r in rows.items()}
    body = [[n, f"{r['kib_per_request']:.2f}", f"{r['anonymous_kib']:.2f}", r["start_kib"]]
            for n, r in rows.items()]
    return required([at_most("KiB per request in flight", per.get("lighty"), 8)]) + table(
        ["server", "KiB per request", "anonymous", "KiB at start"], body)


def no_allocations(results, _plots):
    tests = [[name, outcome] for name, outcome in results["tests"].items()]
    return table(["test", "outcome"], tests) + [*results["said"], "", f"`{results['test']}`", ""]


def compressed(results, _plots):
    checks, body = [], []
    for coding, rows in results["speed"].items():
        for label in ("100 KB", "10 MB"):
            speed = {n: rig.median(r[label]["mb_per_cpu_s"]) for n, r in rows.items()}
            size = {n: r[label]["encoded"] for n, r in rows.items()}
            best = max((n for n in speed if not n.startswith("lighty")), key=speed.get, default=None)
            checks += [at_least(f"{coding}, {label}: bytes per CPU second over the best peer's",
                                quotient(speed.get("lighty"), speed.get(best)), 1),
                       at_most(f"{coding}, {label}: encoded bytes over that peer's",
                               quotient(size.get("lighty"), size.get(best)), 1.05)]
            body += [[coding, label, n, spread(r[label]["mb_per_cpu_s"]), size[n]]
                     for n, r in rows.items()]
    text = table(["coding", "document", "server", "MB per CPU second (range)", "encoded bytes"],
                 body)
    for part in (beside_compression(results["neighbour"]), untouched(results)):
        checks += part[0]
        text += part[1]
    return required(checks) + text


def beside_compression(codings):
    checks, body = [], []
    for coding, rows in codings.items():
        for name, r in rows.items():
            idle, loaded = rig.median(r["idle_ms"]), rig.median(r["loaded_ms"])
            if name == "lighty":
                checks.append(at_most(f"{coding}: p99 of 44 bytes beside ten bodies of 10 MB over"
                                      " idle", quotient(loaded, idle), 2))
            body.append([coding, name, f"{idle:.3f}", f"{loaded:.3f}",
                         f"{rig.ratio(loaded, idle):.2f}", f"{rig.median(r['mb_s']):.0f}"])
    return checks, table(["coding", "server", "p99 idle ms", "p99 beside compression ms", "ratio",
                          "plain MB/s encoded meanwhile"], body)


def untouched(results):
    checks, body = [], []
    for label, rows in results["idle"].items():
        without, within = (rig.median(rows[n]) for n in ("lighty", "lighty:deflate"))
        checks.append(at_most(f"{label}, nothing filtered: CPU with the filters over without",
                              quotient(within, without), 1.03))
        body.append([label, "CPU us per request (range)", spread(rows["lighty"]),
                     spread(rows["lighty:deflate"])])
    for label, rows in results["instructions"].items():
        without, within = (rows[n] for n in ("lighty:pool", "lighty:pool+deflate"))
        body.append([label, "instructions per request, the kernel's left out", f"{without:.0f}", f"{within:.0f}"])
    return checks, table(["document", "", "without the filters", "with them, unasked"], body)


def ruled(results, _plots):
    checks, body, loads = [], [], []
    plain = {n: rig.median(r["none"]["us"]) for n, r in results["no rules"]["cpu"].items()}
    for label, case in results.items():
        us = {n: {w: rig.median(r["us"]) for w, r in rows.items()}
              for n, rows in case["cpu"].items()}
        for which in us.get("lighty", {}):
            checks.append(at_most(f"{label}, {which} matches: CPU over nginx's",
                                  quotient(us["lighty"][which], us.get("nginx", {}).get(which)), 1))
        for name, rows in case["cpu"].items():
            body += [[label, which, name, spread(r["us"]), f"{us[name][which] - plain[name]:+.2f}",
                      r["bad"]] for which, r in rows.items()]
            loads.append([label, name, f"{case['test_s'][name]:.2f}",
                          f"{case['rss_kib'][name] / 1024:.1f}"])
    loading, memory = (
        {n: results["10,000 rewrites"][key].get(n) for n in ("lighty", "nginx")}
        for key in ("test_s", "rss_kib"))
    checks += [at_most("10,000 rewrites: seconds to read them", loading["lighty"], 1),
               at_most("10,000 rewrites: memory over nginx's",
                       quotient(memory["lighty"], memory["nginx"]), 1)]
    return required(checks) + table(
        ["rules", "matches", "server", "CPU us per request (range)", "over no rules, us", "failed"],
        body) + table(["rules", "server", "`-t`, s", "resident, MiB"], loads)


def scripted(results, _plots):
    """{connections: {row: rates, CPU, failures}}; lighttpd 1.5 had 5.04 for mod_magnet."""
    checks, body = [], []
    held = results.get("memory")
    words = [] if not held else [
        f"A compiled script holds {held['script'] / 1024:.1f} KiB, a request that waits in one"
        f" {held['request'] / 1024:.1f} KiB.", ""]
    for conns, rows in results.items():
        if not conns.isdigit():
            continue
        rps = {name: rig.median(r["rps"]) for name, r in rows.items()}
        us = {name: rig.median(r["us"]) for name, r in rows.items()}
        label = f"{conns} connection{'' if conns == '1' else 's'}"
        checks += [
            at_least(f"{label}: mod_magnet over PHP without keep-alive",
                     quotient(rps.get("magnet"), rps.get("php-close")), 5.04),
            at_least(f"{label}: over lighttpd 1.4's mod_magnet",
                     quotient(rps.get("magnet"), rps.get("lighttpd-magnet")), 1),
            at_least(f"{label}: over nginx's Lua",
                     quotient(rps.get("magnet"), rps.get("nginx-lua")), 1)]
        if conns != "1":
            checks.append(at_most(f"{label}: CPU over that of a file",
                                  quotient(us.get("magnet"), us.get("file")), 1.3))
        first = rps.get("php-close")
        for name, r in rows.items():
            ratio = quotient(rps[name], first)
            body.append([conns, name, f"{rps[name]:.0f} ({min(r['rps']):.0f}-{max(r['rps']):.0f})",
                         "-" if ratio is None else f"{ratio:.2f}", spread(r["us"]), r["bad"]])
    if runaway := results.get("runaway"):
        alone, beside = rig.median(runaway["idle"]), rig.median(runaway["beside"])
        checks.append(at_most("a neighbour's p99 beside a script that never ends, over that alone",
                              quotient(beside, alone), 2))
        words = [f"A neighbour's p99: {alone:.2f} ms alone, {beside:.2f} ms beside a script that never"
                 " ends on the same worker.", "", *words]
    return required(checks) + words + table(
        ["connections", "row", "requests/s (range)", "over php-close",
         "CPU us per request (range)", "failed"], body)


def beside_lighttpd(results, _plots):
    """Scripts step by step: CPU by connections, instructions, system calls, memory of reloads."""
    checks, body = [], []
    instructions, calls = results.get("instructions", {}), results.get("calls", {})
    for conns, rows in results["cpu"].items():
        for name, row in rows.items():
            base, _, step = name.partition(":")
            peer = rows.get("lighttpd:" + step)
            over = quotient(rig.median(row["us"]), peer and rig.median(peer["us"]))
            if base == "lighty" and step == "full":
                label = f"CPU over lighttpd's, {conns} connection{'' if conns == '1' else 's'}"
                checks.append(at_most(label, over, 0.95))
            words = " ".join(f"{call} {n:g}" for call, n in calls.get(name, {}).items())
            body.append([conns, step, base, spread(row["us"]), "-" if over is None else f"{over:.2f}",
                         f"{instructions[name]:.0f}" if name in instructions else "-", words or "-",
                         row["bad"]])
    if done := results.get("reloads"):
        checks.append(at_most(f"bytes that each of {done['count'] - done['settled']} reloads left",
                              magnet.per_reload(done), 2048))
    return required(checks) + [
        "`redirect` is the pipeline without a file; `bare` is `return 200`; `body` sets"
        " `lighty.content` too, and `full` `lighty.header`. Instructions are those of user space, by"
        " one connection.", ""] + table(
        ["connections", "step", "server", "CPU us per request (range)", "over lighttpd's",
         "instructions", "system calls", "failed"], body)


def looked_up(results, _plots):
    """Who opens cold files; lighttpd 1.5 had 1 : 1.13 : 1.148 : 1.186."""
    rows = results["servers"]
    rate = {name: row["fetches_s"] for name, row in rows.items()}
    names = [name for name in stat_accel.ANCESTOR if name in rate]
    checks = [at_least(f"{name} over inline", quotient(rate[name], rate.get("inline")),
                       stat_accel.ANCESTOR[name]) for name in names if name != "inline"]
    checks += [at_least(f"{after} over {before}", quotient(rate[after], rate[before]), 1)
               for before, after in zip(names, names[1:])]
    body = [[name, f"{rate[name]:.1f} ({rows[name]['lowest']:.1f}-{rows[name]['highest']:.1f})",
             f"{quotient(rate[name], rate.get('inline')) or 0:.2f}",
             f"{stat_accel.ANCESTOR[name]:g}", f"{rows[name]['blocked_pct']:.1f}",
             f"{rows[name]['disk_util_pct']:.0f}", f"{rows[name]['errors']:g}"] for name in names]
    return [f"Disk at {results['speed']:g} times its speed.", ""] + required(checks) + table(
        ["who opens", "fetches/s (range)", "over inline", "in lighttpd 1.5", "loop blocked %",
         "disk busy %", "errors"], body)


def over_tls(results, _plots):
    """CPU of loads and handshakes, memory of idle connections, lighty beside the best peer."""
    timed = {**results["us"], "a full handshake": results["handshake"]["full"]}
    limits = {"100 KB, HTTP/1.1": 0.90, "a full handshake": 0.95}
    checks, body = [], []
    for what, rows in timed.items():
        us = {name: rig.median(values) for name, values in rows.items()}
        checks.append(at_most(f"{what}: CPU over the best peer's",
                              quotient(us.get("lighty"), best_peer(us)), limits.get(what, 1)))
        body.append([what, "CPU us", *(spread(values) for values in rows.values())])
    for kind, kib in results["idle_kib"].items():
        checks += [at_most(f"idle, {kind}: KiB", kib.get("lighty"), {"HTTP/1.1": 3}.get(kind, 6)),
                   at_most(f"idle, {kind}: over the best peer's",
                           quotient(kib.get("lighty"), best_peer(kib)), 1)]
        body.append([f"idle, {kind}", "KiB", *(f"{value:.2f}" for value in kib.values())])
    return required(checks) + table(["", "", *next(iter(timed.values()))], body)


def uploaded(results, _plots):
    """{server: {version of HTTP: seconds}}"""
    body, rates = [], {}
    for name, kinds in results["seconds"].items():
        rates[name] = quotient(rig.median(kinds["HTTP/1.1"]), rig.median(kinds["HTTP/2"]))
        body.append([name, *(spread(seconds) for seconds in kinds.values()), f"{rates[name]:.2f}"])
    words = (f"{results['bytes'] / 1e6:g} MB, {results['rtt_ms']:g} ms there and back, "
             f"{results['mbit']:g} Mbit/s.")
    return [words, ""] + required([at_least("rate by HTTP/2 over that by HTTP/1.1",
                                            rates.get("lighty"), 0.9)]) + table(
        ["server", "HTTP/1.1, s", "HTTP/2, s", "rate by HTTP/2 over HTTP/1.1"], body)


def in_rounds(limit, unit, peers=None):
    """A figure made by rounds.py: {row: {server: rounds}}, with CPU limits against the best peer."""
    def write(results, _plots):
        checks, body = [], []
        for label, rows in results.items():
            valid = {name: [r for r in rounds if not r["void"]] for name, rounds in rows.items()}
            us = {name: rig.median([r["us_per_request"] for r in rounds])
                  for name, rounds in valid.items() if rounds}
            best = best_peer({n: v for n, v in us.items() if not peers or n in ("lighty", *peers)})
            checks.append(at_most(f"{label}: CPU over the best peer's",
                                  quotient(us.get("lighty"), best), limit))
            for name, rounds in valid.items():
                void = len(rows[name]) - len(rounds)
                if not rounds:
                    body.append([label, name, "void", "", "", void])
                    continue
                body.append([label, name, spread([r["us_per_request"] for r in rounds]),
                             f"{rig.median([r['rps'] for r in rounds]):.0f}",
                             sum(r["bad"] for r in rounds), void])
        return required(checks) + table(["", "server", f"CPU us {unit} (range)", "requests/s", "failed",
                                         "void rounds"], body)
    return write


def unconfigured(results, _plots):
    lines = ["| server | first response, ms | resident, MiB | 44 B, requests/s | us of CPU | "
             "100 KB, requests/s | us of CPU |", "|---|---|---|---|---|---|---|"]
    checks = []
    names = {"files": {"lighty": "lighty serve", "caddy": "caddy file-server",
                       "python": "python3 -m http.server"},
             "proxy": {"lighty": "lighty proxy", "caddy": "caddy reverse-proxy"}}
    for kind, found in results.items():
        cpu = {}
        for server, row in found.items():
            cells = [f"{rig.median(row['start_ms']):.0f}", f"{row['rss_kib'] / 1024:.0f}"]
            for size, rounds in row["rounds"].items():
                cpu[server, size] = rig.median([one["us_per_request"] for one in rounds])
                cells += [f"{rig.median([one['rps'] for one in rounds]):.0f}", f"{cpu[server, size]:.1f}"]
            lines.append(f"| `{names[kind][server]}` | {' | '.join(cells)} |")
        checks += [at_most(f"{names[kind]['lighty']}, {size}: CPU over Caddy's",
                           quotient(cpu["lighty", size], cpu["caddy", size]), 1)
                   for size in ("44 B", "100 KB") if ("caddy", size) in cpu and ("lighty", size) in cpu]
    return required(checks) + lines + ["", "One core and 32 connections. Python's server closes each "
                                       "connection; the others keep them.", ""]


def metered(results, _plots):
    cost, scraped, series = results["cost"], results["scrape"], results["series"]
    on, off = rig.median(cost["on"]), rig.median(cost["off"])
    formats = {name: row for name, row in scraped.items() if "median_ms" in row}
    beside = scraped["beside"]["p99_ms"] - scraped["alone"]["p99_ms"]
    rows = [at_most(f"scrape of 1,000 backends, {name}, ms", round(row["median_ms"], 1), 20)
            for name, row in formats.items()]
    rows += [at_most("a neighbour's p99 beside scrapes, ms more than alone", round(beside, 2), 1),
             at_most(f"series after {series['hosts']} hosts, over those after 100",
                     round(rig.ratio(series["after"], series["before"]), 2), 1)]
    rows += [at_most(f"recording, {asked}: per cent of the CPU",
                     round(row["stamps and series"] + row["clock"], 2), 2)
             for asked, row in results.get("share", {}).items()]
    words = (f"CPU per request of a small file: {off:.2f} us without mod_status "
             f"({spread(cost['off'])}), {on:.2f} us with it ({spread(cost['on'])}): "
             f"{quotient(on, off):.2f}.")
    return required(rows) + [words, *map(sampled_in_words, results.get("share", {}).items()), ""]


def sampled_in_words(row):
    asked, shares = row
    told = ", ".join(f"{subject} {share:.2f} %" for subject, share in shares.items()
                     if subject != "samples")
    return f"By samples, {asked}: {told} of {shares['samples']}."


def beside_peers(results, _plots):
    """{workers: {size: {server: rounds}}}; what is lost stands in the table too."""
    checks, body = [], []
    for workers, sizes in results.items():
        for size, rows in sizes.items():
            us = {name: rig.median([r["us_per_request"] for r in rounds])
                  for name, rounds in rows.items() if rounds}
            label = f"{size}, {workers} worker{'' if workers == '1' else 's'}"
            limit = 1.05 if size == "10 MB" else 1
            checks.append(at_most(f"CPU over the best, {label}",
                                  quotient(us.get("lighty"), best_peer(us)), limit))
            for name, rounds in rows.items():
                if rounds:
                    body.append([label, name, *peer_cells(rounds)])
    return required(checks) + table(
        ["", "server", "CPU us per request (range)", "requests/s", "p50 ms", "p99 ms", "p99.9 ms",
         "MB", "failed"], body)


def peer_cells(rounds):
    def median(key):
        return rig.median([r[key] for r in rounds])
    return [spread([r["us_per_request"] for r in rounds]), f"{median('rps'):.0f}",
            *(f"{median(key):.2f}" for key in ("p50_ms", "p99_ms", "p999_ms")),
            f"{median('memory_mb'):.0f}", sum(r["bad"] for r in rounds)]


def large_cold_files(results, _plots):
    chunks, clients = results["chunks"], results["clients"]
    rate = {name: row["mb_s"] for name, row in chunks.items()}
    base, default = rate.get(large.BASE), rate.get(f"lighty:chunk{large.DEFAULT_KIB}")
    best = max((rate[name] for name in large.CHUNKS if name in rate), default=None)
    checks = [at_least("default chunk over the best", quotient(default, best), 0.9),
              at_least("default chunk over linux-sendfile", quotient(default, base), 1.5)]
    checks += [at_least(f"one file, clients: {n}, over linux-sendfile",
                        quotient(rows["lighty"]["mb_s"], rows[large.BASE]["mb_s"]), 1)
               for n, rows in clients.items() if {"lighty", large.BASE} <= rows.keys()]
    cells = [[name, f"{row['mb_s']:.1f}", f"{quotient(row['mb_s'], base) or 0:.2f}",
              f"{row['blocked_pct']:.1f}", f"{row['errors']:g}"] for name, row in chunks.items()]
    one = [[n, name, f"{row['mb_s']:.1f}", f"{row['blocked_pct']:.1f}", f"{row['errors']:g}"]
           for n, rows in clients.items() for name, row in rows.items()]
    return [f"Disk at {results['speed']:g} times its speed.", ""] + required(checks) + table(
        ["10 MB files", "MB/s", "over base", "loop blocked %", "errors"], cells) + table(
        ["clients of one file", "server", "MB/s", "loop blocked %", "errors"], one)


def starved(results, _plots):
    """{disk: {engine: {reads: figures}}}"""
    checks, body, slow, reads = [], [], [], []
    for disk, engines in results.items():
        for engine, curve in engines.items():
            rate = {int(n): row["fetches_s"] for n, row in curve.items()}
            reads = sorted(rate)
            checks.append(at_least(f"64 reads over the best number, {disk}, {engine}",
                                   quotient(rate.get(64), max(rate.values())), 0.9))
            body.append([disk, engine, *(f"{rate[n]:.0f}" for n in reads)])
            rows = {int(n): row for n, row in curve.items()}
            slow.append([disk, engine, *(slowest(rows[n]) for n in reads)])
    head = ["disk", "engine", *map(str, reads)]
    return required(checks) + ["Fetches a second of 100 KB files, by reads at a time:", ""] + table(
        head, body) + ["99th percentile of a fetch in ms / fetches that timed out or failed:", ""] + table(
        head, slow)


def slowest(row):
    p99 = row.get("fetch_p99_ms")
    return "-" if p99 is None else f"{p99:.0f} / {row['errors']:g}"


def best_peer(row):
    return min((value for name, value in row.items()
                if not name.startswith("lighty")), default=None)


def drilled(results, _plots):
    return outcomes(results, "drills")


def flooded(results, _plots):
    return outcomes(results, "floods")


def outcomes(results, script):
    names = list(dict.fromkeys(n for row in results.values() for n in row))
    body = [[drill] + [cell(row.get(n)) for n in names] for drill, row in results.items()]
    return [f"What is required stands in `bench/{script}.py --help`.", ""] + table(
        ["drill", *names], body)


def cell(outcome):
    if not outcome:
        return "-"
    return ("" if outcome["ok"] else "**fails:** ") + outcome["text"]


FIGURES = [("1. A small file, warm", "hot", small_files),
           ("2. A 100 KB file, warm", "hot", large_files),
           ("3a. Files on a disk that seeks", "cold", cold_files),
           ("3b. The neighbour of a client that waits for the disk", "neighbour", neighbours),
           ("3c. A hot set of 100 MB", "hotset", hot_sets),
           ("4. Memory of idle connections", "memory", idle_memory),
           ("5. Allocations for a warm request", "allocations", no_allocations),
           ("6. Drills", "drills", drilled),
           ("7. A small response, proxied", "proxy", proxied),
           ("8. Two backends of unequal speed", "balance", balanced),
           ("9. A backend that dies or is restarted", "failover", failed_over),
           ("10. A small response from PHP-FPM", "php", before_php),
           ("11. Compressed responses", "deflate", compressed),
           ("12. Many rules and conditions", "rules", ruled),
           ("13. Scripts: an answer of three bytes", "scripts", scripted),
           ("14. Looking paths up on a disk that seeks", "stat_accel", looked_up),
           ("15. Attacks by HTTP/2", "floods", flooded),
           ("16. TLS", "tls", over_tls),
           ("17. Metrics", "metrics", metered),
           ("18. Beside the peers", "table", beside_peers),
           ("19. Large files on a disk that seeks", "large", large_cold_files),
           ("20. Reads at a time", "starve", starved),
           ("21. Uploads over a long way", "upload", uploaded),
           ("22. Scripts, step by step", "magnet", beside_lighttpd),
           ("23. Without a configuration", "quickstart", unconfigured),
           ("24. Short connections", "short", in_rounds(0.80, "per connection")),
           ("25. A page and its files", "pages", in_rounds(0.85, "per request")),
           ("26. Uploads through a proxy", "proxied_uploads",
            in_rounds(0.90, "per megabyte", ("nginx", "haproxy"))),
           ("27. Memory of proxied requests", "inflight", memory_in_flight),
           *operations_report.FIGURES]


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"report: {e}")
