"""Which servers there are, and how each is started.

A server is named BASE or BASE:VARIANT.

    nginx          sendfile           nginx:aio     sendfile with `aio threads` (32)
    nginx:32w      32 workers (any number)
    lighttpd       sendfile           lighttpd:writev
    h2o
    caddy          on as many processors as it has workers (GOMAXPROCS)
    floor          a tokio loop that answers a fixed buffer (crates/lighty-io/examples/floor.rs)
    lighty         as it comes        lighty:WORD+WORD..., where a word is
                   a network backend (auto io-uring linux-sendfile writev ...),
                   `ring` or `pool` (the file engine: io_uring or threads), or
                   `inline` (no stat threads: paths are looked up in the event loop), or
                   `chunkN` (a read brings in N KB), or `readsN` (N reads at a time), or
                   `bulkN` (N reads of large files at a time on a disk; 0: no scheduler), or
                   `deflate` (the filters are there and have nothing to do)
    lighty-profiled  the same from the binary of --profiled (scripts/profiled.sh makes one), measured
                   wherever lighty is

As proxies (Tuning.backends) all but the floor, and haproxy too; the variant is then the balancer:
lighty:sqf, nginx:least_conn, haproxy:leastconn, lighttpd:least-connection; without one each shares
in turn.

Before PHP-FPM (Tuning.php) lighty, lighttpd, nginx, and nginx:keep with fastcgi_keep_conn.

Configurations are the templates in peers/: BASE.conf, BASE-proxy.conf for a proxy, and
BASE-php.conf for PHP.
"""
import dataclasses
import os
import re
import shutil
import subprocess

import rig

PROFILED = "lighty-profiled"
ENGINES = {"ring": "io-uring", "pool": "threads"}
NUMBERS = {"chunk": "server.read-chunk", "reads": "server.max-read-threads",
           "bulk": "server.max-bulk-reads"}


@dataclasses.dataclass
class Tuning:
    """What a figure asks of every server alike."""
    workers: int = 1
    connections: int = 4096
    descriptors: int = 20000
    idle_s: int = 0             # keep-alive idle time; 0: the server's own default
    cache_files: bool = False   # nginx's open_file_cache; the others cache on their own
    backends: tuple = ()        # ports: the servers are proxies before these
    php: str = ""               # where PHP-FPM has a socket for each of them
    children: int = 0           # of PHP-FPM
    deflate: str = ""           # the coding to compress text/html with: gzip (level 6), br (5)
    http2: bool = False         # in clear text, by prior knowledge
    pair: str = ""              # a file of certificate and key: TLS, with HTTP/2 and HTTP/1.1
    rules: dict = dataclasses.field(default_factory=dict)   # lines for each BASE's configuration
    above: dict = dataclasses.field(default_factory=dict)   # those outside of its server


def chosen(args, tuning=None, root=None):
    """[(name, make)] of the servers asked for that are installed; make() gives (argv, port)."""
    found = []
    for name in with_profiled(args, args.servers.split(",")):
        base = name.partition(":")[0]
        if base not in BASES:
            raise rig.RigError(f"no server is called {base}; there are {', '.join(BASES)}")
        if not binary(args, base):
            rig.say(f"skipped: {name} is not installed ({path_of(args, base)})")
            continue
        found.append((name, maker(args, name, tuning or Tuning(), root)))
    return found


def with_profiled(args, names):
    """The names, with lighty-profiled behind lighty if there is such a binary."""
    if args.profiled and "lighty-profiled" not in names:
        return [one for name in names for one in ([name, PROFILED] if name == "lighty" else [name])]
    return names


def kind_of(base):
    """The server that a base is a binary of."""
    return "lighty" if base == PROFILED else base


def maker(args, name, tuning, root=None):
    """A function that writes the server's configuration for a free port, and tells its command."""
    base, _, variant = name.partition(":")
    kind = kind_of(base)
    root = root or rig.document_root(args.out)

    def make():
        directory = f"{args.out}/servers/{re.sub('[^a-z0-9]+', '-', name)}"
        os.makedirs(directory + "/tmp", exist_ok=True)
        port = rig.free_port()
        values = {"DIR": directory, "PORT": port, "ROOT": root, "WORKERS": tuning.workers,
                  "OPTIONS": "",
                  "PROTOCOL": (" ssl" if tuning.pair else "")
                  + (" http2" if tuning.http2 or tuning.pair else ""), "TLS": "",
                  "CONNECTIONS": tuning.connections, "DESCRIPTORS": tuning.descriptors,
                  "RULES": tuning.rules.get(kind, ""), "ABOVE": tuning.above.get(kind, "")}
        if tuning.php:
            values["SOCKET"] = php_socket(tuning.php, name)
            return php(kind, binary(args, base), values, variant, tuning), port
        if tuning.backends and base != "floor":
            return proxy(kind, binary(args, base), values, variant, tuning), port
        return BASES[base](binary(args, base), values, variant, tuning), port
    return make


def start_all(args, wanted, core=rig.SERVER_CORE):
    """{name: rig.Running} of chosen(); one that does not start is left out with a word."""
    running = {}
    for name, make in wanted:
        argv, port = make()
        try:
            running[name] = rig.start(name, argv, port, log_of(args, name), core)
        except rig.RigError as e:
            rig.say(f"left out: {e}")
    return running


def serving(args, name, make, core=rig.SERVER_CORE, enter=None):
    """rig.serving() for one of chosen()."""
    argv, port = make()
    return rig.serving(name, argv, port, log_of(args, name), core, enter)


def log_of(args, name):
    return f"{args.out}/servers/{re.sub('[^a-z0-9]+', '-', name)}/output"


def versions(args, names):
    """{base: first line of what it says of itself}"""
    said = {}
    for base in sorted({n.partition(":")[0] for n in names}):
        path = binary(args, base)
        if not path or base == "floor":
            continue
        option = {"h2o": "--version", "caddy": "version"}.get(base, "-v")
        done = subprocess.run([path, option], capture_output=True, text=True)
        said[base] = (done.stdout + done.stderr).strip().split("\n")[0]
        if base == "caddy":
            said[base] = "Caddy " + said[base].partition(" ")[0]
        if "/profiled/" in path:
            said[base] += " (compiled after a profile: scripts/profiled.sh)"
    return said


def path_of(args, base):
    given = f"{args.peers}/{base}"
    if args.peers and os.access(given, os.X_OK):
        return os.path.abspath(given)
    return {"lighty": args.lighty, PROFILED: args.profiled, "floor": args.floor}.get(base, base)


def binary(args, base):
    path = path_of(args, base)
    return shutil.which(path) or shutil.which(path, path="/usr/sbin:/sbin:/usr/local/sbin")


def configure(values, base):
    """Fill peers/BASE.conf in and return where it was written."""
    with open(f"{rig.HERE}/peers/{base}.conf") as f:
        text = re.sub(r"@([A-Z]+)@", lambda m: str(values.get(m.group(1), m.group(0))), f.read())
    path = f"{values['DIR']}/{base}.conf"
    with open(path, "w") as f:
        f.write(text)
    return path


# ---------------------------------------------------------------- one function for each server

def nginx(path, values, variant, tuning):
    options = []
    if variant == "aio":
        options.append("aio threads;")
    elif variant.endswith("w") and variant[:-1].isdigit():
        values["WORKERS"] = variant[:-1]
    elif variant:
        raise rig.RigError(f"nginx has no variant {variant}")
    if tuning.idle_s:
        options.append(f"keepalive_timeout {tuning.idle_s};")
    if tuning.cache_files:
        options.append("open_file_cache max=10000 inactive=60s; open_file_cache_valid 30s;"
                       " open_file_cache_min_uses 1;")
    if tuning.deflate:
        options.append("gzip on; gzip_comp_level 6;")
    if tuning.pair:
        options += [f"ssl_certificate {tuning.pair};", f"ssl_certificate_key {tuning.pair};",
                    "ssl_protocols TLSv1.2 TLSv1.3;"]
    values["MASTER"] = "master_process off;" if values["WORKERS"] == 1 else ""
    values["OPTIONS"] = "\n".join(" " * 4 + o for o in options)
    return [path, "-e", values["DIR"] + "/nginx.err", "-c", configure(values, "nginx")]


def lighttpd(path, values, variant, tuning):
    values["BACKEND"] = variant or "sendfile"
    # 1 would be a parent and a child.
    values["WORKERS"] = 0 if tuning.workers == 1 else tuning.workers
    options = []
    if tuning.idle_s:
        options.append(f"server.max-keep-alive-idle = {tuning.idle_s}")
    if tuning.pair:
        options += ['server.modules += ( "mod_openssl" )', 'ssl.engine = "enable"',
                    f'ssl.pemfile = "{tuning.pair}"',
                    'ssl.openssl.ssl-conf-cmd = ( "MinProtocol" => "TLSv1.2" )']
    values["OPTIONS"] = "\n".join(options)
    return [path, *modules_of(path), "-D", "-f", configure(values, "lighttpd")]


def modules_of(path):
    """lighttpd's option for modules that lie beside the program."""
    beside = os.path.dirname(path) + "/lighttpd-modules"
    return ["-m", beside] if os.path.isdir(beside) else []


def h2o(path, values, variant, tuning):
    if variant:
        raise rig.RigError(f"h2o has no variant {variant}")
    if tuning.idle_s:
        values["OPTIONS"] = f"http1-request-timeout: {tuning.idle_s}"
    if tuning.deflate:
        level = {"gzip": 6, "br": 5}[tuning.deflate]
        values["OPTIONS"] = f"compress: {{ {tuning.deflate}: {level} }}"
    if tuning.pair:
        values["TLS"] = (f", ssl: {{ certificate-file: {tuning.pair}, key-file: {tuning.pair},"
                         " ocsp-update-interval: 0 }")
    return [path, "-c", configure(values, "h2o")]


def lighty(path, values, variant, tuning):
    options = []
    for word in filter(None, variant.split("+")):
        if word in ENGINES:
            options.append(f'server.io-engine = "{ENGINES[word]}"')
        elif word == "inline":
            options.append("server.max-stat-threads = 0")
        elif match := re.fullmatch(r"(chunk|reads|bulk)(\d+)", word):
            options.append(f"{NUMBERS[match[1]]} = {match[2]}")
        elif word == "deflate":
            options.append('server.modules = ( "mod_chunked", "mod_deflate" )\n'
                           'deflate.mimetypes = ( "text/x-nothing" )')
        else:
            options.append(f'server.network-backend = "{word}"')
    if tuning.idle_s:
        options.append(f"server.max-keep-alive-idle = {tuning.idle_s}")
    if tuning.pair:
        options += ['ssl.engine = "enable"', f'ssl.pemfile = "{tuning.pair}"',
                    "http2.max-requests = 100000000"]
    if tuning.deflate:
        options.append(f'deflate.mimetypes = ( "text/html" )\n'
                       f'deflate.allowed-encodings = ( "{tuning.deflate}" )')
    values["OPTIONS"] = "\n".join(options)
    return [path, "-D", "-f", configure(values, "lighty")]


def caddy(path, values, variant, tuning):
    if variant:
        raise rig.RigError(f"caddy has no variant {variant}")
    if tuning.pair:
        raise rig.RigError("caddy is not set up for TLS")
    if tuning.idle_s:
        values["OPTIONS"] = CADDY_IDLE.format(tuning.idle_s)
    return caddy_command(path, values, configure(values, "caddy"))


CADDY_IDLE = "\t\ttimeouts {{\n\t\t\tidle {}s\n\t\t}}"


def caddy_command(path, values, configuration):
    # What it keeps of its own goes beside its configuration.
    return ["env", f"GOMAXPROCS={values['WORKERS']}", f"HOME={values['DIR']}", path, "run",
            "--adapter", "caddyfile", "--config", configuration]


def floor(path, values, _variant, _tuning):
    return [path, str(values["PORT"])]


def haproxy(_path, _values, _variant, _tuning):
    raise rig.RigError("haproxy is a proxy only")


# ---------------------------------------------------------------- as proxies

@dataclasses.dataclass
class Proxy:
    """How a server is told of its backends, and of the idle limit."""
    backend: str            # one backend, as the template's list has it
    between: str            # what stands between two
    in_turn: str            # the balancer that shares in turn
    command: tuple          # options before the configuration
    idle: str = ""          # keep-alive idle time
    balancer: str = "{}"    # how the balancer is written


PROXIES = {
    "lighty": Proxy('"127.0.0.1:{}"', ", ", "round-robin", ("-D", "-f"),
                    "server.max-keep-alive-idle = {}"),
    "nginx": Proxy("        server 127.0.0.1:{};", "\n", "", ("-c",),
                   "    keepalive_timeout {};", "{};"),
    "haproxy": Proxy("    server s{0} 127.0.0.1:{0} pool-max-conn -1", "\n", "roundrobin",
                     ("-db", "-f")),
    "h2o": Proxy("http://127.0.0.1:{}/", "", "", ("-c",), "http1-request-timeout: {}"),
    "caddy": Proxy("127.0.0.1:{}", " ", "round_robin", (), CADDY_IDLE, "lb_policy {}"),
    "lighttpd": Proxy('( "host" => "127.0.0.1", "port" => {} )', ", ", "round-robin",
                      ("-D", "-f"), "server.max-keep-alive-idle = {}"),
}


def proxy(base, path, values, variant, tuning):
    way = PROXIES[base]
    if base == "h2o" and (variant or len(tuning.backends) > 1):
        raise rig.RigError("this h2o knows one backend only")
    balancer = variant or way.in_turn
    values["BALANCER"] = way.balancer.format(balancer) if balancer else ""
    values["UPSTREAMS"] = way.between.join(way.backend.format(p) for p in tuning.backends)
    values["MASTER"] = "master_process off;"
    values["OPTIONS"] = way.idle.format(tuning.idle_s) if tuning.idle_s else ""
    if base == "lighttpd":
        values["WORKERS"] = 0       # 1 would be a parent and a child
    if base == "caddy":
        return caddy_command(path, values, configure(values, "caddy-proxy"))
    return [path, *early(base, path, values), *way.command, configure(values, base + "-proxy")]


def early(base, path, values):
    """Options before all others."""
    return {"nginx": ["-e", values["DIR"] + "/nginx.err"],
            "lighttpd": modules_of(path)}.get(base, [])


def php_socket(directory, name):
    return f"{directory}/{re.sub('[^a-z0-9]+', '-', name)}.sock"


def php(base, path, values, variant, tuning):
    if base not in ("lighty", "nginx", "lighttpd") or variant not in ("", "keep"):
        raise rig.RigError(f"{base} is not set up for PHP")
    way = PROXIES[base]
    values |= {"CHILDREN": tuning.children, "KEEP": "on" if variant else "off"}
    values["OPTIONS"] = way.idle.format(tuning.idle_s) if tuning.idle_s else ""
    return [path, *early(base, path, values), *way.command, configure(values, base + "-php")]


BASES = {"lighty": lighty, PROFILED: lighty, "nginx": nginx, "lighttpd": lighttpd, "h2o": h2o, "haproxy": haproxy,
         "caddy": caddy, "floor": floor}
