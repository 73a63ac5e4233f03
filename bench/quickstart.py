#!/usr/bin/env python3
"""Servers without a configuration: `lighty serve` and `lighty proxy` beside Caddy's commands and Python.

Requests per second and CPU per request of a 44 B and a 100 KB file, in interleaved rounds; time from the
start of the program to its first response; resident memory after the rounds. Each server runs as its
command line has it, on one core. Python's server closes each connection. --servers chooses among lighty,
caddy and python; one that is not installed is skipped.
"""
import contextlib
import os
import shutil
import socket
import subprocess
import time

import rig

CONNECTIONS = 32
SIZES = {"44 B": "small.html", "100 KB": "large.bin"}


def main():
    ap = rig.arguments(__doc__, "lighty,caddy,python")
    ap.add_argument("--caddy", default=shutil.which("caddy") or "caddy", metavar="FILE")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--secs", type=int, default=2, help="length of a round")
    args = ap.parse_args()
    root = args.out + "/quickstart"
    os.makedirs(root, exist_ok=True)
    rig.write_once(f"{root}/small.html", rig.SMALL)
    rig.write_once(f"{root}/large.bin", rig.pattern("large.bin", 100_000))
    with backend(args, root) as port:
        kinds = {"files": commands(args, files_commands(args, root)),
                 "proxy": commands(args, proxy_commands(args, port))}
        results = {kind: measured(args, kind, found) for kind, found in kinds.items()}
    rig.save(args, "quickstart", results, versions(args))


def files_commands(args, root):
    """How each server is told to serve a directory at a port."""
    return {
        "lighty": lambda port: [args.lighty, "serve", root, "--listen", f"127.0.0.1:{port}"],
        "caddy": lambda port: [args.caddy, "file-server", "--root", root, "--listen", f"127.0.0.1:{port}"],
        "python": lambda port: ["python3", "-m", "http.server", str(port), "--bind", "127.0.0.1",
                                "--directory", root],
    }


def proxy_commands(args, behind):
    return {
        "lighty": lambda port: [args.lighty, "proxy", "--from", f"127.0.0.1:{port}", "--to", f":{behind}"],
        "caddy": lambda port: [args.caddy, "reverse-proxy", "--from", f":{port}",
                               "--to", f"127.0.0.1:{behind}"],
    }


def commands(args, known):
    """Those that were asked for and are installed."""
    found = {name: make for name, make in known.items() if name in args.servers.split(",")}
    for name in [name for name, make in found.items() if not shutil.which(make(0)[0])]:
        rig.say(f"skipped: {name} is not installed")
        del found[name]
    return found


def versions(args):
    """{server: its version}"""
    asked = {"lighty": [args.lighty, "-v"], "caddy": [args.caddy, "version"], "python": ["python3", "-V"]}
    found = {}
    for name in args.servers.split(","):
        if shutil.which(asked[name][0]):
            done = subprocess.run(asked[name], capture_output=True, text=True)
            found[name] = (done.stdout + done.stderr).strip().splitlines()[0]
    return found


@contextlib.contextmanager
def backend(args, root):
    """A server behind the proxies, on the core of the client."""
    port = rig.free_port()
    argv = [args.lighty, "serve", root, "--listen", f"127.0.0.1:{port}"]
    with rig.serving("backend", argv, port, f"{args.out}/backend.log", core=rig.CLIENT_CORE):
        yield port


def measured(args, kind, found):
    """{server: {"start_ms", "rss_kib", "rounds": {size: [{"rps", "us_per_request"}]}}}"""
    results = {name: {"start_ms": [], "rounds": {size: [] for size in SIZES}} for name in found}
    for _ in range(args.rounds):
        for name, make in found.items():
            results[name]["start_ms"].append(first_response_ms(make))
    with contextlib.ExitStack() as stack:
        running = {}
        for name, make in found.items():
            port = rig.free_port()
            running[name] = stack.enter_context(
                rig.serving(name, make(port), port, f"{args.out}/quickstart-{kind}-{name}.log"))
        for at in range(args.rounds + 1):
            for size, file in SIZES.items():
                for name, server in running.items():
                    url = f"http://127.0.0.1:{server.port}/{file}"
                    done = rig.loaded_round(server, url, CONNECTIONS, args.secs)
                    # The first round warms.
                    if at > 0:
                        row = {key: done[key] for key in ("rps", "us_per_request")}
                        results[name]["rounds"][size].append(row)
        for name, server in running.items():
            results[name]["rss_kib"] = rig.memory_kib(server.pid)
    for name, row in results.items():
        rig.say(f"{kind} {name}: {row['rss_kib']} KiB, {rig.median(row['start_ms']):.1f} ms")
    return results


def first_response_ms(make):
    """From the start of the program until a small file has come."""
    port = rig.free_port()
    begin = time.monotonic()
    with subprocess.Popen(make(port), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as process:
        try:
            while time.monotonic() < begin + 20:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as s:
                    s.sendall(b"GET /small.html HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                    if s.recv(4096).split(b"\r\n")[0].split()[1:2] == [b"200"]:
                        return (time.monotonic() - begin) * 1000
                time.sleep(0.0005)
            raise rig.RigError(f"{make(port)[0]} does not answer")
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
