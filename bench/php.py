#!/usr/bin/env python3
"""PHP: what a request that PHP-FPM answers costs the server in front of it.

PHP-FPM has a pool for each server, with one child for each of wrk's connections, since a connection
that is kept holds a child.  The script prints 44 bytes.  Each server runs pinned to one core; PHP-FPM and wrk share the other,
so that requests per second are mostly PHP's.  CPU is user and system time of the server's process
tree (from /proc) per answered request; rounds are interleaved.

    nginx             a connection for each request
    nginx:keep        fastcgi_keep_conn
    lighty            connections are kept
    lighttpd          1.4: a connection for each request

System calls are counted as in hot.py.
"""
import glob
import os
import shutil
import sys

import hot
import rig
import servers

PATH = "/small.php"
SCRIPT = '<?php header("Content-Length: 44"); echo "<html><body><h1>It works!</h1></body></html>";\n'


def main():
    ap = rig.arguments(__doc__, "lighty,nginx:keep,nginx,lighttpd")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--secs", type=int, default=2, help="length of a round")
    ap.add_argument("--conns", type=int, default=8, help="and children of PHP-FPM (%(default)s)")
    ap.add_argument("--no-strace", action="store_true", help="do not count system calls")
    args = ap.parse_args()
    rig.write_once(rig.document_root(args.out) + PATH, SCRIPT.encode())
    with fpm(args) as sockets:
        tuning = servers.Tuning(idle_s=300, php=sockets, children=args.conns)
        running = servers.start_all(args, servers.chosen(args, tuning))
        try:
            rows = measure(running, args)
        finally:
            for server in running.values():
                server.stop()
    hot.show("44 B from PHP-FPM", rows)
    rig.save(args, "php", {"servers": rows}, servers.versions(args, running))


def measure(running, args):
    rows = hot.cpu(running, PATH, args)
    if not args.no_strace:
        for name, server in running.items():
            rows[name]["calls"] = hot.calls_per_request(server, PATH, args.out)
    return rows


class fpm:
    """PHP-FPM on a unix socket for each server, for the length of a with block."""

    def __init__(self, args):
        self.binary = next(filter(None, map(shutil.which, ("php-fpm", "php-fpm8.2"))), None)
        self.binary = self.binary or next(iter(sorted(glob.glob("/usr/sbin/php-fpm*"))), None)
        if not self.binary:
            raise rig.RigError("PHP-FPM is not installed")
        self.directory, self.children = args.out + "/php", args.conns
        self.names = servers.with_profiled(args, args.servers.split(","))

    def __enter__(self):
        os.makedirs(self.directory, exist_ok=True)
        status = rig.free_port()
        with open(self.directory + "/fpm.conf", "w") as f:
            f.write(f"[global]\ndaemonize = no\nerror_log = {self.directory}/fpm.log\n")
            for name in self.names:
                f.write(pool(name, servers.php_socket(self.directory, name), self.children))
            # rig.start() waits for a port
            f.write(pool("waits", f"127.0.0.1:{status}", 1))
        argv = [self.binary, "-n", "-R", "-F", "-y", self.directory + "/fpm.conf"]
        self.running = rig.start("php-fpm", argv, status, self.directory + "/output",
                                 core=rig.CLIENT_CORE)
        return self.directory

    def __exit__(self, *_):
        self.running.stop()


def pool(name, listen, children):
    name = name.replace(":", "-")
    return (f"[{name}]\nuser = root\ngroup = root\nlisten = {listen}\nlisten.backlog = 4096\n"
            f"pm = static\npm.max_children = {children}\n")


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"php: {e}")
