#!/usr/bin/env bash
# The binary that is published: compiled with a profile of itself where that can be made
# (docs/decisions/0013), else without. Prints where it is.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
# The binary brings its own PCRE2: it runs where that is not installed.
export PCRE2_SYS_STATIC=1
status=0
binary=$(scripts/profiled.sh) || status=$?
if [ $status = 3 ]; then
    echo "release.sh: compiled without a profile: some 10 % more CPU for each request" >&2
    cargo build --release --locked -p lighty >&2
    binary=$CARGO_TARGET_DIR/release/lighty
elif [ $status != 0 ]; then
    exit $status
fi
echo "$binary"
