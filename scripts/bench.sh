#!/usr/bin/env bash
# The short experiments and the report; bench/README.md has the long ones.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --locked -p lighty
cargo build --release --locked -p lighty-io --example floor --example asker
for experiment in hot hotset memory drills; do
    "bench/$experiment.py" "$@"
done
exec bench/report.py
