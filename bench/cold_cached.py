#!/usr/bin/env python3
"""Stored responses that are not in memory, on a disk that seeks.

100 clients fetch random 100 KB responses, several times as many as a server's memory holds.  Each
server has stored all of them before, on diskbed: a simulated mirror of two 7200 rpm disks.  Every
byte is checked, and the backend must not be asked.

    fetches/s       rounds are interleaved; ratios are of medians
    loop blocked    share of the time in which the event loop was in uninterruptible wait
    first, fetch    median time to the first byte and to the last
    backend         requests to the backend: responses that the server had lost
"""
import concurrent.futures
import http.client
import http.server
import os
import shutil
import socketserver
import sys
import threading
import time

import bed
import rig
import servers

EACH, SIZE = 100, 102400        # files in a directory, and their bytes
STORES = {"lighty": "lighty-store", "nginx": "nginx-cache"}
SOON_S = 120
WARMUP_S = 3                    # a server reads its index in
LOST_MAX = 10                   # requests to the backend in a run


def main():
    ap = rig.arguments(__doc__, "lighty,nginx:aio,nginx,nginx:8w")
    bed.arguments(ap)
    ap.set_defaults(dirs=100, memory=120)
    ap.add_argument("--repeat", type=int, default=3, help="runs of each server (%(default)s)")
    ap.add_argument("--fetches", type=int, default=2000, help="in a run (%(default)s)")
    ap.add_argument("--parallel", type=int, default=100, help="clients (%(default)s)")
    args = ap.parse_args()
    rig.raise_descriptors()
    state = os.path.abspath(args.state or args.out + "/cold-cached")
    os.makedirs(state, exist_ok=True)
    shutil.rmtree(state + "/stores", ignore_errors=True)
    backend = Backend(state + "/backend.sock")
    names = args.servers.split(",")
    bases = sorted({name.partition(":")[0] for name in names})
    runs, makers = {}, {}
    port = known_port(state + "/port")
    image = Image(args, bases, backend, state, port)
    with bed.up(args, "cold-cached", (args.dirs, EACH, SIZE), writer=image.write) as (diskbed, disk):
        backend.serve(diskbed)
        for name in names:
            for _, make in servers.chosen(one(args, name), tuning(backend, disk.data), disk.data):
                makers[name] = at_port(make, port)
        for turn in range(args.repeat):
            for name, make in makers.items():
                before = backend.requests
                r = bed.measured(diskbed, disk, make, args, turn, args.parallel, args.fetches, WARMUP_S)
                rig.say(diskbed.summary_line(name, r))
                row = {**bed.kept(r), "backend": backend.requests - before}
                runs.setdefault(name, []).append(row)
    results = {name: bed.medians(rs) for name, rs in runs.items()}
    show(results)
    rig.save(args, "cold_cached", {"speed": args.speed, "servers": results},
             servers.versions(args, makers))


def known_port(path):
    """The port of all servers. Keys of responses have it, so it stays with the image."""
    if not os.path.exists(path):
        with open(path, "w") as f:
            f.write(str(rig.free_port()))
    with open(path) as f:
        return int(f.read())


def at_port(make, port):
    """The same server at this port."""
    def made():
        argv, given = make()
        with open(argv[-1]) as f:
            text = f.read().replace(str(given), str(port))
        with open(argv[-1], "w") as f:
            f.write(text)
        return argv, port
    return made


def one(args, name):
    """The arguments for one server alone."""
    return type(args)(**{**vars(args), "servers": name})


def tuning(backend, where):
    """Servers that store what the backend answers, in directories below `where`."""
    path = {base: f"{where}/{name}" for base, name in STORES.items()}
    return servers.Tuning(
        idle_s=300,
        above={"nginx": f"proxy_cache_path {path['nginx']} levels=1:2 keys_zone=pages:16m"
                        " inactive=30d max_size=100g use_temp_path=off;"
                        f" upstream behind {{ server unix:{backend.path}; keepalive 64; }}"},
        rules={"lighty": 'proxy-core.protocol = "http"\n'
                         f'proxy-core.backends = ( "unix:{backend.path}" )\n'
                         f'cache.stores = ( "pages" => ( "path" => "{path["lighty"]}",'
                         ' "size" => "8G", "min-free" => "0%", "memory" => "16M" ) )\n'
                         'cache.store = "pages"\ncache.valid = ( "200" => "700h" )\n'
                         'server.sandbox = "off"',
               "nginx": """location / {
            proxy_pass http://behind;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_cache pages;
            proxy_cache_valid 200 30d;
        }"""})


class Image:
    """Writes the stores of all servers onto the disk, when its image is made."""

    def __init__(self, args, bases, backend, state, port):
        self.args, self.bases, self.backend = args, bases, backend
        self.state, self.port = state, port

    def write(self, diskbed, root, dirs, each, size):
        paths = list(diskbed.mkfiles.url_paths(dirs, each))
        self.backend.serve(diskbed)
        for base in self.bases:
            rig.say(f"{base} stores {len(paths)} responses, once")
            # In the page cache of this machine, which is faster than the image.
            where = self.state + "/stores"
            os.makedirs(f"{where}/{STORES[base]}")
            os.chmod(where, 0o755)
            (name, make), = servers.chosen(one(self.args, base), tuning(self.backend, where), where)
            make = at_port(make, self.port)
            with servers.serving(self.args, name, make) as server:
                with concurrent.futures.ThreadPoolExecutor(4) as pool:
                    list(pool.map(lambda part: fetch(server.port, part), parts(paths, 100)))
                wait_for_writes(f"{where}/{STORES[base]}", len(paths) * size)
            shutil.copytree(f"{where}/{STORES[base]}", f"{root}/{STORES[base]}")
            shutil.rmtree(f"{where}/{STORES[base]}")


def parts(items, size):
    return [items[at:at + size] for at in range(0, len(items), size)]


def fetch(port, paths):
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    for path in paths:
        client.request("GET", path)
        answer = client.getresponse()
        if answer.status != 200 or len(answer.read()) != SIZE:
            raise rig.RigError(f"{path}: {answer.status}")
    client.close()


def wait_for_writes(path, least):
    """Waits until the files there have so many bytes."""
    end = time.monotonic() + SOON_S
    while (size := size_of(path)) < least:
        if time.monotonic() > end:
            raise rig.RigError(f"{path} has {size} of {least} bytes")
        time.sleep(0.2)


def size_of(path):
    return sum(os.path.getsize(f"{folder}/{name}")
               for folder, _, names in os.walk(path) for name in names)


class Backend:
    """Answers with the content of a path, on a Unix socket, and counts the requests."""

    def __init__(self, path):
        counter = self
        self.path, self.requests, self.content = path, 0, None

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def address_string(self):
                return "unix"

            def do_GET(self):
                counter.requests += 1
                body = counter.content(self.path) if counter.content else b""
                self.send_response(200 if body else 503)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Cache-Control", "max-age=2500000")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True
            request_queue_size = 512

        if os.path.exists(path):
            os.unlink(path)
        server = Server(path, Handler)
        os.chmod(path, 0o777)
        threading.Thread(target=server.serve_forever, daemon=True).start()


    def serve(self, diskbed):
        self.content = lambda path: diskbed.mkfiles.content(path, SIZE)


def show(results):
    base = results.get("nginx:aio", {}).get("fetches_s", 0)
    rig.say(f"\n{'server':14s} fetches/s     x nginx:aio  blocked  first/fetch ms  errors backend")
    for name, r in results.items():
        rig.say(f"{name:14s} {r['fetches_s']:6.1f} [{r['lowest']:.0f}-{r['highest']:.0f}]"
                f"   x{rig.ratio(r['fetches_s'], base):5.2f}   {r['blocked_pct']:5.1f} %"
                f"  {r['first_ms']:.0f} / {r['fetch_ms']:.0f}  {r['errors']:g} {r['backend']:g}")
    if any(r["backend"] > LOST_MAX for r in results.values()):
        rig.say("a server has lost responses: its rate is partly the backend's")
    if any(r["backing_late"] > bed.LATE_READS_MAX for r in results.values()):
        rig.say("the host's own disk was late: this run is worth nothing")


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"cold_cached: {e}")
