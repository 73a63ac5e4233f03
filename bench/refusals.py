#!/usr/bin/env python3
"""Configurations that a reload must refuse, each 100 times: what goes on, and what is left behind.

    syntax      a directive without a value
    port        a listener at an address that another program holds
    key         a certificate that the server's user cannot read (peers: that is not there)
    log         a log in a directory that the server's user cannot enter (peers: that is not there)
    disk        a log on a file system without a free inode
    fds         more listeners than the process may have descriptors
    program     two programs for backends, the second of which is not there
    all         syntax aside, all of these at once: each reason is named

lighty runs as user nobody, but for `fds`.  Required of it: it serves under its old configuration, `lighty ctl reload`
exits with 1, and descriptors, threads, sockets and processes are as many as before.
"""
import contextlib
import os
import resource
import socket
import subprocess
import sys
import time

import operated
import rig
import servers

KINDS = ("syntax", "port", "key", "log", "disk", "fds", "program", "all")
LISTENERS = 8
NOBODY = 65534
SETTLE_S = 2.5


def main():
    ap = operated.arguments(__doc__, "lighty,lighty:sandbox,nginx,lighttpd,haproxy,caddy")
    ap.add_argument("--times", type=int, default=100, help="of lighty (%(default)s)")
    ap.add_argument("--peer-times", type=int, default=20, help="of the others (%(default)s)")
    args = ap.parse_args()
    names = operated.installed(args)
    results = {}
    with operated.backends(args) as ports, Obstacles(args) as obstacles:
        for name in names:
            times = args.times if name.startswith("lighty") else args.peer_times
            results[name] = rows = {}
            for kind in KINDS:
                server = operated.Operated(args, name, ports)
                if lines := LINES[server.base](kind, obstacles):
                    rows[kind] = refused(server, kind, lines, times)
                    rig.say(f"{name:15s} {kind:8s} {told(rows[kind])}")
    rig.save(args, "refusals", results, servers.versions(args, names))


class Obstacles:
    """What stands in the way, for the length of a with block."""

    def __init__(self, args):
        self.directory = f"{args.out}/obstacles"
        self.full = self.directory + "/full"
        self.ports = [rig.free_port() for _ in range(LISTENERS)]

    def __enter__(self):
        for name in ("closed", "full"):
            os.makedirs(f"{self.directory}/{name}", exist_ok=True)
        os.chmod(self.directory + "/closed", 0o700)
        self.secret = self.directory + "/secret.pem"
        with open(self.secret, "w") as f:
            f.write("secret")
        os.chmod(self.secret, 0o600)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=2,mode=1777", "tmpfs",
                        self.full], check=True)
        open(self.full + "/only", "w").close()
        self.taken = socket.create_server(("127.0.0.1", 0))
        self.port = self.taken.getsockname()[1]
        return self

    def __exit__(self, *_):
        self.taken.close()
        subprocess.run(["umount", self.full], check=True)


def of_lighty(kind, o):
    lines = {
        "syntax": "server.tag = \n",
        "port": f'$SERVER["socket"] == "127.0.0.1:{o.port}" {{ }}\n',
        "key": f'$SERVER["socket"] == "127.0.0.1:{o.ports[0]}" {{ ssl.engine = "enable"\n'
               f'ssl.pemfile = "{o.secret}" }}\n',
        "log": f'accesslog.filename = "{o.directory}/closed/access.log"\n',
        "disk": f'accesslog.filename = "{o.full}/access.log"\n',
        "fds": "".join(f'$SERVER["socket"] == "127.0.0.1:{p}" {{ }}\n' for p in o.ports),
        "program": 'proxy.server = ( "/x/" => (( "bin-path" => "/bin/sleep 600", "max-procs" => 1 )),'
                   f' "/y/" => (( "bin-path" => "{o.directory}/absent", "max-procs" => 1 )) )\n',
    }
    lines["all"] = lines["port"] + lines["key"] + lines["log"] + lines["program"]
    return lines[kind]


def of_nginx(kind, o):
    return {
        "syntax": operated.BROKEN["nginx"],
        "port": f"server {{ listen 127.0.0.1:{o.port}; }}\n",
        "key": f"server {{ listen 127.0.0.1:{o.ports[0]} ssl; ssl_certificate {o.directory}/no.pem;"
               f" ssl_certificate_key {o.directory}/no.pem; }}\n",
        "log": f"server {{ listen 127.0.0.1:{o.ports[0]}; access_log {o.directory}/no/a.log; }}\n",
        "disk": f"server {{ listen 127.0.0.1:{o.ports[0]}; access_log {o.full}/a.log; }}\n",
    }.get(kind)


def of_lighttpd(kind, o):
    return {
        "syntax": operated.BROKEN["lighttpd"],
        "port": f'$SERVER["socket"] == "127.0.0.1:{o.port}" {{ }}\n',
        "log": 'server.modules += ( "mod_accesslog" )\n'
               f'accesslog.filename = "{o.directory}/no/access.log"\n',
    }.get(kind)


def of_haproxy(kind, o):
    return {
        "syntax": operated.BROKEN["haproxy"],
        "port": f"frontend second\n    bind 127.0.0.1:{o.port}\n    default_backend files\n",
        "key": f"frontend second\n    bind 127.0.0.1:{o.ports[0]} ssl crt {o.directory}/no.pem\n"
               "    default_backend files\n",
    }.get(kind)


def of_caddy(kind, o):
    return {
        "syntax": operated.BROKEN["caddy"],
        "port": f"http://:{o.port} {{\n\tbind 127.0.0.1\n}}\n",
        "key": f"https://:{o.ports[0]} {{\n\tbind 127.0.0.1\n\ttls {o.directory}/no.pem"
               f" {o.directory}/no.pem\n}}\n",
    }.get(kind)


LINES = {"lighty": of_lighty, "nginx": of_nginx, "lighttpd": of_lighttpd, "haproxy": of_haproxy,
         "caddy": of_caddy}


def refused(server, kind, lines, times):
    # The limit of another user's process cannot be set everywhere.
    if server.base == "lighty" and kind != "fds":
        server.more = 'server.username = "nobody"\n'
        os.chown(server.directory, NOBODY, -1)
    server.start()
    try:
        went_on, turn, limits = 0, 0, few_descriptors(server, kind)
        server.refuse(lines)        # once, for what is made on first use
        time.sleep(SETTLE_S)
        before = server.usage()
        while turn < times and server.running.alive():
            went_on, turn = went_on + server.refuse(lines), turn + 1
        said, status = server.said, exit_status(server, lines)
        for pid, limit in limits.items():
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)
        time.sleep(SETTLE_S)
        after = server.usage()
        reloads = False
        if server.running.alive():
            with contextlib.suppress(rig.RigError):
                server.reload()
                reloads = True
        return {"times": turn, "went_on": went_on, "alive": server.running.alive(),
                "paused_s": server.paused_s, "said": said.strip(), "status": status, "before": before, "after": after,
                "reloads": reloads}
    finally:
        server.stop()


def few_descriptors(server, kind):
    """Leave the process nine descriptors more than it has; returns the present limits."""
    if kind != "fds":
        return {}
    pid = server.running.pid
    limit = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = set(map(int, os.listdir(f"/proc/{pid}/fd")))
    free = [fd for fd in range(len(used) + 20) if fd not in used]
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (free[9], limit[1]))
    return {pid: limit}


def exit_status(server, lines):
    """Of the command for a reload."""
    if server.base != "lighty":
        return None
    server.write(lines)
    done = subprocess.run([server.args.lighty, "ctl", "reload", "--pid-file", server.pid_file],
                          capture_output=True, text=True)
    server.write()
    return done.returncode


def told(r):
    changed = [f"{field} {r['before'][field]} to {r['after'][field]}"
               for field in ("processes", "threads", "fds", "sockets")
               if r["before"][field] != r["after"][field]]
    end = "goes on" if r["alive"] else "ENDS"
    status = "" if r["status"] is None else f", exit {r['status']}"
    pause = f", no answer for {r['paused_s']:.1f} s" if r["paused_s"] > 0.2 else ""
    again = "" if r["reloads"] else ", does NOT reload after"
    return (f"{end}, {r['went_on']} of {r['times']} under the old configuration{status}{pause}; left behind:"
            f" {', '.join(changed) or 'nothing'}; private {r['before']['anon_kib']} to"
            f" {r['after']['anon_kib']} KiB{again}")


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"refusals: {e}")
