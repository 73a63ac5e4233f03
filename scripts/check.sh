#!/usr/bin/env bash
# The inner loop: formatting, clippy, all unit tests, the layer tests and, where one is named, the
# black-box tests of an area.
#
#     check.sh [AREA]    files, proxy, tls, scripts, operations or differential
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
command -v cargo-nextest >/dev/null || scripts/needs.sh

area=${1:-}
if [ -n "$area" ] && [ ! -e "crates/lighty/tests/$area/main.rs" ]; then
    echo "check.sh: there is no area $area; areas are: $(cd crates/lighty/tests && echo */)" >&2
    exit 2
fi
export RUST_BACKTRACE=0 NEXTEST_TEST_THREADS="${NEXTEST_TEST_THREADS:-$((4 * $(nproc)))}"
scripts/lint.sh
targets=(--lib --bins --test layers)
[ -z "$area" ] || targets+=(--test "$area")
# All packages at once: with one alone, libraries would be built anew with other features.
exec cargo nextest run --workspace --locked "${targets[@]}"
