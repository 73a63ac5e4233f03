"""A stand-in for S3 that verifies version 4 signatures over the path and the query as received."""
import hashlib
import hmac
import re
import sys
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape

SECRET = "test-secret"
EMPTY = hashlib.sha256(b"").hexdigest()
objects = {}  # Bodies by the path as received, and parts by path and number.


def sign(date, region, text):
    key = ("AWS4" + SECRET).encode()
    for part in (date, region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def signature(method, path, pairs, headers, signed, payload, stamp, scope):
    """The signature of a request, whose query is signed as it was received but for its order."""
    fields = "".join(f"{name}:{' '.join(headers[name].split())}\n" for name in signed)
    request = "\n".join([method, path, "&".join(sorted(pairs)), fields, ";".join(signed), payload])
    digest = hashlib.sha256(request.encode()).hexdigest()
    date, region = scope.split("/")[:2]
    return sign(date, region, "\n".join(["AWS4-HMAC-SHA256", stamp, scope, digest]))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def reply(self, status, body=b"", **fields):
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def read_body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b"".join(iter(self.read_chunk, b""))
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "aws-chunked" not in self.headers.get("Content-Encoding", ""):
            return body
        content = b""
        while True:
            line, body = body.split(b"\r\n", 1)
            size = int(line.split(b";")[0], 16)
            if size == 0:
                return content
            content, body = content + body[:size], body[size + 2:]

    def read_chunk(self):
        size = int(self.rfile.readline(), 16)
        chunk = self.rfile.read(size)
        self.rfile.readline()
        return chunk

    def is_signed(self, path, pairs, body):
        headers = {name.lower(): value for name, value in self.headers.items()}
        if "authorization" in headers:
            found = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=[^/]+/(\S+), "
                                 r"SignedHeaders=(\S+), Signature=(\w+)", headers["authorization"])
            scope, signed, given = found.groups()
            payload, stamp = headers["x-amz-content-sha256"], headers["x-amz-date"]
            if re.fullmatch("[0-9a-f]{64}", payload):
                if hashlib.sha256(body).hexdigest() != payload:
                    return False
        else:
            query = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
            scope = urllib.parse.unquote(query["X-Amz-Credential"]).split("/", 1)[1]
            signed = urllib.parse.unquote(query["X-Amz-SignedHeaders"])
            given, stamp = query["X-Amz-Signature"], query["X-Amz-Date"]
            payload = "UNSIGNED-PAYLOAD"
            pairs = [pair for pair in pairs if not pair.startswith("X-Amz-Signature=")]
        pairs = [pair if "=" in pair else pair + "=" for pair in pairs]
        return given == signature(self.command, path, pairs, headers, signed.split(";"), payload,
                                  stamp, scope)

    def handle_any(self):
        path, _, text = self.path.partition("?")
        pairs = [pair for pair in text.split("&") if pair]
        body = self.read_body()
        if not self.is_signed(path, pairs, body):
            print("refused", self.command, self.path, flush=True)
            return self.reply(403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
        query = dict((pair.split("=", 1) + [""])[:2] for pair in pairs)
        tag = f'"{hashlib.md5(body).hexdigest()}"'
        bucket = path.split("/")[1]
        if "uploads" in query:
            self.reply(200, b"<InitiateMultipartUploadResult><UploadId>1</UploadId>"
                            b"</InitiateMultipartUploadResult>")
        elif "partNumber" in query:
            objects[path, int(query["partNumber"])] = body
            self.reply(200, ETag=tag)
        elif self.command == "POST":
            parts = sorted(key for key in objects if key[0] == path and isinstance(key, tuple))
            objects[path] = b"".join(objects.pop(part) for part in parts)
            self.reply(200, b"<CompleteMultipartUploadResult><ETag>&quot;1&quot;</ETag>"
                            b"</CompleteMultipartUploadResult>")
        elif self.command == "PUT":
            objects[path] = body
            self.reply(200, ETag=tag)
        elif self.command == "DELETE":
            objects.pop(path, None)
            self.reply(204)
        elif "list-type" in query:
            keys = sorted(path for path in objects if path.startswith(f"/{bucket}/"))
            listed = "".join(f"<Contents><Key>{escape(key[len(bucket) + 2:])}</Key></Contents>"
                             for key in keys)
            self.reply(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{listed}"
                            "</ListBucketResult>".encode())
        elif path in objects:
            content = objects[path]
            self.reply(200, content, ETag=f'"{hashlib.md5(content).hexdigest()}"')
        else:
            self.reply(404, b"<Error><Code>NoSuchKey</Code></Error>")

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any


host, port = sys.argv[1].rsplit(":", 1)
ThreadingHTTPServer((host, int(port)), Handler).serve_forever()
