#!/usr/bin/env python3
"""Sign-in with real programs: oauth2-proxy and an OpenID provider (npm's oidc-provider).

Three applications stand behind lighty, which asks oauth2-proxy about each request
(`auth.forward`), or speaks with the provider itself (`auth.backend.oidc`).  A client with a jar of
cookies signs in, is refused where its groups do not suffice, has its session refreshed, and signs
out.

    OAUTH2_PROXY=PROGRAM NODE_PATH=DIR bench/sign_in.py [--own]

DIR is a directory `node_modules` with oidc-provider.  Everything runs on 127.0.0.1.
"""
import argparse
import html.parser
import http.cookiejar
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import rig

SECRET = "a-secret-of-this-drill-that-is-long-enough"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    ap.add_argument("--lighty", default=os.environ.get("LIGHTY", "target/release/lighty"))
    ap.add_argument("--oauth2-proxy", default=os.environ.get("OAUTH2_PROXY", "oauth2-proxy"))
    ap.add_argument("--modules", default=os.environ.get("NODE_PATH", ""),
                    help="node_modules with oidc-provider")
    ap.add_argument("--own", action="store_true", help="auth.backend.oidc, without oauth2-proxy")
    args = ap.parse_args()
    with tempfile.TemporaryDirectory() as directory, Programs(args, directory) as programs:
        try:
            (own_drill if args.own else drill)(programs)
        except rig.RigError:
            with open(f"{directory}/error.log") as f:
                print(f.read(), file=sys.stderr)
            raise
    print("passed")


class Programs:
    """Issuer, oauth2-proxy, applications and lighty."""

    def __init__(self, args, directory):
        self.args, self.directory, self.running = args, directory, []
        self.port, self.issuer, self.proxy, self.app = (rig.free_port() for _ in range(4))

    def __enter__(self):
        try:
            self.start_all()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for one in reversed(self.running):
            one.terminate()
            one.wait()

    def url(self, path="/"):
        return f"http://127.0.0.1:{self.port}{path}"

    def start_all(self):
        shutil.copy(f"{rig.HERE}/sign_in/issuer.mjs", self.directory)
        os.symlink(os.path.abspath(self.args.modules), f"{self.directory}/node_modules")
        self.start("issuer", self.issuer, ["node", f"{self.directory}/issuer.mjs", self.issuer,
                                           self.callback(), self.url("/bye"),
                                           30 if self.args.own else 100])
        if not self.args.own:
            self.start_oauth2_proxy()
        threading.Thread(target=applications(self.app).serve_forever, daemon=True).start()
        path = f"{self.directory}/lighty.conf"
        with open(path, "w") as f:
            f.write(self.configuration())
        self.start("lighty", self.port, [self.args.lighty, "-D", "-f", path])

    def callback(self):
        return self.url("/.lighty/oidc/corp/callback" if self.args.own else "/oauth2/callback")

    def start_oauth2_proxy(self):
        self.start("oauth2-proxy", self.proxy, [
            self.args.oauth2_proxy, "--provider=oidc",
            f"--oidc-issuer-url=http://127.0.0.1:{self.issuer}", "--client-id=app",
            f"--client-secret={SECRET}", f"--redirect-url={self.url('/oauth2/callback')}",
            f"--http-address=127.0.0.1:{self.proxy}", "--email-domain=*", "--reverse-proxy",
            "--trusted-proxy-ip=127.0.0.1", "--set-xauthrequest", "--cookie-secure=false", "--cookie-refresh=1s",
            "--cookie-secret=0123456789abcdef", "--upstream=static://202",
            "--scope=openid email profile", "--oidc-groups-claim=groups",
            "--allowed-group=staff", "--skip-provider-button"])

    def start(self, name, port, argv):
        log = open(f"{self.directory}/{name}.log", "w")
        process = subprocess.Popen([str(word) for word in argv], stdout=log, stderr=log)
        self.running.append(process)
        until = time.monotonic() + 20
        while not listens(port):
            if process.poll() is not None or time.monotonic() > until:
                raise rig.RigError(f"{name} does not start:\n" + open(log.name).read())
            time.sleep(0.05)

    def configuration(self):
        return f"""
server.document-root = "{self.directory}"
server.bind = "127.0.0.1"
server.port = {self.port}
server.errorlog = "{self.directory}/error.log"
# Sessions with many groups take several cookies of 4 KB.
server.max-request-field-size = 32768
{self.own_rules() if self.args.own else self.asking_rules()}
proxy-core.protocol = "http"
$HTTP["url"] =^ "/oauth2/" {{ proxy-core.backends = ( "127.0.0.1:{self.proxy}" ) }}
$HTTP["url"] =^ "/app" {{ proxy-core.backends = ( "127.0.0.1:{self.app}" ) }}
"""


    def asking_rules(self):
        return (f'auth.forward = ( "/app" => ( "url" => "http://127.0.0.1:{self.proxy}",'
                ' "preset" => "oauth2-proxy" ) )')

    def own_rules(self):
        secret = f"{self.directory}/secret"
        with open(secret, "w") as f:
            f.write(SECRET)
        return f"""
auth.backend.oidc = ( "corp" => ( "issuer" => "http://127.0.0.1:{self.issuer}",
    "client-id" => "app", "client-secret-file" => "{secret}", "after-logout" => "/bye",
    "claims" => ( "X-Email" => "email", "X-Groups" => "groups" ) ) )
auth.require = ( "/app" => ( "method" => "oidc", "realm" => "site", "require" => "group=staff" ) )
"""


def listens(port):
    import socket
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def applications(port):
    """Applications that answer with the request's fields."""
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            text = json.dumps({name.lower(): value for name, value in self.headers.items()}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass
    return http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)


class Browser:
    """A client with cookies that follows redirects and fills in forms."""

    def __init__(self):
        self.jar = http.cookiejar.CookieJar()
        self.opener = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(self.jar), urllib.request.HTTPHandler())

    def ask(self, url, data=None, fields=()):
        """(status, body, fields, url of the page)"""
        fields = {"Accept": "text/html", "Sec-Fetch-Mode": "navigate", **dict(fields)}
        request = urllib.request.Request(url, data, fields)
        try:
            with self.opener.open(request, timeout=20) as answer:
                return answer.status, answer.read().decode(), answer.headers, answer.url
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(), error.headers, error.url

    def sign_in(self, url, name):
        """Opens a page, signs in at the provider, and returns the page's answer."""
        answer = self.ask(url)
        for _ in range(5):
            form = Form(answer[1])
            if form.action is None or "/interaction/" not in answer[3]:
                break
            values = dict(form.values)
            if "login" in form.names:
                values |= {"login": name, "password": "any"}
            target = urllib.parse.urljoin(answer[3], form.action)
            answer = self.ask(target, urllib.parse.urlencode(values).encode())
        return answer


class Form(html.parser.HTMLParser):
    """The first form of a page."""

    def __init__(self, text):
        super().__init__()
        self.action, self.values, self.names = None, {}, set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "form" and self.action is None:
            self.action = attributes.get("action")
        if tag == "input" and attributes.get("name"):
            self.names.add(attributes["name"])
            self.values[attributes["name"]] = attributes.get("value") or ""


def expect(what, is_so, *shown):
    print(("ok    " if is_so else "FAILED"), what)
    if not is_so:
        raise rig.RigError(f"{what}: {shown}")


def drill(programs):
    nobody = Browser()
    status, _, fields, _ = nobody.ask(programs.url("/app1/"), fields={
        "Accept": "application/json", "Sec-Fetch-Mode": "cors"})
    expect("a script without a session gets 401", status == 401, status)
    forged = {"X-Auth-Request-User": "root", "x_auth_request_email": "root@example.org"}
    kim = Browser()
    status, body, fields, url = kim.sign_in(programs.url("/app1/page?a=1"), "kim")
    expect("a browser signs in and comes back to its page",
           status == 200 and url == programs.url("/app1/page?a=1"), status, url, body[:300])
    got = json.loads(body)
    expect("the application gets the user's name", got.get("x-auth-request-email") == "kim@example.org", got)
    for path in ("/app2/", "/app3/"):
        status, body, *_ = kim.ask(programs.url(path), fields=forged)
        got = json.loads(body)
        expect(f"the session serves {path} and forged fields are gone",
               status == 200 and "root" not in json.dumps(got), got)
    cookies = [one.name for one in kim.jar if one.name.startswith("_oauth2_proxy")]
    expect("the session takes several cookies", len(cookies) > 1, cookies)
    before = {one.name: one.value for one in kim.jar}
    time.sleep(1.5)
    status, _, fields, _ = kim.ask(programs.url("/app1/"))
    renewed = fields.get_all("Set-Cookie") or []
    expect("a refresh sets all of its cookies on the application's answer",
           status == 200 and len(renewed) > 1 and {one.name: one.value for one in kim.jar} != before, status, len(renewed))
    status, *_ = kim.ask(programs.url("/app1/"))
    expect("and the refreshed session goes on", status == 200, status)
    eve = Browser()
    status, body, *_ = eve.sign_in(programs.url("/app1/"), "eve")
    expect("a user without the group is refused", status == 403, status, body[:300])
    kim.ask(programs.url("/oauth2/sign_out"))
    status, *_ = kim.ask(programs.url("/app1/"), fields={"Accept": "application/json", "Sec-Fetch-Mode": "cors"})
    expect("after signing out there is no session", status == 401, status)


SCRIPT = {"Accept": "application/json", "Sec-Fetch-Mode": "cors"}


def own_drill(programs):
    status, *_ = Browser().ask(programs.url("/app1/"), fields=SCRIPT)
    expect("a script without a session gets 401", status == 401, status)
    kim = Browser()
    status, body, _, url = kim.sign_in(programs.url("/app1/page?a=1"), "kim")
    expect("a browser signs in and comes back to its page",
           status == 200 and url == programs.url("/app1/page?a=1"), status, url, body[:300])
    got = json.loads(body)
    expect("the application gets the claims", got.get("x-email") == "kim@example.org", got)
    expect("and not the session's cookies", "lighty-corp" not in got.get("cookie", ""), got)
    forged = {"X-Email": "root@example.org", "x_groups": "root"}
    for path in ("/app2/", "/app3/"):
        status, body, *_ = kim.ask(programs.url(path), fields=forged)
        expect(f"the session serves {path} and forged fields are gone",
               status == 200 and "root" not in body, body)
    eve = Browser()
    status, body, *_ = eve.sign_in(programs.url("/app1/"), "eve")
    expect("a user without the group is refused", status == 403, status, body[:300])
    ended = kim.ask(programs.url("/.lighty/oidc/corp/logout"))
    expect("signing out leads to the provider", "/session/end" in ended[3], ended[3])
    status, *_ = kim.ask(programs.url("/app1/"), fields=SCRIPT)
    expect("and there is no session here any more", status == 401, status)


if __name__ == "__main__":
    try:
        main()
    except rig.RigError as e:
        sys.exit(f"sign_in: {e}")
