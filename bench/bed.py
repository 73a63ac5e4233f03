"""The slow disk of cold.py and neighbour.py: diskbed, brought up for a with block.

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
def up(args):
    """(the module diskbed, its Bed, mounted and cold); taken down at the end."""
    if not args.diskbed or not os.path.exists(args.diskbed + "/diskbed.py"):
        raise rig.RigError("say where diskbed is: --diskbed DIR or $DISKBED")
    state = os.path.abspath(args.state or args.out + "/diskbed")
    tools = state + "/tools"
    shutil.copytree(args.diskbed, tools, dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns("state", "__pycache__", "*.o"))
    sys.path.insert(0, tools)
    diskbed = importlib.import_module("diskbed")
    diskbed.Watch = loop_watch(diskbed.Watch)
    try:
        diskbed.sh("make", "-C", tools + "/src")
        bed = diskbed.Bed(state)
        if not os.path.exists(bed.image):
            rig.say("making the files on the disk, once")
            bed.make(args.dirs, 100, 102400, 1.03, 0)
        bed.up(["--speed", str(args.speed)])
        try:
            yield diskbed, bed
        finally:
            bed.down()
    except diskbed.BedError as e:
        raise rig.RigError(f"diskbed: {e}") from None
