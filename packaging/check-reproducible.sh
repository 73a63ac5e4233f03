#!/usr/bin/env bash
# Builds the committed tree twice, in two directories of different names and lengths, and compares
# the binaries: check-reproducible.sh [full|small|static|quick]... The default is full. "quick" is the
# small build without optimisation, which takes some minutes. LIGHTY_PROFILE is a stored profile for both (scripts/profiled.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
epoch=$(git log -1 --format=%ct)

build() { # DIRECTORY VARIANT
    mkdir -p "$1"
    git archive HEAD | tar -C "$1" -xf -
    (
        cd "$1"
        export CARGO_TARGET_DIR=$PWD/target SOURCE_DATE_EPOCH=$epoch
        . scripts/reproducible.sh
        case $2 in
            full)
                if [ -n "${LIGHTY_PROFILE:-}" ]; then
                    cp "$(scripts/release.sh)" binary
                else
                    PCRE2_SYS_STATIC=1 cargo build --release --locked -p lighty >&2
                    cp "$CARGO_TARGET_DIR/release/lighty" binary
                fi
                ;;
            quick)
                cargo build --locked -p lighty --no-default-features >&2
                cp "$CARGO_TARGET_DIR/debug/lighty" binary
                ;;
            small)
                scripts/small.sh >&2
                cp "$CARGO_TARGET_DIR/small/lighty" binary
                ;;
            static)
                scripts/dist-static.sh >&2
                cp target/dist-static/lighty binary
                ;;
        esac
        strip --strip-all --remove-section=.comment binary
        # Nothing else is compared, and two targets are large.
        rm -rf target
    )
}

for variant in "${@:-full}"; do
    build "$work/one" "$variant"
    build "$work/another-directory/with-a-longer-name" "$variant"
    one=$work/one/binary other=$work/another-directory/with-a-longer-name/binary
    if cmp "$one" "$other"; then
        echo "check-reproducible.sh: passed: $variant: $(sha256sum "$one" | cut -d' ' -f1)"
    else
        cp "$one" target/reproducible-one
        cp "$other" target/reproducible-other
        echo "check-reproducible.sh: FAILED: $variant: compare target/reproducible-one and -other, with diffoscope" >&2
        exit 1
    fi
    rm -rf "${work:?}"/*
done
