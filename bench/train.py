#!/usr/bin/env python3
"""Has a lighty that counts what it does (scripts/pgo.sh) serve a few clients.

usage: train.py BINARY DIR      the counts go to DIR/served-*

Small and large files, by one connection and by many at once, as a script and as a browser ask for
them; conditions, ranges, HEAD, compressed pages, listings, redirects, and what is not there.
"""
import os
import sys

import client
import rig

BROWSER = ("User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n"
           "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n"
           "Accept-Language: en-US,en;q=0.5\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n"
           "Connection: keep-alive\r\nUpgrade-Insecure-Requests: 1\r\nPriority: u=0, i\r\n")
CONFIGURATION = """server.document-root = "{root}"
server.bind = "127.0.0.1"
server.port = {port}
server.max-worker = 1
server.max-keep-alive-requests = 1000000
index-file.names = ( "index.html" )
dir-listing.activate = "enable"
deflate.mimetypes = ( "text/plain" )
"""
# path, further fields, how often
ASKED = [("/index.html", "", 20000), ("/index.html", BROWSER, 4000), ("/", BROWSER, 1000),
         ("/large.bin", "", 2000), ("/large.bin", "Range: bytes=100-199\r\n", 500),
         ("/index.html", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\r\n", 1000),
         ("/page.txt", BROWSER, 50), ("/pages/", BROWSER, 200), ("/pages", "", 200),
         ("/nothing", BROWSER, 500)]
CONNECTIONS = 32


def main():
    binary, directory = sys.argv[1:]
    port = rig.free_port()
    root = lay_out(f"{directory}/root")
    configuration = f"{directory}/lighty.conf"
    with open(configuration, "w") as f:
        f.write(CONFIGURATION.format(root=root, port=port))
    os.environ["LLVM_PROFILE_FILE"] = f"{directory}/served-%m.profraw"
    with rig.serving("lighty", [binary, "-D", "-f", configuration], port, f"{directory}/log"):
        sockets = [client.connect(port) for _ in range(CONNECTIONS)]
        for path, fields, count in ASKED:
            request = client.head(path, fields)
            ask(sockets[:1], request, count // 4)
            ask(sockets, request, count * 3 // 4)


def lay_out(root):
    os.makedirs(f"{root}/pages")
    for name, content in [("index.html", rig.SMALL), ("large.bin", os.urandom(100_000)),
                          ("page.txt", b"a line of text\n" * 4000)]:
        with open(f"{root}/{name}", "wb") as f:
            f.write(content)
    for number in range(20):
        open(f"{root}/pages/{number}.txt", "w").close()
    return root


def ask(sockets, request, count):
    """So many requests in all, on every connection at once."""
    for _ in range(count // len(sockets)):
        for s in sockets:
            s.sendall(request)
        for s in sockets:
            drain(s)


def drain(s):
    """Reads an answer: by its length, or by its last chunk."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += more(s)
    top, _, rest = data.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in top.split(b"\r\n")[1:])
    if b"content-length" in fields:
        left = int(fields[b"content-length"]) - len(rest)
        while left > 0:
            left -= len(more(s))
    elif b"transfer-encoding" in fields:
        while not rest.endswith(b"0\r\n\r\n"):
            rest += more(s)


def more(s):
    data = client.receive(s)
    if not data:
        raise rig.RigError("the server has closed the connection")
    return data


if __name__ == "__main__":
    main()
