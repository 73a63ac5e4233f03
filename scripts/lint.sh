#!/usr/bin/env bash
# Formatting and lints; nothing is changed.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo fmt --all --check
cargo clippy --workspace --all-targets --locked -- -D warnings
