"""The rig under all measurements: processes, clocks, files to serve, results.

Nothing here knows a server by name (servers.py does) or a figure (the scripts do).  Servers are
started by start(), each in a session of its own, and ended by pid in Running.stop().
"""
import argparse
import contextlib
import datetime
import json
import os
import platform
import re
import resource
import signal
import socket
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(HERE)
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
NOFILE = 100_000
SERVER_CORE, CLIENT_CORE = 0, 1
SMALL = b"<html><body><h1>It works!</h1></body></html>"
LINE_BYTES = 64
SATURATED = 0.95        # share of a core's time


class RigError(Exception):
    """The measurement cannot be made; the message says why."""


# ---------------------------------------------------------------- command line and results

def arguments(doc, servers):
    """The options that every script has; `servers` is the default list."""
    ap = argparse.ArgumentParser(description=doc,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--servers", default=servers, metavar="A,B,...",
                    help=f"default: {servers}; the names are explained in servers.py")
    ap.add_argument("--out", default="/tmp/lighty-bench", metavar="DIR",
                    help="where results, documents and configurations go (%(default)s)")
    ap.add_argument("--lighty", default=os.environ.get("LIGHTY", REPO + "/target/release/lighty"),
                    metavar="FILE", help="the binary to measure (or $LIGHTY)")
    ap.add_argument("--profiled", default=os.environ.get("LIGHTY_PROFILED", ""), metavar="FILE",
                    help="a second binary, to measure as lighty-profiled (or $LIGHTY_PROFILED)")
    ap.add_argument("--peers", default=os.environ.get("PEERS", ""), metavar="DIR",
                    help="where nginx, lighttpd (modules in lighttpd-modules), haproxy and h2o are"
                         " (or $PEERS); the system's otherwise")
    ap.add_argument("--floor", default=REPO + "/target/release/examples/floor",
                    metavar="FILE", help="cargo build --release -p lighty-io --example floor")
    ap.add_argument("--asker", default=REPO + "/target/release/examples/asker",
                    metavar="FILE", help="cargo build --release -p lighty-io --example asker")
    return ap


def save(args, name, results, versions):
    """Write OUT/NAME.json: the results, and what report.py has to say about where they arose."""
    os.makedirs(args.out, exist_ok=True)
    path = f"{args.out}/{name}.json"
    document = {"name": name, "command": command_line(), "machine": machine(),
                "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
                "versions": versions, "results": results}
    with open(path, "w") as f:
        json.dump(document, f, indent=1)
    print(f"written: {path}")


def command_line(argv=None):
    """The command as a reader would repeat it: directories of this machine left out."""
    words, argv = [], list(sys.argv if argv is None else argv)
    words.append("bench/" + os.path.basename(argv.pop(0)))
    while argv:
        word = argv.pop(0)
        option, equals, value = word.partition("=")
        if option in ("--out", "--lighty", "--peers", "--floor", "--asker", "--state",
                      "--diskbed"):
            if not equals:
                argv = argv[1:]
            continue
        words.append(word)
    return " ".join(words)


def machine():
    with open("/proc/cpuinfo") as f:
        model = re.search(r"model name\s*:\s*(.*)", f.read())
    with open("/proc/meminfo") as f:
        memory_kib = int(re.search(r"MemTotal:\s+(\d+)", f.read()).group(1))
    return {"kernel": platform.release(), "arch": platform.machine(), "cores": os.cpu_count(),
            "cpu": model.group(1) if model else "unknown", "memory_gib": round(memory_kib / 2**20)}


def median(values):
    return statistics.median(values)


def percentile(values, percent):
    """Nearest rank, of a list that need not be sorted; 0 when it is empty."""
    ordered = sorted(values)
    return ordered[round(percent / 100 * (len(ordered) - 1))] if ordered else 0


def ratio(a, b):
    return a / b if b else float("nan")


def say(*words):
    print(*words, flush=True)


# ---------------------------------------------------------------- processes

def raise_descriptors(n=NOFILE):
    """As many descriptors as the kernel lets this user have, up to n.  Children inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(n, hard), max(n, hard)))
    except (ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def tree(pid):
    """pid and all its descendants."""
    found, todo = [], [pid]
    while todo:
        p = todo.pop()
        found.append(p)
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{p}/task"):
                with open(f"/proc/{p}/task/{task}/children") as f:
                    todo += map(int, f.read().split())
    return found


def cpu_s(pid):
    """User and system seconds of a process tree, threads that ended included."""
    ticks = 0
    for p in tree(pid):
        with contextlib.suppress(OSError), open(f"/proc/{p}/stat") as f:
            fields = f.read().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks * TICK_S


def memory_kib(pid, field="VmRSS"):
    """A line of /proc/PID/status, summed over the tree: VmRSS, RssAnon, ..."""
    total = 0
    for p in tree(pid):
        with contextlib.suppress(OSError), open(f"/proc/{p}/status") as f:
            found = re.search(rf"{field}:\s+(\d+)", f.read())
            total += int(found.group(1)) if found else 0
    return total


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def pin(core):
    """To be called in the child before exec: stay on one core, when there is more than one."""
    if core is not None and (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, {core})


class Running:
    """A server that answers on 127.0.0.1:port."""

    def __init__(self, name, process, port):
        self.name, self.process, self.port = name, process, port

    @property
    def pid(self):
        return self.process.pid

    def alive(self):
        return self.process.poll() is None

    def stop(self, grace_s=5):
        """SIGTERM, then SIGKILL for what is left of its tree.  True if the kill was not needed."""
        pids = tree(self.pid)
        polite = True
        if self.alive():
            self.process.terminate()
            try:
                self.process.wait(grace_s)
            except subprocess.TimeoutExpired:
                polite = False
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        self.process.wait()
        return polite


def start(name, argv, port, log, core=SERVER_CORE, enter=None):
    """Start a server and wait until it accepts.  enter() runs in the child (a memory group...)."""
    def prepare():
        pin(core)
        if enter:
            enter()
    with open(log, "ab") as out:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                   preexec_fn=prepare, start_new_session=True)
    running = Running(name, process, port)
    end = time.monotonic() + 10
    while time.monotonic() < end and running.alive():
        with socket.socket() as s:
            s.settimeout(0.5)
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return running
        time.sleep(0.02)
    running.stop()
    with open(log, errors="replace") as f:
        words = f.read()[-600:].strip()
    raise RigError(f"{name} does not listen on port {port}: {words or 'no message'}")


@contextlib.contextmanager
def serving(name, argv, port, log, core=SERVER_CORE, enter=None):
    """A server for the length of a with block."""
    running = start(name, argv, port, log, core, enter)
    try:
        yield running
    finally:
        running.stop()


# ---------------------------------------------------------------- documents

def document_root(out):
    """OUT/www with the documents that several figures share; returns its path."""
    root = out + "/www"
    os.makedirs(root, exist_ok=True)
    write_once(f"{root}/index.html", SMALL)
    write_once(f"{root}/100k.bin", pattern("100k.bin", 100 * 1024))
    return root


def write_once(path, content):
    if not os.path.exists(path) or os.path.getsize(path) != len(content):
        with open(path, "wb") as f:
            f.write(content)


def pattern(name, size):
    """Bytes in which every line tells the file and its own offset: torn or shifted data show."""
    word = name.encode()[-40:]
    lines = (b"%-46.46s %016x\n" % (word, at) for at in range(0, size, LINE_BYTES))
    return b"".join(lines)[:size]


# ---------------------------------------------------------------- load

def wrk(url, conns, secs, script=None, core=CLIENT_CORE):
    """One run of wrk on its own core: requests, requests per second, bytes, errors, p99 in ms."""
    argv = ["wrk", "-t1", f"-c{conns}", f"-d{secs}s", "--latency", "--timeout", "30s"]
    if script:
        argv += ["-s", script]
    done = subprocess.run(argv + [url], capture_output=True, text=True,
                          preexec_fn=lambda: pin(core))
    return parse_wrk(done.stdout + done.stderr)


def parse_wrk(text):
    found = re.search(r"(\d+) requests in ([\d.]+)(m?s|m), ([\d.]+)([KMGT]?)B read", text)
    if not found:
        raise RigError("wrk said: " + text.strip()[-300:])
    scale = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
    bad = sum(map(int, re.findall(r"Non-2xx or 3xx responses: (\d+)", text)))
    for line in re.findall(r"Socket errors: (.*)", text):
        bad += sum(map(int, re.findall(r"\d+", line)))
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", text).group(1))
    p99 = re.search(r"99%\s+([\d.]+)(us|ms|s|m)", text)
    unit_ms = {"us": 1e-3, "ms": 1, "s": 1e3, "m": 6e4}
    return {"requests": int(found.group(1)), "rps": rate, "bad": bad,
            "bytes": float(found.group(4)) * scale[found.group(5)],
            "p99_ms": float(p99.group(1)) * unit_ms[p99.group(2)] if p99 else 0}


def asker(program, url, conns, secs, core=CLIENT_CORE):
    """One run of the client that is never the limit; says what wrk would, but for latencies."""
    address, _, path = url.removeprefix("http://").partition("/")
    argv = [program, address, "/" + path, str(conns), str(secs)]
    done = subprocess.run(argv, capture_output=True, text=True, preexec_fn=lambda: pin(core))
    return parse_wrk(done.stdout + done.stderr)


def loaded_round(running, url, conns, secs, script=None, client=wrk):
    """One round of a client against one server, with the CPU seconds that the server spent."""
    before = cpu_s(running.pid)
    result = client(url, conns, secs, script) if script else client(url, conns, secs)
    result["cpu_s"] = cpu_s(running.pid) - before
    result["us_per_request"] = ratio(result["cpu_s"] * 1e6, result["requests"])
    return result


def core_times_s(core):
    """Busy and idle seconds of a core since the start of the machine."""
    with open("/proc/stat") as f:
        line = next(one for one in f if one.startswith(f"cpu{core} "))
    ticks = [int(n) for n in line.split()[1:9]]
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) * TICK_S, idle * TICK_S


def busy_share(before, after):
    """Share of busy time between two readings. The kernel's idle time may go backwards."""
    busy, idle = (max(0, b - a) for a, b in zip(before, after))
    return busy / (busy + idle) if busy + idle else 0


class Cores:
    """Shares of time in which the cores of server and client were busy during a with block."""

    def __enter__(self):
        self.before = [core_times_s(core) for core in (SERVER_CORE, CLIENT_CORE)]
        return self

    def __exit__(self, *_):
        after = [core_times_s(core) for core in (SERVER_CORE, CLIENT_CORE)]
        self.server, self.client = map(busy_share, self.before, after)

    def is_void(self):
        """The client, or a backend beside it, was the limit: the server had time to spare."""
        return self.client > SATURATED and self.server < SATURATED
