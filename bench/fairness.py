#!/usr/bin/env python3
"""Small cold files beside large downloads on a disk that seeks: what a scheduler of reads gains.

Four clients download files of 1 GB from diskbed while others ask for 50 cold files of 16 KB a
second, each once, on a schedule: latency counts from the moment a request was due.  Each server
serves the small files alone, the downloads alone, and both, cold and started anew for each.
`lighty` puts reads of this disk in order, `lighty:auto+bulk0` does not.

`direct:` is the control: threads that read the same files without a server, by the rules that a
scheduler in front of the file engine could have.  Its words:

    NxK       at most N reads of K KB for downloads at a time, without the kernel's read-ahead
    first     and none begins while a small file is awaited

Wanted: small files at most 1.5 times alone, downloads at least 0.9 of alone.  What the disk is
busy with the small files alone is lost to the downloads under any scheduler.
"""
import contextlib
import os
import queue
import random
import sys
import threading
import time

import bed
import client
import rig
import servers

FILES = (40, 100, 16 << 10)
LARGE = (4, 1 << 30)
PIECE = 256 << 10
RECEIVE_BUFFER = 128 << 10      # a download that pauses must stop the server soon
SMALL_CLIENTS = 64
PHASES = ("small", "large", "both")
DEFAULT = "lighty:auto+bulk0,lighty,lighty:auto+bulk0+pool+reads4,nginx,nginx:aio"
DIRECT = "direct:4x512,direct:2x512,direct:2x512+first"


def main():
    ap = rig.arguments(__doc__, DEFAULT)
    bed.arguments(ap)
    ap.set_defaults(speed=4)
    ap.add_argument("--rate", type=float, default=50, help="small files a second (%(default)s)")
    ap.add_argument("--secs", type=float, default=15, help="of each phase (%(default)s)")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--downloads", type=int, default=LARGE[0], help="at a time (%(default)s)")
    ap.add_argument("--direct", default=DIRECT, help="the controls (%(default)s)")
    args = ap.parse_args()
    sys.setswitchinterval(5e-4)
    rows = {}
    with bed.up(args, "diskbed-1gb", FILES, large=LARGE) as (diskbed, disk):
        makers = dict(servers.chosen(args, servers.Tuning(idle_s=300), root=disk.data))
        subjects = list(makers.items()) + [(name, None) for name in args.direct.split(",") if name]
        for turn in range(args.rounds):
            for name, make in subjects:
                for phase in PHASES:
                    r = one_phase(args, diskbed, disk, name, make, phase, turn)
                    rows.setdefault(name, {}).setdefault(phase, []).append(r)
                    rig.say(line_of(name, phase, r))
    results = {name: {phase: medians(rs) for phase, rs in row.items()} for name, row in rows.items()}
    show(results)
    rig.save(args, "fairness", {"speed": args.speed, "rate": args.rate, "servers": results},
             servers.versions(args, makers))


def one_phase(args, diskbed, disk, name, make, phase, turn):
    made_cold(diskbed, disk)
    rate, downloads = (args.rate if phase != "large" else 0,
                       args.downloads if phase != "small" else 0)
    with diskbed.MemoryGroup(args.memory) as group, contextlib.ExitStack() as stack:
        if make:
            argv, port = make()
            log = disk.state + "/server.out"
            stack.enter_context(rig.serving(name, argv, port, log, core=None, enter=group.enter))
            load = Load(port)
        else:
            load = Direct(disk.data, name.partition(":")[2])
        disk.control("reset")
        before = stats(disk)
        figures = load.run(rate, downloads, args.secs, turn)
        spindles = diskbed.disk_summary(before, stats(disk))
    return {**figures, "busy_pct": mean(spindles, "util_pct"),
            "reads_s": args.speed * sum(s["r/s"] for s in spindles),
            "queue": sum(s["queue"] for s in spindles),
            "backing_late": sum(s["backing_late"] for s in spindles)}


def made_cold(diskbed, disk):
    """The kernel closes the files of an io_uring some time after its process has ended."""
    for _ in range(50):
        with contextlib.suppress(diskbed.BedError):
            return disk.cold()
        time.sleep(0.1)
    return disk.cold()


def stats(disk):
    """simdisk may write its figures anew while they are read."""
    for _ in range(20):
        with contextlib.suppress(ValueError):
            return disk.stats()
    return disk.stats()


def mean(spindles, key):
    return rig.ratio(sum(s[key] for s in spindles), len(spindles))


class Load:
    """Clients of both kinds, for one phase."""

    def __init__(self, port):
        self.port = port
        self.changed = threading.Condition()
        self.awaited = 0            # small files requested and not received
        self.due = queue.Queue()
        self.latencies, self.failed, self.received = [], 0, 0

    def run(self, rate, downloads, secs, seed):
        """The figures of `rate` small files a second and so many downloads."""
        self.start = time.monotonic() + 0.5
        self.end = self.start + secs
        threads = [threading.Thread(target=self.download, args=(n + 1,)) for n in range(downloads)]
        threads += [threading.Thread(target=self.small) for _ in range(SMALL_CLIENTS if rate else 0)]
        for thread in threads:
            thread.start()
        if rate:
            self.schedule(rate, seed)
        for thread in threads:
            thread.join()
        return {**client.summary(self.latencies, self.failed),
                "large_mb_s": self.received / secs / 1e6}

    def schedule(self, rate, seed):
        paths = [f"/files-{i + 1}/{j + 1}" for i in range(FILES[0]) for j in range(FILES[1])]
        random.Random(seed).shuffle(paths)
        gaps, at = random.Random(seed + 1), self.start
        while at < self.end and paths:
            time.sleep(max(0, at - time.monotonic()))
            with self.changed:
                self.awaited += 1
            self.due.put((at, paths.pop()))
            at += gaps.expovariate(rate)
        for _ in range(SMALL_CLIENTS):
            self.due.put(None)

    def small(self):
        with contextlib.closing(Connection(self.port)) as connection:
            while (task := self.due.get()) is not None:
                self.came(task[0], connection.fetch(task[1]))

    def came(self, due, is_whole):
        with self.changed:
            self.latencies.append((time.monotonic() - due) * 1e3)
            self.failed += not is_whole
            self.awaited -= 1
            if not self.awaited:
                self.changed.notify_all()

    def download(self, number):
        """One file, from its beginning again should it end; only bytes within the phase count."""
        buffer = bytearray(PIECE)
        while time.monotonic() < self.end:
            with client.connect(self.port, 30, receive_bytes=RECEIVE_BUFFER) as connection:
                connection.sendall(client.head(f"/large-{number}", "Connection: close\r\n"))
                while time.monotonic() < self.end:
                    got = connection.recv_into(buffer)
                    if not got:
                        break
                    self.count(got)

    def count(self, got):
        if self.start <= time.monotonic() < self.end:
            with self.changed:
                self.received += got


class Connection:
    """Keep-alive, and opened anew after a failure."""

    def __init__(self, port):
        self.port, self.socket = port, None

    def fetch(self, path):
        """True if the answer was whole."""
        with contextlib.suppress(TimeoutError, ConnectionError):
            self.socket = self.socket or client.connect(self.port, 30)
            self.socket.sendall(client.head(path))
            if client.read_answer(self.socket).whole:
                return True
        self.close()
        return False

    def close(self):
        if self.socket:
            self.socket.close()
        self.socket = None


class Direct(Load):
    """The same reads without a server; downloads keep to the rules of a scheduler."""

    def __init__(self, root, words):
        super().__init__(0)
        self.root, self.are_small_first = root, words.endswith("+first")
        reads, kib = words.partition("+")[0].split("x")
        self.reads_max, self.chunk, self.reading = int(reads), int(kib) << 10, 0

    def small(self):
        while (task := self.due.get()) is not None:
            with open(self.root + task[1], "rb", buffering=0) as f:
                self.came(task[0], len(f.read()) == FILES[2])

    def download(self, number):
        buffer = memoryview(bytearray(self.chunk))
        with open(f"{self.root}/large-{number}", "rb", buffering=0) as f:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            while time.monotonic() < self.end:
                with self.turn():
                    got = f.readinto(buffer)
                self.count(got)
                if not got:
                    f.seek(0)

    @contextlib.contextmanager
    def turn(self):
        with self.changed:
            self.changed.wait_for(self.may_read, max(0, self.end - time.monotonic()))
            self.reading += 1
        try:
            yield
        finally:
            with self.changed:
                self.reading -= 1
                self.changed.notify()

    def may_read(self):
        return self.reading < self.reads_max and not (self.are_small_first and self.awaited)


def line_of(name, phase, r):
    return (f"{name:24s} {phase:9s} small p50 {r['p50_ms']:6.1f} p99 {r['p99_ms']:6.1f} ms"
            f" of {r['samples']} failed {r['failed']}, large {r['large_mb_s']:6.1f} MB/s |"
            f" disk {r['reads_s']:5.0f} r/s busy {r['busy_pct']:3.0f} % queue {r['queue']:4.1f}"
            f" late {r['backing_late']}")


def medians(runs):
    return {key: rig.median([r[key] for r in runs]) for key in runs[0]}


def show(results):
    """Downloads of a control are compared with those of the first server, which keeps the disk full."""
    alone = next(iter(results.values()))["large"]["large_mb_s"]
    worst = next(iter(results.values()))["both"]["p99_ms"]
    rig.say(f"\n{'server':24s} small p99 ms alone  beside  x alone   downloads MB/s alone  beside"
            "  of the first's   gain")
    for name, row in results.items():
        small, large, both = (row[phase] for phase in PHASES)
        rig.say(f"{name:24s} {small['p99_ms']:18.1f} {both['p99_ms']:7.1f}"
                f" {rig.ratio(both['p99_ms'], small['p99_ms']):8.2f}"
                f" {large['large_mb_s']:22.1f} {both['large_mb_s']:7.1f}"
                f" {rig.ratio(both['large_mb_s'], alone):15.2f}"
                f" {rig.ratio(worst, both['p99_ms']):6.1f}")
    if any(r["backing_late"] > bed.LATE_READS_MAX for row in results.values() for r in row.values()):
        rig.say("the host's own disk was late: this run is worth nothing")


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"fairness: {e}")
