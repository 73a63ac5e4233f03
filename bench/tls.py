#!/usr/bin/env python3
"""Figure 16: TLS beside the peers: CPU per request, per handshake, memory of idle connections.

Required of lighty, side by side in one run, one worker each, a P-256 certificate:

    44 B by HTTP/2, 16 connections of 16 streams      CPU <= that of the best peer
    100 KB and 10 MB by HTTP/2                        CPU <= that of the best peer
    100 KB by HTTP/1.1                                CPU <= 0.90 of the best peer's
    a full handshake (TLS 1.3)                        CPU <= 0.95 of the best peer's
    an idle connection of HTTP/1.1, of HTTP/2         <= 3 KiB, <= 6 KiB, and <= the best peer's

Needs h2load (nghttp2-client) and openssl.
"""
import contextlib
import os
import re
import socket
import ssl
import subprocess
import sys
import time

import http2
import rig
import servers

LOADS = {  # path, requests, connections, streams of each
    "44 B, HTTP/2": ("/index.html", 300_000, 16, 16),
    "100 KB, HTTP/2": ("/100k.bin", 20_000, 16, 16),
    "10 MB, HTTP/2": ("/10m.bin", 200, 4, 4),
    "44 B, HTTP/1.1": ("/index.html", 60_000, 16, 0),
    "100 KB, HTTP/1.1": ("/100k.bin", 15_000, 16, 0),
}
IDLE = {"HTTP/1.1": "http/1.1", "HTTP/2": "h2"}
# Servers give memory back in their own time.
SETTLE_S = 4


def main():
    ap = rig.arguments(__doc__, "lighty,nginx,lighttpd,h2o")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--secs", type=int, default=3, help="length of a round of handshakes")
    ap.add_argument("--conns", type=int, default=500, help="idle connections")
    args = ap.parse_args()
    rig.raise_descriptors()
    rig.write_once(rig.document_root(args.out) + "/10m.bin", rig.pattern("10m.bin", 10 << 20))
    wanted = servers.chosen(args, servers.Tuning(pair=make_pair(args.out), idle_s=300,
                                                 cache_files=True))
    running = servers.start_all(args, wanted)
    try:
        results = {"us": {load: loaded(running, load, args) for load in LOADS},
                   "handshake": {"full": shaken(running, args)}}
    finally:
        for server in running.values():
            server.stop()
    results["idle_kib"] = {kind: idle(wanted, alpn, args) for kind, alpn in IDLE.items()}
    show(results)
    rig.save(args, "tls", results, servers.versions(args, running))


def make_pair(out):
    """A file with a self-signed P-256 certificate for localhost, and its key."""
    os.makedirs(out, exist_ok=True)
    key, chain, both = out + "/tls-key.pem", out + "/tls-chain.pem", out + "/tls.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", chain,
                    "-days", "90", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    with open(both, "w") as pair:
        for part in (chain, key):
            with open(part) as f:
                pair.write(f.read())
    return both


def loaded(running, load, args):
    """{server: microseconds of CPU per request, a figure for each round}"""
    rows = {name: [] for name in running}
    for _ in range(args.rounds):
        for name, server in running.items():
            rows[name].append(round_of(server, load))
    return rows


def round_of(server, load):
    path, requests, connections, streams = LOADS[load]
    protocol = ["-m", str(streams)] if streams else ["--h1"]
    before = rig.cpu_s(server.pid)
    done = subprocess.run(["h2load", "-n", str(requests), "-c", str(connections), *protocol,
                           f"https://127.0.0.1:{server.port}{path}"], capture_output=True,
                          text=True, preexec_fn=lambda: rig.pin(rig.CLIENT_CORE))
    spent = rig.cpu_s(server.pid) - before
    served = re.search(r"(\d+) succeeded", done.stdout)
    if not served or int(served.group(1)) != requests:
        raise rig.RigError(f"{server.name}, {load}: {done.stdout[-300:]} {done.stderr[-200:]}")
    return spent * 1e6 / requests


def shaken(running, args):
    """{server: microseconds of CPU per full handshake of TLS 1.3, a figure for each round}"""
    rows = {name: [] for name in running}
    for _ in range(args.rounds):
        for name, server in running.items():
            before = rig.cpu_s(server.pid)
            done = subprocess.run(["openssl", "s_time", "-connect", f"127.0.0.1:{server.port}",
                                   "-new", "-time", str(args.secs)], capture_output=True,
                                  text=True, preexec_fn=lambda: rig.pin(rig.CLIENT_CORE))
            spent = rig.cpu_s(server.pid) - before
            made = re.search(r"(\d+) connections in \d+ real seconds", done.stdout)
            if not made or not int(made.group(1)):
                raise rig.RigError(f"{name}: openssl says {done.stdout[-200:]}")
            rows[name].append(spent * 1e6 / int(made.group(1)))
    return rows


def idle(wanted, alpn, args):
    """{server: KiB of anonymous memory for each idle connection that had a request}, afresh: what
    earlier connections left behind would be used again."""
    found = {}
    for name, make in wanted:
        with servers.serving(args, name, make) as server, contextlib.ExitStack() as stack:
            for _ in range(args.conns // 10):
                stack.enter_context(connected(server.port, alpn))
            before = rig.memory_kib(server.pid, "RssAnon")
            for _ in range(args.conns):
                stack.enter_context(connected(server.port, alpn))
            time.sleep(SETTLE_S)
            found[name] = (rig.memory_kib(server.pid, "RssAnon") - before) / args.conns
    return found


def connected(port, alpn):
    """A connection on which a request was answered."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols([alpn])
    s = context.wrap_socket(socket.create_connection(("127.0.0.1", port), 10))
    if alpn == "h2":
        s.sendall(http2.PREFACE + http2.settings() + http2.get(1).replace(b"\x86", b"\x87", 1))
        received = b""
        while rig.SMALL not in received:
            received += more(s)
        s.sendall(http2.frame(http2.SETTINGS, http2.ACK))
    else:
        s.sendall(b"GET /index.html HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = b""
        while rig.SMALL not in received:
            received += more(s)
    return s


def more(s):
    received = s.recv(1 << 16)
    if not received:
        raise rig.RigError("a connection was closed instead of answered")
    return received


def show(results):
    for load, rows in (*results["us"].items(), ("a full handshake", results["handshake"]["full"])):
        rig.say(f"\n{load}: CPU microseconds, median [range]")
        for name, us in rows.items():
            rig.say(f"  {name:12s} {rig.median(us):9.2f} [{min(us):.2f}-{max(us):.2f}]")
    for kind, row in results["idle_kib"].items():
        rig.say(f"\nan idle connection of {kind}: KiB")
        for name, kib in row.items():
            rig.say(f"  {name:12s} {kib:6.2f}")


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"tls: {e}")
