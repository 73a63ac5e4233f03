#!/usr/bin/env python3
"""Reload with many sites, one file each: its time, the longest stall of a worker, the latency of a
client on a kept connection meanwhile, and memory.

    wall       from the request on the control socket to its reply            <= 1 s
    stall      longest delay of a worker's clock tick during the reloads      <= 5 ms
    p99        of a client on a kept connection, reloading / quiet            <= 1.2
    peak       memory at most / memory of the running server                  <= 2.2
"""
import argparse
import http.client
import json
import pathlib
import socket
import statistics
import subprocess
import tempfile
import threading
import time


def main():
    ap = argparse.ArgumentParser(description=__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--lighty", default="target/release/lighty", metavar="FILE")
    ap.add_argument("--sites", type=int, default=8_000, metavar="N",
                    help="at most 8192 files have a place in a configuration (%(default)s)")
    ap.add_argument("--settle", type=float, default=62, metavar="SECONDS",
                    help="wait after the start, whose stalls count for a minute (%(default)s)")
    ap.add_argument("--reloads", type=int, default=5, metavar="N")
    ap.add_argument("--workers", type=int, default=1, metavar="N")
    args = ap.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        print(json.dumps(measured(args, pathlib.Path(directory)), indent=2))


def measured(args, directory):
    port = write(args, directory)
    server = subprocess.Popen([args.lighty, "-D", "-f", str(directory / "lighty.conf")])
    try:
        await_port(port)
        time.sleep(args.settle)
        quiet = Client(port)
        time.sleep(3)
        quiet_p99 = quiet.stop()
        steady = memory_kib(server.pid, "VmRSS")
        stall_before = stall_us(directory)
        busy, walls = Client(port), []
        for turn in range(args.reloads):
            (directory / "changing.conf").write_text(f'server.tag = "turn-{turn}"\n')
            began = time.monotonic()
            status, text = ask(directory, "POST", "/reload")
            walls.append(time.monotonic() - began)
            if status != 200:
                raise SystemExit(text)
            time.sleep(0.5)
        busy_p99 = busy.stop()
        return {
            "sites": args.sites,
            "wall_s": round(statistics.median(walls), 3),
            "stall_ms": round(stall_us(directory) / 1000, 2),
            "stall_before_ms": round(stall_before / 1000, 2),
            "quiet_p99_ms": round(quiet_p99 * 1000, 3),
            "reloading_p99_ms": round(busy_p99 * 1000, 3),
            "steady_kib": steady,
            "peak_kib": memory_kib(server.pid, "VmHWM"),
        }
    finally:
        server.terminate()
        server.wait()


def write(args, directory):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    root, sites = directory / "root", directory / "sites"
    root.mkdir()
    sites.mkdir()
    (root / "a").write_text("static")
    for site in range(args.sites):
        (sites / f"{site}.conf").write_text(
            f'$HTTP["host"] == "site{site}.example" {{\n'
            f'  server.document-root = "{root}"\n'
            f'  server.tag = "site {site}"\n'
            f'  setenv.add-response-header = ( "X-Site" => "{site}" )\n}}\n')
    (directory / "changing.conf").write_text("")
    (directory / "lighty.conf").write_text(
        f'server.document-root = "{root}"\nserver.bind = "127.0.0.1"\nserver.port = {port}\n'
        f'server.pid-file = "{directory}/lighty.pid"\nserver.errorlog = "{directory}/error.log"\n'
        f'server.max-worker = {args.workers}\nserver.max-keep-alive-requests = 1000000\n'
        f'include "{directory}/changing.conf"\ninclude "{sites}/*.conf"\n')
    return port


def await_port(port):
    for _ in range(600):
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit("the server does not start")


class Client(threading.Thread):
    """Asks on a kept connection until it is stopped."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.ends, self.times = port, threading.Event(), []
        self.start()

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        while not self.ends.is_set():
            began = time.monotonic()
            connection.request("GET", "/a", headers={"Host": "site7.example"})
            connection.getresponse().read()
            self.times.append(time.monotonic() - began)
            time.sleep(0.001)

    def stop(self):
        self.ends.set()
        self.join()
        return sorted(self.times)[len(self.times) * 99 // 100]


def ask(directory, method, path):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(str(directory / "lighty.pid.ctl"))
        s.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n"
                  "Content-Type: application/json\r\nContent-Length: 0\r\n\r\n".encode())
        reply = b""
        while piece := s.recv(65536):
            reply += piece
    head, _, body = reply.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


def stall_us(directory):
    workers = json.loads(ask(directory, "GET", "/status")[1])["workers"]
    return max(worker["late_us"] for worker in workers)


def memory_kib(pid, name):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    return 0


if __name__ == "__main__":
    main()
