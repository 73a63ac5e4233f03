#!/usr/bin/env bash
# Everything that must pass: formatting, lints, all tests against a binary with assertions, a part
# of them against the binary that users get, scripts on the other Lua, and the tools of bench/. The
# last lines say where the time went, which tests were skipped, and `N passed, N failed`; the exit
# status is 0 only if nothing failed. docs/decisions/0030 has the reasons and the figures.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh

# What scripts/test_report.py reads.
export GATE="$CARGO_TARGET_DIR/gate"
rm -rf "$GATE"
mkdir -p "$GATE"
# Each job of the background is a process group of its own, which ends with this script.
set -m
trap 'for job in $(jobs -p); do kill -- "-$job"; done' EXIT

# Runs a step and notes its name, exit status, wall time and CPU time in seconds.
timed() {
    local name=$1 status=0 begun=$EPOCHREALTIME
    shift
    TIMEFORMAT='%R %U %S'
    # A shell of its own: this one counts jobs of the background that end meanwhile.
    (time "$@" 2>&3) 3>&2 2>"$GATE/$name.time" || status=$?
    echo "$name $status $begun $(tail -1 "$GATE/$name.time")" >>"$GATE/steps"
    return $status
}

# Runs a step, and goes on after a failure: the report says what failed.
step() {
    echo "--- $*"
    timed "$@" || echo "--- FAILED: $1"
}

# Runs a step in the background; `finish` shows its output.
begin() {
    timed "$@" >"$GATE/$1.log" 2>&1 &
}

finish() {
    wait "$2" || echo "--- FAILED: $1"
    echo "--- $1"
    cat "$GATE/$1.log"
}

# The JUnit report of a profile of nextest, and what the tests used of the processors.
nextest() {
    local profile=$1 status=0
    shift
    mkdir -p "$GATE/cpu.$profile"
    NEXTEST_PROFILE=$profile TEST_CPU=$GATE/cpu.$profile cargo nextest run --locked "$@" || status=$?
    cp "$CARGO_TARGET_DIR/nextest/$profile/junit.xml" "$GATE/junit.$profile.xml"
    return $status
}

# `cargo build` and `cargo test --no-run` that keep how long each crate took.
build() {
    local name=$1 status=0
    shift
    cargo "$@" --locked --timings 2>&1 | sed '/^  Executable/d' || status=$?
    cp "$CARGO_TARGET_DIR/cargo-timings/cargo-timing.html" "$GATE/timing.$name.html"
    return $status
}

# The drills of panics would fill the log with stacks.
export RUST_BACKTRACE=0
# Nothing is built twice.
export CARGO_INCREMENTAL=0
# Most tests wait for a server or a time limit most of the time; .config/nextest.toml says which
# do not.
export NEXTEST_TEST_THREADS="${NEXTEST_TEST_THREADS:-$((4 * $(nproc)))}"
host=$(rustc -vV | sed -n 's/^host: //p')
declare -x "CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$host")_RUNNER=$PWD/scripts/test-runner.sh"

# The same packages as in the whole workspace: features of libraries stay the same, so that nothing
# but what depends on Lua is built again.
other_lua=(-p lighty-lua -p lighty --no-default-features
    --features "lighty-lua/lua54,lighty/lua54,lighty/full" --lib --test integration --test scripts)

# Without a compiler or the lints, what tests need comes before everything else.
if command -v cc && cargo fmt --version && cargo clippy --version && python3 -m pip --version; then
    begin needs scripts/needs.sh
    needs=$!
else
    step needs scripts/needs.sh
    needs=
fi >/dev/null
# Linking the release keeps one processor busy for minutes: it begins first, and tests wait beside it.
begin release build release build --release -p lighty
release=$!
step tests-build build tests test --workspace --no-run
[ -z "$needs" ] || finish needs "$needs"
step lint scripts/lint.sh
step tests nextest default --workspace
step other-lua-build build other-lua test "${other_lua[@]}" --no-run
step other-lua nextest other-lua "${other_lua[@]}"
finish release "$release"
step container packaging/build-stage.sh "$CARGO_TARGET_DIR/container"
LIGHTY_BIN=$CARGO_TARGET_DIR/release/lighty step shipped nextest shipped --workspace
step bench python3 bench/test_bench.py
step train bench/train.py --lighty "$CARGO_TARGET_DIR/release/lighty" --out "$CARGO_TARGET_DIR/train" --requests 4000
exec scripts/test_report.py "$GATE"
