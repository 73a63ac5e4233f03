#!/usr/bin/env bash
# dist/lighty-VERSION-TARGET.tar.gz: binary, man page, shell completions, manual, licence.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --locked -p lighty
binary=${CARGO_TARGET_DIR:-target}/release/lighty
version=$("$binary" -v | sed 's|^lighty/\([^ ]*\).*|\1|')
name=lighty-$version-$(rustc -vV | sed -n 's/^host: //p')
rm -rf "dist/$name"
mkdir -p "dist/$name/completions"
cp "$binary" LICENSE "dist/$name/"
"$binary" generate man >"dist/$name/lighty.8"
for shell in bash fish zsh; do
    "$binary" generate completions "$shell" >"dist/$name/completions/lighty.$shell"
done
"$binary" generate manual "dist/$name/manual"
tar -C dist -czf "dist/$name.tar.gz" "$name"
echo "dist/$name.tar.gz"
