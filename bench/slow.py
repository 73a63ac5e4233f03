#!/usr/bin/env python3
"""A backend with a speed: what balance.py and failover.py put behind the proxies.

    slow.py PORT SERVICE_MS PLACES

Answers 44 bytes over HTTP/1.1 with keep-alive.  PLACES requests are served at a time, each for
SERVICE_MS, the others wait in the order of their coming: PLACES / SERVICE_MS is what it can do, and
a late timer does not make it slower, for times are reckoned from when a place came free.  /count
answers at once with the number of requests so far (those for /count left out).

SIGTERM is a polite restart's: nothing more is accepted, idle connections are closed, busy ones
after their answer, without having said so before.
"""
import asyncio
import heapq
import signal
import sys

import rig

HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n"


def answer(body):
    return HEAD.format(len(body)).encode() + body


class Backend:
    def __init__(self, service_s, places):
        self.service_s, self.free_at = service_s, [0.0] * places
        self.count, self.leaving, self.connections = 0, False, set()
        self.empty = asyncio.Event()

    def done_at(self, now):
        """When a request that comes now is answered."""
        done = max(now, self.free_at[0]) + self.service_s
        heapq.heapreplace(self.free_at, done)
        self.count += 1
        return done

    def leave(self, server):
        self.leaving = True
        server.close()
        for connection in list(self.connections):
            connection.close_if_idle()
        self.note()

    def note(self):
        if self.leaving and not self.connections:
            self.empty.set()


class Connection(asyncio.Protocol):
    """One keep-alive connection.  No proxy pipelines, so one request is under way at most."""

    def __init__(self, backend):
        self.backend, self.data, self.busy = backend, b"", False

    def connection_made(self, transport):
        self.transport = transport
        self.backend.connections.add(self)

    def connection_lost(self, _error):
        self.backend.connections.discard(self)
        self.backend.note()

    def data_received(self, data):
        self.data += data
        if b"\r\n\r\n" not in self.data:
            return
        target = self.data.split(b" ", 2)[1]
        self.data = b""
        if target.endswith(b"/count"):
            self.transport.write(answer(str(self.backend.count).encode()))
            return
        self.busy = True
        loop = asyncio.get_running_loop()
        loop.call_at(self.backend.done_at(loop.time()), self.finish)

    def finish(self):
        self.busy = False
        if not self.transport.is_closing():
            self.transport.write(answer(rig.SMALL))
        if self.backend.leaving:
            self.transport.close()

    def close_if_idle(self):
        if not self.busy:
            self.transport.close()


async def main():
    port, service_ms, places = sys.argv[1:4]
    backend, loop = Backend(float(service_ms) / 1e3, int(places)), asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(backend), "127.0.0.1", int(port),
                                      reuse_address=True, backlog=1024)
    loop.add_signal_handler(signal.SIGTERM, backend.leave, server)
    await backend.empty.wait()


if __name__ == "__main__":
    asyncio.run(main())
