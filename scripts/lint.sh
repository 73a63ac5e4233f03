#!/usr/bin/env bash
# Formatting, lints, and the rules of deny.toml for libraries; nothing is changed.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
cargo fmt --all --check
cargo clippy --workspace --all-targets --locked -- -D warnings
