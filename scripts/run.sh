#!/usr/bin/env bash
# Builds the server quickly (profile "quick") and serves the example site on http://127.0.0.1:8080/
# until Ctrl-C. The site is put together in target/site: the gallery's pictures are computed at the
# first run, the manual is rendered each time. Without Python its Markdown files are served as they
# are. What is served to others is built by `make dist`.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
target=$CARGO_TARGET_DIR
cargo build --profile quick --locked -p lighty
lighty=$target/quick/lighty

site=target/site
mkdir -p "$site"
cp -r examples/site/root/. "$site/"
if [ ! -e "$site/gallery/pictures/.complete" ]; then
    echo "computing the gallery's pictures (once) ..."
    # By the compiler alone: as an example of a crate it would have half the tree built anew, with
    # the features that tests ask for.
    rustc --edition 2024 -O crates/lighty/examples/gallery.rs -o "$target/gallery"
    "$target/gallery" "$site/gallery/pictures"
fi
rm -rf "$site/manual"
if command -v python3 >/dev/null; then
    python3 scripts/manual-html.py docs/manual "$site/manual"
else
    cp -r docs/manual "$site/manual"
fi
exec "$lighty" -D -f examples/site/lighty.conf
