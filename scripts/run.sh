#!/usr/bin/env bash
# Builds the release binary and serves the example site on http://127.0.0.1:8080/ until Ctrl-C.
# The site is put together in target/site: the gallery's pictures are computed at the first run,
# the manual is rendered each time. Without Python its Markdown files are served as they are.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v cargo >/dev/null || export PATH="$HOME/.cargo/bin:$PATH"
cargo build --release --locked -p lighty
lighty=${CARGO_TARGET_DIR:-target}/release/lighty

site=target/site
mkdir -p "$site"
cp -r examples/site/root/. "$site/"
if [ ! -e "$site/gallery/pictures/.complete" ]; then
    echo "computing the gallery's pictures (once) ..."
    cargo run --release --locked -q -p lighty --example gallery -- "$site/gallery/pictures"
fi
rm -rf "$site/manual"
if command -v python3 >/dev/null; then
    python3 scripts/manual-html.py docs/manual "$site/manual"
else
    cp -r docs/manual "$site/manual"
fi
exec "$lighty" -D -f examples/site/lighty.conf
