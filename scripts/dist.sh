#!/usr/bin/env bash
# target/dist: the stripped binary, man page, shell completions, manual and the files of
# packaging/; and target/dist/lighty-VERSION-TARGET.tar.gz with all of it.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
# The binary brings its own PCRE2: it runs where that is not installed.
export PCRE2_SYS_STATIC=1
# DIST_BINARY: a binary that is there already, instead of a new one.
if [ -z "${DIST_BINARY:-}" ]; then
    status=0
    DIST_BINARY=$(scripts/profiled.sh) || status=$?
    if [ $status = 3 ]; then
        echo "dist.sh: compiled without a profile: some 10 % more CPU for each request" >&2
        cargo build --release --locked -p lighty
        DIST_BINARY=$CARGO_TARGET_DIR/release/lighty
    elif [ $status != 0 ]; then
        exit $status
    fi
fi
dist=target/dist
version=$("$DIST_BINARY" -v | sed 's|^lighty/\([^ ]*\).*|\1|')
name=lighty-$version-$(rustc -vV | sed -n 's/^host: //p')

rm -rf "$dist"
mkdir -p "$dist/completions"
install -m 755 "$DIST_BINARY" "$dist/lighty"
if command -v strip >/dev/null; then strip "$dist/lighty"; fi
# Names by which the binary is another program.
for link in spawn-fcgi fcgi-stat-accel lua-fastcgi-magnet; do ln -s lighty "$dist/$link"; done
"$DIST_BINARY" generate man >"$dist/lighty.8"
for shell in bash fish zsh; do
    "$DIST_BINARY" generate completions "$shell" >"$dist/completions/lighty.$shell"
done
cp -r docs/manual packaging "$dist/"
if ! scripts/docs.sh "$dist/html"; then
    echo "dist.sh: without the manual as HTML: scripts/docs.sh cannot build it here" >&2
    rm -rf "$dist/html"
fi
cp README.md LICENSE CHANGELOG.md SECURITY.md "$dist/"
tar -C "$dist" -czf "target/$name.tar.gz" --transform "s|^\.|$name|" .
mv "target/$name.tar.gz" "$dist/"
echo "$dist/$name.tar.gz"
