#!/usr/bin/env python3
"""What a release is compiled after: the requests that scripts/profiled.sh has a profile made of.

A lighty that was compiled to count its branches answers, on every way that sites use: files small
and large, warm and conditional, in ranges and compressed, listings, redirects and errors, rules for
hosts, pages with includes, WebDAV, bodies, scripts, by HTTP/1.1 and HTTP/2, over TLS where there is
an openssl, and proxied by each protocol whose backend is installed.  The counts are written when it
ends.  A way that is never gone here is taken for one that hardly matters: a new handler or
filter has its requests added to WAYS.

It measures nothing; the last line says what was asked.
"""
import contextlib
import os
import subprocess
import sys

import client
import php
import rig
import servers
import tls

CONNS = 32
FPM_CHILDREN = 4
BROWSER = ("User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:144.0) Gecko/20100101 Firefox/144.0\r\n"
           "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n"
           "Accept-Language: en-GB,en;q=0.5\r\nReferer: http://bench/\r\nCookie: id=0123456789\r\n"
           "Sec-Fetch-Dest: document\r\nSec-Fetch-Mode: navigate\r\nPriority: u=0, i\r\n")
POST = "POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Length: 2000\r\n\r\n" + "x" * 2000
CHUNKED = ("POST {path} HTTP/1.1\r\nHost: bench\r\nTransfer-Encoding: chunked\r\n\r\n"
           + "3e8\r\n" + "x" * 1000 + "\r\n" + "3e8\r\n" + "x" * 1000 + "\r\n0\r\n\r\n")
DAV_REQUEST = "{method} {path} HTTP/1.1\r\nHost: bench\r\nContent-Length: {length}\r\n{fields}\r\n"
GET = "GET {path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n"

# (path, fields, share of the requests, host): what is asked of the server itself and through
# each proxy.
WAYS = [
    ("/index.html", "", 20, "bench"),
    ("/index.html", BROWSER, 20, "bench"),
    ("/", BROWSER, 3, "bench"),
    ("/100k.bin", BROWSER, 4, "bench"),
    ("/100k.bin", "Range: bytes=1000-2999\r\n", 2, "bench"),
    ("/100k.bin", "Range: bytes=0-99,5000-5099\r\n", 1, "bench"),
    ("/index.html", BROWSER + "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\r\n", 3, "bench"),
    ("/page.html", BROWSER + "Accept-Encoding: gzip\r\n", 2, "bench"),
    ("/page.html", BROWSER + "Accept-Encoding: gzip, deflate, br, zstd\r\n", 2, "bench"),
    ("/nothing-here", BROWSER, 2, "bench"),
    ("/many", BROWSER, 1, "bench"),
    ("/many/", BROWSER, 1, "bench"),
    ("/a%20b/../index.html?x=1&y=%41", BROWSER, 2, "bench"),
    ("/index.html", BROWSER, 3, "host7.example"),
    ("/old/page", BROWSER, 1, "host7.example"),
    ("/included.shtml", BROWSER, 1, "bench"),
]

PROPFIND = ('<?xml version="1.0"?><propfind xmlns="DAV:"><prop><resourcetype/><getetag/>'
            '<getcontentlength/><getlastmodified/><x:color xmlns:x="urn:x"/></prop></propfind>')
PROPPATCH = ('<?xml version="1.0"?><propertyupdate xmlns="DAV:"><set><prop>'
             '<x:color xmlns:x="urn:x">red</x:color></prop></set></propertyupdate>')
# (method, path, fields, body): what a client of WebDAV does again and again.
DAV_WAYS = [
    ("PUT", "/one", "", "x" * 2000),
    ("PROPFIND", "/", "Depth: 1\r\n", ""),
    ("PROPFIND", "/one", "Depth: 0\r\n", PROPFIND),
    ("PROPPATCH", "/one", "", PROPPATCH),
    ("COPY", "/one", "Destination: http://bench/two\r\n", ""),
    ("GET", "/two", "", ""),
    ("OPTIONS", "/", "", ""),
]


def main():
    ap = rig.arguments(__doc__, "lighty")
    ap.add_argument("--requests", type=int, default=100_000, help="in all, about (%(default)s)")
    args = ap.parse_args()
    prepare(rig.document_root(args.out))
    asked = {}
    with contextlib.ExitStack() as running:
        origin = serve(running, args, "origin", SITE)
        asked["site"] = ask_ways(origin.port, args.requests // 2)
        for protocol, port, path in behind(running, args, origin.port):
            asked[protocol] = ask_ways(port, args.requests // 8)
            bodies = [POST.format(path=path), CHUNKED.format(path=path)]
            asked[protocol] += ask(port, bodies, args.requests // 32)
        asked["scripts"] = ask_scripts(running, args, args.requests // 8)
        asked["http/2"] = load(args, origin.port, args.requests // 4, "http", "--http2", "-m", "8")
        asked["tls"] = ask_tls(running, args, args.requests // 8)
        asked["webdav"] = ask_dav(running, args, args.requests // 64)
    rig.say("asked: " + ", ".join(f"{name} {count}" for name, count in asked.items()))


def prepare(root):
    page = "".join(f"<p>{n} of a page whose words come again: {n * n}</p>\n" for n in range(600))
    rig.write_once(root + "/page.html", page.encode())
    rig.write_once(root + "/echo.php", b"<?php echo strlen(file_get_contents('php://input'));\n")
    rig.write_once(root + "/included.shtml",
                   b'<!--#if expr="$QUERY_STRING" --><!--#else --><!--#echo var="DATE_LOCAL" -->'
                   b'<!--#endif --><!--#include virtual="/index.html" -->\n')
    os.makedirs(root + "/many", exist_ok=True)
    for n in range(50):
        rig.write_once(f"{root}/many/file {n}.txt", b"one of many\n")


# ---------------------------------------------------------------- servers

COMMON = """\
server.document-root = "{root}"
server.bind = "127.0.0.1"
server.port = {port}
server.max-worker = 1
server.errorlog = "{dir}/error.log"
accesslog.filename = "{dir}/access.log"
server.max-keep-alive-requests = 100000000
mimetype.assign = ( ".html" => "text/html", "" => "application/octet-stream" )
index-file.names = ( "index.html" )
"""
SITE = """\
server.modules = ( "mod_access", "mod_setenv", "mod_rewrite", "mod_redirect", "mod_expire",
                   "mod_deflate", "mod_dirlisting", "mod_accesslog", "mod_status", "mod_ssi" )
ssi.extension = ( ".shtml" )
deflate.mimetypes = ( "text/html" )
url.access-deny = ( "~", ".inc" )
$HTTP["url"] =~ "^/many/" { dir-listing.activate = "enable" }
$HTTP["host"] =~ "^host([0-9]+)\\.example$" {
    url.rewrite-once = ( "^/old/(.*)$" => "/index.html?from=$1" )
    setenv.add-response-header = ( "X-Host" => "%1" )
    $HTTP["url"] =~ "\\.html$" { expire.url = ( "" => "access plus 1 hours" ) }
}
"""
HTTP = """\
proxy-core.protocol = "http"
proxy-core.balancer = "sqf"
proxy-core.backends = ( "127.0.0.1:{backend}" )
"""
FASTCGI = """\
$HTTP["url"] =~ "^" {{ fastcgi.server = ( "/" => ( ( "socket" => "{backend}",
    "check-local" => "disable", "broken-scriptfilename" => "enable" ) ) ) }}
proxy-core.max-pool-size = {children}
url.rewrite-once = ( "^" => "/echo.php" )
"""
SCRIPTS = """\
server.modules += ( "mod_magnet" )
$HTTP["url"] == "/answer" {{ magnet.attract-raw-url-to = ( "{dir}/answer.lua" ) }}
else $HTTP["url"] =~ "^" {{
    magnet.attract-physical-path-to = ( "{dir}/path.lua" )
    magnet.attract-response-start-to = ( "{dir}/start.lua" )
}}
"""
ANSWER = """\
lighty.header["Content-Type"] = "text/html"
lighty.content = { "<b>", lighty.env["request.uri"], "</b>" }
return 200
"""
PATH = """\
local r = lighty.r
if r.req_header["User-Agent"] and not lighty.stat(r.req_attr["physical.path"]) then
    r.req_env["MISSING"] = r.req_attr["uri.path"]
end
"""
START = 'lighty.r.resp_header["X-Script"] = lighty.c.md("sha256", "text")\n'
TLS = """\
ssl.engine = "enable"
ssl.pemfile = "{pair}"
"""
DAV = """\
webdav.activate = "enable"
webdav.sqlite-db-name = "{dir}/dav.db"
"""


def serve(running, args, name, rules):
    """A lighty of its own for the rest of `running`."""
    directory, port = f"{args.out}/train/{name}", rig.free_port()
    os.makedirs(directory, exist_ok=True)
    with open(directory + "/lighty.conf", "w") as f:
        f.write(COMMON.format(root=rig.document_root(args.out), port=port, dir=directory) + rules)
    argv = [args.lighty, "-D", "-f", directory + "/lighty.conf"]
    server = rig.start(name, argv, port, directory + "/output")
    running.callback(server.stop, 60)
    return server


def behind(running, args, origin):
    """(name, port, path that takes a body) of a lighty before each backend that there is."""
    yield "http", serve(running, args, "http", HTTP.format(backend=origin)).port, "/index.html"
    args.conns = FPM_CHILDREN
    with contextlib.suppress(rig.RigError):
        sockets = running.enter_context(php.fpm(args))
        backend = servers.php_socket(sockets, "lighty")
        rules = FASTCGI.format(backend=backend, children=FPM_CHILDREN)
        server = serve(running, args, "fastcgi", rules)
        yield "fastcgi", server.port, "/echo.php"
        return
    rig.say("skipped: fastcgi, for PHP-FPM is not installed")


def ask_dav(running, args, count):
    """One connection only: who changes one file waits for who did before."""
    directory = f"{args.out}/train/webdav"
    os.makedirs(directory + "/root", exist_ok=True)
    rules = f'server.document-root := "{directory}/root"\n' + DAV.format(dir=directory)
    server = serve(running, args, "webdav", rules)
    requests = [DAV_REQUEST.format(method=method, path=path, length=len(body), fields=fields) + body
                for method, path, fields, body in DAV_WAYS]
    return ask(server.port, requests, count, conns=1)


def ask_scripts(running, args, count):
    directory = f"{args.out}/train/scripts"
    os.makedirs(directory, exist_ok=True)
    for name, text in {"answer": ANSWER, "path": PATH, "start": START}.items():
        rig.write_once(f"{directory}/{name}.lua", text.encode())
    port = serve(running, args, "scripts", SCRIPTS.format(dir=directory)).port
    requests = [GET.format(path=path, host="bench", fields=BROWSER)
                for path in ("/answer", "/index.html", "/nothing-here")]
    return ask(port, requests, count)


def ask_tls(running, args, count):
    """By both versions of HTTP, on connections that are kept and on ones that are not."""
    try:
        pair = tls.make_pair(args.out)
    except FileNotFoundError:
        rig.say("skipped: tls, for openssl is not installed")
        return 0
    port = serve(running, args, "tls", SITE + TLS.format(pair=pair)).port
    return (load(args, port, count, "https", "--insecure", "--http2", "-m", "8")
            + load(args, port, count, "https", "--insecure")
            + load(args, port, count // 32, "https", "--insecure", "--no-keep-alive"))


# ---------------------------------------------------------------- requests

def load(args, port, count, scheme, *options):
    """Files of three sizes, asked by lighty's own load generator."""
    names = ["index.html"] * 6 + ["page.html", "100k.bin"]
    urls = [f"{scheme}://127.0.0.1:{port}/{name}" for name in names]
    argv = [args.lighty, "load", *urls, "-n", str(count), "-c", str(CONNS), "--json", *options]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise rig.RigError(f"{' '.join(argv)}: {done.stdout[-300:]} {done.stderr[-300:]}")
    return count


def ask_ways(port, count):
    requests = []
    for path, fields, share, host in WAYS:
        requests += [GET.format(path=path, host=host, fields=fields)] * share
    return ask(port, requests, count)


def ask(port, requests, count, conns=CONNS):
    """Goes through the requests again and again, on many connections at a time."""
    rounds = max(1, count // (conns * len(requests)))
    socks = [client.connect(port, 30) for _ in range(conns)]
    try:
        for _ in range(rounds):
            for request in requests:
                for s in socks:
                    s.sendall(request.encode())
                for s in socks:
                    if not client.read_message(s):
                        raise rig.RigError(f"no answer to {request[:60]!r}")
    finally:
        for s in socks:
            s.close()
    return rounds * len(requests) * conns


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"train: {e}")
