#!/usr/bin/env bash
# Every fuzz target for SECONDS_EACH (60) seconds, beginning with the committed corpora.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"
cargo +nightly fuzz --version >/dev/null 2>&1 || cargo install --locked cargo-fuzz
for target in $(cargo +nightly fuzz list); do
    echo "--- $target"
    cargo +nightly fuzz run "$target" -- -max_total_time="${SECONDS_EACH:-60}"
done
