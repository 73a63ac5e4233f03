#!/bin/sh
# Packs a root of packaging/root.sh as an RPM: rpm.sh ROOT SUPPLY PACKAGE DIRECTORY
# Needs rpmbuild. Prints the package's path. MAINTAINER is the name and address of whoever publishes it.
set -eu
tree=$(cd "$(dirname "$0")/.." && pwd)
root=$(cd "$1" && pwd) supply=$2 package=$3 directory=$4
: "${SOURCE_DATE_EPOCH:?the time of the files, in seconds since 1970}"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$tree/Cargo.toml" | head -1)
maintainer=${MAINTAINER:-The lighty maintainers <maintainers@lighty.example.org>}
umask 022

case $package in
    lighty-full) summary="Web server and reverse proxy that reads lighttpd configurations" ;;
    lighty-small) summary="Web server and reverse proxy for small machines" ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Every file once, and the directories that no other package has.
{
    for path in etc/lighty etc/lighty/conf.d usr/libexec/lighty usr/share/lighty usr/share/lighty/drop-ins; do
        echo "%dir /$path"
    done
    (cd "$root" && find usr/share/doc -mindepth 1 -type d | LC_ALL=C sort | sed 's|^|%dir /|')
    (cd "$root" && find . ! -type d | sed 's|^\.||' | LC_ALL=C sort) | while read -r path; do
        case $path in
            /etc/*) echo "%config(noreplace) $path" ;;
            */third-party.txt.gz) echo "%license $path" ;;
            /usr/share/doc/* | /usr/share/man/*) echo "%doc $path" ;;
            *) echo "$path" ;;
        esac
    done
} >"$work/files"

rpmbuild -bb --quiet \
    --define "_topdir $work/top" \
    --define "_rpmdir $directory" \
    --define "_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm" \
    --define "_buildhost localhost" \
    --define "use_source_date_epoch_as_buildtime 1" \
    --define "clamp_mtime_to_source_date_epoch 1" \
    --define "_binary_payload w19.zstdio" \
    --define "package $package" \
    --define "package_version $version" \
    --define "package_summary $summary" \
    --define "package_license $(cat "$supply/licence")" \
    --define "package_maintainer $maintainer" \
    --define "package_date $(LC_ALL=C date -u -d "@$SOURCE_DATE_EPOCH" '+%a %b %d %Y')" \
    --define "package_root $root" \
    --define "package_files $work/files" \
    "$tree/packaging/rpm/lighty.spec" >&2
echo "$directory/$package-$version-1.$(rpm --eval '%{_arch}').rpm"
