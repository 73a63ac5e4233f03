#!/usr/bin/env python3
"""Figure 6: what abuse and failing disks do to a server, and to its innocent clients.

One function is one drill; each starts the server afresh and says what happened and whether that
meets the figure required of lighty.  Needs root (FUSE, prlimit).

    slow-headers   200 clients send one header byte every 2 s: when they are shed     <= 15 s
    silent-flood   3000 connections that say nothing, limit 2048: a fresh client      <= 50 ms
    idle-flood     the same after one request on each                                 <= 50 ms
    stalled-reads  100 clients wait for a file system whose reads take 3 s: latency added to an
                   innocent client's hot file, and to files not asked for before      <= 20 ms
    stalled-paths  the same; look-ups and opens stall too                             <= 20 ms
    eio            the disk fails after the first MiB of 8: cut, alive, not spinning, serving
    truncated      64 MB file cut to 1 KB while it is sent: the same, and no wrong byte
    few-fds        descriptors cut to 8 spare, 60 clients: alive, not spinning, serving after
    half-close     the client shuts its side after the request: it gets its answer
    long-header    one header of 8 MiB          }  4xx before 1 MiB was sent,
    many-headers   100,000 headers              }  less than 50 ms of CPU
    huge-body      10 GB announced to a file    }  and 4 MiB of memory
"""
import contextlib
import json
import os
import resource
import select
import socket
import subprocess
import sys
import time

import client
import rig
import servers
import stallfs

SPIN_SHARE_MAX = 0.2
SHED_S_MAX, FRESH_MS_MAX, DELAY_MS_MAX = 15, 50, 20
POURED_BYTES_MAX, POURED_CPU_S_MAX, POURED_KIB_MAX = 1 << 20, 0.05, 4096
CONNECTIONS_MAX = 2048
PIECE_BYTES = 16 * 1024


class Outcome:
    def __init__(self, ok, text, **figures):
        self.ok, self.text, self.figures = bool(ok), text, figures


def main():
    ap = rig.arguments(__doc__, "lighty,nginx,lighttpd")
    ap.add_argument("--drills", default=",".join(DRILLS), metavar="A,B,...")
    ap.add_argument("--shed-wait", type=float, default=70, metavar="SECONDS",
                    help="how long slow-headers waits (%(default)s)")
    args = ap.parse_args()
    rig.raise_descriptors()
    args.root = make_root(args.out)
    wanted = servers.chosen(args, servers.Tuning(connections=CONNECTIONS_MAX), root=args.root)
    results = {}
    for drill in args.drills.split(","):
        for name, make in wanted:
            outcome = run(drill, name, make, args)
            results.setdefault(drill, {})[name] = {"ok": outcome.ok, "text": outcome.text,
                                                   **outcome.figures}
            rig.say(f"{drill:14s} {name:12s} {'pass' if outcome.ok else 'FAIL'}  {outcome.text}")
    rig.save(args, "drills", results, servers.versions(args, dict(wanted)))


def run(drill, name, make, args):
    try:
        return run_started(drill, name, make, args)
    except rig.RigError as e:
        return Outcome(False, f"does not start: {e}")


def run_started(drill, name, make, args):
    with servers.serving(args, name, make, core=None) as server:
        if not client.fetch(server.port).whole:
            return Outcome(False, "does not serve before the drill")
        try:
            outcome = DRILLS[drill](server, args)
        except TimeoutError:
            outcome = Outcome(False, "neither an answer nor an end within the time allowed")
        except (OSError, rig.RigError) as e:
            outcome = Outcome(False, f"the drill failed: {e}")
        if not server.alive():
            return Outcome(False, outcome.text + "; the server has DIED", **outcome.figures)
        return outcome


def make_root(out):
    root = out + "/drills"
    os.makedirs(root + "/fresh", exist_ok=True)
    rig.write_once(root + "/index.html", rig.SMALL)
    rig.write_once(root + "/10m.bin", rig.pattern("10m.bin", 10 << 20))
    for i in range(500):
        rig.write_once(f"{root}/fresh/{i}.html", rig.SMALL)
    return root


# ---------------------------------------------------------------- slow and idle clients

def slow_headers(server, args):
    slow = {client.connect(server.port): 0.0 for _ in range(200)}
    try:
        for s in slow:
            s.sendall(b"GET /index.html HTTP/1.1\r\nHost: bench\r\nX-Slow: ")
        start = time.monotonic()
        drip(slow, start, args.shed_wait)
        innocent = client.fetch(server.port)
    finally:
        for s in slow:
            s.close()
    left = sum(1 for at in slow.values() if not at)
    last = max(slow.values())
    text = f"{left} of 200 left after {args.shed_wait:.0f} s" if left else f"shed by {last:.1f} s"
    return Outcome(not left and last <= SHED_S_MAX and innocent.whole, text, shed_s=last, left=left)


def drip(slow, start, wait_s):
    """One byte to each every 2 s until all have been closed; notes when each was."""
    tick = start
    poll = select.poll()
    by_fd = {s.fileno(): s for s in slow}
    for fd in by_fd:
        poll.register(fd, select.POLLIN | select.POLLHUP | select.POLLERR)
    while by_fd and time.monotonic() < start + wait_s:
        for fd, _ in poll.poll(200):
            if not client.receive(by_fd[fd]):
                slow[by_fd.pop(fd)] = time.monotonic() - start
                poll.unregister(fd)
        if time.monotonic() >= tick + 2:
            tick += 2
            for s in by_fd.values():
                with contextlib.suppress(ConnectionError):
                    s.sendall(b"x")


def silent_flood(server, _args):
    return flood(server, request=None)


def idle_flood(server, _args):
    return flood(server, request=client.head("/index.html"))


def flood(server, request):
    idle = []
    try:
        for _ in range(3000):
            idle.append(client.connect(server.port, 10))
            if request:
                with contextlib.suppress(ConnectionError):
                    idle[-1].sendall(request)
        if request:
            wait_for_answers(idle)
        return fresh_clients(server)
    finally:
        for s in idle:
            s.close()


def wait_for_answers(idle):
    """Until no connection gets its answer for half a second: the rest are beyond the limit."""
    poll = select.poll()
    for s in idle:
        poll.register(s.fileno(), select.POLLIN)
    while ready := poll.poll(500):
        for fd, _ in ready:
            poll.unregister(fd)


def fresh_clients(server):
    took_ms = []
    for _ in range(5):
        start = time.monotonic()
        answer = client.fetch(server.port, timeout_s=5)
        took_ms.append((time.monotonic() - start) * 1e3)
        if not answer.whole:
            return Outcome(False, f"not served within {took_ms[-1] / 1e3:.1f} s", fresh_ms=None)
    worst = max(took_ms)
    return Outcome(worst <= FRESH_MS_MAX, f"served in {worst:.1f} ms", fresh_ms=worst)


# ---------------------------------------------------------------- the disk

def stalled_reads(server, args):
    return stalled(server, args, "reads")


def stalled_paths(server, args):
    return stalled(server, args, "all")


def stalled(server, args, what):
    with stallfs.mounted(args.root + "/stall") as command:
        before = innocents(server, 1)
        command(f"stall {what} 3")
        stuck = [client.connect(server.port, 15) for _ in range(100)]
        try:
            for i, s in enumerate(stuck):
                s.sendall(client.head(f"/stall/{i}.bin"))
            during = innocents(server, 2)
            served = sum(client.read_answer(s).whole for s in stuck)
        finally:
            for s in stuck:
                s.close()
    added = {kind: during[kind]["max_ms"] - before[kind]["p50_ms"] for kind in during}
    failed = sum(d["failed"] for d in during.values())
    noise = max(d["max_ms"] - d["p50_ms"] for d in before.values())
    ok = max(added.values()) <= DELAY_MS_MAX and not failed and served == 100
    return Outcome(ok, f"hot file delayed {added['hot']:.1f} ms, other files"
                       f" {added['fresh']:.1f} ms (by the machine alone {noise:.1f}),"
                       f" {served} of 100 stuck readers served after",
                   noise_ms=noise, hot_ms=added["hot"], fresh_ms=added["fresh"], served=served)


def innocents(server, seconds):
    """A client of one hot file and one of ever other files, together."""
    first = 0 if seconds == 1 else 200
    paths = {"hot": "/index.html", "fresh": f"/fresh/{client.FRESH}.html"}
    started = {}
    for kind, path in paths.items():
        argv = [sys.executable, client.__file__, str(server.port), path, "100", str(seconds),
                str(first)]
        started[kind] = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    return {kind: json.loads(p.communicate()[0]) for kind, p in started.items()}


def eio(server, args):
    with stallfs.mounted(args.root + "/stall"):
        with client.connect(server.port, 10) as s:
            s.sendall(client.head("/stall/eio.bin"))
            answer = client.read_answer(s)
        correct = answer.status >= 500 or answer.status == 200 and not answer.whole
        after = aftermath(server)
    return Outcome(correct and after.ok, f"{described(answer)}, {after.text}",
                   status=answer.status, received=len(answer.body))


def truncated(server, args):
    path, size = args.root + "/shrink.bin", 64 << 20
    content = rig.pattern("shrink.bin", size)
    with open(path, "wb") as f:
        f.write(content)
    try:
        with client.connect(server.port, 10, receive_bytes=64 * 1024) as s:
            s.sendall(client.head("/shrink.bin"))
            # A page (of any size: folios) that straddles the cut is cleared even while it waits in
            # a socket, whoever sent it: be past it.
            data = b""
            while len(data) < 16 << 20:
                got = s.recv(1 << 16)
                if not got:
                    raise rig.RigError("the answer ended before the file was cut")
                data += got
            os.truncate(path, 1024)
            answer = client.read_answer(s, data)
        right = content.startswith(answer.body)
        after = aftermath(server)
        shrunk = fetch_until(server, "/shrink.bin", 1024)
    finally:
        os.unlink(path)
    ok = answer.closed and not answer.whole and right and after.ok and shrunk
    text = described(answer) + ("" if right else ", WRONG BYTES") + ", " + after.text
    return Outcome(ok, text + ("" if shrunk else ", does not serve the shorter file"),
                   received=len(answer.body))


def fetch_until(server, path, size):
    """Does the file arrive with its new size within three seconds (caches look once a second)?"""
    end = time.monotonic() + 3
    while time.monotonic() < end:
        answer = client.fetch(server.port, path)
        if answer.whole and len(answer.body) == size:
            return True
        time.sleep(0.1)
    return False


def described(answer):
    if answer.whole:
        return "a WHOLE answer"
    if answer.status != 200:
        return f"status {answer.status}" if answer.status else "closed without an answer"
    return f"cut after {len(answer.body) / 1e6:.1f} of {(answer.announced or 0) / 1e6:.1f} MB"


def aftermath(server):
    """Is it still there, idle when it has nothing to do, and serving?"""
    share = cpu_share(server, 1)
    serves = client.fetch(server.port).whole
    ok = server.alive() and share <= SPIN_SHARE_MAX and serves
    return Outcome(ok, f"then {share:.0%} CPU, {'serves' if serves else 'does NOT serve'}")


def cpu_share(server, seconds):
    before = rig.cpu_s(server.pid)
    time.sleep(seconds)
    return (rig.cpu_s(server.pid) - before) / seconds


# ---------------------------------------------------------------- descriptors, half-close

def few_fds(server, _args):
    pids = rig.tree(server.pid)
    old = {pid: resource.prlimit(pid, resource.RLIMIT_NOFILE) for pid in pids}
    clients = []
    try:
        for pid in pids:
            highest = max(map(int, os.listdir(f"/proc/{pid}/fd")), default=2)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + 1 + 8, old[pid][1]))
        for _ in range(60):
            clients.append(client.connect(server.port))
            clients[-1].sendall(client.head("/index.html"))
        share = cpu_share(server, 3)
        readable, _, _ = select.select(clients, [], [], 0)
    finally:
        for s in clients:
            s.close()
        if server.alive():
            for pid in pids:
                resource.prlimit(pid, resource.RLIMIT_NOFILE, old[pid])
    start = time.monotonic()
    serves = client.fetch(server.port).whole
    took_ms = (time.monotonic() - start) * 1e3
    text = f"{share:.0%} CPU while short, {len(readable)} of 60 answered or refused, "
    text += f"serves again in {took_ms:.0f} ms" if serves else "does NOT serve after"
    return Outcome(serves and share <= SPIN_SHARE_MAX, text, cpu_share=share, again_ms=took_ms)


def half_close(server, _args):
    got = []
    for path in ("/index.html", "/10m.bin"):
        with client.connect(server.port, 10) as s:
            s.sendall(client.head(path))
            s.shutdown(socket.SHUT_WR)
            got.append(client.read_answer(s))
    texts = ["whole" if a.whole else described(a) for a in got]
    return Outcome(all(a.whole for a in got), f"44 B: {texts[0]}, 10 MB: {texts[1]}")


# ---------------------------------------------------------------- too much of everything

def long_header(server, _args):
    return pour(server, b"GET / HTTP/1.1\r\nHost: bench\r\nX-Long: ", b"x" * PIECE_BYTES, 8 << 20)


def many_headers(server, _args):
    lines = b"".join(b"X-%05d: 1\r\n" % i for i in range(100_000))
    return pour(server, b"GET / HTTP/1.1\r\nHost: bench\r\n", lines, len(lines))


def huge_body(server, _args):
    top = b"POST /index.html HTTP/1.1\r\nHost: bench\r\nContent-Length: 10737418240\r\n\r\n"
    return pour(server, top, bytes(PIECE_BYTES), 64 << 20)


def pour(server, top, content, total):
    """Send content, over and over, until the server answers or closes, or total bytes are sent."""
    cpu, kib = rig.cpu_s(server.pid), rig.memory_kib(server.pid)
    peak_kib, sent = kib, 0
    with client.connect(server.port, 5) as s:
        answered = False
        with contextlib.suppress(ConnectionError):
            s.sendall(top)
            while sent < total and not answered:
                at = sent % len(content)
                s.sendall(content[at:at + PIECE_BYTES])
                sent += min(PIECE_BYTES, len(content) - at)
                answered = bool(select.select([s], [], [], 0.001)[0])
                peak_kib = max(peak_kib, rig.memory_kib(server.pid))
        status = first_status(s)
    cpu, grown_kib = rig.cpu_s(server.pid) - cpu, peak_kib - kib
    serves = client.fetch(server.port).whole
    ok = (400 <= status < 500 and sent <= POURED_BYTES_MAX and cpu <= POURED_CPU_S_MAX
          and grown_kib <= POURED_KIB_MAX and serves)
    said = f"status {status}" if status else "no answer"
    text = f"{said} after {sent / 1024:.0f} KiB, {cpu * 1e3:.0f} ms CPU, {grown_kib} KiB more"
    return Outcome(ok, text + ("" if serves else ", does NOT serve after"), status=status,
                   sent=sent, cpu_s=cpu, grown_kib=grown_kib)


def first_status(s):
    try:
        return client.status_of(client.receive(s))
    except TimeoutError:
        return 0


DRILLS = {"slow-headers": slow_headers, "silent-flood": silent_flood, "idle-flood": idle_flood,
          "stalled-reads": stalled_reads, "stalled-paths": stalled_paths, "eio": eio,
          "truncated": truncated, "few-fds": few_fds, "half-close": half_close,
          "long-header": long_header, "many-headers": many_headers, "huge-body": huge_body}


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"drills: {e}")
