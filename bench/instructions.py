#!/usr/bin/env python3
"""Instructions of one request, as callgrind counts them: exact where the clock is noisy.

Each row is one kind of request on a kept connection of one worker, in user space, without the start
and the first requests.  `--before FILE` counts another binary beside it: a change costs at most one
percent of a row.  magnet.py has the rows of scripts.
"""
import argparse
import gzip
import shutil
import sys

import callgrind
import proxy
import rig
import servers

REQUESTS = 400
PAGE = b"<p>A line of a page that compresses.</p>\n" * 60

BROWSER = (
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n"
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n"
    "Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n"
    "Referer: http://bench/\r\nUpgrade-Insecure-Requests: 1\r\nSec-Fetch-Dest: document\r\n"
    "Sec-Fetch-Mode: navigate\r\nSec-Fetch-Site: same-origin\r\nPriority: u=0, i\r\n"
    "Cookie: session=0123456789abcdef; theme=dark\r\n")

# Path, lines of the configuration, fields of the request.
ROWS = {
    "44 B": ("/index.html", "", ""),
    # callgrind fails where "auto" asks whether pages are resident.
    "100 KB": ("/100k.bin", 'server.network-backend = "linux-sendfile"', ""),
    "browser's head": ("/index.html", "", BROWSER),
    "index file": ("/", 'index-file.names = ( "index.html" )', ""),
    "access log": ("/index.html", 'server.modules += ( "mod_accesslog" )\n'
                                  'accesslog.filename = "%DIRECTORY%/access.log"', ""),
    "compressed": ("/page.html", 'deflate.mimetypes = ( "text/html" )', ""),
    "precompressed": ("/page.html", 'deflate.mimetypes = ( "text/html" )\n'
                                    'deflate.precompressed = "enable"',
                      "Accept-Encoding: gzip\r\n"),
    "rewritten with fields": ("/old/index.html",
                               'url.rewrite-once = ( "^/old/(.*)" => "/$1" )\n'
                               'setenv.add-response-header = ( "X-A" => "b" )\n'
                               'expire.url = ( "/" => "access plus 1 days" )', ""),
    "proxied 44 B": ("/index.html", 'proxy-core.protocol = "http"\n'
                                    'proxy-core.backends = ( "127.0.0.1:%BACKEND%" )', ""),
}


def main():
    ap = rig.arguments(__doc__, "lighty")
    ap.add_argument("--before", metavar="FILE", help="the binary to compare with")
    ap.add_argument("--rows", default=",".join(ROWS), metavar="A,B,...", help="default: %(default)s")
    args = ap.parse_args()
    if not shutil.which("valgrind"):
        raise rig.RigError("valgrind is not installed")
    page = rig.document_root(args.out) + "/page.html"
    rig.write_once(page, PAGE)
    rig.write_once(page + ".gz", gzip.compress(PAGE, 9, mtime=0))
    binaries = {"lighty": args.lighty} | ({"before": args.before} if args.before else {})
    rows = {}
    with proxy.backend(args) as backend:
        for label in args.rows.split(","):
            rows[label] = {name: counted(args, name, file, label, backend.port)
                           for name, file in binaries.items()}
            show(label, rows[label])
    rig.save(args, "instructions", rows, servers.versions(args, ["lighty"]))


def counted(args, name, file, label, backend):
    """Instructions of one request of a row."""
    path, lines, fields = ROWS[label]
    lines = lines.replace("%DIRECTORY%", f"{args.out}/servers")
    counter = callgrind.Counter(f"{args.out}/servers/instructions-{name}")
    argv, port = command(argparse.Namespace(**{**vars(args), "lighty": file}), lines, backend)
    with rig.serving(name, [*counter.tool, *argv], port, f"{args.out}/{name}.output") as server:
        return counter.per_request(server, path, REQUESTS, fields)


def command(args, lines, backend):
    argv, port = servers.maker(args, "lighty:pool", servers.Tuning())()
    with open(argv[-1], "a") as f:
        f.write("\n" + lines.replace("%BACKEND%", str(backend)) + "\n")
    return argv, port


def show(label, row):
    text = f"  {label:24s} {row['lighty']:8.0f}"
    if "before" in row:
        text += f"   before: {row['before']:8.0f}   {rig.ratio(row['lighty'], row['before']):.3f}"
    rig.say(text)


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"instructions: {e}")
