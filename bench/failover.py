#!/usr/bin/env python3
"""A backend dies or is restarted under load: which requests are lost, and how long others wait.

The load is GET requests, which may be sent twice, on a schedule over 32 keep-alive connections;
latency counts from the moment a request was due.  A request is lost when it is answered by anything
but 200 and the whole body.  Backends (slow.py) take 5 ms for a request, so that some are always
under way.

killed      one of two backends is ended by kill -9.  Added latency: the 99th percentile of the second
            after it, less that of the two seconds before.
restarted   the only backend is ended by kill -9 and started again at once.
reloaded    the only backend is asked to end (SIGTERM), closes its idle connections without having
            announced it, and is started again when it is gone.

Required of lighty: none lost; below 50 ms added when one of two is killed.
"""
import asyncio
import contextlib
import signal
import sys
import time

import rig
import servers

SERVICE_MS, PLACES = 5, 64
CONNECTIONS = 32
BEFORE_S, AFTER_S = 2.0, 1.0
REQUEST = b"GET /index.html HTTP/1.1\r\nHost: bench\r\n\r\n"


def main():
    ap = rig.arguments(__doc__, "lighty,nginx,haproxy,lighttpd")
    ap.add_argument("--repeat", type=int, default=5, help="times that each is done")
    ap.add_argument("--rate", type=int, default=600, help="requests per second")
    args = ap.parse_args()
    rig.document_root(args.out)
    rig.pin(rig.CLIENT_CORE)
    results, names = {}, set()
    for drill, (count, end) in DRILLS.items():
        results[drill] = {}
        for name in args.servers.split(","):
            runs = [one for _ in range(args.repeat) if (one := run(args, name, count, end))]
            if runs:
                results[drill][name] = runs
                names.add(name)
        show(drill, results[drill])
    rig.save(args, "failover", results, servers.versions(args, names))


def run(args, name, backends, end):
    """One run of a drill against a server of its own; None where it is not installed."""
    ports = [rig.free_port() for _ in range(backends)]
    with contextlib.ExitStack() as stack:
        behind = [start_backend(args, port) for port in ports]
        for backend in behind:
            stack.callback(lambda b=backend: b.stop())
        only = argparse_of(args, name)
        wanted = servers.chosen(only, servers.Tuning(backends=tuple(ports)))
        running = servers.start_all(only, wanted)
        if not running:
            return None
        stack.callback(running[name].stop)
        return asyncio.run(drill_one(args, running[name].port, behind, end, stack))


def argparse_of(args, name):
    """The same options for one server."""
    return type(args)(**{**vars(args), "servers": name})


def start_backend(args, port):
    argv = [sys.executable, rig.HERE + "/slow.py", str(port), str(SERVICE_MS), str(PLACES)]
    return rig.start("backend", argv, port, args.out + "/backend", core=rig.CLIENT_CORE)


# ---------------------------------------------------------------- what is done to the backends

def kill(args, behind, _stack):
    behind[0].process.send_signal(signal.SIGKILL)


def restart(args, behind, stack):
    behind[0].process.send_signal(signal.SIGKILL)
    again(args, behind, stack)


def reload(args, behind, stack):
    behind[0].process.send_signal(signal.SIGTERM)
    again(args, behind, stack)


def again(args, behind, stack):
    behind[0].process.wait()
    one = start_backend(args, behind[0].port)
    stack.callback(one.stop)


DRILLS = {"killed": (2, kill), "restarted": (1, restart), "reloaded": (1, reload)}


# ---------------------------------------------------------------- load

async def drill_one(args, port, behind, end, stack):
    start = time.monotonic() + 0.2
    samples = []
    spacing = CONNECTIONS / args.rate
    until = start + BEFORE_S + AFTER_S + 2.0
    clients = [asyncio.create_task(client(port, start + i / args.rate, spacing, until, samples))
               for i in range(CONNECTIONS)]
    await asyncio.sleep(start + BEFORE_S - time.monotonic())
    at = time.monotonic()
    await asyncio.to_thread(end, args, behind, stack)
    down_s = time.monotonic() - at
    await asyncio.gather(*clients)
    return judge(samples, start, at, down_s)


def judge(samples, start, at, down_s):
    """What became of (when it was due, seconds it took, whether it was answered)."""
    before = [took for due, took, _ in samples if start + 0.5 <= due and due + took < at]
    after = [took for due, took, _ in samples if at <= due + took and due < at + AFTER_S]
    return {"requests": len(samples), "lost": sum(not good for _, _, good in samples),
            "before_p99_ms": 1e3 * rig.percentile(before, 99),
            "after_p99_ms": 1e3 * rig.percentile(after, 99),
            "max_ms": 1e3 * max(after, default=0), "down_ms": 1e3 * down_s}


async def client(port, due, spacing, until, samples):
    """Requests on a schedule by one connection, which is made anew when it is lost."""
    link = None
    while due < until:
        await asyncio.sleep(due - time.monotonic())
        good = False
        try:
            link = link or await asyncio.open_connection("127.0.0.1", port)
            good, keep = await asyncio.wait_for(ask(*link), 10)
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
            keep = False
        samples.append((due, time.monotonic() - due, good))
        if not keep and link:
            link[1].close()
            link = None
        due += spacing
    if link:
        link[1].close()


async def ask(reader, writer):
    """(whether the answer was 200 and whole, whether the connection stays)"""
    writer.write(REQUEST)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
    body = await reader.readexactly(length)
    good = head.split(b" ")[1] == b"200" and body == rig.SMALL
    return good, b"connection: close" not in head


def show(drill, rows):
    rig.say(f"\n{drill}")
    for name, runs in rows.items():
        s = summary(runs)
        rig.say(f"  {name:12s} lost {s['lost']} of {s['requests']}"
                f"  p99 {s['before_ms']:.1f} -> {s['after_ms']:.1f} ms (worst +{s['added_ms']:.1f})"
                f"  longest {s['max_ms']:.0f} ms  down {s['down_ms']:.0f} ms")


def summary(runs):
    """All runs of one server: sums, medians, and the worst of what is limited."""
    mid = lambda key: rig.median([r[key] for r in runs])
    return {"lost": sum(r["lost"] for r in runs), "requests": sum(r["requests"] for r in runs),
            "before_ms": mid("before_p99_ms"), "after_ms": mid("after_p99_ms"),
            "added_ms": max(r["after_p99_ms"] - r["before_p99_ms"] for r in runs),
            "max_ms": max(r["max_ms"] for r in runs), "down_ms": mid("down_ms")}


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"failover: {e}")
