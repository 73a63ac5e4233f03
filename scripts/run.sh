#!/usr/bin/env bash
# Builds the server quickly (profile "quick") and serves the example site on http://127.0.0.1:8080/
# until Ctrl-C. The site is put together in target/site: the gallery's pictures are computed at the
# first run. Nothing waits for the manual's pages: its Markdown files are served until scripts/docs.sh
# has built them, and where it cannot (no Python, no network). target/docs/log says why.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
target=$CARGO_TARGET_DIR
site=target/site
mkdir -p "$site" target/docs
rm -rf "$site/manual"
cp -r docs/manual "$site/manual"
(nice scripts/docs.sh "$site/manual" >target/docs/log 2>&1 &)
cargo build --profile quick --locked -p lighty
lighty=$target/quick/lighty

cp -r examples/site/root/. "$site/"
if [ ! -e "$site/gallery/pictures/.complete" ]; then
    echo "computing the gallery's pictures (once) ..."
    # By the compiler alone: as an example of a crate it would have half the tree built anew, with
    # the features that tests ask for.
    rustc --edition 2024 -O crates/lighty/examples/gallery.rs -o "$target/gallery"
    "$target/gallery" "$site/gallery/pictures"
fi
exec "$lighty" -D -f examples/site/lighty.conf
