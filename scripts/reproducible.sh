# Sourced behind environment.sh: makes binaries and packages independent of where and when they are
# built. The target directory is another one than usual, because cargo does not notice that flags
# come from a wrapper; the wrapper is needed because cargo hashes flags, and with them directories,
# into the names of symbols.
CARGO_TARGET_DIR=$CARGO_TARGET_DIR/reproducible
LIGHTY_REMAP=$PWD
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
RUSTC_WRAPPER=$PWD/scripts/remapped-rustc.sh
CARGO_INCREMENTAL=0
CFLAGS="${CFLAGS:-} -ffile-prefix-map=$CARGO_TARGET_DIR=/target -ffile-prefix-map=$PWD=/lighty"
CFLAGS="$CFLAGS -ffile-prefix-map=${CARGO_HOME:-$HOME/.cargo}=/cargo"
export CARGO_TARGET_DIR LIGHTY_REMAP SOURCE_DATE_EPOCH RUSTC_WRAPPER CARGO_INCREMENTAL CFLAGS
