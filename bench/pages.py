#!/usr/bin/env python3
"""A page mix: an HTML page and 20 files of 1 to 60 KB, as a browser asks for them.

The files are text, with gzip versions beside them that servers with the feature send (lighty
`deflate.precompressed`, nginx `gzip_static` where it is built in, H2O `file.send-compressed`); all
clients accept gzip.  HTTP/1.1 in the clear: `lighty load` with 64 connections, which chooses among
the URLs at random.  HTTP/2 over TLS: h2load with 16 connections of 16 streams, which takes them in
turn.  CPU is user and system time of the server's process tree per request; rounds are interleaved.
Required of lighty: at most 0.85 of the best peer's CPU in each row.
"""
import functools
import gzip
import os
import random
import re
import subprocess
import sys

import rig
import rounds
import servers
import table
import tls

FILES = 20
FIELD = "accept-encoding: gzip"
# What sends the version beside a file.
RULES = {
    "lighty": 'deflate.precompressed = "enable"\ndeflate.mimetypes = ( "text/" )\n',
    "nginx": "gzip_static on;\n",
    "h2o": "file.send-compressed: ON\n",
}


def main():
    ap = rig.arguments(__doc__, "lighty,nginx,lighttpd,h2o")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--secs", type=int, default=3, help="length of a round by HTTP/1.1")
    ap.add_argument("--requests", type=int, default=60_000, help="of a round by HTTP/2")
    ap.add_argument("--conns", type=int, default=64, help="by HTTP/1.1")
    ap.add_argument("--plain", action="store_true", help="no versions beside the files")
    args = ap.parse_args()
    root, paths = site(args.out, not args.plain)
    results = {}
    for label, tuning, of_round in (
            ("HTTP/1.1", servers.Tuning(idle_s=300, cache_files=True), by_http1),
            ("HTTP/2 over TLS", servers.Tuning(idle_s=300, cache_files=True,
                                               pair=tls.make_pair(args.out)), by_http2)):
        tuning.rules = {} if args.plain else rules(args)
        of_round = functools.partial(of_round, paths, args)
        results[label] = rounds.measured(args, tuning, of_round, root)
        rounds.show(label + ", a request", results[label])
    rig.save(args, "pages", results, servers.versions(args, args.servers.split(",")))


def site(out, is_precompressed):
    """A document root with the page and its files; returns it with their paths."""
    root = out + ("/pages" if is_precompressed else "/pages-plain")
    os.makedirs(root, exist_ok=True)
    dice = random.Random(1)
    words = ["".join(dice.choice("etaoinshrdlu") for _ in range(dice.randint(2, 9)))
             for _ in range(2_000)]
    sizes = {"page.html": 12_000} | {f"file-{n:02}.txt": 1_024 + n * 60_416 // (FILES - 1)
                                     for n in range(FILES)}
    for name, size in sizes.items():
        text = ""
        while len(text) < size:
            text += " ".join(dice.choices(words, k=200)) + "\n"
        content = text[:size].encode()
        rig.write_once(f"{root}/{name}", content)
        if is_precompressed:
            rig.write_once(f"{root}/{name}.gz", gzip.compress(content, 9, mtime=0))
    return root, ["/" + name for name in sizes]


def rules(args):
    """RULES of the servers that have the feature."""
    found = dict(RULES)
    nginx = servers.binary(args, "nginx")
    if nginx:
        built = subprocess.run([nginx, "-V"], capture_output=True, text=True).stderr
        if "http_gzip_static_module" not in built:
            rig.say("nginx is built without gzip_static: it sends the plain files")
            del found["nginx"]
    return found


def by_http1(paths, args, server):
    urls = [f"http://127.0.0.1:{server.port}{path}" for path in paths]
    client = functools.partial(table.load, args.lighty, more=(*urls[1:], "-H", FIELD))
    return rig.loaded_round(server, urls[0], args.conns, args.secs, client=client)


def by_http2(paths, args, server):
    listed = f"{args.out}/pages-urls"
    with open(listed, "w") as f:
        f.writelines(f"https://127.0.0.1:{server.port}{path}\n" for path in paths)
    return rig.loaded_round(server, listed, 16, args.requests, client=h2load)


def h2load(listed, conns, requests):
    done = subprocess.run(["h2load", "-n", str(requests), "-c", str(conns), "-m", "16", "-H", FIELD,
                           "-i", listed], capture_output=True, text=True,
                          preexec_fn=lambda: rig.pin(rig.CLIENT_CORE))
    return parse_h2load(done.stdout, requests)


def parse_h2load(text, requests):
    served = re.search(r"(\d+) succeeded", text)
    rate = re.search(r"finished in [\d.]+\w+, ([\d.]+) req/s", text)
    if not served or not rate:
        raise rig.RigError("h2load said: " + text.strip()[-300:])
    return {"requests": int(served.group(1)), "rps": float(rate.group(1)),
            "bad": requests - int(served.group(1))}


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"pages: {e}")
