#!/usr/bin/env python3
"""What many rules and many conditions cost a request.

Each server is configured without any, with 10,000 rewrite rules, with 1,000 conditions on the
beginning of the path, and with 1,000 that are regular expressions; in each case wrk asks for what
the first matches, what the last matches, and what none matches.  CPU per request, interleaved
rounds, as in hot.py.  The answers are looked at first: each must come from the rule that is meant.

nginx has `rewrite` lines in one server, and locations in place of conditions, which it keeps in a
tree unless they are regular expressions.  Also how long reading such a configuration takes (`-t`),
and what memory it needs.
"""
import os
import subprocess
import sys
import time

import client
import rig
import servers

REWRITES, CONDITIONS = 10_000, 1_000
WORDS = "alpha beta gamma delta epsilon".split()


def main():
    ap = rig.arguments(__doc__, "lighty,nginx,lighttpd")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--secs", type=int, default=2, help="length of a round")
    ap.add_argument("--conns", type=int, default=64)
    args = ap.parse_args()
    write_documents(args.out)
    results, seen = {}, set()
    for label, (rules, paths) in CASES.items():
        tuning = servers.Tuning(cache_files=True, idle_s=300, rules=rules())
        running = servers.start_all(args, servers.chosen(args, tuning))
        seen.update(running)
        try:
            results[label] = {"cpu": measure(args, running, paths),
                              "rss_kib": {n: rig.memory_kib(s.pid) for n, s in running.items()}}
        finally:
            for server in running.values():
                server.stop()
        results[label]["test_s"] = {name: tested(server) for name, server in running.items()}
        show(label, results[label])
    rig.save(args, "rules", results, servers.versions(args, seen))


def write_documents(out):
    """What the first and the last condition stand before."""
    root = rig.document_root(out)
    for number in (0, CONDITIONS - 1):
        os.makedirs(f"{root}/{place(number)}", exist_ok=True)
        rig.write_once(f"{root}/{place(number)}/index.html", rig.SMALL)


def place(number):
    """A directory as sites have them: the names share words, and the number tells them apart."""
    return f"{WORDS[number % 5]}/{WORDS[number // 5 % 5]}-{number}"


# ---------------------------------------------------------------- rules, as each server writes them

def no_rules():
    return {}


def rewrites():
    """Old addresses of pages, with a part that is taken over."""
    pairs = [(rf"^/old/{place(n)}/([a-z]+)\.html$", "/index.html?page=$1") for n in range(REWRITES)]
    ours = "url.rewrite-once = (\n" + ",\n".join(f'"{a}" => "{b}"' for a, b in pairs) + ")\n"
    return {"lighty": ours, "lighttpd": f'server.modules += ( "mod_rewrite" )\n{ours}',
            "nginx": "\n".join(f"rewrite {a} {b} last;" for a, b in pairs)}


def beginnings():
    return conditions("=^", lambda n: f"/{place(n)}/", "location")


def patterns():
    return conditions("=~", lambda n: rf"^/{place(n)}/[a-z]+\.html$", "location ~")


def conditions(operator, text, location):
    """Each sets one header field."""
    numbers = range(CONDITIONS)
    ours = "\n".join(f'$HTTP["url"] {operator} "{text(n)}" '
                     f'{{ setenv.set-response-header = ( "X-Rule" => "{n}" ) }}' for n in numbers)
    return {"lighty": ours, "lighttpd": f'server.modules += ( "mod_setenv" )\n{ours}',
            "nginx": "\n".join(f"{location} {text(n)} {{ add_header X-Rule {n}; }}"
                               for n in numbers)}


REWRITTEN = {"first": f"/old/{place(0)}/page.html",
             "last": f"/old/{place(REWRITES - 1)}/page.html", "none": "/index.html"}
CHOSEN = {"first": f"/{place(0)}/index.html", "last": f"/{place(CONDITIONS - 1)}/index.html",
          "none": "/index.html"}
CASES = {"no rules": (no_rules, {"none": "/index.html"}),
         "10,000 rewrites": (rewrites, REWRITTEN),
         "1,000 beginnings": (beginnings, CHOSEN),
         "1,000 patterns": (patterns, CHOSEN)}


# ---------------------------------------------------------------- measuring

def measure(args, running, paths):
    rows = {name: {which: {"us": [], "bad": 0} for which in paths} for name in running}
    for name, server in running.items():
        for which, path in paths.items():
            check(name, server, which, path)
            rig.wrk(f"http://127.0.0.1:{server.port}{path}", args.conns, 1)     # warm
    for _ in range(args.rounds):
        for which, path in paths.items():
            for name, server in running.items():
                url = f"http://127.0.0.1:{server.port}{path}"
                r = rig.loaded_round(server, url, args.conns, args.secs)
                rows[name][which]["us"].append(r["us_per_request"])
                rows[name][which]["bad"] += r["bad"]
    return rows


def check(name, server, which, path):
    """That the answer is the one that the rule in question leads to."""
    with client.connect(server.port) as s:
        s.sendall(client.head(path))
        data = b""
        while not data.endswith(rig.SMALL):
            got = client.receive(s)
            if not got:
                raise rig.RigError(f"{name} does not answer {path}: {data[:200]!r}")
            data += got
    number = {"first": 0, "last": CONDITIONS - 1}.get(which)
    said = f"x-rule: {number}\r\n".encode()
    if number is not None and path in CHOSEN.values() and said not in data.lower():
        raise rig.RigError(f"{name} does not apply the {which} condition: {data[:200]!r}")


def tested(server):
    """Seconds in which the server reads its configuration and says whether it is fit."""
    argv = [word for word in server.process.args if word != "-D"]
    start = time.monotonic()
    done = subprocess.run([argv[0], "-t", *argv[1:]], capture_output=True, text=True)
    if done.returncode:
        raise rig.RigError(f"{server.name} -t: {(done.stdout + done.stderr)[-300:]}")
    return time.monotonic() - start


def show(label, result):
    rig.say(f"\n{label}: CPU microseconds per request, median [range]")
    for name, row in result["cpu"].items():
        cells = [f"{which} {rig.median(r['us']):.2f} [{min(r['us']):.2f}-{max(r['us']):.2f}]"
                 + (f" bad {r['bad']}" if r["bad"] else "") for which, r in row.items()]
        rig.say(f"  {name:10s} {', '.join(cells)};  -t {result['test_s'][name]:.2f} s,"
                f" {result['rss_kib'][name] / 1024:.1f} MiB")


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"rules: {e}")
