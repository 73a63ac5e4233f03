#!/usr/bin/env python3
"""Scripts: what it costs to answer "123" from a program, from a script, and from a file.

The shape of lighttpd 1.5's own table: one connection, then 64.  All of the server's side, PHP and
the Lua program included, shares core 0; wrk has core 1.  With one connection a row is latency, with
64 it is CPU; CPU is user and system time of the server's process trees per answered request.
Ratios are of medians, to the first row; rounds are interleaved.

    php-close         PHP-FPM behind lighty; a connection for each request, to the client and to PHP
    php               the same, both connections kept
    magnet-fcgi       lighty magnet-fcgi behind lighty, connections kept
    magnet            mod_magnet of lighty
    lighttpd-magnet   mod_magnet of lighttpd 1.4
    nginx-lua         content_by_lua_file of nginx
    file              a file of three bytes, by lighty
"""
import os
import re
import socket
import subprocess
import sys
import threading
import time

import neighbour
import php
import rig
import servers

ROWS = "php-close,php,magnet-fcgi,magnet,lighttpd-magnet,nginx-lua,file"
PHP = '<?php header("Content-Length: 3"); echo "123";\n'
LUA = 'io.write("123")\n'
MAGNET = 'lighty.header["Content-Type"] = "text/html"\nlighty.content = { "123" }\nreturn 200\n'
FASTCGI = """server.modules += ( "mod_fastcgi" )
fastcgi.server = ( "%s" => (( "socket" => "%s", "check-local" => "enable" )) )
proxy-core.max-pool-size = 64
proxy-core.max-keep-alive-requests = %s
"""
LIGHTY = """server.document-root = "@ROOT@"
server.bind = "127.0.0.1"
server.port = @PORT@
server.errorlog = "@DIR@/server.err"
server.max-worker = %s
server.max-keep-alive-requests = 100000000
server.max-keep-alive-idle = 300
mimetype.assign = ( ".html" => "text/html", "" => "application/octet-stream" )
"""
NGINX = """daemon off;
master_process off;
user root;
worker_processes 1;
pid @DIR@/nginx.pid;
error_log @DIR@/nginx.err;
load_module /usr/lib/nginx/modules/ndk_http_module.so;
load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;
events { worker_connections 4096; multi_accept on; }
http {
    default_type text/html;
    access_log off;
    keepalive_requests 100000000;
    client_body_temp_path @DIR@/tmp;
    proxy_temp_path @DIR@/tmp;
    fastcgi_temp_path @DIR@/tmp;
    uwsgi_temp_path @DIR@/tmp;
    scgi_temp_path @DIR@/tmp;
    server {
        listen 127.0.0.1:@PORT@ reuseport backlog=4096;
        root @ROOT@;
        location / { content_by_lua_file @ROOT@/123-nginx.lua; }
    }
}
"""


def main():
    ap = rig.arguments(__doc__, ROWS)
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--secs", type=int, default=2, help="length of a round")
    ap.add_argument("--conns", default="1,64", help="connections (%(default)s)")
    args = ap.parse_args()
    root = rig.document_root(args.out)
    for name, text in {"123.php": PHP, "123.lua": LUA, "123.html": "123", "123-magnet.lua": MAGNET,
                       "123-nginx.lua": 'ngx.header["Content-Length"] = 3\nngx.print("123")\n'}.items():
        rig.write_once(f"{root}/{name}", text.encode())
    wanted = args.servers.split(",")
    unknown = [name for name in wanted if name not in ROWS.split(",")]
    if unknown:
        raise rig.RigError(f"no row is called {unknown[0]}; there are {ROWS}")
    args.conns = [int(word) for word in args.conns.split(",")]
    with fpm(args):
        running = {}
        try:
            for name in wanted:
                try:
                    running[name] = Row(args, name)
                except (rig.RigError, FileNotFoundError) as e:
                    rig.say(f"left out: {name}: {e}")
            results = {str(c): measure(running, c, args) for c in args.conns}
        finally:
            for row in running.values():
                row.stop()
    for conns, rows in results.items():
        show(conns, rows)
    results["memory"] = memory(args)
    results["runaway"] = beside_runaway(args)
    rig.save(args, "scripts", results, servers.versions(args, ["lighty", "lighttpd", "nginx"]))


def fpm(args):
    """PHP-FPM with a pool for each of the two rows."""
    class Two(php.fpm):
        def __init__(self):
            names, conns = args.servers, args.conns
            args.servers, args.conns = "php-close,php", 64
            super().__init__(args)
            args.servers, args.conns = names, conns

        def __enter__(self):
            before, rig.CLIENT_CORE = rig.CLIENT_CORE, rig.SERVER_CORE
            try:
                return super().__enter__()
            finally:
                rig.CLIENT_CORE = before
                args.fpm = self.running
    return Two()


class Row:
    """A server, what runs behind it, and how it is asked."""

    def __init__(self, args, name):
        self.directory = f"{args.out}/servers/{name}"
        os.makedirs(self.directory + "/tmp", exist_ok=True)
        self.name, self.behind, self.headers = name, [], []
        self.path, lines = self.lines(args, name)
        self.server = self.start(args, lines)
        self.check()

    def lines(self, args, name):
        if name in ("php", "php-close"):
            self.behind.append(args.fpm)
            path = servers.php_socket(args.out + "/php", name)
            if name == "php-close":
                self.headers = ["-H", "Connection: close"]
            return "/123.php", FASTCGI % (".php", path, 1 if name == "php-close" else 100000000)
        if name == "magnet-fcgi":
            path = self.directory + "/magnet.sock"
            self.behind.append(self.program([args.lighty, "magnet-fcgi", "--listen", path], path))
            return "/123.lua", FASTCGI % (".lua", path, 100000000)
        if name.endswith("magnet"):
            lines = f'magnet.attract-raw-url-to = ( "{args.out}/www/123-magnet.lua" )\n'
            return "/123", 'server.modules += ( "mod_magnet" )\n' + lines
        return ("/123" if name == "nginx-lua" else "/123.html"), ""

    def program(self, argv, path):
        """A program that listens on a unix socket."""
        if os.path.exists(path):
            os.unlink(path)
        with open(self.directory + "/program", "ab") as out:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                       preexec_fn=lambda: rig.pin(rig.SERVER_CORE))
        end = time.monotonic() + 10
        while not os.path.exists(path):
            if process.poll() is not None or time.monotonic() > end:
                raise rig.RigError(" ".join(argv[1:2]) + " does not listen")
            time.sleep(0.02)
        return rig.Running("program", process, 0)

    def start(self, args, lines):
        base = self.name.partition("-")[0]
        base = base if base in ("nginx", "lighttpd") else "lighty"
        path = servers.binary(args, base)
        if not path:
            raise rig.RigError("not installed")
        text = NGINX if base == "nginx" else LIGHTY % (0 if base == "lighttpd" else 1) + lines
        port = rig.free_port()
        values = {"ROOT": args.out + "/www", "DIR": self.directory, "PORT": port}
        text = re.sub(r"@([A-Z]+)@", lambda m: str(values[m.group(1)]), text)
        with open(self.directory + "/conf", "w") as f:
            f.write(text)
        early = ["-e", self.directory + "/nginx.err", "-c"] if base == "nginx" else ["-D", "-f"]
        argv = [path, *early, self.directory + "/conf"]
        return rig.start(self.name, argv, port, self.directory + "/output")

    def check(self):
        """The answer is what it should be before anything is measured."""
        done = subprocess.run(["curl", "-s", "-i", self.url()], capture_output=True, text=True)
        if not done.stdout.endswith("\n\n123") or " 200 " not in done.stdout.split("\n")[0]:
            self.stop()
            raise rig.RigError("answers " + repr(done.stdout[-300:]))

    def url(self):
        return f"http://127.0.0.1:{self.server.port}{self.path}"

    def cpu_s(self):
        return rig.cpu_s(self.server.pid) + sum(rig.cpu_s(b.pid) for b in self.behind)

    def round(self, conns, secs):
        before = self.cpu_s()
        argv = ["wrk", "-t1", f"-c{conns}", f"-d{secs}s", "--latency", "--timeout", "30s",
                *self.headers, self.url()]
        done = subprocess.run(argv, capture_output=True, text=True,
                              preexec_fn=lambda: rig.pin(rig.CLIENT_CORE))
        result = rig.parse_wrk(done.stdout + done.stderr)
        result["us"] = rig.ratio((self.cpu_s() - before) * 1e6, result["requests"])
        return result

    def stop(self):
        self.server.stop()
        for one in self.behind:
            if one.name == "program":
                one.stop()


def measure(running, conns, args):
    rows = {name: {"rps": [], "us": [], "bad": 0} for name in running}
    for row in running.values():
        row.round(conns, 1)     # warm
    for _ in range(args.rounds):
        for name, row in running.items():
            r = row.round(conns, args.secs)
            rows[name]["rps"].append(r["rps"])
            rows[name]["us"].append(r["us"])
            rows[name]["bad"] += r["bad"]
    return rows


SCRIPTS = 400           # compiled, for their memory
SUSPENDED = 1000        # requests that wait in a script


def memory(args):
    """What a compiled script and a request that waits in one take in the server."""
    directory, root = args.out + "/servers/memory", args.out + "/www"
    os.makedirs(directory, exist_ok=True)
    lines = f'magnet.attract-raw-url-to = ( "{directory}/wait.lua" )\n'
    rig.write_once(directory + "/wait.lua",
                   b'if lighty.r.req_attr["uri.path"] == "/wait" then lighty.sleep(20) end\n')
    for n in range(SCRIPTS):
        rig.write_once(f"{directory}/{n}.lua", MAGNET.encode())
        lines += f'$HTTP["url"] == "/{n}" {{ magnet.attract-raw-url-to = ( "{directory}/{n}.lua" ) }}\n'
    port = rig.free_port()
    with open(directory + "/conf", "w") as f:
        f.write((LIGHTY % 1).replace("@ROOT@", root).replace("@DIR@", directory)
                .replace("@PORT@", str(port)) + 'server.modules += ( "mod_magnet" )\n' + lines)
    server = rig.start("memory", [servers.binary(args, "lighty"), "-D", "-f", directory + "/conf"],
                       port, directory + "/output")
    sockets = []

    def ask(path, waits=False):
        one = socket.create_connection(("127.0.0.1", port))
        one.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        return sockets.append(one) if waits else (one.recv(4096), one.close())

    def used():
        return 1024 * rig.memory_kib(server.pid, "RssAnon")
    try:
        ask("/0"), ask("/123.html")
        empty = used()
        for n in range(SCRIPTS):
            ask(f"/{n}")
        compiled = used()
        # The connections themselves are there before: they have asked for a file.
        for _ in range(SUSPENDED):
            ask("/123.html", waits=True)
        for one in sockets:
            one.recv(4096)
        idle = used()
        for one in sockets:
            one.sendall(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
        time.sleep(3)
        waiting = used()
    finally:
        for one in sockets:
            one.close()
        server.stop()
    result = {"script": (compiled - empty) / SCRIPTS, "request": (waiting - idle) / SUSPENDED}
    rig.say(f"\nmemory: {result['script']:.0f} bytes for a compiled script, "
            f"{result['request']:.0f} for a request that waits in one")
    return result


ASKED = 500             # requests a second of the neighbour
ENDLESS = b"while true do end\n"


def beside_runaway(args):
    """The 99th percentile of a client of files, alone and beside one whose script never ends, on the
    same worker."""
    directory = args.out + "/servers/runaway"
    os.makedirs(directory, exist_ok=True)
    rig.write_once(directory + "/endless.lua", ENDLESS)
    lines = (f'server.modules += ( "mod_magnet" )\n$HTTP["url"] == "/endless" {{\n'
             f'  magnet.attract-raw-url-to = ( "{directory}/endless.lua" )\n}}\n')
    port = rig.free_port()
    with open(directory + "/conf", "w") as f:
        f.write((LIGHTY % 1).replace("@ROOT@", args.out + "/www").replace("@DIR@", directory)
                .replace("@PORT@", str(port)) + lines)
    argv = [servers.binary(args, "lighty"), "-D", "-f", directory + "/conf"]
    result = {"idle": [], "beside": []}
    with rig.serving("runaway", argv, port, directory + "/output"):
        for _ in range(args.rounds):
            result["idle"].append(p99_ms(port, args.secs))
            over = threading.Event()
            stopped = []
            runaway = threading.Thread(target=keep_asking, args=(port, over, stopped))
            runaway.start()
            result["beside"].append(p99_ms(port, args.secs))
            ran_all_the_time = runaway.is_alive()
            over.set()
            runaway.join()
            if not ran_all_the_time or set(stopped) != {b"503"}:
                raise rig.RigError(f"the script was not stopped each time: {set(stopped)}")
    rig.say(f"\na neighbour's p99: {rig.median(result['idle']):.2f} ms alone,"
            f" {rig.median(result['beside']):.2f} ms beside a script that never ends")
    return result


def p99_ms(port, secs):
    return neighbour.hot(port, "/123.html", ASKED, 2 * secs, rig.CLIENT_CORE)["p99_ms"]


def keep_asking(port, over, statuses):
    """Has the script run without a pause; magnet.max-instructions stops each run, with a 503."""
    while not over.is_set():
        with socket.create_connection(("127.0.0.1", port)) as one:
            one.sendall(b"GET /endless HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            statuses.append(one.recv(4096)[9:12])
            while one.recv(4096):
                pass


def show(conns, rows):
    first = rig.median(next(iter(rows.values()))["rps"]) if rows else 0
    file = rig.median(rows["file"]["us"]) if "file" in rows else 0
    rig.say(f"\n{conns} connection(s): requests per second, median [range], CPU per request")
    for name, r in rows.items():
        rps, us = rig.median(r["rps"]), rig.median(r["us"])
        rig.say(f"  {name:16s} {rps:8.0f} [{min(r['rps']):.0f}-{max(r['rps']):.0f}]"
                f"  x{rig.ratio(rps, first):6.2f}  {1e3 * rig.ratio(int(conns), rps):7.3f} ms"
                f"  {us:7.1f} us  x{rig.ratio(us, file):5.2f} of a file  bad {r['bad']}")


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"scripts: {e}")
