"""A client of HTTP/2 in clear text that can be wrong: frames by hand, no windows kept for it.

As a program it is the innocent client of floods.py:

    http2.py PORT PATH RATE SECONDS     prints {"samples": N, "p99_ms": ..., ...}
"""
import json
import os
import select
import sys
import time

import client
import rig

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, \
    CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS = 4, 3
WINDOW_MAX = (1 << 31) - 1


def frame(kind, flags=0, stream=0, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def settings(**values):
    numbers = {"window": INITIAL_WINDOW_SIZE}
    return frame(SETTINGS, payload=b"".join(
        numbers[name].to_bytes(2, "big") + value.to_bytes(4, "big")
        for name, value in values.items()))


def window_update(stream, bytes_more):
    return frame(WINDOW_UPDATE, stream=stream, payload=bytes_more.to_bytes(4, "big"))


def string(text):
    """A string of HPACK below 127 bytes, not Huffman-coded."""
    return bytes([len(text)]) + text


def request(path="/index.html", method="GET"):
    """The field block of a request: literals that go into no table."""
    top = b"\x82" if method == "GET" else b"\x83"
    return top + b"\x86\x04" + string(path.encode()) + b"\x01" + string(b"bench")


def get(stream, path="/index.html", ends=True):
    flags = END_HEADERS | (END_STREAM if ends else 0)
    return frame(HEADERS, flags, stream, request(path, "GET" if ends else "POST"))


class Connection:
    """A socket, and what its frames say."""

    def __init__(self, port, timeout_s=5.0, **own_settings):
        self.socket = client.connect(port, timeout_s)
        self.unread = b""
        self.is_over = False
        self.goaway = None          # its error code
        self.max_streams = None     # what the server announces
        self.socket.sendall(PREFACE + settings(**own_settings))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, frames):
        """False when the server has gone away or takes nothing for five seconds."""
        try:
            self.socket.sendall(frames)
        except (ConnectionError, TimeoutError):
            self.is_over = True
        return not self.is_over

    def has_ended(self):
        """True if the server has closed, whatever lies unread."""
        poll = select.poll()
        poll.register(self.socket, select.POLLRDHUP | select.POLLHUP | select.POLLERR)
        return bool(poll.poll(0))

    def frames(self, wait_s=0.0):
        """[(kind, flags, stream, payload)] of what has arrived; waits for the first bytes."""
        if select.select([self.socket], [], [], wait_s)[0]:
            got = client.receive(self.socket)
            self.is_over |= not got
            self.unread += got
        found = []
        while len(self.unread) >= 9:
            size = int.from_bytes(self.unread[:3], "big")
            if len(self.unread) < 9 + size:
                break
            kind, flags = self.unread[3:5]
            stream = int.from_bytes(self.unread[5:9], "big")
            found.append((kind, flags, stream, self.unread[9:9 + size]))
            self.unread = self.unread[9 + size:]
        for kind, flags, _, payload in found:
            self.note(kind, flags, payload)
        return found

    def note(self, kind, flags, payload):
        if kind == GOAWAY:
            self.goaway = int.from_bytes(payload[4:8], "big")
        elif kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                if int.from_bytes(payload[at:at + 2], "big") == MAX_CONCURRENT_STREAMS:
                    self.max_streams = int.from_bytes(payload[at + 2:at + 6], "big")
            self.send(frame(SETTINGS, ACK))

    def begin(self):
        """Waits for the server's settings."""
        while self.max_streams is None and not self.is_over:
            if not self.frames(5) and not self.unread:
                break
        return self

    def fetch(self, stream, path):
        """The bytes of an answer's content, or None where there is no whole one."""
        size = 0
        if not self.send(get(stream, path)):
            return None
        end = time.monotonic() + 10
        while not self.is_over and time.monotonic() < end:
            for kind, flags, on, payload in self.frames(10):
                if on != stream:
                    continue
                if kind == RST_STREAM:
                    return None
                size += len(payload) if kind == DATA else 0
                if kind in (HEADERS, DATA) and flags & END_STREAM:
                    self.send(window_update(0, size) if size else b"")
                    return size
        return None


def fetch(port, path="/index.html"):
    """The bytes of one answer by a connection of its own, or None."""
    try:
        with Connection(port) as c:
            return c.fetch(1, path)
    except (ConnectionError, TimeoutError):
        return None


def paced(port, path, rate, seconds):
    """As client.paced(), by streams of one connection."""
    latencies, failed = [], 0
    start = time.monotonic() + 0.05
    connection, stream, n = None, 1, 0
    while start + n / rate <= start + seconds and time.monotonic() < start + seconds + 10:
        due = start + n / rate
        time.sleep(max(0, due - time.monotonic()))
        whole = False
        try:
            if connection is None or connection.is_over or connection.goaway is not None:
                connection, stream = Connection(port, 10), 1
            whole = connection.fetch(stream, path) is not None
        except (ConnectionError, TimeoutError):
            connection = None
        stream += 2
        failed += not whole
        latencies.append((time.monotonic() - due) * 1e3)
        n += 1
    return latencies, failed


def main():
    port, path, rate, seconds = sys.argv[1:5]
    try:
        # Its own lateness would be taken for the server's.
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    except PermissionError:
        pass
    latencies, failed = paced(int(port), path, float(rate), float(seconds))
    print(json.dumps(client.summary(latencies, failed)))


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"http2: {e}")
