"""Clients that wrk cannot be: exact counts, latencies on a schedule, requests that are wrong.

As a program it is the innocent client of neighbour.py and drills.py:

    client.py PORT PATH RATE SECONDS [FIRST]     prints {"samples": N, "p99_ms": ..., ...}

It sends RATE requests a second by one keep-alive connection, each at its appointed time, and
takes the latency from that time, not from when it came to sending: a server that stops for a
second is charged with every request that was due in that second.
"""
import json
import os
import socket
import sys
import time

import rig

FRESH = "{n}"


class Answer:
    """A response: status 0 means that the connection ended before a status line."""

    def __init__(self, status=0, announced=None, body=b"", closed=False):
        self.status, self.announced, self.body, self.closed = status, announced, body, closed

    @property
    def whole(self):
        return self.status == 200 and len(self.body) == (self.announced or 0)


def connect(port, timeout_s=5.0, source=None, receive_bytes=None):
    s = socket.socket()
    s.settimeout(timeout_s)
    if receive_bytes:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if source:
        s.bind((source, 0))
    s.connect(("127.0.0.1", port))
    return s


def head(path, extra=""):
    return f"GET {path} HTTP/1.1\r\nHost: bench\r\n{extra}\r\n".encode()


def read_answer(s, data=b""):
    """Read one answer with a Content-Length, or what there is of it when the connection ends.

    `data` is what has been read of it already.  A time-out is an exception: it means that the
    server neither answers nor closes."""
    while b"\r\n\r\n" not in data:
        got = receive(s)
        if not got:
            return Answer(status=status_of(data), closed=True)
        data += got
    top, _, rest = data.partition(b"\r\n\r\n")
    announced = None
    for line in top.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            announced = int(value)
    parts, size = [rest], len(rest)
    while announced is None or size < announced:
        got = receive(s)
        if not got:
            return Answer(status_of(top), announced, b"".join(parts), closed=True)
        parts.append(got)
        size += len(got)
    return Answer(status_of(top), announced, b"".join(parts))


def read_message(s):
    """The status of one answer that leaves the connection open, framed by length or by chunks."""
    data = b""
    while b"\r\n\r\n" not in data:
        data = more(s, data)
    top, _, body = data.partition(b"\r\n\r\n")
    status, fields = status_of(top), top.lower()
    if b"transfer-encoding: chunked" in fields:
        while not body.endswith(b"\r\n0\r\n\r\n") and body != b"0\r\n\r\n":
            body = more(s, body)
    elif status not in (204, 304):
        announced = int(fields.partition(b"content-length:")[2].partition(b"\r\n")[0])
        while len(body) < announced:
            body = more(s, body)
    return status


def more(s, data):
    got = receive(s)
    if not got:
        raise rig.RigError(f"the connection ended within an answer, after {len(data)} bytes")
    return data + got


def receive(s):
    try:
        return s.recv(1 << 18)
    except ConnectionError:
        return b""


def status_of(data):
    words = data.split(b" ", 2)
    return int(words[1]) if len(words) > 1 and words[1][:3].isdigit() else 0


def fetch(port, path="/index.html", timeout_s=5.0):
    """One request by a connection of its own; status 0 when there is no answer in time."""
    try:
        with connect(port, timeout_s) as s:
            s.sendall(head(path, "Connection: close\r\n"))
            return read_answer(s)
    except (TimeoutError, ConnectionError):
        return Answer()


def keep_alive_requests(port, path, count):
    """So many requests, one after the other, by one connection."""
    request = head(path)
    with connect(port) as s:
        for _ in range(count):
            s.sendall(request)
            answer = read_answer(s)
            if not answer.whole:
                raise rig.RigError(f"{path}: status {answer.status}, {len(answer.body)} bytes")


def paced(port, path, rate, seconds, first=0):
    """Latencies in ms of requests sent on a schedule; a late answer delays none of the clocks.

    With {n} in the path every request asks for another file, numbered from `first`."""
    latencies, failed = [], 0
    start = time.monotonic() + 0.05
    end = start + seconds
    s, n = None, 0
    while True:
        due = start + n / rate
        if due > end or time.monotonic() > end + 10:
            break
        time.sleep(max(0, due - time.monotonic()))
        try:
            s = s or connect(port, 10)
            s.sendall(head(path.replace(FRESH, str(first + n))))
            if read_answer(s).whole:
                latencies.append((time.monotonic() - due) * 1e3)
            else:
                raise ConnectionError
        except (TimeoutError, ConnectionError):
            failed += 1
            latencies.append((time.monotonic() - due) * 1e3)
            if s:
                s.close()
            s = None
        n += 1
    if s:
        s.close()
    return latencies, failed


def summary(latencies, failed):
    return {"samples": len(latencies), "failed": failed,
            "p50_ms": rig.percentile(latencies, 50), "p99_ms": rig.percentile(latencies, 99),
            "max_ms": max(latencies, default=0)}


def main():
    port, path, rate, seconds = sys.argv[1:5]
    first = int(sys.argv[5]) if len(sys.argv) > 5 else 0
    try:
        # The client must not wait for the other load on its core: its lateness would be taken
        # for the server's.
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    except PermissionError:
        pass
    print(json.dumps(summary(*paced(int(port), path, float(rate), float(seconds), first))))


if __name__ == "__main__":
    main()
