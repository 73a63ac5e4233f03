#!/usr/bin/env bash
# The experiments and the report; bench/README.md says what they need. Words are names of
# experiments, all without any; $DISKBED is where diskbed lies.
set -euo pipefail
cd "$(dirname "$0")/.."
case " $* " in
    *" --list "*) ;;
    *)
        cargo build --release --locked -p lighty
        cargo build --release --locked -p lighty-io --example floor --example asker
        ;;
esac
exec bench/run.py "$@"
