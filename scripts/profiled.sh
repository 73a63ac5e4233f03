#!/usr/bin/env bash
# The release binary, compiled after a profile of what it does (docs/decisions/0013): built once to
# count its branches, sent through bench/train.py, built again. Prints where the binary is.
# LIGHTY_PROFILE is a profile that is there already: the binary is built once, with it.
# Exits with 3, and says what is missing, where no profile can be made.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
host=$(rustc -vV | sed -n 's/^host: //p')
profdata=${LLVM_PROFDATA:-$(rustc --print target-libdir)/../bin/llvm-profdata}
[ -n "${LIGHTY_PROFILE:-}" ] || for need in "$profdata" "$(command -v python3 || echo python3)"; do
    if [ ! -x "$need" ]; then
        echo "profiled.sh: $need is missing (rustup component add llvm-tools, or LLVM_PROFDATA=FILE; python3 3.11)" >&2
        exit 3
    fi
done

top=$CARGO_TARGET_DIR/profiled
counts=$top/counts
# With --target, what only runs while building (build scripts, macros) is neither counted nor built anew.
build() {
    CARGO_TARGET_DIR=$top/$1 RUSTFLAGS="${RUSTFLAGS:-} $2" \
        cargo build --release --locked --target "$host" -p lighty >&2
}
mkdir -p "$top"
if [ -n "${LIGHTY_PROFILE:-}" ]; then
    [ "$LIGHTY_PROFILE" -ef "$top/lighty.profdata" ] || cp "$LIGHTY_PROFILE" "$top/lighty.profdata"
else
    rm -rf "$counts"
    build counting "-Cprofile-generate=$counts"
    bench/train.py --lighty "$top/counting/$host/release/lighty" --out "$top/train" >&2
    "$profdata" merge -o "$top/lighty.profdata" "$counts"
fi
build release "-Cprofile-use=$top/lighty.profdata"
echo "$top/release/$host/release/lighty"
