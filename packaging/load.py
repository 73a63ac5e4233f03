#!/usr/bin/env python3
"""Clients of a server whose package is upgraded; check.sh starts them:

    load.py ADDRESS FLAG BACKEND [--size BYTES]

ADDRESS is HOST:PORT or the path of a socket. The site there has a page "/" that contains "hello\\n",
a file "/large" of --size zero bytes, and passes "/echo" on to BACKEND, a port of 127.0.0.1 on which
this program listens for WebSockets. The clients work until the file FLAG is gone:

- requests with a connection of their own, and with connections that are kept,
- one download, slow until the end,
- one WebSocket, which sends a message and waits for its echo.

Prints counts as JSON, and exits with 1 if a request, a byte or a message was lost.
"""
import argparse
import base64
import hashlib
import json
import os
import socket
import struct
import sys
import threading
import time
from pathlib import Path

PATIENCE_S = 20
PAGE = b"hello\n"
WEBSOCKET_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
ECHO = "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" \
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"


class Counts:
    """Numbers of events by name, for all threads, and the first failures with their times."""

    def __init__(self):
        self.lock, self.numbers, self.failures, self.begun = threading.Lock(), {}, [], time.monotonic()

    def add(self, name, number=1):
        with self.lock:
            self.numbers[name] = self.numbers.get(name, 0) + number

    def fail(self, name, error):
        self.add(name)
        with self.lock:
            if len(self.failures) < 10:
                self.failures.append(f"{time.monotonic() - self.begun:.2f} s: {name}: {error!r}")


def connect(address):
    if address.startswith("/"):
        stream = socket.socket(socket.AF_UNIX)
        stream.settimeout(PATIENCE_S)
        stream.connect(address)
        return stream
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), PATIENCE_S)


def head_of(reader):
    """Status and header fields of a response."""
    line = reader.readline()
    if not line:
        raise EOFError("closed without a response")
    fields = {}
    while (field := reader.readline()) not in (b"\r\n", b""):
        name, value = field.decode().split(":", 1)
        fields[name.lower()] = value.strip()
    return int(line.split()[1]), fields


def request(stream, reader, path, connection):
    stream.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: {connection}\r\n\r\n".encode())
    return head_of(reader)


def kind_of(error):
    if isinstance(error, (ConnectionRefusedError, FileNotFoundError)):
        return "refused"
    return "reset" if isinstance(error, (ConnectionResetError, BrokenPipeError)) else "lost"


class Clients:
    """The clients and the backend, each with a thread."""

    def __init__(self, arguments):
        self.address, self.flag, self.size = arguments.address, Path(arguments.flag), arguments.size
        self.counts = Counts()
        self.backend = socket.create_server(("127.0.0.1", arguments.backend))

    def goes_on(self):
        return self.flag.exists()

    def page(self, stream, reader, connection):
        """One request for the page. Returns whether the connection is kept."""
        status, fields = request(stream, reader, "/", connection)
        content = reader.read(int(fields["content-length"]))
        if status != 200 or content != PAGE:
            raise ValueError(f"status {status}, {content!r}")
        self.counts.add("requests")
        return fields.get("connection", "").lower() != "close"

    def new_connections(self):
        while self.goes_on():
            try:
                with connect(self.address) as stream, stream.makefile("rb") as reader:
                    self.page(stream, reader, "close")
            except (OSError, EOFError, ValueError) as error:
                self.counts.fail(kind_of(error), error)

    def kept_connections(self):
        while self.goes_on():
            try:
                with connect(self.address) as stream, stream.makefile("rb") as reader:
                    self.counts.add("kept connections")
                    while self.goes_on() and self.page(stream, reader, "keep-alive"):
                        time.sleep(0.005)
            except (OSError, EOFError, ValueError) as error:
                self.counts.fail(kind_of(error), error)

    def download(self):
        received = 0
        try:
            with connect(self.address) as stream, stream.makefile("rb", 64 << 10) as reader:
                status, fields = request(stream, reader, "/large", "close")
                if status != 200 or int(fields["content-length"]) != self.size:
                    raise ValueError(f"status {status}, {fields}")
                while part := reader.read(min(64 << 10, self.size - received)):
                    received += len(part)
                    if self.goes_on():
                        time.sleep(0.05)
        except (OSError, EOFError, ValueError) as error:
            self.counts.fail("lost downloads", error)
        self.counts.add("bytes of the download", received)
        if received != self.size:
            self.counts.fail("lost downloads", f"{received} bytes")

    def websocket(self):
        try:
            with connect(self.address) as stream, stream.makefile("rb") as reader:
                stream.sendall(ECHO.encode())
                status, _ = head_of(reader)
                if status != 101:
                    raise ValueError(f"status {status}")
                while self.goes_on():
                    # A masked text frame of eight bytes, which comes back as it is.
                    text = os.urandom(4).hex().encode()
                    frame = b"\x81\x88" + struct.pack("!I", 0) + text
                    stream.sendall(frame)
                    if reader.read(len(frame)) != frame:
                        raise EOFError("no echo")
                    self.counts.add("messages of the WebSocket")
                    time.sleep(0.05)
        except (OSError, EOFError, ValueError) as error:
            self.counts.fail("lost WebSockets", error)

    def serve_echo(self):
        while True:
            stream, _ = self.backend.accept()
            threading.Thread(target=echo, args=(stream,), daemon=True).start()

    def run(self):
        threading.Thread(target=self.serve_echo, daemon=True).start()
        tasks = [self.new_connections] * 3 + [self.kept_connections] * 3 + [self.download, self.websocket]
        threads = [threading.Thread(target=task) for task in tasks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def echo(stream):
    """The end of a WebSocket: it returns the bytes of the frames."""
    with stream, stream.makefile("rb") as reader:
        reader.readline()
        fields = {}
        while (field := reader.readline()) not in (b"\r\n", b""):
            name, value = field.decode().split(":", 1)
            fields[name.lower()] = value.strip()
        key = fields["sec-websocket-key"] + WEBSOCKET_GUID
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        stream.sendall(f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                       f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode())
        try:
            while frame := reader.read(14):
                stream.sendall(frame)
        except OSError:
            pass


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address")
    parser.add_argument("flag")
    parser.add_argument("backend", type=int)
    parser.add_argument("--size", type=int, default=64 << 20)
    clients = Clients(parser.parse_args())
    clients.run()
    counts = clients.counts
    print(json.dumps(counts.numbers | {"failures": counts.failures}))
    done = all(counts.numbers.get(name) for name in ("requests", "messages of the WebSocket"))
    sys.exit(1 if counts.failures or not done else 0)


if __name__ == "__main__":
    main()
