"""Servers as the operation drills run them: reloaded, refused, replaced, and looked at.

A configuration is made for a generation.  Every response carries its number, X-Generation, which
tells when a reload is done: a new connection gets the new number.  Each third generation has another
listener and a second backend.  A broken one has a syntax error.

    lighty, lighty:sandbox (server.sandbox = "auto"), nginx, lighttpd, haproxy, caddy

A server does what its experts have it do: nginx is reloaded by HUP, HAProxy by USR2 to its master,
Caddy by its admin socket, lighttpd by USR1 with server.graceful-restart-bg.
"""
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import rig
import servers
import steady

WORKERS = 2
PRIORITY = 10           # that of the other threads of lighty, and of the drill, is half of it
PATIENCE_S = 30
REFUSAL_S = 0.3         # peers do not say that they have refused a configuration
REFUSAL_PATIENCE_S = 5


class Refused(Exception):
    """The server says that it keeps its configuration."""


class Operated:
    """A server with its directory, its ports and the number of its configuration."""

    def __init__(self, args, name, ports, root=None):
        self.args, self.name = args, name
        self.base, _, self.variant = name.partition(":")
        self.directory = f"{args.out}/operated/{name.replace(':', '-')}"
        os.makedirs(self.directory + "/logs", exist_ok=True)
        self.root = root or document_root(args.out)
        self.ports = ports          # backend: two of them; files: of HAProxy's other backend
        self.port, self.extra, self.admin = (rig.free_port() for _ in range(3))
        # A sandbox permits the ports of the first configuration.
        self.first = 1 if self.variant == "sandbox" else 0
        self.generation, self.running, self.more, self.said = self.first, None, "", ""
        self.paused_s = 0       # the longest time without an answer behind a refusal
        self.path = f"{self.directory}/{self.base}.conf"
        self.pid_file = f"{self.directory}/pid"

    # ------------------------------------------------------------ start and end

    def start(self):
        self.write()
        program = servers.binary(self.args, self.base)
        argv = {
            "lighty": [program, "-D", "-f", self.path],
            "nginx": [program, "-p", self.directory, "-e", self.directory + "/nginx.err",
                      "-c", self.path],
            "lighttpd": [program, *servers.modules_of(program or ""), "-D", "-f", self.path],
            "haproxy": [program, "-W", "-f", self.path],
            "caddy": ["env", f"HOME={self.directory}", f"GOMAXPROCS={WORKERS}", program, "run",
                      "--adapter", "caddyfile", "--config", self.path],
        }[self.base]
        log = self.directory + "/output"
        self.running = rig.start(self.name, prioritized(self.args) + argv, self.port, log, core=None)
        self.await_generation(PATIENCE_S)
        if self.args.priority and self.base == "lighty":
            self.prioritize_workers()

    def prioritize_workers(self):
        """Let the workers have a higher real-time priority: under the same, a thread that reads a
        configuration would take turns of 100 ms with them."""
        workers = self.workers()
        for task in os.listdir(f"/proc/{self.running.pid}/task"):
            if int(task) not in workers:
                os.sched_setscheduler(int(task), os.SCHED_RR, os.sched_param(PRIORITY // 2))

    def workers(self):
        """Thread ids of lighty's workers."""
        tasks = pathlib.Path(f"/proc/{self.running.pid}/task").iterdir()
        return [int(task.name) for task in tasks
                if (task / "comm").read_text().startswith("worker-")]

    def stop(self):
        pids = self.pids()
        self.running.stop(grace_s=2)
        for pid in pids:        # old generations of peers, which have their own time
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def pids(self):
        """All processes of the server, also those that are no longer the first one's children."""
        session = [int(entry.name) for entry in pathlib.Path("/proc").iterdir()
                   if entry.name.isdigit() and session_of(entry.name) == self.running.pid]
        return sorted(set(session) | set(rig.tree(self.running.pid)))

    # ------------------------------------------------------------ reloads

    def write(self, lines=""):
        has_more = self.generation % 3 == 1
        text = getattr(self, "_" + self.base)(has_more)
        if self.base == "nginx":
            text = text.removesuffix("}\n") + lines + "}\n"
        else:
            text += lines
        with open(self.path, "w") as f:
            f.write(text)

    def reload(self):
        """Seconds until a new connection gets the next generation."""
        self.generation += 1
        self.write()
        began = time.monotonic()
        try:
            self.order()
            self.await_generation(PATIENCE_S)
        except Refused as why:
            raise rig.RigError(f"{self.name}: {why}") from None
        return time.monotonic() - began

    def refuse(self, lines=None):
        """Try a configuration with these lines.  True if the server then goes on with the present
        one."""
        self.write(BROKEN[self.base] if lines is None else lines)
        self.said = ""
        try:
            self.order()
            if self.base in ("lighty", "caddy"):
                raise rig.RigError(f"{self.name} took a broken configuration: {lines}")
            time.sleep(REFUSAL_S)
        except Refused as why:
            self.said = str(why)
        self.write()
        if not self.running.alive():
            return False
        began = time.monotonic()
        try:
            self.await_generation(REFUSAL_PATIENCE_S)
        except rig.RigError:
            return False
        self.paused_s = max(self.paused_s, time.monotonic() - began)
        return True

    def order(self):
        if self.base == "lighty":
            status, text = ask(self.pid_file + ".ctl", "POST", "/reload")
            if status != 200:
                raise Refused(text)
        elif self.base == "caddy":
            self.load_into_caddy()
        else:
            order = {"nginx": signal.SIGHUP, "lighttpd": signal.SIGUSR1, "haproxy": signal.SIGUSR2}
            if self.running.alive():
                os.kill(self.running.pid, order[self.base])

    def load_into_caddy(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=PATIENCE_S)
        with open(self.path, "rb") as f:
            connection.request("POST", "/load", f.read(), {"Content-Type": "text/caddyfile"})
        response = connection.getresponse()
        text = response.read().decode()
        if response.status != 200:
            raise Refused(text)

    def await_generation(self, patience_s):
        end = time.monotonic() + patience_s
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                if self.served_generation() == self.generation:
                    return
            time.sleep(0.005)
        raise rig.RigError(f"{self.name} does not serve generation {self.generation}")

    def served_generation(self):
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as s:
            s.sendall(f"GET {steady.STATIC} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
            got = b""
            while piece := s.recv(65536):
                got += piece
        found = re.search(rb"(?i)x-generation: (\d+)", got)
        return int(found.group(1)) if found else -1

    # ------------------------------------------------------------ state

    def usage(self):
        """Processes, threads, descriptors, sockets, and KiB that belong to the server alone.
        Without cached documents, and threads that come and go with them."""
        total = {"processes": 0, "threads": 0, "fds": 0, "sockets": 0, "anon_kib": 0, "pss_kib": 0}
        for pid in self.pids():
            with contextlib.suppress(OSError):
                total["threads"] += sum(not name.startswith("io-") for name in threads(pid))
                total["processes"] += 1
                total["anon_kib"] += field_kib(f"/proc/{pid}/status", "RssAnon")
                total["pss_kib"] += field_kib(f"/proc/{pid}/smaps_rollup", "Pss")
                for fd in os.listdir(f"/proc/{pid}/fd"):
                    with contextlib.suppress(OSError):
                        target = os.readlink(f"/proc/{pid}/fd/{fd}")
                        total["fds"] += not target.startswith(self.root)
                        total["sockets"] += target.startswith("socket:")
        return total

    # ------------------------------------------------------------ configurations

    def _lighty(self, has_more):
        backends = self.ports["backend"][:2 if has_more else 1]
        text = (
            f'server.document-root = "{self.root}"\nserver.bind = "127.0.0.1"\n'
            f'server.port = {self.port}\nserver.pid-file = "{self.pid_file}"\n'
            f'server.errorlog = "{self.directory}/error.log"\nserver.max-worker = {WORKERS}\n'
            'server.max-connections = 15000\nserver.max-fds = 20000\n'
            'server.max-keep-alive-requests = 100000000\nserver.max-keep-alive-idle = 600\n'
            f'setenv.add-response-header = ( "X-Generation" => "{self.generation}" )\n'
            '$HTTP["url"] =^ "/p/" {\n    proxy-core.protocol = "http"\n'
            '    proxy-core.upgrade = "enable"\n    proxy-core.max-pool-size = 4096\n'
            '    proxy-core.backends = ( ' + ", ".join(f'"127.0.0.1:{p}"' for p in backends)
            + ' )\n}\n')
        if self.variant == "sandbox":
            text += 'server.sandbox = "auto"\n'
        if has_more:
            text += f'$SERVER["socket"] == "127.0.0.1:{self.extra}" {{ }}\n'
        return text + self.more

    def _nginx(self, has_more):
        backends = "".join(f"server 127.0.0.1:{p}; " for p in self.ports["backend"][:1 + has_more])
        listen = f"listen 127.0.0.1:{self.extra};" if has_more else ""
        return (
            f"daemon off;\nworker_processes {WORKERS};\npid {self.pid_file};\n"
            "worker_rlimit_nofile 20000;\nevents { worker_connections 15000; }\n"
            "http {\naccess_log off; sendfile on; keepalive_timeout 600;\n"
            "keepalive_requests 100000000;\nserver_names_hash_max_size 65536;\n"
            f"add_header X-Generation {self.generation} always;\n"
            "map $http_upgrade $passed { default upgrade; '' ''; }\n"
            f"upstream backend {{ {backends} keepalive 64; }}\n"
            f"server {{ listen 127.0.0.1:{self.port} backlog=4096; {listen} root {self.root};\n"
            "location /p/ { proxy_pass http://backend; proxy_http_version 1.1;\n"
            "proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $passed;\n"
            "proxy_buffering off; proxy_request_buffering off; proxy_read_timeout 3600;\n"
            "client_max_body_size 0; } }\n" + self.more + "}\n")

    def _lighttpd(self, has_more):
        backends = ", ".join(f'( "host" => "127.0.0.1", "port" => {p} )'
                             for p in self.ports["backend"][:1 + has_more])
        text = (
            'server.modules = ( "mod_proxy", "mod_setenv" )\n'
            f'server.document-root = "{self.root}"\nserver.bind = "127.0.0.1"\n'
            f'server.port = {self.port}\nserver.errorlog = "{self.directory}/error.log"\n'
            f'server.pid-file = "{self.pid_file}"\n'
            'server.feature-flags = ( "server.graceful-restart-bg" => "enable" )\n'
            'server.max-connections = 15000\nserver.max-fds = 20000\n'
            'server.max-keep-alive-requests = 65535\nserver.max-keep-alive-idle = 600\n'
            'server.stream-request-body = 2\nserver.stream-response-body = 2\n'
            f'setenv.add-response-header = ( "X-Generation" => "{self.generation}" )\n'
            f'$HTTP["url"] =^ "/p/" {{ proxy.header = ( "upgrade" => "enable" )\n'
            f'proxy.server = ( "" => ( {backends} ) ) }}\n')
        if has_more:
            text += f'$SERVER["socket"] == "127.0.0.1:{self.extra}" {{ }}\n'
        return text + self.more

    def _haproxy(self, has_more):
        backends = "".join(f"    server s{p} 127.0.0.1:{p}\n"
                           for p in self.ports["backend"][:1 + has_more])
        extra = f"    bind 127.0.0.1:{self.extra}\n" if has_more else ""
        return (
            f"global\n    nbthread {WORKERS}\n    maxconn 9000\n"
            f"    stats socket {self.directory}/haproxy.sock mode 600 level admin\n"
            "defaults\n    mode http\n    timeout connect 5s\n    timeout client 600s\n"
            "    timeout server 600s\n    timeout http-keep-alive 600s\n    timeout tunnel 1h\n"
            "    http-reuse always\n"
            f"frontend front\n    bind 127.0.0.1:{self.port} backlog 4096\n{extra}"
            f"    http-after-response set-header X-Generation {self.generation}\n"
            "    use_backend back if { path_beg /p/ }\n    default_backend files\n"
            f"backend files\n    server files 127.0.0.1:{self.ports['files']}\n"
            f"backend back\n{backends}" + self.more)

    def _caddy(self, has_more):
        backends = " ".join(f"127.0.0.1:{p}" for p in self.ports["backend"][:1 + has_more])
        extra = f", http://127.0.0.1:{self.extra}" if has_more else ""
        # The host of the drills is "a".
        return (
            f"{{\n\tadmin localhost:{self.admin}\n\tauto_https off\n"
            "\tlog {\n\t\toutput discard\n\t}\n"
            "\tservers {\n\t\ttimeouts {\n\t\t\tidle 600s\n\t\t}\n\t}\n}\n"
            f"http://:{self.port}{extra.replace('127.0.0.1', '')} {{\n\tbind 127.0.0.1\n"
            f"\theader X-Generation {self.generation}\n\troot * {self.root}\n"
            f"\thandle /p/* {{\n\t\treverse_proxy {backends} {{\n\t\t\tflush_interval -1\n"
            f"{self.more}\t\t}}\n\t}}\n\thandle {{\n\t\tfile_server\n\t}}\n}}\n")


BROKEN = {"lighty": "server.tag = \n", "nginx": "nonsense;\n", "lighttpd": "server.tag = \n",
          "haproxy": "nonsense\n", "caddy": "nonsense {\n"}


def threads(pid):
    """Names of a process's threads."""
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            yield (task / "comm").read_text()


def session_of(pid):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as f:
        return int(f.read().rpartition(")")[2].split()[3])
    return 0


def field_kib(path, field):
    with open(path) as f:
        found = re.search(rf"^{field}:\s+(\d+)", f.read(), re.M)
    return int(found.group(1)) if found else 0


def ask(path, method, target, timeout_s=PATIENCE_S):
    """Status and text of a request on a control socket of lighty."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(timeout_s)
        s.connect(path)
        s.sendall(f"{method} {target} HTTP/1.1\r\nHost: localhost\r\n"
                  "Content-Type: application/json\r\nContent-Length: 0\r\n\r\n".encode())
        reply = b""
        while piece := s.recv(65536):
            reply += piece
    head, _, body = reply.partition(b"\r\n\r\n")
    return int(head.split()[1]), body.decode()


# ---------------------------------------------------------------- around the server

def prioritized(args):
    """Before a command: real-time priority, so that the figures are not those of other programs."""
    return ["chrt", "-r", str(PRIORITY)] if args.priority else []


def document_root(out):
    root = rig.document_root(out)
    rig.write_once(root + steady.STATIC, rig.SMALL)
    rig.write_once(root + steady.DOWNLOAD[0], rig.pattern("large.bin", steady.DOWNLOAD[1]))
    return root


def arguments(doc, names):
    ap = rig.arguments(doc, names)
    ap.add_argument("--priority", action="store_true",
                    help="run servers and clients under chrt -r: for a machine that others use")
    return ap


def installed(args):
    """The names asked for whose programs are there."""
    found = []
    for name in args.servers.split(","):
        base = name.partition(":")[0]
        if servers.binary(args, base):
            found.append(name)
        else:
            rig.say(f"skipped: {name} is not installed")
    return found


@contextlib.contextmanager
def backends(args):
    """{"backend": two ports, "files": one}: the drills' backend, and nginx before the same files."""
    rig.raise_descriptors()
    if args.priority:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY // 2))
    ports = {"backend": [rig.free_port(), rig.free_port()], "files": rig.free_port()}
    argv = [*prioritized(args), sys.executable, steady.__file__, "backend",
            *map(str, ports["backend"])]
    backend = subprocess.Popen(argv, stdin=subprocess.PIPE)
    directory = f"{args.out}/operated/files"
    os.makedirs(directory + "/logs", exist_ok=True)
    with open(directory + "/nginx.conf", "w") as f:
        f.write(f"daemon off;\nmaster_process off;\npid {directory}/pid;\n"
                "events { worker_connections 4096; }\nhttp { access_log off; sendfile on;\n"
                "keepalive_requests 100000000;\n"
                f"server {{ listen 127.0.0.1:{ports['files']}; root {document_root(args.out)}; }} }}\n")
    nginx = servers.binary(args, "nginx")
    files = None
    try:
        if nginx:
            argv = [*prioritized(args), nginx, "-p", directory, "-e", directory + "/nginx.err", "-c",
                    directory + "/nginx.conf"]
            files = rig.start("nginx", argv, ports["files"], directory + "/output", core=None)
        yield ports
    finally:
        backend.stdin.close()
        backend.wait()
        if files:
            files.stop()


class Clients:
    """A load (steady.py) in a process of its own, for the length of a with block."""

    def __init__(self, args, port, **numbers):
        argv = [*prioritized(args), sys.executable, steady.__file__, "load",
                json.dumps({"port": port, **numbers})]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)

    def __enter__(self):
        self.expect("ready")
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def expect(self, word):
        line = self.process.stdout.readline().strip()
        if line != word:
            raise rig.RigError(f"the clients say {line!r} instead of {word!r}")

    def say(self, order):
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()

    def phase(self, name):
        self.say("phase " + name)

    def check(self):
        self.say("check")
        self.expect("checked")

    def end(self):
        self.say("end")
        return json.loads(self.process.stdout.readline())
