#!/usr/bin/env python3
"""Bursts to backends with few processes: how long requests wait, with the peers side by side.

Each server has backends of its own, so that no server's connections hold another one's processes.
A backend sleeps 10 ms over each answer.  Four clients for each process ask at once, several times
over, each on a connection that it keeps; then one after another.  A request's time runs from its
first byte sent to its last byte read.  Where a kept connection holds a process that another request
waits for, it shows in the highest times.

    cgi       php-cgi with so many children
    static    PHP-FPM, pm = static
    dynamic   PHP-FPM, pm = dynamic, which begins with one child
    ondemand  PHP-FPM, pm = ondemand, which begins with none
    uwsgi     uWSGI with so many processes
    http      processes that serve one HTTP connection each, to its end
    ajp       Tomcat with so many threads

The variants of a server are those of servers.py: nginx has no keep-alive here, nginx:keep has.
"""
import concurrent.futures
import contextlib
import glob
import os
import shutil
import socket
import sys
import threading
import time

import rig
import servers

SLEEP_MS = 10
SCRIPT = f"<?php usleep({SLEEP_MS * 1000}); echo 'ok';\n"
JSP = f"<%@ page session=\"false\" %><% Thread.sleep({SLEEP_MS}); %>ok"
WEB = ('<web-app xmlns="https://jakarta.ee/xml/ns/jakartaee" version="5.0"><servlet>'
       '<servlet-name>jsp</servlet-name><servlet-class>org.apache.jasper.servlet.JspServlet'
       '</servlet-class></servlet><servlet-mapping><servlet-name>jsp</servlet-name>'
       '<url-pattern>*.jsp</url-pattern></servlet-mapping></web-app>')
WSGI = (f"import time\ndef application(env, start):\n    time.sleep({SLEEP_MS / 1000})\n"
        "    start('200 OK', [('Content-Length', '2')])\n    return [b'ok']\n")
KINDS = "cgi,static,dynamic,ondemand,uwsgi,http,ajp"


def main():
    ap = rig.arguments(__doc__, "lighty,lighttpd,nginx")
    ap.add_argument("--kinds", default=KINDS, help="default: %(default)s")
    ap.add_argument("--processes", default="1,2,8", help="default: %(default)s")
    ap.add_argument("--workers", default="1,4", help="default: %(default)s")
    ap.add_argument("--bursts", type=int, default=12, help="of each case (%(default)s)")
    args = ap.parse_args()
    root = rig.document_root(args.out)
    rig.write_once(root + "/burst.php", SCRIPT.encode())
    rows = []
    for kind in args.kinds.split(","):
        for processes in map(int, args.processes.split(",")):
            for workers in map(int, args.workers.split(",")):
                rows.append(case(args, root, kind, processes, workers))
                show(rows[-1])
    worst(rows)
    rig.save(args, "burst", {"cases": rows}, servers.versions(args, args.servers.split(",")))


def case(args, root, kind, processes, workers):
    row = {"kind": kind, "processes": processes, "workers": workers, "servers": {}}
    for name in args.servers.split(","):
        base = name.partition(":")[0]
        if not servers.binary(args, base) or (kind == "ajp" and base == "nginx"):
            continue
        directory = f"{args.out}/burst/{kind}-{processes}-{workers}-{name.replace(':', '-')}"
        shutil.rmtree(directory, ignore_errors=True)
        os.makedirs(directory + "/tmp")
        try:
            with BACKENDS[kind](directory, processes) as port, \
                 front(args, name, directory, root, kind, port, workers) as server:
                row["servers"][name] = measure(server.port, PATHS.get(kind, "/"), processes, args)
        except rig.RigError as e:
            rig.say(f"left out: {e}")
    return row


# ---------------------------------------------------------------- clients

def measure(port, path, processes, args):
    # What a backend does once, it has done.
    ask(connected(port), path)
    clients = [connected(port) for _ in range(4 * processes)]
    times = []
    with concurrent.futures.ThreadPoolExecutor(len(clients)) as pool:
        for _ in range(args.bursts):
            gate = threading.Barrier(len(clients))
            waiting = [pool.submit(at_once, gate, client, path) for client in clients]
            times.append([one.result() for one in waiting])
            time.sleep(0.05)
    # The kernel gives each of these to a worker as it likes.
    alone = [ask(connected(port), path) for _ in range(20)]
    flat = [ms for burst in times for ms in burst]
    return {"p50_ms": rig.percentile(flat, 50), "p99_ms": rig.percentile(flat, 99),
            "max_ms": max(flat), "alone_p50_ms": rig.percentile(alone, 50),
            "alone_max_ms": max(alone)}


def connected(port):
    return socket.create_connection(("127.0.0.1", port), timeout=120)


def at_once(gate, client, path):
    gate.wait()
    return ask(client, path)


def ask(client, path):
    began = time.monotonic()
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    answer = b""
    while not (answer.endswith(b"ok") or answer.endswith(b"\r\n0\r\n\r\n")):
        piece = client.recv(65536)
        if not piece:
            raise rig.RigError(f"cut: {answer[:200]}")
        answer += piece
    if not answer.startswith(b"HTTP/1.1 200"):
        raise rig.RigError(f"not 200: {answer[:200]}")
    return (time.monotonic() - began) * 1000


# ---------------------------------------------------------------- backends

@contextlib.contextmanager
def php_cgi(directory, processes):
    port = rig.free_port()
    def prepare():
        os.environ["PHP_FCGI_CHILDREN"] = str(processes)
    argv = [found("php-cgi", "php-cgi8.2"), "-n", "-b", f"127.0.0.1:{port}"]
    with rig.serving("php-cgi", argv, port, directory + "/backend", None, prepare):
        yield port


def fpm(manager):
    @contextlib.contextmanager
    def running(directory, processes):
        port = rig.free_port()
        with open(directory + "/fpm.conf", "w") as f:
            f.write(f"[global]\ndaemonize = no\nerror_log = {directory}/fpm.log\n[www]\n"
                    f"user = root\ngroup = root\nlisten = 127.0.0.1:{port}\n"
                    f"listen.backlog = 4096\npm.max_children = {processes}\n{manager}")
        argv = [found("php-fpm", "php-fpm8.2"), "-n", "-R", "-F", "-y", directory + "/fpm.conf"]
        with rig.serving("php-fpm", argv, port, directory + "/backend", None):
            yield port
    return running


@contextlib.contextmanager
def uwsgi(directory, processes):
    port = rig.free_port()
    with open(directory + "/app.py", "w") as f:
        f.write(WSGI)
    argv = [found("uwsgi", "uwsgi-core"), "--plugin", "python3", "--uwsgi-socket",
            f"127.0.0.1:{port}", "--wsgi-file", directory + "/app.py", "--master", "--die-on-term",
            "--processes", str(processes), "--listen", "100", "--disable-logging"]
    with rig.serving("uwsgi", argv, port, directory + "/backend", None):
        yield port


@contextlib.contextmanager
def preforked(directory, processes):
    """Threads that stand for processes."""
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
        for _ in range(processes):
            threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield listener.getsockname()[1]
        # close() alone would leave accept() waiting.
        listener.shutdown(socket.SHUT_RDWR)


def serve(listener):
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                talk(connection)


def talk(connection):
    head = b""
    while piece := connection.recv(65536):
        head += piece
        if not head.endswith(b"\r\n\r\n"):
            continue
        time.sleep(SLEEP_MS / 1000)
        closes = b" HTTP/1.0\r\n" in head or b"\r\nconnection: close" in head.lower()
        head = b""
        end = b"Connection: close\r\n" if closes else b""
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + end + b"\r\nok")
        if closes:
            return


@contextlib.contextmanager
def tomcat(directory, threads):
    port, home = rig.free_port(), "/usr/share/tomcat10"
    for needed in ("conf", "logs", "temp", "work", "webapps/ROOT/WEB-INF"):
        os.makedirs(f"{directory}/{needed}")
    if not os.path.isdir(home) or not shutil.which("java"):
        raise rig.RigError("tomcat10 is not installed")
    with open(directory + "/webapps/ROOT/WEB-INF/web.xml", "w") as f:
        f.write(WEB)
    with open(directory + "/webapps/ROOT/burst.jsp", "w") as f:
        f.write(JSP)
    with open(directory + "/conf/server.xml", "w") as f:
        f.write(f'<Server port="-1"><Service name="Catalina"><Connector protocol="AJP/1.3" '
                f'address="127.0.0.1" port="{port}" secretRequired="false" maxThreads="{threads}" '
                f'minSpareThreads="{threads}"/><Engine name="Catalina" defaultHost="localhost">'
                f'<Host name="localhost" appBase="webapps"/></Engine></Service></Server>')
    argv = ["java", "-Xmx128m", "-cp",
            f"{home}/bin/bootstrap.jar:{home}/bin/tomcat-juli.jar", f"-Dcatalina.home={home}",
            f"-Dcatalina.base={directory}", f"-Djava.io.tmpdir={directory}/temp",
            "org.apache.catalina.startup.Bootstrap", "start"]
    with rig.serving("tomcat", argv, port, directory + "/backend", None):
        yield port


def found(*names):
    for name in names:
        path = shutil.which(name) or next(iter(glob.glob(f"/usr/sbin/{name}*")), None)
        if path:
            return path
    raise rig.RigError(f"{names[0]} is not installed")


SPARE = "pm.start_servers = 1\npm.min_spare_servers = 1\npm.max_spare_servers = {0}\n"
BACKENDS = {"cgi": php_cgi, "static": fpm("pm = static\n"),
            "dynamic": fpm("pm = dynamic\n" + SPARE.format(1)), "ondemand": fpm("pm = ondemand\n"),
            "uwsgi": uwsgi, "http": preforked, "ajp": tomcat}
PATHS = {"cgi": "/burst.php", "static": "/burst.php", "dynamic": "/burst.php",
         "ondemand": "/burst.php", "ajp": "/burst.jsp"}
FASTCGI = ("cgi", "static", "dynamic", "ondemand")


# ---------------------------------------------------------------- servers

def front(args, name, directory, root, kind, backend, workers):
    base, _, variant = name.partition(":")
    port, write = rig.free_port(), {"nginx": nginx, "lighttpd": lighttpd, "lighty": lighty}[base]
    path = f"{directory}/{base}.conf"
    with open(path, "w") as f:
        f.write(write(directory, root, kind, backend, workers, port, variant == "keep"))
    early = ["-e", directory + "/nginx.err", "-c"] if base == "nginx" else ["-D", "-f"]
    argv = [servers.binary(args, base), *early, path]
    return rig.serving(name, argv, port, directory + "/output", None)


def of_1_4(root, kind, backend, port, directory):
    host = f'( "host" => "127.0.0.1", "port" => {backend}, "check-local" => "disable" )'
    if kind in FASTCGI:
        server = f'fastcgi.server = ( ".php" => ( {host} ) )'
    else:
        module = {"uwsgi": "scgi", "http": "proxy", "ajp": "ajp13"}[kind]
        server = f'{module}.server = ( "/" => ( {host} ) )'
        if kind == "uwsgi":
            server += '\nscgi.protocol = "uwsgi"'
    return (f'server.modules = ( "mod_fastcgi", "mod_scgi", "mod_proxy", "mod_ajp13" )\n'
            f'server.document-root = "{root}"\nserver.bind = "127.0.0.1"\nserver.port = {port}\n'
            f'server.errorlog = "{directory}/errors"\n{server}\n')


def lighttpd(directory, root, kind, backend, workers, port, _keep):
    # One worker would be a parent and a child.
    workers = 0 if workers == 1 else workers
    return of_1_4(root, kind, backend, port, directory) + f"server.max-worker = {workers}\n"


def lighty(directory, root, kind, backend, workers, port, _keep):
    return of_1_4(root, kind, backend, port, directory) + f"server.max-worker = {workers}\n"


def nginx(directory, root, kind, backend, workers, port, keep):
    at = "upstream backend { server 127.0.0.1:%d; %s }" % (backend, "keepalive 64;" if keep else "")
    params = f"include /etc/nginx/{'uwsgi' if kind == 'uwsgi' else 'fastcgi'}_params;"
    ask_for = {
        "uwsgi": params + "uwsgi_pass backend;",
        "http": ('proxy_http_version 1.1; proxy_set_header Connection "";' if keep else "")
        + "proxy_pass http://backend;",
    }.get(kind, params + "fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;"
          f"fastcgi_keep_conn {'on' if keep else 'off'}; fastcgi_pass backend;")
    return (f"daemon off; user root; worker_processes {workers}; pid {directory}/nginx.pid;\n"
            f"error_log {directory}/nginx.err;\nevents {{}}\nhttp {{ access_log off;\n"
            + "".join(f"{what}_temp_path {directory}/tmp;\n"
                      for what in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
            + f"{at}\nserver {{ listen 127.0.0.1:{port} reuseport; root {root};\n"
            f"location / {{ {ask_for} }} }} }}\n")


# ---------------------------------------------------------------- results

def show(row):
    head = f"{row['kind']:<9}{row['processes']:>2} processes {row['workers']} workers"
    for name, figures in row["servers"].items():
        rig.say(f"{head}  {name:<11} p50 {figures['p50_ms']:7.1f}  p99 {figures['p99_ms']:7.1f}  "
                f"max {figures['max_ms']:7.1f}  alone {figures['alone_p50_ms']:6.1f} "
                f"(max {figures['alone_max_ms']:6.1f}) ms")


def worst(rows):
    """Beside lighttpd, which makes a connection for each request."""
    ratios = []
    for row in rows:
        ours, theirs = (row["servers"].get(name) for name in ("lighty", "lighttpd"))
        if ours and theirs:
            ratios.append((ours["p99_ms"] / theirs["p99_ms"], row))
    for ratio, row in sorted(ratios, key=lambda pair: -pair[0])[:5]:
        rig.say(f"p99 {ratio:.2f} of lighttpd's: {row['kind']}, {row['processes']} processes, "
                f"{row['workers']} workers")


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"burst: {e}")
