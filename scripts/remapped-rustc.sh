#!/bin/sh
# rustc that writes no path of this machine into its output; see scripts/reproducible.sh. The last
# prefix that fits counts.
exec "$@" \
    --remap-path-prefix="$LIGHTY_REMAP=/lighty" \
    --remap-path-prefix="${CARGO_HOME:-$HOME/.cargo}=/cargo" \
    --remap-path-prefix="$CARGO_TARGET_DIR=/target"
