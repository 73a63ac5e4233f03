#!/usr/bin/env bash
# The simulation, with new seeds until it is stopped or one fails. The first seed may be given.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh

seed=${1:-$(od -An -N6 -tu8 /dev/urandom | tr -d ' ')}
step=2000
while true; do
    echo "--- seeds $seed to $((seed + step - 1))"
    LIGHTY_SIM_SEED=$seed LIGHTY_SIM_SEEDS=$step cargo test --locked -q -p lighty-server \
        --test integration -- simulation::seeds --exact --nocapture
    seed=$((seed + step))
done
