#!/usr/bin/env python3
"""Many requests at once for a response that is not stored yet.

CLIENTS connections ask for one URL; the backend holds its first answer for a second.

    requests    that the backend got
    last ms     from the backend's first answer to the last client's first byte
    released    if the response is not stored: to the last request that the backend got

`gone` is the case in which the client that came first has left, `silent` one in which the backend
never answers its first request.  Rounds are interleaved, medians are shown; each round asks for
another URL.
"""
import asyncio
import contextlib
import multiprocessing
import select
import socket
import sys
import time

import cached
import caches
import client
import rig
import servers

HOLD_S = 1.0
CASES = {"stored": "Cache-Control: max-age=600\r\n", "unstored": "Cache-Control: no-store\r\n",
         "gone": "Cache-Control: max-age=600\r\n", "silent": "Cache-Control: max-age=600\r\n"}
WAIT_S = 30


def main():
    ap = rig.arguments(__doc__, "lighty,nginx,varnish")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--cases", default=",".join(CASES), help="(%(default)s)")
    ap.add_argument("--clients", type=int, default=1000)
    args = ap.parse_args()
    rig.raise_descriptors()
    rig.document_root(args.out)
    names = args.servers.split(",")
    rows = {}
    with Backend() as backend:
        tuning = cached.caching(backend.port, args.out)
        tuning.rules["nginx"] = tuning.rules["nginx"].replace(
            "proxy_cache pages;", "proxy_cache pages; proxy_cache_lock on;")
        own, others = cached.split(names)
        args.servers = ",".join(others)
        running = servers.start_all(args, servers.chosen(args, tuning))
        running |= caches.start_all(args, own, backend.port)
        try:
            for turn in range(args.rounds):
                for case in args.cases.split(","):
                    for name, server in running.items():
                        r = one_round(args, backend, server, case, f"/{case}/{name}/{turn}")
                        rows.setdefault(name, {}).setdefault(case, []).append(r)
        finally:
            for server in running.values():
                server.stop()
    results = {name: {case: medians(rs) for case, rs in row.items()} for name, row in rows.items()}
    show(results, args.clients)
    rig.save(args, "misses", results, servers.versions(args, others) | caches.versions(
        [name for name in own if name in running]))


def one_round(args, backend, server, case, path):
    connections = [client.connect(server.port, WAIT_S) for _ in range(args.clients)]
    ready = select.epoll()
    for connection in connections:
        connection.sendall(client.head(path))
        ready.register(connection, select.EPOLLIN | select.EPOLLET)
    if case == "gone":
        time.sleep(HOLD_S / 2)
        ready.unregister(connections[0])
        connections.pop(0).close()
    awaited, last = len(connections) - (case == "silent"), 0
    end = time.monotonic() + WAIT_S
    seen = set()
    while len(seen) < awaited and time.monotonic() < end:
        for number, _ in ready.poll(0.1, 4096):
            seen.add(number)
            last = time.monotonic()
    unanswered = awaited - len(seen)
    for connection in connections:
        connection.close()
    ready.close()
    asked, answered = backend.times(path)
    return {"requests": len(asked), "last_ms": (last - answered) * 1e3 if answered else 0,
            "released_ms": (max(asked) - answered) * 1e3 if answered else 0,
            "unanswered": unanswered}


class Backend:
    """A process that holds the first answer for each URL."""

    def __enter__(self):
        self.pipe, other = multiprocessing.Pipe()
        listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.port = listener.getsockname()[1]
        self.process = multiprocessing.Process(target=serve, args=(listener, other), daemon=True)
        self.process.start()
        listener.close()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.join()

    def times(self, path):
        """Times of the requests for a URL, and that of its first answer."""
        self.pipe.send(path)
        return self.pipe.recv()


def serve(listener, pipe):
    rig.pin(rig.CLIENT_CORE)
    asyncio.run(serve_forever(listener, pipe))


async def serve_forever(listener, pipe):
    loop, asked, answered = asyncio.get_running_loop(), {}, {}

    class Connection(asyncio.Protocol):
        def connection_made(self, transport):
            self.transport, self.data = transport, b""

        def data_received(self, data):
            self.data += data
            while b"\r\n\r\n" in self.data:
                top, _, self.data = self.data.partition(b"\r\n\r\n")
                self.request(top.split(b" ")[1].decode())

        def request(self, path):
            is_first = path not in asked
            asked.setdefault(path, []).append(time.monotonic())
            if not is_first:
                return self.answer(path)
            if "/silent/" not in path:
                loop.call_later(HOLD_S, self.answer, path)

        def answer(self, path):
            answered.setdefault(path, time.monotonic())
            fields = CASES[path.split("/")[1]]
            self.transport.write(f"HTTP/1.1 200 OK\r\n{fields}Content-Length: {len(rig.SMALL)}\r\n\r\n"
                                 .encode() + rig.SMALL)

    def tell():
        path = pipe.recv()
        pipe.send((asked.get(path, []), answered.get(path)))

    loop.add_reader(pipe.fileno(), tell)
    server = await loop.create_server(Connection, sock=listener, backlog=4096)
    with contextlib.suppress(asyncio.CancelledError):
        await server.serve_forever()


def medians(runs):
    return {key: rig.median([r[key] for r in runs]) for key in runs[0]}


def show(results, clients):
    rig.say(f"\n{clients} clients    case       requests  last ms  released ms  unanswered")
    for name, row in results.items():
        for case, r in row.items():
            rig.say(f"{name:14s} {case:9s} {r['requests']:10g} {r['last_ms']:8.1f}"
                    f" {r['released_ms']:12.1f} {r['unanswered']:11g}")


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"misses: {e}")
