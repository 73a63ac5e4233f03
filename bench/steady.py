"""The clients of the reload drills, and the backend behind the servers: each as a program of its own.

    steady.py backend PORT...              answers on these ports until its standard input ends
    steady.py load '{"port": N, ...}'      see Load; reads orders, prints what happened

A load has kept connections that send at a rate, paced downloads and uploads, tunnels that echo, and
event streams.  Orders are lines on standard input: `phase NAME` counts under that name from now on,
`tunnels N` opens N more, `check` tries every tunnel and stream, `end` prints all counts as JSON.

    lost        the connection ended before the whole response to a request that was sent
    reset       counted as well, if the connection ended by RST
    closed      ended by FIN while nothing was under way, without an announcement
    announced   ended behind a response with Connection: close
    refused     a connection could not be opened
    wrong       a status other than 200
"""
import collections
import heapq
import json
import os
import re
import select
import selectors
import socket
import sys
import time

import rig

KINDS = ("responses", "lost", "reset", "closed", "announced", "refused", "wrong", "downloads",
         "downloads_cut", "uploads", "uploads_cut", "tunnels_ended", "events", "events_missed",
         "streams_ended")
PIECE_S = 0.1               # a transfer moves a piece in each
DOWNLOAD = ("/large.bin", 4 << 20, 25_600)      # path, bytes, bytes of a piece: 16 s
UPLOAD = (1 << 20, 20_480)                      # bytes, bytes of a piece: 5 s
STATIC, PROXIED = "/a.html", "/p/small"
PROXIED_OF = 20             # one request in so many
EVENT_S = 0.5               # between two events of a stream
CHECK_S = 6
LATE_S = 30                 # a response, or a transfer's next byte, that takes longer is lost
# A masked frame of text with eight bytes, which are the same unmasked.
FRAME = bytes([0x81, 0x88, 0, 0, 0, 0])
HANDSHAKE = ("GET /p/tunnel HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
             "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
ACCEPTED = (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")


# ---------------------------------------------------------------- the backend

class BackendPeer:
    """A connection from the server under test."""

    def __init__(self, stream, peers):
        self.stream, self.peers, self.buffer, self.want, self.is_tunnel = stream, peers, b"", 0, False

    def read(self):
        try:
            got = self.stream.recv(1 << 16)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not got:
            return False
        if self.is_tunnel:
            return self.send(got)
        if self.want:
            self.want = max(0, self.want - len(got))
            return bool(self.want) or self.answer(b"stored")
        self.buffer += got
        return self.requests()

    def requests(self):
        while b"\r\n\r\n" in self.buffer:
            head, _, rest = self.buffer.partition(b"\r\n\r\n")
            path = head.split(b" ", 2)[1]
            self.buffer = rest
            if path == b"/p/tunnel":
                self.is_tunnel = True
                return self.send(ACCEPTED)
            if path == b"/p/events":
                self.peers.streams.append(self)
                return self.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                                 b"Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n")
            length = re.search(rb"(?i)content-length: *(\d+)", head)
            self.want = max(0, int(length.group(1)) - len(rest)) if length else 0
            if length:
                self.buffer = b""
            if self.want:
                return True
            if not self.answer(b"stored" if length else b"proxied"):
                return False
        return True

    def answer(self, body):
        return self.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    def send(self, data):
        try:
            self.stream.sendall(data)
            return True
        except OSError:
            return False


class Backend:
    def __init__(self, ports):
        self.ready, self.streams = selectors.DefaultSelector(), []
        for port in ports:
            listener = socket.create_server(("127.0.0.1", port), backlog=4096)
            listener.setblocking(False)
            self.ready.register(listener, selectors.EVENT_READ)
        self.ready.register(sys.stdin, selectors.EVENT_READ)

    def run(self):
        due, number = time.monotonic() + EVENT_S, 0
        while True:
            for key, _ in self.ready.select(max(0, due - time.monotonic())):
                if key.fileobj is sys.stdin:
                    return
                self.turn(key)
            if time.monotonic() >= due:
                due, number = due + EVENT_S, number + 1
                self.publish(b"data: %d\n\n" % number)

    def turn(self, key):
        if key.data is None:
            stream, _ = key.fileobj.accept()
            stream.setblocking(False)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.ready.register(stream, selectors.EVENT_READ, BackendPeer(stream, self))
        elif not key.data.read():
            self.drop(key.data)

    def publish(self, event):
        for peer in list(self.streams):
            if not peer.send(b"%x\r\n%b\r\n" % (len(event), event)):
                self.drop(peer)

    def drop(self, peer):
        if peer in self.streams:
            self.streams.remove(peer)
        if peer.stream.fileno() >= 0:
            self.ready.unregister(peer.stream)
            peer.stream.close()


# ---------------------------------------------------------------- the clients

class Conn:
    """A connection of the load.  Its owner opens another one when it has ended, but for tunnels."""

    def __init__(self, load):
        self.load, self.stream = load, None

    def open(self, wait_s=0.0):
        if wait_s:
            self.load.at(time.monotonic() + wait_s, self.open)
            return
        stream = socket.socket()
        stream.settimeout(5)
        try:
            stream.connect(("127.0.0.1", self.load.port))
        except OSError:
            self.load.count("refused")
            stream.close()
            self.open(0.1)
            return
        stream.setblocking(False)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = stream
        self.load.poll.register(stream, select.EPOLLIN)
        self.load.conns[stream.fileno()] = self
        self.opened()

    def close(self):
        if self.stream:
            self.load.conns.pop(self.stream.fileno(), None)
            self.load.poll.unregister(self.stream)
            self.stream.close()
            self.stream = None

    def receive(self, size=1 << 16):
        """Bytes; b"" at the end; None if there is nothing yet.  Counts a reset."""
        try:
            return self.stream.recv(size)
        except BlockingIOError:
            return None
        except OSError:
            self.load.count("reset")
            return b""

    def send(self, data):
        """Number of bytes that the kernel took; -1 if the connection is gone."""
        try:
            return self.stream.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            return -1


class Kept(Conn):
    """A keep-alive connection that sends a request at each of its appointed times."""

    def __init__(self, load, number):
        super().__init__(load)
        self.due, self.buffer, self.sent, self.queue = None, b"", 0, collections.deque()
        self.every = load.kept / load.rate
        self.next = time.monotonic() + 1 + self.every * number / load.kept
        load.at(self.next, self.appointed)

    def opened(self):
        self.due, self.buffer = None, b""

    def appointed(self):
        self.queue.append(self.next)
        self.next += self.every
        self.load.at(self.next, self.appointed)
        if self.due is not None and time.monotonic() - self.due > LATE_S:
            self.ended("lost")
        self.ask()

    def ask(self):
        if self.due is not None or not self.queue or not self.stream:
            return
        self.due = self.queue.popleft()
        self.sent += 1
        path = PROXIED if self.sent % PROXIED_OF == 0 else STATIC
        if self.send(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode()) < 0:
            self.ended("lost")

    def ended(self, kind):
        self.load.count(kind)
        self.close()
        self.open()

    def readable(self):
        got = self.receive()
        if got is None:
            return
        if not got:
            self.ended("closed" if self.due is None else "lost")
            return
        self.buffer += got
        head, end, body = self.buffer.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *(\d+)", head) if end else None
        if not length or len(body) < int(length.group(1)):
            return
        self.load.latency(time.monotonic() - self.due)
        self.load.count("responses" if head.split(b" ", 2)[1] == b"200" else "wrong")
        self.due, self.buffer = None, b""
        if b"connection: close" in head.lower():
            self.ended("announced")
        self.ask()


class Transfer(Conn):
    """Moves a piece at each tick."""

    def opened(self):
        self.moved, self.buffer, self.last = 0, b"", time.monotonic()
        self.begin()
        self.load.at(time.monotonic() + PIECE_S, self.tick, self.stream)

    def tick(self, stream):
        if stream is not self.stream:
            return
        self.load.at(time.monotonic() + PIECE_S, self.tick, stream)
        if time.monotonic() - self.last > LATE_S:
            self.over(False)
        else:
            self.piece()

    def over(self, is_whole):
        self.load.count(self.kind if is_whole else self.kind + "_cut")
        self.close()
        self.open(0 if is_whole else 0.1)

    def readable(self):
        pass


class Download(Transfer):
    kind = "downloads"

    def begin(self):
        self.load.poll.modify(self.stream, 0)
        self.send(f"GET {DOWNLOAD[0]} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())

    def piece(self):
        got = self.receive(DOWNLOAD[2])
        if got is None:
            return
        self.last = time.monotonic()
        if self.moved == 0 and b"\r\n\r\n" not in self.buffer:
            self.buffer += got
            got = self.buffer.partition(b"\r\n\r\n")[2]
        self.moved += len(got)
        if self.moved >= DOWNLOAD[1] or not got and self.buffer[9:12] != b"":
            self.over(self.moved == DOWNLOAD[1])
        elif not got:
            self.over(False)

    def readable(self):         # EPOLLHUP and EPOLLERR come unasked
        self.piece()


class Upload(Transfer):
    kind = "uploads"

    def begin(self):
        self.send(f"POST /p/upload HTTP/1.1\r\nHost: a\r\nContent-Length: {UPLOAD[0]}\r\n\r\n"
                  .encode())

    def piece(self):
        sent = self.send(bytes(min(UPLOAD[1], UPLOAD[0] - self.moved))) if self.moved < UPLOAD[0] else 0
        if sent > 0:
            self.moved, self.last = self.moved + sent, time.monotonic()
        elif sent < 0:
            self.over(False)

    def readable(self):
        got = self.receive()
        if got is None:
            return
        self.buffer += got
        if b"\r\n\r\nstored" in self.buffer:
            self.over(self.buffer.startswith(b"HTTP/1.1 200") and self.moved == UPLOAD[0])
        elif not got:
            self.over(False)


class Tunnel(Conn):
    """Echoes; is not opened again."""

    def opened(self):
        self.due, self.buffer, self.is_open, self.checked = None, b"", False, False
        self.stream.send(HANDSHAKE.encode())

    def ask(self, due):
        if self.is_open and self.due is None and self.stream:
            self.due = due
            if self.send(FRAME + b"%08d" % (time.monotonic_ns() % 10**8)) < 0:
                self.gone()

    def gone(self):
        self.load.count("tunnels_ended")
        self.close()

    def readable(self):
        got = self.receive()
        if got is None:
            return
        if not got:
            self.gone()
            return
        self.buffer += got
        if not self.is_open:
            if b"\r\n\r\n" in self.buffer:
                self.is_open, self.buffer = self.buffer.startswith(b"HTTP/1.1 101"), b""
        elif len(self.buffer) >= len(FRAME) + 8:
            if self.due is not None:
                self.load.echo(time.monotonic() - self.due)
            self.due, self.buffer, self.checked = None, b"", True


class Events(Conn):
    """An event stream; is not opened again."""

    def opened(self):
        self.buffer, self.last, self.checked, self.is_open = b"", None, False, False
        self.send(b"GET /p/events HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n")

    def readable(self):
        got = self.receive()
        if got is None:
            return
        if not got:
            self.load.count("streams_ended")
            self.close()
            return
        self.buffer += got
        for number in re.findall(rb"data: (\d+)\n\n", self.buffer):
            number, self.is_open, self.checked = int(number), True, True
            self.load.count("events")
            if self.last is not None and number != self.last + 1:
                self.load.count("events_missed")
            self.last = number
        self.buffer = self.buffer[self.buffer.rfind(b"\n\n") + 2:] if b"\n\n" in self.buffer else \
            self.buffer[-64:]


class Load:
    """All connections, in one loop."""

    def __init__(self, port, kept=0, rate=1, downloads=0, uploads=0, tunnels=0, events=0, echoes=200):
        self.port, self.kept, self.rate, self.echoes = port, kept, rate, echoes
        self.poll, self.conns, self.timers, self.order = select.epoll(), {}, [], 0
        self.counts, self.phase = {}, "start"
        self.latencies, self.echo_times = {}, {}
        self.numbers = kept, downloads, uploads, tunnels, events
        self.tunnels, self.streams, self.turn = [], [], 0
        self.is_over, self.checking_until, self.input = False, None, b""

    def at(self, when, call, *arguments):
        self.order += 1
        heapq.heappush(self.timers, (when, self.order, call, arguments))

    def count(self, kind):
        row = self.counts.setdefault(self.phase, dict.fromkeys(KINDS, 0))
        row[kind] += 1

    def latency(self, seconds):
        self.latencies.setdefault(self.phase, []).append(seconds * 1e3)

    def echo(self, seconds):
        self.echo_times.setdefault(self.phase, []).append(seconds * 1e3)

    def start(self):
        kept, downloads, uploads, tunnels, events = self.numbers
        self.poll.register(0, select.EPOLLIN)
        self.tunnels = [Tunnel(self) for _ in range(tunnels)]
        self.streams = [Events(self) for _ in range(events)]
        others = [Kept(self, number) for number in range(kept)]
        others += [Download(self) for _ in range(downloads)] + [Upload(self) for _ in range(uploads)]
        for at, conn in enumerate(self.tunnels + self.streams + others):
            conn.open()
            if at % 50 == 49:
                self.run(time.monotonic() + 0.02)
        end = time.monotonic() + 15
        while not all(one.is_open for one in self.tunnels + self.streams):
            if time.monotonic() > end:
                raise rig.RigError("tunnels are not opened")
            self.run(time.monotonic() + 0.05)
        if tunnels:
            self.next_echo = time.monotonic()
            self.at(self.next_echo, self.echo_one)
        print("ready", flush=True)

    def echo_one(self):
        self.tunnels[self.turn % len(self.tunnels)].ask(self.next_echo)
        self.turn += 1
        self.next_echo += 1 / self.echoes
        self.at(self.next_echo, self.echo_one)

    def run(self, until=None):
        while not self.is_over and (until is None or time.monotonic() < until):
            now = time.monotonic()
            while self.timers and self.timers[0][0] <= now:
                _, _, call, arguments = heapq.heappop(self.timers)
                call(*arguments)
            wait = (self.timers[0][0] if self.timers else now + 0.1) - time.monotonic()
            for fd, _ in self.poll.poll(max(0, min(wait, 0.1))):
                if fd == 0:
                    self.obey()
                elif conn := self.conns.get(fd):
                    conn.readable()

    def obey(self):
        got = os.read(0, 4096)
        if not got:
            self.is_over = True
            return
        self.input += got
        *lines, self.input = self.input.split(b"\n")
        for line in lines:
            word, _, name = line.decode().partition(" ")
            if word == "phase":
                self.phase = name
            elif word == "check":
                self.check()
            elif word == "tunnels":
                self.add_tunnels(int(name))
            else:
                self.is_over = True

    def add_tunnels(self, count):
        for _ in range(count):
            self.tunnels.append(Tunnel(self))
            self.tunnels[-1].open()

    def check(self):
        for one in self.tunnels + self.streams:
            one.checked = False
        for one in self.tunnels:
            one.due = None
            one.ask(time.monotonic())
        self.at(time.monotonic() + CHECK_S, lambda: print("checked", flush=True))

    def figures(self):
        return {
            "counts": self.counts,
            "latency": {phase: summary(all) for phase, all in self.latencies.items()},
            "echo": {phase: summary(all) for phase, all in self.echo_times.items()},
            "tunnels_alive": sum(bool(one.stream and one.checked) for one in self.tunnels),
            "streams_alive": sum(bool(one.stream and one.checked) for one in self.streams),
        }


def summary(values):
    return {"samples": len(values), "p50_ms": rig.percentile(values, 50),
            "p99_ms": rig.percentile(values, 99), "p999_ms": rig.percentile(values, 99.9),
            "max_ms": max(values, default=0)}


def main():
    rig.raise_descriptors()
    if sys.argv[1] == "backend":
        Backend(map(int, sys.argv[2:])).run()
        return
    load = Load(**json.loads(sys.argv[2]))
    load.start()
    load.run()
    print(json.dumps(load.figures()))


if __name__ == "__main__":
    main()
