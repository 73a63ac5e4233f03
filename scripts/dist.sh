#!/usr/bin/env bash
# target/dist: the stripped binary, man pages, shell completions, manual and the files of
# packaging/; and target/dist/lighty-VERSION-TARGET.tar.gz with all of it.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
# DIST_BINARY: a binary that is there already, instead of a new one.
[ -n "${DIST_BINARY:-}" ] || DIST_BINARY=$(scripts/release.sh)
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
"$DIST_BINARY" generate man lighty.conf >"$dist/lighty.conf.5"
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
