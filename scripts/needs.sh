#!/usr/bin/env bash
# Installs what the tests need and the machine lacks. Without root, or without apt, it says so and
# goes on: what really is missing shows at the step that needs it.
set -euo pipefail

command -v cargo >/dev/null || export PATH="$HOME/.cargo/bin:$PATH"
if ! command -v cargo >/dev/null; then
    echo "needs.sh: cargo is missing: install Rust 1.88 or newer, see https://rustup.rs/" >&2
    exit 1
fi
cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
cargo clippy --version >/dev/null 2>&1 || rustup component add clippy

# A C compiler, for the memory allocator.
packages=()
command -v cc >/dev/null || packages+=(gcc libc6-dev)
# A name server, to resolve backends by.
PATH=$PATH:/usr/sbin command -v dnsmasq >/dev/null || packages+=(dnsmasq-base)
# The ancestor, which some tests run side by side with lighty; without it they are skipped.
command -v lighttpd >/dev/null || [ -x /usr/sbin/lighttpd ] || packages+=(lighttpd)
if [ ${#packages[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -q && apt-get install -y -q "${packages[@]}"
    else
        echo "needs.sh: please install: ${packages[*]}" >&2
    fi
fi
