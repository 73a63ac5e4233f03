"""The slow disk of cold.py, neighbour.py and others: diskbed, brought up for a with block.

diskbed is a tool of its own: a simulated mirror of two 7200 rpm disks under a read-only ext4, 2 GB
of 100 KB files on it, and a memory group that keeps a server's page cache small.  Its directory is
named by --diskbed or $DISKBED; it is copied to the state directory and built there.
"""
import contextlib
import importlib
import os
import shutil
import sys

import rig

LATE_READS_MAX = 10     # reads in a run for which the host was slower than the disk it plays


def arguments(ap):
    ap.add_argument("--diskbed", default=os.environ.get("DISKBED"), metavar="DIR",
                    help="where diskbed.py is (or $DISKBED)")
    ap.add_argument("--state", metavar="DIR", help="image and mounts (default: OUT/diskbed)")
    ap.add_argument("--speed", type=float, default=1,
                    help="run the disks so many times as fast; the ratios stay up to about 4")
    ap.add_argument("--memory", type=int, default=200, metavar="MB",
                    help="of a server, its page cache included (%(default)s)")
    ap.add_argument("--dirs", type=int, default=200,
                    help="directories of 100 files when the image is made (%(default)s)")


def loop_watch(base):
    """diskbed's Watch, but for servers whose event loops are threads.

    diskbed samples main threads.  lighty's loops are threads called worker-N, and its main thread
    only waits for signals: that one would always look free."""

    class LoopWatch(base):
        def run(self):
            self.loops, self.stopped = loop_threads(self.pids), 0
            while not self.halt.wait(self.period):
                self.samples += 1
                self.stopped += sum(state_of(task) == "D" for task in self.loops)

        def result(self):
            figures = super().result()
            samples = max(1, self.samples * len(self.loops))
            return {**figures, "blocked_pct": 100 * self.stopped / samples}

    return LoopWatch


def loop_threads(pids):
    """Directories in /proc of the threads that run event loops: of the processes that have no
    children, those called worker-N, or else the main thread."""
    found = []
    for pid in pids:
        if len(rig.tree(pid)) > 1:
            continue
        tasks = [f"/proc/{pid}/task/{tid}" for tid in os.listdir(f"/proc/{pid}/task")]
        workers = [task for task in tasks if read(task + "/comm").startswith("worker-")]
        found += workers or [f"/proc/{pid}/task/{pid}"]
    return found


def state_of(task):
    """R, S, D, ... ; nothing when the thread has ended."""
    return read(task + "/stat").rpartition(")")[2].strip()[:1]


def read(path):
    try:
        with open(path) as f:
            return f.read()
    except (FileNotFoundError, ProcessLookupError):
        return ""


@contextlib.contextmanager
def up(args, name="diskbed", files=None, disk=(), large=None, writer=None):
    """(the module diskbed, its Bed, mounted and cold); taken down at the end.

    Another set of files has a name of its own: `files` are directories, files in each, bytes.  `large`
    (count, bytes) are files /large-N beside them.  `disk` are options of simdisk.  `writer` writes
    other files in place of these, and the servers may write to the disk."""
    if not args.diskbed or not os.path.exists(args.diskbed + "/diskbed.py"):
        raise rig.RigError("say where diskbed is: --diskbed DIR or $DISKBED")
    state = os.path.abspath(args.state or args.out + "/" + name)
    tools = state + "/tools"
    shutil.copytree(args.diskbed, tools, dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns("state", "__pycache__", "*.o"))
    sys.path.insert(0, tools)
    diskbed = importlib.import_module("diskbed")
    diskbed.Watch = loop_watch(diskbed.Watch)
    try:
        diskbed.sh("make", "-C", tools + "/src")
        bed = diskbed.Bed(state)
        if writer:
            allow_writes(diskbed)
            diskbed.mkfiles.write_files = lambda *rest: writer(diskbed, *rest)
        if not os.path.exists(bed.image):
            rig.say("making the files on the disk, once")
            dirs, each, size = files or (args.dirs, 100, 102400)
            slack = 1.03 * beside(diskbed, dirs * each * size, large)
            bed.make(dirs, each, size, 3 * slack if writer else slack, 16384 if writer else 0)
        bed.up(["--speed", str(args.speed), *disk])
        try:
            yield diskbed, bed
        finally:
            bed.down()
    except diskbed.BedError as e:
        raise rig.RigError(f"diskbed: {e}") from None


def allow_writes(diskbed):
    """Has diskbed mount the disk for writing."""
    run = diskbed.sh

    def sh(*argv):
        argv = [word.replace("ro,noatime,noload", "noatime") for word in argv if word != "--read-only"]
        return run(*argv)

    diskbed.sh = sh


def beside(diskbed, small_bytes, large):
    """Adds `large` files to those that diskbed writes; returns by how much the disk must grow."""
    if not large:
        return 1
    count, size = large
    write_small = diskbed.mkfiles.write_files

    def write_files(root, *rest):
        write_small(root, *rest)
        for number in range(1, count + 1):
            with open(f"{root}/large-{number}", "wb", buffering=0) as f:
                piece = rig.pattern(f"large-{number}", 1 << 20)
                for _ in range(size >> 20):
                    f.write(piece)

    diskbed.mkfiles.write_files = write_files
    return (small_bytes + count * size) / small_bytes


def measured(diskbed, disk, make, args, turn, parallel, fetches, warmup=0):
    """What diskbed has to say of one run of a server of servers.chosen()."""
    argv, port = make()
    return diskbed.measure(disk, argv, port, memory_mb=args.memory, parallel=parallel,
                           fetches=fetches, warmup=warmup, seed=turn + 1, log=disk.state + "/server.out")


def kept(r):
    """The few figures of a run that are reported."""
    return {"fetches_s": r["fetches_per_sec"], "mb_s": r["bytes_per_sec"] / 1e6,
            "blocked_pct": r["blocked_pct"], "first_ms": r["first_response_ms"]["p50"],
            "fetch_ms": r["fetch_ms"]["p50"], "fetch_p99_ms": r["fetch_ms"]["p99"],
            "disk_util_pct": rig.ratio(sum(d["util_pct"] for d in r["disk"]), len(r["disk"])),
            "cpu_pct": r["server_cpu_pct"], "memory_mb": r["memory_mb"],
            "errors": sum(r["errors"].values()),
            "backing_late": sum(d["backing_late"] for d in r["disk"])}


def medians(runs):
    row = {key: rig.median([r[key] for r in runs]) for key in runs[0]}
    rates = [r["fetches_s"] for r in runs]
    row.update(lowest=min(rates), highest=max(rates), errors=sum(r["errors"] for r in runs))
    return row
