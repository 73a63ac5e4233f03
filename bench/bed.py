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
