#!/usr/bin/env bash
# The release binary, laid out after what it does when it serves: about a fifth fewer instructions
# for a small file. Builds twice; between, the first binary counts what it does for a few clients.
# Needs Python and `rustup component add llvm-tools`. Prints where the binary is.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v cargo >/dev/null || export PATH="$HOME/.cargo/bin:$PATH"
base=${CARGO_TARGET_DIR:-$PWD/target}
host=$(rustc -vV | sed -n 's/^host: //p')
profdata=$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata
[ -x "$profdata" ] || { echo "llvm-tools are missing: rustup component add llvm-tools" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
RUSTFLAGS="-Cprofile-generate=$work/counts" \
    cargo build --release --locked -p lighty --target-dir "$base/pgo-counting"
bench/train.py "$base/pgo-counting/release/lighty" "$work"
"$profdata" merge -o "$work/lighty.profdata" "$work"/counts/served-*
RUSTFLAGS="-Cprofile-use=$work/lighty.profdata" \
    cargo build --release --locked -p lighty --target-dir "$base/pgo"
echo "$base/pgo/release/lighty"
