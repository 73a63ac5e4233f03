#!/usr/bin/env python3
"""What clients notice of a binary upgrade.

Holds idle keep-alive connections and sends requests on others, as fast as they are answered, while
the server replaces itself several times: lighty by `lighty ctl upgrade`, nginx by USR2, and QUIT to
the old master once the new one runs.  Counts refused connections, resets, and requests without a
whole response.  A connection that the server closes in order, between two requests, is opened again.
lighty:sandbox is lighty with server.sandbox = "auto".

    ready       from the order until the new process has the pid file            lighty: at most 1 s
    seconds     until the order's caller has its answer; lighty watches the new process for 5 s
    after       descriptors, threads and KiB of the new process, and processes of the whole family
"""
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time

import operated
import rig
import servers

REQUEST = b"GET /index.html HTTP/1.1\r\nHost: a\r\n\r\n"
PATIENCE_S = 60


class Client(threading.Thread):
    """Sends requests on `active` connections one after the other, and holds `idle` more."""

    def __init__(self, port, idle, active):
        super().__init__(daemon=True)
        self.address, self.idle, self.active = ("127.0.0.1", port), idle, active
        self.counts = {"responses": 0, "closed": 0, "refused": 0, "reset": 0, "lost": 0}
        self.ready = selectors.DefaultSelector()
        self.states = {}            # socket: [received, is it active, is a request under way]
        self.is_over = False

    def open(self, is_active):
        connection = socket.socket()
        try:
            connection.connect(self.address)
        except OSError:
            self.counts["refused"] += 1
            connection.close()
            return
        connection.setblocking(False)
        self.ready.register(connection, selectors.EVENT_READ)
        self.states[connection] = [b"", is_active, False]
        self.ask(connection)

    def ask(self, connection):
        try:
            connection.send(REQUEST)
            self.states[connection][2] = True
        except OSError:
            self.end(connection)

    def end(self, connection):
        """The server has ended the connection."""
        _, is_active, is_waiting = self.states.pop(connection)
        self.ready.unregister(connection)
        connection.close()
        self.counts["lost" if is_waiting else "closed"] += 1
        self.open(is_active)

    def run(self):
        for _ in range(self.idle):
            self.open(False)
        for _ in range(self.active):
            self.open(True)
        while not self.is_over:
            for key, _ in self.ready.select(0.1):
                self.read(key.fileobj)
        for connection in self.states:
            connection.close()

    def read(self, connection):
        state = self.states[connection]
        try:
            got = connection.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            self.counts["reset"] += 1
            got = b""
        if not got:
            self.end(connection)
            return
        state[0] += got
        head, end, body = state[0].partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower()) if end else None
        if not length or len(body) < int(length.group(1)):
            return
        self.counts["responses"] += 1
        state[0], state[2] = b"", False
        if state[1] and b"connection: close" not in head.lower():
            self.ask(connection)


def pid_of(path):
    with open(path) as f:
        return int(f.read())


def upgrade_lighty(args, pid_file):
    """Returns the seconds until the new process served, and until the command ended."""
    begun, old = time.monotonic(), pid_of(pid_file)
    command = subprocess.Popen([args.lighty, "ctl", "upgrade", "--pid-file", pid_file],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while command.poll() is None and not has_new(pid_file, old):
        time.sleep(0.005)
    ready = time.monotonic() - begun
    _, errors = command.communicate()
    if command.returncode:
        raise rig.RigError(f"lighty: {errors.strip()}")
    return ready, time.monotonic() - begun


def upgrade_nginx(_, pid_file):
    begun, old = time.monotonic(), pid_of(pid_file)
    os.kill(old, signal.SIGUSR2)
    while not os.path.exists(pid_file + ".oldbin") or not has_new(pid_file, old):
        if time.monotonic() - begun > PATIENCE_S:
            raise rig.RigError("nginx: no new master")
        time.sleep(0.01)
    ready = time.monotonic() - begun
    time.sleep(0.5)
    os.kill(old, signal.SIGQUIT)
    time.sleep(4.5)
    return ready, time.monotonic() - begun


def has_new(pid_file, old):
    try:
        return pid_of(pid_file) != old
    except (OSError, ValueError):
        return False


UPGRADES = {"lighty": upgrade_lighty, "lighty:sandbox": upgrade_lighty, "nginx": upgrade_nginx}


def configuration(args, name, port, pid_file):
    root = rig.document_root(args.out)
    path = f"{args.out}/upgrade-{name.replace(':', '-')}.conf"
    if name != "nginx":
        text = (f'server.document-root = "{root}"\nserver.port = {port}\n'
                f'server.bind = "127.0.0.1"\nserver.pid-file = "{pid_file}"\n'
                'server.max-connections = 40000\nserver.max-fds = 100000\n'
                'server.max-worker = 2\nserver.max-keep-alive-idle = 600\n'
                'server.max-keep-alive-requests = 1000000\n')
        if name == "lighty:sandbox":
            text += 'server.sandbox = "auto"\n'
        argv = [args.lighty, "-D", "-f", path]
    else:
        # In the foreground, nginx ignores USR2.
        text = ("daemon on;\nworker_processes 2;\n"
                f"pid {pid_file};\nerror_log {args.out}/upgrade-nginx.log;\n"
                "events { worker_connections 20000; }\nworker_rlimit_nofile 100000;\n"
                "http { access_log off; keepalive_timeout 600; keepalive_requests 1000000;\n"
                f"server {{ listen 127.0.0.1:{port} backlog=1024; root {root}; }} }}\n")
        argv = [servers.binary(args, "nginx"), "-p", args.out, "-e", f"{args.out}/upgrade-nginx.log",
                "-c", path]
    with open(path, "w") as f:
        f.write(text)
    return argv


def measure(args, name):
    port, pid_file = rig.free_port(), f"{args.out}/upgrade-{name.replace(':', '-')}.pid"
    argv = configuration(args, name, port, pid_file)
    running = None
    if name == "nginx":
        os.makedirs(args.out + "/logs", exist_ok=True)
        subprocess.run(argv, check=True)
    else:
        log = f"{args.out}/upgrade-{name.replace(':', '-')}.log"
        running = rig.start(name, argv, port, log, core=None)
    family = operated.session_of(pid_of(pid_file))
    states, times, failed = [], [], ""
    try:
        load = Client(port, args.idle, args.active)
        load.start()
        wait_for(lambda: load.counts["responses"] > args.idle + args.active, "the load")
        for _ in range(args.nginx_times if name == "nginx" else args.times):
            try:
                times.append(UPGRADES[name](args, pid_file))
            except rig.RigError as e:
                failed = str(e)
                break
            states.append(state(pid_of(pid_file), family))
        load.is_over = True
        load.join()
    finally:
        stop_all(running, pid_file)
    return {**load.counts, "ready_s": [ready for ready, _ in times],
            "seconds": [all for _, all in times], "states": states, "failed": failed}


def state(pid, family):
    """Figures of the new process, and the number of processes that the server has by now."""
    all_of_it = [entry for entry in os.listdir("/proc") if entry.isdigit()
                 and operated.session_of(entry) == family]
    return {"fds": len(os.listdir(f"/proc/{pid}/fd")), "threads": len(os.listdir(f"/proc/{pid}/task")),
            "anon_kib": operated.field_kib(f"/proc/{pid}/status", "RssAnon"),
            "processes": len(all_of_it)}


def wait_for(holds, what):
    end = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > end:
            raise rig.RigError(f"{what} does not begin")
        time.sleep(0.1)


def stop_all(running, pid_file):
    try:
        os.kill(pid_of(pid_file), signal.SIGTERM)
    except (OSError, ValueError):
        pass
    time.sleep(1)
    if running:
        running.stop()


def main():
    ap = operated.arguments(__doc__, "lighty,lighty:sandbox,nginx")
    ap.add_argument("--idle", type=int, default=10_000, help="idle connections (%(default)s)")
    ap.add_argument("--active", type=int, default=500, help="active ones (%(default)s)")
    ap.add_argument("--times", type=int, default=20, help="upgrades (%(default)s)")
    ap.add_argument("--nginx-times", type=int, default=4, help="of nginx (%(default)s)")
    args = ap.parse_args()
    os.makedirs(args.out, exist_ok=True)
    rig.raise_descriptors()
    if args.priority:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(operated.PRIORITY))
    results = {}
    for name in [name for name in args.servers.split(",") if name in UPGRADES]:
        results[name] = one = measure(args, name)
        show(name, one)
    rig.save(args, "upgrade", {"idle": args.idle, "active": args.active, "times": args.times,
                               "servers": results}, servers.versions(args, list(results)))


def show(name, one):
    ready, states = one["ready_s"] or [0], one["states"] or [{}]
    rig.say(f"  {name}: {len(one['ready_s'])} upgrades{': ' + one['failed'] if one['failed'] else ''};"
            f" {one['responses']} responses, {one['closed']} connections closed in order, refused"
            f" {one['refused']}, reset {one['reset']}, lost {one['lost']}\n"
            f"    ready after {rig.median(ready):.2f} s [{min(ready):.2f}-{max(ready):.2f}], all"
            f" {rig.median(one['seconds'] or [0]):.1f} s; first {states[0]}, last {states[-1]}")


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"upgrade: {e}")
