#!/usr/bin/env python3
"""Scripts in the server: CPU per request beside lighttpd 1.4, step by step.

Each row is one configuration of lighty and of lighttpd, on core 0; the client has core 1 and
keeps its connections. Rounds are interleaved. CPU is user and system time of the server's
process tree per answered request. Limits and accounting of scripts are on, as they come.

    file       a file of three bytes; no script
    redirect   a response that url.redirect makes: the pipeline without a file
    bare       a script that is `return 200`: also enter the VM and make the environment
    body       also `lighty.content`: a body of three bytes
    full       also `lighty.header`: the script of figure 13

The client is `asker` where it is built, else wrk. System calls are counted by strace as in
hot.py. Instructions are counted by callgrind in user space alone, of REQUESTS requests that follow
as many others.

Reloads: a server with four scripts, one for each place where a script can run, is reloaded RELOADS
times while a request waits in a script. Anonymous memory must not grow after the first of them.
"""
import os
import shutil
import subprocess
import sys

import callgrind
import client
import hot
import rig
import scripts
import servers

SCRIPTS = {"bare": "return 200\n",
           "body": 'lighty.content = { "123" }\nreturn 200\n',
           "full": scripts.MAGNET}
STEPS = ["file", "redirect", *SCRIPTS]
BASES = ["lighty", "lighttpd"]
COUNTED = ("file", "full")      # whose system calls are counted
REQUESTS = 4000         # between two looks at callgrind's counter
RELOADS = 600
SETTLED = 100           # reloads after which memory may not grow
RELOADED = {
    "raw-url": 'seen = (seen or 0) + 1\nif lighty.r.req_attr["uri.path"] == "/wait" then\n'
               '  lighty.sleep(0.05)\n  lighty.content = { "waited" }\n  return 200\nend\n',
    "physical-path": 'local found = lighty.stat(lighty.r.req_attr["physical.path"])\n'
                     'if found then lighty.r.resp_header["X-Size"] = tostring(found.st_size) end\n',
    "response-start": 'lighty.r.resp_header["X-List"] = lighty.json.encode({ 1, 2 }):upper()\n',
    "response-content": 'return function(piece) return piece and piece:gsub("1", "4") end\n'}


def main():
    ap = rig.arguments(__doc__, ",".join(BASES))
    ap.add_argument("--rounds", type=int, default=7)
    ap.add_argument("--secs", type=int, default=2, help="length of a round")
    ap.add_argument("--conns", default="1,64", help="connections (%(default)s)")
    ap.add_argument("--steps", default=",".join(STEPS), help="rows (%(default)s)")
    ap.add_argument("--no-strace", action="store_true", help="do not count system calls")
    ap.add_argument("--no-callgrind", action="store_true", help="do not count instructions")
    ap.add_argument("--reloads", type=int, default=RELOADS, help="0: none (%(default)s)")
    args = ap.parse_args()
    root = rig.document_root(args.out)
    rig.write_once(root + "/123.html", b"123")
    for step, text in SCRIPTS.items():
        rig.write_once(f"{root}/magnet-{step}.lua", text.encode())
    names = [f"{base}:{step}" for step in args.steps.split(",") for base in args.servers.split(",")]
    running = {}
    try:
        for name in names:
            running[name] = Row(args, name)
        results = {"cpu": {conns: cpu(running, int(conns), args) for conns in args.conns.split(",")}}
        if not args.no_strace and shutil.which("strace"):
            results["calls"] = {
                name: hot.calls_per_request(row.server, row.path, args.out)
                for name, row in running.items() if name.partition(":")[2] in COUNTED}
    finally:
        for row in running.values():
            row.stop()
    if not args.no_callgrind and shutil.which("valgrind"):
        results["instructions"] = {name: instructions(args, name) for name in names}
    if args.reloads > SETTLED:
        results["reloads"] = reloads(args)
    show(results)
    rig.save(args, "magnet", results, servers.versions(args, args.servers.split(",")))


class Row(scripts.Row):
    """A server whose name is BASE:STEP."""

    def __init__(self, args, name, tool=()):
        self.tool = list(tool)
        super().__init__(args, name)

    def lines(self, args, name):
        step = name.partition(":")[2]
        if step == "file":
            return "/123.html", ""
        if step == "redirect":
            return "/123", ('server.modules += ( "mod_redirect" )\n'
                            'url.redirect = ( "^/123" => "/456" )\n')
        return "/123", ('server.modules += ( "mod_magnet" )\n'
                        f'magnet.attract-raw-url-to = ( "{args.out}/www/magnet-{step}.lua" )\n')

    def start(self, args, lines):
        base = self.name.partition(":")[0]
        path = servers.binary(args, base)
        if not path:
            raise rig.RigError(f"{base} is not installed")
        port = rig.free_port()
        text = scripts.LIGHTY % (0 if base == "lighttpd" else 1) + lines
        for word, value in {"ROOT": args.out + "/www", "DIR": self.directory, "PORT": port}.items():
            text = text.replace(f"@{word}@", str(value))
        with open(self.directory + "/conf", "w") as f:
            f.write(text)
        argv = [*self.tool, path, "-D", "-f", self.directory + "/conf"]
        return rig.start(self.name, argv, port, self.directory + "/output")

    def check(self):
        step = self.name.partition(":")[2]
        done = subprocess.run(["curl", "-s", "-i", self.url()], capture_output=True, text=True)
        status = {"redirect": " 301"}.get(step, " 200")
        body = {"redirect": "", "bare": ""}.get(step, "123")
        if status not in done.stdout.split("\n")[0] or not done.stdout.endswith("\n" + body):
            self.stop()
            raise rig.RigError(f"{self.name} answers {done.stdout[-300:]!r}")


def cpu(running, conns, args):
    """{name: CPU microseconds of each round}."""
    rows = {name: {"us": [], "rps": [], "bad": 0} for name in running}
    is_asked = os.access(args.asker, os.X_OK)
    for row in running.values():
        rig.wrk(row.url(), conns, 1)        # warm
    for _ in range(args.rounds):
        for name, row in running.items():
            before = row.cpu_s()
            one = (rig.asker(args.asker, row.url(), conns, args.secs) if is_asked
                   else rig.wrk(row.url(), conns, args.secs))
            rows[name]["us"].append(rig.ratio((row.cpu_s() - before) * 1e6, one["requests"]))
            rows[name]["rps"].append(one["rps"])
            rows[name]["bad"] += one["bad"]
    return rows


def instructions(args, name):
    """Instructions of one request in user space, by one connection."""
    counter = callgrind.Counter(f"{args.out}/servers/{name}")
    row = Row(args, name, counter.tool)
    try:
        return counter.per_request(row.server, row.path, REQUESTS)
    finally:
        row.stop()


def per_reload(done):
    """Bytes that each reload has left, of those after the first ones."""
    grown = 1024 * (done["after_kib"] - done["before_kib"])
    return grown / (done["count"] - done["settled"])


def reloads(args):
    """Anonymous memory in KiB after SETTLED reloads and after all, each the least of some looks."""
    directory = args.out + "/servers/reloads"
    os.makedirs(directory, exist_ok=True)
    lines = 'server.modules += ( "mod_magnet" )\n'
    for place, text in RELOADED.items():
        rig.write_once(f"{directory}/{place}.lua", text.encode())
        lines += f'magnet.attract-{place}-to = ( "{directory}/{place}.lua" )\n'
    port, binary = rig.free_port(), servers.binary(args, "lighty")
    text = scripts.LIGHTY % 1 + f'server.pid-file = "{directory}/pid"\n' + lines
    for word, value in {"ROOT": args.out + "/www", "DIR": directory, "PORT": port}.items():
        text = text.replace(f"@{word}@", str(value))

    def write(turn):
        with open(directory + "/conf", "w") as f:
            f.write(f'{text}server.tag = "turn-{turn}"\n')

    write(0)
    looks = []
    argv = [binary, "-D", "-f", directory + "/conf"]
    with rig.serving("reloads", argv, port, directory + "/output") as server:
        for turn in range(1, args.reloads + 1):
            write(turn)
            with client.connect(port) as waiting:
                waiting.sendall(client.head("/wait", "Connection: close\r\n"))
                subprocess.run([binary, "reload", "--pid-file", directory + "/pid"], check=True,
                               capture_output=True)
                if client.read_message(waiting) != 200:
                    raise rig.RigError("a request that waited was not answered")
            with client.connect(port) as s:
                s.sendall(client.head("/123.html"))
                client.read_message(s)
            looks.append(rig.memory_kib(server.pid, "RssAnon"))
    few = 20
    return {"count": args.reloads, "settled": SETTLED,
            "before_kib": min(looks[SETTLED - few:SETTLED]), "after_kib": min(looks[-few:])}


def show(results):
    if done := results.get("reloads"):
        rig.say(f"\n{done['count']} reloads: {done['before_kib']} KiB after {done['settled']},"
                f" {done['after_kib']} KiB after all: {per_reload(done):.0f} bytes per reload")
    for conns, rows in results["cpu"].items():
        rig.say(f"\n{conns} connection(s): CPU microseconds per request, median [range]")
        for name, r in rows.items():
            us = r["us"]
            peer = rows.get("lighttpd:" + name.partition(":")[2])
            over = rig.ratio(rig.median(us), rig.median(peer["us"])) if peer else float("nan")
            rig.say(f"  {name:20s} {rig.median(us):7.2f} [{min(us):.2f}-{max(us):.2f}]"
                    f"  x{over:5.2f} of lighttpd  {rig.median(r['rps']):8.0f} rps  bad {r['bad']}")
    for name, count in results.get("instructions", {}).items():
        rig.say(f"  {name:20s} {count:8.0f} instructions")
    for name, calls in results.get("calls", {}).items():
        words = " ".join(f"{k} {v:g}" for k, v in calls.items())
        rig.say(f"  {name:20s} {hot.io_calls(calls):g} calls + wait: {words}")


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"magnet: {e}")
