#!/usr/bin/env bash
# Builds the documentation site from docs/manual with MkDocs Material: scripts/docs.sh [DIR]
# The site fetches nothing from other hosts. The generator is installed from PyPI into
# target/docs/venv at the first run. A broken link, or a page outside the navigation, is an error.
# With --install it only installs the generator.
set -euo pipefail
cd "$(dirname "$0")/.."
version=9.8.2
venv=$PWD/target/docs/venv
mark=$venv/material-$version
if [ ! -e "$mark" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q --disable-pip-version-check "mkdocs-material==$version"
    touch "$mark"
fi
if [ "${1:-}" = --install ]; then exit; fi

site=${1:-target/docs/site}
mkdir -p "$site"
site=$(cd "$site" && pwd)
# Built beside its place and put there whole: a server may be serving it.
rm -rf "$site.new" "$site.old"
NO_MKDOCS_2_WARNING=1 "$venv/bin/mkdocs" build --strict --site-dir "$site.new"
# The search of other languages, and maps of the generator's own sources.
rm -r "$site.new/assets/javascripts/lunr"
find "$site.new/assets" -name '*.map' -delete
mv "$site" "$site.old"
mv "$site.new" "$site"
rm -rf "$site.old"
