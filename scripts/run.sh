#!/usr/bin/env bash
# Builds the release binary and serves the example site on http://127.0.0.1:8080/ until Ctrl-C.
# The gallery's pictures are computed at the first run.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v cargo >/dev/null || export PATH="$HOME/.cargo/bin:$PATH"
cargo build --release --locked -p lighty
target=${CARGO_TARGET_DIR:-target}
if [ ! -e examples/site/root/gallery/pictures/.complete ]; then
    echo "computing the gallery's pictures (once) ..."
    cargo run --release --locked -q -p lighty --example gallery -- examples/site/root/gallery/pictures
fi
"$target/release/lighty" generate manual examples/site/root/manual
exec "$target/release/lighty" -D -f examples/site/lighty.conf
