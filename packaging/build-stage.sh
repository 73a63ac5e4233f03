#!/bin/sh
# The build stage of the Dockerfile: build-stage.sh DIR puts the stripped release binary into DIR.
# The gate runs it too, where there is no Docker.
set -eu
cd "$(dirname "$0")/.."
cargo build --release --locked -p lighty
install -D -s -m 755 "${CARGO_TARGET_DIR:-target}/release/lighty" "$1/lighty"
