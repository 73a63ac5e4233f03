#!/usr/bin/env bash
# Everything that is published, in target/packages: Debian packages and RPMs in two variants, an
# archive with a static binary, a container image, a bill of materials, licence texts, check sums.
# docs/manual/packages.md describes them, packaging/README.md how they are made.
#
# LIGHTY_FULL, LIGHTY_SMALL, LIGHTY_STATIC: binaries that are there already, instead of new ones.
# LIGHTY_GENERATOR: a binary that writes the manual pages, if LIGHTY_FULL is of another platform.
# Formats of which the tools are missing are left out with a message, and the exit status is 3.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
. scripts/reproducible.sh
umask 022

full=${LIGHTY_FULL:-$(scripts/release.sh)}
if [ -z "${LIGHTY_SMALL:-}" ]; then
    scripts/small.sh >&2
    LIGHTY_SMALL=$CARGO_TARGET_DIR/small/lighty
fi
if [ -z "${LIGHTY_STATIC:-}" ]; then
    # musl is made for static programs; the C library of this machine will do.
    musl=$(uname -m)-unknown-linux-musl
    if command -v musl-gcc >/dev/null && [ -d "$(rustc --print target-libdir --target "$musl")" ]; then
        export LIGHTY_STATIC_TARGET=$musl
    else
        echo "packages.sh: the static binary has the C library of this machine: $musl or musl-gcc is missing" >&2
    fi
    scripts/dist-static.sh >&2
    LIGHTY_STATIC=target/dist-static/lighty
fi
generator=${LIGHTY_GENERATOR:-$full}

out=$PWD/target/packages
work=$out/work
rm -rf "$out"
mkdir -p "$work"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
machine=$(uname -m)
status=0

skip() {
    echo "packages.sh: SKIPPED: $1: $2 is not installed" >&2
    status=3
}

stripped() { # BINARY NAME
    cp "$1" "$work/$2"
    strip --strip-all --remove-section=.comment "$work/$2"
}

# Notices, copyright, bill of materials and licence expression of a variant.
supply() { # VARIANT OPTIONS
    local variant=$1 document
    shift
    mkdir -p "$work/supply-$variant"
    for document in sbom notices copyright licence; do
        packaging/supply.py "$document" "$@" >"$work/supply-$variant/$document"
    done
}

stripped "$full" full
stripped "$LIGHTY_SMALL" small
stripped "$LIGHTY_STATIC" static
supply full
supply small --no-default-features

for variant in full small; do
    package=lighty-$variant
    root() { # the files of the package, in a directory of their own
        packaging/root.sh "$work/$variant" "$generator" "$work/supply-$variant" "$work/$1" "$package"
    }
    if command -v dpkg-deb >/dev/null; then
        root "deb-$variant"
        packaging/deb.sh "$work/deb-$variant" "$work/supply-$variant" "$package" "$out"
    else
        skip "$package.deb" dpkg-deb
    fi
    if command -v rpmbuild >/dev/null; then
        ZSH_COMPLETIONS=usr/share/zsh/site-functions root "rpm-$variant"
        packaging/rpm.sh "$work/rpm-$variant" "$work/supply-$variant" "$package" "$out"
    else
        skip "$package.rpm" rpmbuild
    fi
    cp "$work/supply-$variant/sbom" "$out/$package-$version.cdx.json"
done
cp "$work/supply-full/notices" "$out/third-party.txt"

# The archive is for systems without a package: everything is in one directory.
name=lighty-$version-$machine-linux-static
archive=$work/$name
mkdir -p "$archive/completions" "$archive/drop-ins"
cp "$work/static" "$archive/lighty"
"$generator" generate man >"$archive/lighty.8"
"$generator" generate man lighty.conf >"$archive/lighty.conf.5"
for shell in bash fish zsh; do
    "$generator" generate completions "$shell" >"$archive/completions/lighty.$shell"
done
cp packaging/lighty.conf packaging/lighty.service packaging/lighty@.service packaging/lighty.socket \
    packaging/lighty.sysusers packaging/lighty.tmpfiles packaging/logrotate "$archive/"
cp -r packaging/conf.d "$archive/"
for path in packaging/drop-ins/*; do cp "$path" "$archive/drop-ins/$(basename "$path").conf"; done
cp -r docs/manual "$archive/"
cp README.md LICENSE CHANGELOG.md "$out/third-party.txt" "$archive/"
chmod -R u=rwX,go=rX "$archive"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
    -cf - "$name" | gzip -9n >"$out/$name.tar.gz"
echo "$out/$name.tar.gz"

packaging/oci.py "$work/static" "$out/lighty-$version-$machine-image.tar" --notices "$out/third-party.txt"

# With it, the same binary can be compiled again.
profile=$CARGO_TARGET_DIR/profiled/lighty.profdata
[ -n "${LIGHTY_FULL:-}" ] || [ ! -e "$profile" ] || cp "$profile" "$out/"

rm -rf "$work"
(cd "$out" && LC_ALL=C sha256sum -- * >SHA256SUMS.new && mv SHA256SUMS.new SHA256SUMS)
exit $status
