#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# How fast decoding is beside other programs: steps of one sequence on a quiet machine,
# then with one, two, ... busy loops of the same priority beside it.
#
#   bench/share.sh [MODEL [SECONDS [THREADS [BUSY LOOPS]]]]
cd "$(dirname "$0")/.." || exit 1
model=${1:-models/lexicon} seconds=${2:-4} threads=${3:-0} most=${4:-2}
busy=()
stop() {
    [ ${#busy[@]} -eq 0 ] || { kill "${busy[@]}"; wait "${busy[@]}"; } 2>/dev/null
}
trap stop EXIT
for ((n = 0; n <= most; n++)); do
    printf '%d busy: ' "$n"
    "${BUILD:-build}/bench_steady" "$model" "$seconds" "$threads" || exit 1
    (while :; do :; done) &
    busy+=($!)
done
