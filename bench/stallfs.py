#!/usr/bin/env python3
"""A file system that stalls and fails on command, for drills.py.

    stallfs.py MOUNTPOINT        (root; ends when standard input ends)

It holds FILES files 0.bin, 1.bin, ... of 64 KB, and eio.bin of 8 MiB, which cannot be read beyond
its first MiB.  Commands come as lines on standard input, each answered by `ok`:

    stall reads SECONDS          reads are answered after so many seconds, the rest at once
    stall all SECONDS            so is every look-up, open and stat

The kernel's FUSE protocol (linux/fuse.h) is spoken directly, and mount(2) called through ctypes:
there is nothing to install.  Nothing is cached but file data, so that each request arrives here.
"""
import contextlib
import ctypes
import errno
import os
import select
import stat
import struct
import subprocess
import sys
import time

FILES = 1000
FILE_BYTES = 64 * 1024
EIO_BYTES, EIO_FROM = 8 << 20, 1 << 20
ROOT_NODE, EIO_NODE, FIRST_NODE = 1, 2, 16
REQUEST_BYTES_MAX = (1 << 20) + 8192

LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE = 1, 2, 3, 14, 15, 17, 18
FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, INTERRUPT, BATCH_FORGET = 25, 26, 27, 28, 29, 36, 42
SILENT = {FORGET, INTERRUPT, BATCH_FORGET}
ASYNC_READ = 1
MNT_DETACH = 2

LIBC = ctypes.CDLL(None, use_errno=True)


class StallFs:
    """The daemon: one loop over the kernel's requests and the commands."""

    def __init__(self, device):
        self.device = device
        self.held, self.stalled, self.until = [], set(), 0.0
        self.answers = {INIT: self.init, LOOKUP: self.lookup, GETATTR: self.getattr,
                        OPEN: self.opened, OPENDIR: self.opened, READ: self.read,
                        READDIR: lambda *_: b"", STATFS: lambda *_: bytes(80),
                        RELEASE: lambda *_: b"", RELEASEDIR: lambda *_: b"",
                        FLUSH: lambda *_: b""}

    def serve(self):
        while True:
            wait_s = max(0.0, self.until - time.monotonic()) if self.stalled else None
            ready, _, _ = select.select([self.device, 0], [], [], wait_s)
            if self.stalled and time.monotonic() >= self.until:
                self.release()
            if 0 in ready and not self.command():
                return
            if self.device in ready:
                try:
                    self.handle(os.read(self.device, REQUEST_BYTES_MAX))
                except OSError as e:
                    if e.errno == errno.ENODEV:     # unmounted
                        return
                    if e.errno not in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                        raise

    def command(self):
        words = os.read(0, 4096).decode().split()
        if not words:
            return False
        self.stalled = {READ} if words[1] == "reads" else {READ, LOOKUP, GETATTR, OPEN}
        self.until = time.monotonic() + float(words[2])
        print("ok", flush=True)
        return True

    def release(self):
        self.stalled = set()
        held, self.held = self.held, []
        for request in held:
            self.handle(request)

    def handle(self, request):
        _, opcode, unique, node = struct.unpack_from("<IIQQ", request)
        if opcode in self.stalled:
            self.held.append(request)
        elif opcode not in SILENT:
            answer = self.answers.get(opcode, lambda *_: errno.ENOSYS)(node, request[40:])
            error, body = (-answer, b"") if isinstance(answer, int) else (0, answer)
            with contextlib.suppress(FileNotFoundError):        # the asker has gone
                os.write(self.device, struct.pack("<IiQ", 16 + len(body), error, unique) + body)

    def init(self, _node, body):
        read_ahead_bytes = struct.unpack_from("<III", body)[2]
        return struct.pack("<IIIIHHIIHHI28x", 7, 31, read_ahead_bytes, ASYNC_READ, 1024, 1024,
                           1 << 20, 1, 0, 0, 0)

    def lookup(self, _node, body):
        node = node_of(body.rstrip(b"\0").decode(errors="replace"))
        if not node:
            return errno.ENOENT
        return struct.pack("<QQQQII", node, 0, 0, 0, 0, 0) + attributes(node)

    def getattr(self, node, _body):
        return struct.pack("<QII", 0, 0, 0) + attributes(node)

    def opened(self, _node, _body):
        return struct.pack("<QII", 0, 0, 0)

    def read(self, node, body):
        _, offset, size = struct.unpack_from("<QQI", body)
        if node == EIO_NODE and offset + size > EIO_FROM:
            return errno.EIO
        return b"s" * max(0, min(size, size_of(node) - offset))


def node_of(name):
    word, _, extension = name.partition(".")
    if name == "eio.bin":
        return EIO_NODE
    if extension == "bin" and word.isdigit() and int(word) < FILES:
        return FIRST_NODE + int(word)
    return None


def size_of(node):
    return {ROOT_NODE: 0, EIO_NODE: EIO_BYTES}.get(node, FILE_BYTES)


def attributes(node):
    mode = stat.S_IFDIR | 0o755 if node == ROOT_NODE else stat.S_IFREG | 0o644
    size, mtime = size_of(node), 1_700_000_000
    return struct.pack("<QQQQQQIIIIIIIIII", node, size, (size + 511) // 512, mtime, mtime, mtime,
                       0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


@contextlib.contextmanager
def mounted(directory):
    """The file system for a with block; gives a function that sends it a command."""
    os.makedirs(directory, exist_ok=True)
    unmount(directory)
    daemon = subprocess.Popen([sys.executable, __file__, directory], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)

    def command(words):
        daemon.stdin.write(words + "\n")
        daemon.stdin.flush()
        if daemon.stdout.readline() != "ok\n":
            raise OSError("stallfs has ended")
    try:
        if daemon.stdout.readline() != "mounted\n":
            raise OSError(f"{directory} cannot be mounted (FUSE, as root)")
        yield command
    finally:
        unmount(directory)
        daemon.stdin.close()
        daemon.wait()
        daemon.stdout.close()


def unmount(directory):
    LIBC.umount2(directory.encode(), MNT_DETACH)


def main():
    directory = sys.argv[1]
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    if LIBC.mount(b"stallfs", directory.encode(), b"fuse.stallfs", 0, options.encode()):
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
    print("mounted", flush=True)
    try:
        StallFs(device).serve()
    finally:
        unmount(directory)


if __name__ == "__main__":
    main()
