#!/usr/bin/env bash
# A binary that needs no library and no other file: target/dist-static/lighty. Runs it in an empty
# directory as the root of the file system, where the kernel lets this user make one.
# dist-static.sh [PROFILE]: of another profile of cargo than release. docs/manual/start.md has the
# list of things that such a binary cannot do. With LIGHTY_STATIC_TARGET, such as
# x86_64-unknown-linux-musl, it is linked with the C library of that target.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
profile=${1:-release}
directory=$profile
[ "$profile" != dev ] || directory=debug
# The libraries are the same objects as in other builds: this says how the program is linked. Cargo
# puts it where the usual binary is, which the next cargo build puts back.
target=()
if [ -n "${LIGHTY_STATIC_TARGET:-}" ]; then
    target=(--target "$LIGHTY_STATIC_TARGET")
    directory=$LIGHTY_STATIC_TARGET/$directory
    # The build of LuaJIT links an interpreter that is not used. Debian's unwinder for it wants this
    # function of glibc.
    [[ $LIGHTY_STATIC_TARGET != *-musl ]] || export LDFLAGS="${LDFLAGS:-} -Wl,--defsym=_dl_find_object=0"
fi
cargo rustc --locked --profile "$profile" -p lighty --bin lighty ${target[@]+"${target[@]}"} \
    -- -C target-feature=+crt-static
static=target/dist-static
rm -rf "$static"
install -D -s -m 755 "$CARGO_TARGET_DIR/$directory/lighty" "$static/lighty"
if readelf -d "$static/lighty" | grep NEEDED; then
    echo "dist-static.sh: the binary needs the libraries above" >&2
    exit 1
fi

# An empty root: the binary, a page, a configuration, users, and a directory for the socket. The
# modules that nsswitch.conf names are not there, nor could a static program load them.
root=$static/root
mkdir -p "$root/www" "$root/run" "$root/etc" "$root/var/tmp"
ln "$static/lighty" "$root/lighty"
echo "hello from an empty root" >"$root/www/index.html"
echo "passwd: files systemd" >"$root/etc/nsswitch.conf"
echo "group: files systemd" >>"$root/etc/nsswitch.conf"
echo "web:x:2000:2000::/:/none" >"$root/etc/passwd"
echo "web:x:2000:" >"$root/etc/group"
cat >"$root/lighty.conf" <<'EOF'
server.document-root = "/www"
server.bind          = "/run/lighty.sock"
index-file.names     = ( "index.html" )
EOF
# Only root may become another user.
if [ "$(id -u)" = 0 ]; then
    enter=(chroot "$root")
    echo 'server.username = "web"' >>"$root/lighty.conf"
    chown 2000 "$root/var/tmp"
else
    enter=(unshare --map-root-user --root="$root")
fi
if ! "${enter[@]}" /lighty -v >/dev/null 2>&1; then
    echo "dist-static.sh: not tried in an empty root: this user may not have one" >&2
    ls -l "$static/lighty"
    exit 0
fi
"${enter[@]}" /lighty -tt -f /lighty.conf
"${enter[@]}" /lighty -D -f /lighty.conf &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
for _ in $(seq 100); do
    [ -S "$root/run/lighty.sock" ] && break
    sleep 0.1
done
page=$(curl --silent --show-error --max-time 10 --unix-socket "$root/run/lighty.sock" http://localhost/)
if [ "$page" != "hello from an empty root" ]; then
    echo "dist-static.sh: in an empty root it sent: $page" >&2
    exit 1
fi
kill $server
wait $server || true
rm -rf "$root"
ls -l "$static/lighty"
