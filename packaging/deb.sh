#!/bin/sh
# Packs a root of packaging/root.sh as a Debian package: deb.sh ROOT SUPPLY PACKAGE DIRECTORY
# Needs dpkg-deb and readelf. Adds what is Debian's own to the root. Prints the package's path.
# MAINTAINER is the name and address of whoever publishes the package.
set -eu
tree=$(cd "$(dirname "$0")/.." && pwd)
root=$1 supply=$2 package=$3 directory=$4
from=$tree/packaging/debian
: "${SOURCE_DATE_EPOCH:?the time of the files, in seconds since 1970}"
maintainer=${MAINTAINER:-The lighty maintainers <maintainers@lighty.example.org>}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$tree/Cargo.toml" | head -1)-1
architecture=$(dpkg --print-architecture)
umask 022

# The libraries that the binary is linked with, by their packages.
depends() {
    libraries=$(readelf -d "$root/usr/sbin/lighty" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
    for library in $libraries; do
        case $library in
            libc.so.* | libm.so.* | ld-linux*)
                echo "libc6 (>= $(glibc))"
                ;;
            libgcc_s.so.1) echo "libgcc-s1 (>= 4.2)" ;;
            *)
                echo "deb.sh: the binary needs $library, which no package is known for" >&2
                exit 1
                ;;
        esac
    done | sort -u | sed 's/$/, /' | tr -d '\n'
}

# The newest version of the C library of which the binary has a symbol.
glibc() {
    symbols=$(readelf --version-info --wide "$root/usr/sbin/lighty")
    {
        echo "$symbols" | grep -o 'GLIBC_2\.[0-9]*' | sed 's/GLIBC_//'
        # Packed relocations are read from this version on.
        if echo "$symbols" | grep -q GLIBC_ABI_DT_RELR; then echo 2.36; fi
    } | sort -V | tail -1
}

case $package in
    lighty-full)
        summary="web server and reverse proxy that reads lighttpd configurations"
        variant=""
        ;;
    lighty-small)
        summary="web server and reverse proxy for small machines"
        variant=" .
 This variant is small: it has no Lua scripts, WebDAV, ACME, tracing, zstd,
 Brotli and bzip2, and no programs beside the server. A configuration that needs
 one of them is refused."
        ;;
esac
description=" lighty serves files over HTTP/1.1, HTTP/2 and TLS, and passes requests on to
 applications over HTTP, FastCGI, SCGI, uwsgi and AJP13. It reads the
 configurations of lighttpd 1.4 and 1.5. A reload drops no connection."
[ -z "$variant" ] || description="$description
$variant"

doc=$root/usr/share/doc/$package
install -m 644 "$supply/copyright" "$doc/copyright"
gzip -9n >"$doc/changelog.Debian.gz" <<END
lighty ($version) unstable; urgency=medium

  * New version; changelog.gz has its changes.

 -- $maintainer  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
END
mkdir -p "$root/usr/share/lintian/overrides"
sed "s/@PACKAGE@/$package/" "$from/lintian-overrides" >"$root/usr/share/lintian/overrides/$package"
install -D -m 755 "$from/needrestart" "$root/etc/needrestart/restart.d/lighty.service"

control=$root/DEBIAN
mkdir -p "$control"
size=$(find "$root" -path "$control" -prune -o -type f -printf '%s\n' | awk '{ k += int(($1 + 1023) / 1024) } END { print k }')
cat >"$control/control" <<END
Package: $package
Source: lighty
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $size
Section: httpd
Priority: optional
Depends: $(depends)systemd | systemd-standalone-sysusers | systemd-sysusers, systemd | systemd-standalone-tmpfiles | systemd-tmpfiles
Recommends: logrotate
Provides: lighty (= $version)
Conflicts: lighty
Replaces: lighty
Description: $summary
$description
END
(cd "$root" && find etc -type f | sort | sed 's|^|/|') >"$control/conffiles"
(cd "$root" && find . -path ./DEBIAN -prune -o -type f -print | sed 's|^\./||' | LC_ALL=C sort | xargs -d '\n' md5sum) >"$control/md5sums"
for script in postinst prerm postrm; do
    install -m 755 "$from/$script" "$control/$script"
done
chmod 644 "$control/control" "$control/conffiles" "$control/md5sums"
find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

file=$directory/${package}_${version}_$architecture.deb
# One thread: more of them make other, larger files.
dpkg-deb --root-owner-group -Zxz --threads-max=1 --build "$root" "$file" >/dev/null
echo "$file"
