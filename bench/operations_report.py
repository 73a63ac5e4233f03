"""The figures of docs/experiments.md about operation: reloads, upgrades, refusals, control."""
import control_flood
import reload_load
import rig
from tables import at_most, quotient, required, table

MIB_KIB = 1024


def many_sites(results, _plots):
    mine = results.get("lighty", {})
    checks = [at_most("seconds of a reload", mine.get("wall_s"), 1),
              at_most("longest stall of a worker, ms", mine.get("stall_ms"), 5),
              at_most("a client's 99th percentile over the quiet one",
                      quotient(mine.get("p99_ms"), mine.get("quiet_p99_ms")), 1.2),
              at_most("memory at most over that before", mine.get("peak_over_steady"), 2.2)]
    body = [[name, r["sites"], f"{r['wall_s']:.2f} ({r['wall_max_s']:.2f})",
             f"{r['stall_ms']:.1f} ({r['stall_before_ms']:.1f})" if r["stall_ms"] else "-",
             f"{r['quiet_p99_ms']:.2f}", f"{r['p99_ms']:.2f}", f"{r['max_ms']:.1f}", r["failed"],
             f"{r['steady_kib'] / MIB_KIB:.0f}", f"{r['peak_over_steady']:.2f}"]
            for name, r in results.items()]
    return required(checks) + table(
        ["server", "sites", "s of a reload (longest)", "stall ms (without reloads)",
         "client's p99 ms, quiet", "reloading", "longest", "requests failed", "memory MB",
         "at most, times that"], body)


def apart(results):
    """A note if peers were measured in another run, which their results say."""
    others = [name for name, r in results.items() if r.get("apart")]
    return [f"Measured in a run of their own, with the same load: {', '.join(others)}.", ""] * bool(others)


def under_load(results, _plots):
    checks = []
    for name in [name for name in results if name.startswith("lighty")]:
        r = results[name]
        checks += [at_most(f"{kind}, {name}", reload_load.total(r, kind), 0)
                   for kind in ("lost", "reset", "closed", "refused")]
        checks += [at_most(f"KiB more at the end, {name}", r["late_kib"] - r["early_kib"], 2048)]
        checks += [at_most(f"{field} more at the end, {name}", r["last"][field] - r["tenth"][field], 0)
                   for field in ("fds", "threads", "processes")]
    counted = ("lost", "reset", "closed", "announced", "refused", "downloads_cut", "uploads_cut")
    body = [[name, r["reloads"], r["ended"], reload_load.total(r, "responses"),
             *(reload_load.total(r, kind) for kind in counted),
             f"{r['wall_s'] * 1e3:.0f} ({r['wall_max_s'] * 1e3:.0f})"]
            for name, r in results.items()]
    kept = [[name, f"{r['early_kib']} to {r['late_kib']}",
             *(f"{r['tenth'][field]} to {r['last'][field]}"
               for field in ("processes", "threads", "fds")),
             f"{r['latency']['reloads']['p99_ms']:.1f}"] for name, r in results.items()]
    return apart(results) + required(checks) + table(
        ["server", "reloads", "ended by a refusal", "responses", "lost", "reset", "closed", "announced",
         "refused", "downloads cut", "uploads cut", "ms of a reload (longest)"], body) + table(
        ["server", "private KiB, early to late", "processes, after 10 to the end", "threads",
         "descriptors", "p99 ms"], kept)


def with_tunnels(results, _plots):
    of, checks, body = results["tunnels"] + results["streams"], [], []
    for name, r in results["servers"].items():
        alive = r["tunnels_alive"] + r["streams_alive"]
        echo, quiet = r["echo"].get("reloads", {}), r["echo"].get("quiet", {})
        each_kib = (r["after"]["anon_kib"] - r["before"]["anon_kib"]) / of
        if name.startswith("lighty"):
            checks += [at_most(f"ended, {name}", of - alive, 0),
                       at_most(f"longest echo in ms, {name}", echo.get("max_ms"), 50),
                       at_most(f"KiB held for each, {name}", each_kib, 4)]
        body.append([name, f"{r['tunnels_alive']} of {results['tunnels']}",
                     f"{r['streams_alive']} of {results['streams']}",
                     *(f"{echo.get(field, 0):.1f} ({quiet.get(field, 0):.1f})"
                       for field in ("p50_ms", "p99_ms", "max_ms")),
                     f"{each_kib:.1f}",
                     *(f"{r['before'][field]} to {r['after'][field]}"
                       for field in ("processes", "threads", "fds"))])
    return [f"{results['reloads']} reloads.", "", *apart(results["servers"])] + required(checks) + table(
        ["server", "WebSockets alive", "streams alive", "echo ms, p50 (quiet)", "p99", "longest",
         "KiB held for each", "processes", "threads", "descriptors"], body)


def upgraded(results, _plots):
    checks, body = [], []
    for name, r in results["servers"].items():
        ready, first, last = r["ready_s"] or [0], r["states"][:1] or [{}], r["states"][-1:] or [{}]
        if name.startswith("lighty"):
            checks += [at_most(f"{kind}, {name}", r[kind], 0) for kind in ("lost", "reset", "refused")]
            checks += [at_most(f"upgrades that failed, {name}", results["times"] - len(r["ready_s"]), 0),
                       at_most(f"seconds to ready, {name}", rig.median(ready), 1)]
        body.append([name, len(r["ready_s"]), r["responses"], r["closed"], r["lost"], r["reset"],
                     r["refused"], f"{rig.median(ready):.2f} ({max(ready):.2f})",
                     *(f"{first[0].get(field)} to {last[0].get(field)}"
                       for field in ("fds", "threads", "anon_kib", "processes"))])
    return [f"{results['idle']} idle and {results['active']} active connections.", ""] + required(
        checks) + table(
        ["server", "upgrades", "responses", "closed in order", "lost", "reset", "refused",
         "s to ready (longest)", "descriptors with connections, first to last", "threads", "private KiB", "processes"],
        body)


def refused(results, _plots):
    checks, body = [], []
    for name, rows in results.items():
        for kind, r in rows.items():
            left = [f"{field} {r['after'][field] - r['before'][field]:+}"
                    for field in ("processes", "threads", "fds", "sockets")
                    if r["after"][field] != r["before"][field]]
            fate = f"{r['went_on']} of {r['times']}" if r["alive"] else "**ends**"
            body.append([name, kind, fate, "-" if r["status"] is None else r["status"],
                         f"{r['paused_s']:.1f}", ", ".join(left) or "nothing",
                         f"{r['before']['anon_kib']} to {r['after']['anon_kib']}"])
            if name.startswith("lighty"):
                failed = r["times"] - r["went_on"] + bool(left) + (r["status"] != 1)
                checks.append(at_most(f"faults, {kind}, {name}", failed, 0))
    return required(checks) + table(
        ["server", "in the way", "goes on as before", "exit status", "s without an answer",
         "left behind", "private KiB"], body)


def controlled(results, _plots):
    checks, body = [], []
    for name, rows in results.items():
        for kind, r in rows.items():
            checks.append(at_most(f"faults, {kind}, {name}", 0 if r["ok"] else 1, 0))
            did = ", ".join(f"{what} {count}" for what, count in sorted(r["did"].items()))
            body.append([name, kind, did, f"{r['quiet']['p99_ms']:.2f}", f"{r['busy']['p99_ms']:.2f}",
                         r["busy"]["failed"], f"{r['answered_s'] * 1e3:.0f}",
                         f"{r['before']['anon_kib']} to {r['after']['anon_kib']}"])
    return [f"A client's 99th percentile may grow by {control_flood.ADDED_MS_MAX} ms.", ""] + required(
        checks) + table(
        ["server", "misuse", "what came of it", "client's p99 ms, quiet", "meanwhile", "failed",
         "ms to the next status", "private KiB"], body)


FIGURES = [("28. Reload with 10,000 sites", "reload", many_sites),
           ("29. Reloads under load", "reload_load", under_load),
           ("30. WebSockets and event streams through reloads", "reload_tunnels", with_tunnels),
           ("31. Upgrades under load", "upgrade", upgraded),
           ("32. Configurations that are refused", "refusals", refused),
           ("33. Misuse of the control socket", "control_flood", controlled)]
