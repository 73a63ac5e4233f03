#!/usr/bin/env python3
"""Short connections: one request each, in the clear, and over TLS with resumed sessions.

In the clear the client is `lighty load --no-keep-alive` with 64 connections at a time.  Over TLS it is
`openssl s_time -reuse`, which resumes one session (TLS 1.3) and asks for a page each time, one
connection after the other.  CPU is user and system time of the server's process tree per connection;
rounds are interleaved.  Required of lighty: at most 0.80 of the best peer's CPU in both rows.
"""
import functools
import re
import subprocess
import sys

import rig
import rounds
import servers
import table
import tls

PATH = "/index.html"


def main():
    ap = rig.arguments(__doc__, "lighty,nginx,lighttpd,h2o")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--secs", type=int, default=3, help="length of a round")
    ap.add_argument("--conns", type=int, default=64)
    args = ap.parse_args()
    rig.raise_descriptors()
    results = {}
    for label, pair, of_round in (("in the clear", "", in_the_clear),
                                  ("TLS, resumed", tls.make_pair(args.out), resumed)):
        tuning = servers.Tuning(cache_files=True, pair=pair)
        results[label] = rounds.measured(args, tuning, functools.partial(of_round, args))
        rounds.show(label + ", a connection", results[label])
    rig.save(args, "short", results, servers.versions(args, args.servers.split(",")))


def in_the_clear(args, server):
    client = functools.partial(table.load, args.lighty, more=("--no-keep-alive",))
    url = f"http://127.0.0.1:{server.port}{PATH}"
    return rig.loaded_round(server, url, args.conns, args.secs, client=client)


def resumed(args, server):
    return rig.loaded_round(server, str(server.port), 1, args.secs, client=s_time)


def s_time(port, _conns, secs):
    done = subprocess.run(["openssl", "s_time", "-connect", f"127.0.0.1:{port}", "-reuse", "-www", PATH,
                           "-time", str(secs)], capture_output=True, text=True,
                          preexec_fn=lambda: rig.pin(rig.CLIENT_CORE))
    return parse_s_time(done.stdout)


def parse_s_time(text):
    """Figures of the part that resumes; a connection that did not is a failure."""
    said = text.rpartition("starting\n")[2]
    made = re.search(r"(\d+) connections in (\d+) real seconds", said)
    if not made or not int(made.group(1)):
        raise rig.RigError("openssl said: " + text.strip()[-300:])
    marks = said.partition("\n")[0]
    return {"requests": int(made.group(1)), "rps": int(made.group(1)) / int(made.group(2)),
            "bad": len(marks) - marks.count("r")}


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"short: {e}")
