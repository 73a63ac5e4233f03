#!/bin/sh
# Lays out the files of a package as they are installed:
#
#     root.sh BINARY GENERATOR SUPPLY ROOT PACKAGE
#
# GENERATOR is a lighty with all features, which writes manual pages and completions; SUPPLY is a
# directory with notices, copyright and sbom of packaging/supply.py. PACKAGE is lighty-full or
# lighty-small. Time stamps are SOURCE_DATE_EPOCH, so that the same files make the same package.
set -eu
tree=$(cd "$(dirname "$0")/.." && pwd)
binary=$1 generator=$2 supply=$3 root=$4 package=$5
from=$tree/packaging
: "${SOURCE_DATE_EPOCH:?the time of the files, in seconds since 1970}"
umask 022

put() { # MODE FILE PLACE
    install -D -m "$1" "$2" "$root/$3"
}

# Standard input, compressed without name and time.
compressed() {
    mkdir -p "$(dirname "$root/$1")"
    gzip -9n >"$root/$1"
    chmod 644 "$root/$1"
}

rm -rf "$root"
put 755 "$binary" usr/sbin/lighty

put 644 "$from/lighty.conf" etc/lighty/lighty.conf
put 644 "$from/conf.d/example.conf" etc/lighty/conf.d/example.conf
put 644 "$from/logrotate" etc/logrotate.d/lighty
put 644 "$from/lighty.sysusers" usr/lib/sysusers.d/lighty.conf
put 644 "$from/lighty.tmpfiles" usr/lib/tmpfiles.d/lighty.conf
for unit in lighty.service lighty.socket lighty@.service; do
    put 644 "$from/$unit" "usr/lib/systemd/system/$unit"
done
for path in "$from"/drop-ins/*; do
    put 644 "$path" "usr/share/lighty/drop-ins/$(basename "$path").conf"
done
put 755 "$from/after-upgrade" usr/libexec/lighty/after-upgrade

"$generator" generate man | compressed usr/share/man/man8/lighty.8.gz
"$generator" generate man lighty.conf | compressed usr/share/man/man5/lighty.conf.5.gz
if [ "$package" = lighty-full ]; then
    # Names by which the binary is another program. spawn-fcgi is a package of its own elsewhere.
    mkdir -p "$root/usr/bin" "$root/usr/share/man/man1"
    ln -s ../../sbin/lighty "$root/usr/libexec/lighty/spawn-fcgi"
    for name in fcgi-stat-accel lua-fastcgi-magnet; do
        ln -s ../sbin/lighty "$root/usr/bin/$name"
        ln -s ../man8/lighty.8.gz "$root/usr/share/man/man1/$name.1.gz"
    done
fi
completions() { # SHELL PLACE
    mkdir -p "$(dirname "$root/$2")"
    "$generator" generate completions "$1" >"$root/$2"
    chmod 644 "$root/$2"
}
completions bash usr/share/bash-completion/completions/lighty
completions fish usr/share/fish/vendor_completions.d/lighty.fish
completions zsh "${ZSH_COMPLETIONS:-usr/share/zsh/vendor-completions}/_lighty"

doc=usr/share/doc/$package
(cd "$tree/docs/manual" && find . -type f \( -name '*.md' -o -name '*.png' \) | sort) | while read -r page; do
    put 644 "$tree/docs/manual/$page" "$doc/manual/${page#./}"
done
put 644 "$tree/README.md" "$doc/README.md"
compressed "$doc/changelog.gz" <"$tree/CHANGELOG.md"
compressed "$doc/third-party.txt.gz" <"$supply/notices"
compressed "$doc/sbom.cdx.json.gz" <"$supply/sbom"

find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
