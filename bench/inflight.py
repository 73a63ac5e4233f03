#!/usr/bin/env python3
"""Figure 27: what a proxied request in flight holds.

Sends 1,000 requests through each proxy, each on a connection of its own, to a backend that responds
to none before all have arrived.  The figure is the growth of resident memory of the proxy's process
tree since its first response, divided by the requests.
"""
import selectors
import socket
import sys
import threading
import time

import client
import rig
import servers

RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 44\r\n\r\n" + b"a" * 44
END = b"\r\n\r\n"
PATIENCE_S = 30


class Backend(threading.Thread):
    """Responds to requests once `gate` of them have arrived."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]
        self.gate = 1
        self.waiting = []

    def run(self):
        ready = selectors.DefaultSelector()
        ready.register(self.listener, selectors.EVENT_READ)
        heads = {}
        while True:
            for key, _ in ready.select():
                if key.fileobj is self.listener:
                    connection, _ = self.listener.accept()
                    heads[connection] = b""
                    ready.register(connection, selectors.EVENT_READ)
                    continue
                self.read(key.fileobj, heads, ready)

    def read(self, connection, heads, ready):
        try:
            got = connection.recv(65536)
        except ConnectionError:
            got = b""
        if not got:
            ready.unregister(connection)
            connection.close()
            del heads[connection]
            return
        heads[connection] += got
        if heads[connection].endswith(END):
            heads[connection] = b""
            self.waiting.append(connection)
        if len(self.waiting) >= self.gate:
            for waiting in self.waiting:
                waiting.sendall(RESPONSE)
            self.waiting = []


def main():
    ap = rig.arguments(__doc__, "lighty,nginx,haproxy")
    ap.add_argument("--requests", type=int, default=1000)
    args = ap.parse_args()
    if rig.raise_descriptors() < args.requests * 2 + 100:
        raise rig.RigError(f"{args.requests} requests need more descriptors: run as root")
    backend = Backend()
    backend.start()
    tuning = servers.Tuning(idle_s=300, backends=(backend.port,))
    results = {}
    wanted = servers.chosen(args, tuning)
    for name, make in wanted:
        try:
            with servers.serving(args, name, make) as server:
                results[name] = measure(server, backend, args.requests)
        except (rig.RigError, OSError) as e:
            rig.say(f"{name} is left out: {e}")
            continue
        r = results[name]
        rig.say(f"{name:12s} {r['kib_per_request']:6.2f} KiB per request in flight"
                f"  (anonymous {r['anonymous_kib']:.2f})  at start {r['start_kib']} KiB")
    rig.save(args, "inflight", {"requests": args.requests, "servers": results},
             servers.versions(args, dict(wanted)))


def measure(server, backend, requests):
    backend.gate = 1
    if not client.fetch(server.port).whole:
        raise rig.RigError(f"{server.name} does not serve")
    start, anonymous = rig.memory_kib(server.pid), rig.memory_kib(server.pid, "RssAnon")
    # One more than there are: released below, once the memory has been read.
    backend.gate = requests + 1
    sockets = []
    try:
        for _ in range(requests):
            sockets.append(client.connect(server.port, PATIENCE_S))
            sockets[-1].sendall(client.head("/index.html"))
        wait_for(lambda: len(backend.waiting) == requests, f"{server.name} holds requests back")
        end = rig.memory_kib(server.pid)
        grown = rig.memory_kib(server.pid, "RssAnon") - anonymous
        for waiting in backend.waiting:
            waiting.sendall(RESPONSE)
        backend.waiting = []
        served = sum(client.read_answer(s).whole for s in sockets)
        if served != requests:
            raise rig.RigError(f"{server.name} served {served} of {requests}")
        return {"kib_per_request": (end - start) / requests, "start_kib": start, "end_kib": end,
                "anonymous_kib": grown / requests}
    finally:
        for s in sockets:
            s.close()


def wait_for(condition, complaint):
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise rig.RigError(complaint)
        time.sleep(0.01)


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"inflight: {e}")
