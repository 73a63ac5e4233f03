#!/usr/bin/env bash
# Formatting, lints, and the rules of deny.toml for libraries; nothing is changed.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
cargo fmt --all --check
cargo clippy --workspace --all-targets --locked -- -D warnings
# The build with the fewest features (scripts/small.sh). The layer tests bring the libraries' features
# of the whole workspace, so that few libraries are checked twice.
cargo clippy -p lighty --no-default-features --bins --test layers --locked -- -D warnings

# Rules for libraries need the libraries of all platforms, which the build does not fetch. The list of
# advisories needs the network: it is checked where it can be had.
if command -v cargo-deny >/dev/null || scripts/needs.sh; then
    cargo fetch --locked || echo "lint.sh: libraries of other platforms cannot be downloaded" >&2
    cargo-deny --offline check -D warnings bans licenses sources
    if timeout 60 cargo-deny fetch db; then
        cargo-deny --offline check -D warnings advisories
    else
        echo "lint.sh: SKIPPED: advisories, whose list cannot be downloaded" >&2
    fi
fi
