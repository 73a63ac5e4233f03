#!/usr/bin/env bash
# Everything that must pass: formatting, lints, all tests, the black-box suite once more against
# the release binary, and the tools of bench/. The last line sums up; the exit status is 0 only if
# nothing failed.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v cargo >/dev/null || export PATH="$HOME/.cargo/bin:$PATH"

log=$(mktemp)
needs_log=$(mktemp)
release_log=$(mktemp)
needs=
release=
trap 'rm -f "$log" "$needs_log" "$release_log"; for job in $needs $release; do kill "$job"; done' EXIT
failed_steps=0

# Runs a step, keeps its output, and goes on after a failure: the sum says what failed.
step() {
    local begun=$SECONDS
    echo "--- $*"
    if ! "$@" 2>&1 | tee -a "$log"; then
        failed_steps=$((failed_steps + 1))
        echo "--- FAILED: $*"
    fi
    echo "--- took $((SECONDS - begun)) s: $*"
}

# What only tests need is installed while the rest is built. Without a compiler or the lints, they
# come first.
begin_needs() {
    if command -v cc >/dev/null && cargo fmt --version && cargo clippy --version; then
        scripts/needs.sh >"$needs_log" 2>&1 &
        needs=$!
    else
        scripts/needs.sh
    fi
}

end_needs() {
    needs_status=0
    [ -z "$needs" ] || wait "$needs" || needs_status=$?
    needs=
}

needs() {
    cat "$needs_log"
    return "$needs_status"
}

# The tests of the other Lua: its library, and scripts as people wrote them in the whole server.
other_lua=(--locked -p lighty-lua -p lighty --no-default-features
    --features lighty-lua/lua54,lighty/lua54
    --lib --test lighttpd_calls --test fuzz_corpus --test magnet_corpus)

# The tests that start the server, against the binary that is shipped; beside them, those of the
# other Lua.
black_box_and_other_lua() {
    local tests
    tests=$(cd crates/lighty/tests && for file in *.rs */main.rs; do
        [ "$file" = layers/main.rs ] || printf -- '--test %s ' "$(basename "${file%/main.rs}" .rs)"
    done)
    # The whole workspace: with one package alone the libraries would be built anew.
    # shellcheck disable=SC2086 # words on purpose
    scripts/tests.py LIGHTY_BIN="$CARGO_TARGET_DIR/release/lighty" --locked --workspace $tests \
        --and "${other_lua[@]}"
}

# Linking it keeps one processor busy for minutes, while the tests mostly wait.
begin_release() {
    cargo build --release --locked -p lighty >"$release_log" 2>&1 &
    release=$!
}

end_release() {
    release_status=0
    wait "$release" || release_status=$?
    release=
}

release_build() {
    cat "$release_log"
    return "$release_status"
}

# The drills of panics would fill the log with stacks.
export RUST_BACKTRACE=0
# Most tests wait for a time limit most of the time.
export RUST_TEST_THREADS="${RUST_TEST_THREADS:-$((2 * $(nproc)))}"
# One absolute target directory for every step.
case "${CARGO_TARGET_DIR:-}" in
    /*) ;;
    *) CARGO_TARGET_DIR=$PWD/${CARGO_TARGET_DIR:-target} ;;
esac
export CARGO_TARGET_DIR

begin_needs
step scripts/lint.sh
step cargo test --workspace --locked --no-run
end_needs
step needs
begin_release
step scripts/tests.py --workspace --locked
step cargo test --workspace --locked --doc
step cargo test "${other_lua[@]}" --no-run
end_release
step release_build
step black_box_and_other_lua
step python3 bench/test_bench.py
step bench/train.py --lighty "$CARGO_TARGET_DIR/release/lighty" --out "$CARGO_TARGET_DIR/train" --requests 4000

# What failed, once more, where one looks for it: each test's first lines, then the names.
awk '/^---- .* stdout ----$/ { left = 60 } /^failures:$/ { left = 0 } left-- > 0' "$log"
grep -E '^test .* \.\.\. FAILED$' "$log" || true
awk -v steps="$failed_steps" '
    /^test result: / {
        for (i = 1; i < NF; i++) {
            if ($(i + 1) ~ /^passed/) passed += $i
            if ($(i + 1) ~ /^failed/) failed += $i
        }
    }
    END {
        if (failed == 0 && steps > 0) failed = steps
        printf "%d passed, %d failed\n", passed, failed
        exit failed > 0
    }' "$log"
