#!/usr/bin/env bash
# The small build: files, proxies, FastCGI, CGI, rewriting, authentication and TLS, without Lua,
# WebDAV, ACME, tracing, the programs beside the server, br, zstd and bzip2. Prints its path and size.
# docs/decisions/0034 has the figures. Further features are added with
#
#     small.sh brotli,dns
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh

# Equal functions once; relocations in a compact table, which glibc reads from 2.36 on.
link=(-C link-arg=-Wl,--icf=safe -C link-arg=-Wl,-O2)
glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/^glibc 2\.//')
[ "${glibc:-0}" -lt 36 ] || link+=(-C link-arg=-Wl,-z,pack-relative-relocs)
cargo rustc --locked --profile small -p lighty --no-default-features --features "${1:-}" --bin lighty \
    -- "${link[@]}" >&2
binary=$CARGO_TARGET_DIR/small/lighty
echo "$binary: $(stat -c %s "$binary") bytes"
