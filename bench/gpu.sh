#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What a machine with an NVIDIA GPU has to show, in one run of a few minutes:
#
#   bench/gpu.sh [PART...]      parts: ops model run sanitize bench (all but sanitize)
#
#   ops       every operation against the reference on odd shapes (checkops)
#   model     golden data, equal bits, random models, evaluation, on the GPU
#   run       the program's answers on GPU and processor, greedy
#   sanitize  compute-sanitizer on the short operations check
#   bench     time of decode and prefill
#
# It runs from the repository root; TANDEM_BUILD (build) is the folder of the programs and
# of libtandem-cuda.so, TANDEM_BENCH the folder of a model to time, made when it is not
# there.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=${TANDEM_BUILD:-build}
parts=("$@")
[ $# -gt 0 ] || parts=(ops model run bench)
failed=0

say() {
    printf '\n== %s (%d s)\n' "$*" "$SECONDS"
}

# The tests read device memory and results at once.
on_gpu() {
    TANDEM_DEVICE=cuda TANDEM_CUDA_MEMORY=host CUDA_LAUNCH_BLOCKING=1 "$@"
}

check() {
    if "$@"; then
        return
    fi
    echo "FAILED: $*"
    failed=1
}

part_ops() {
    check "$build/checkops" --target cuda
}

part_model() {
    local t
    for t in golden bits random eval; do
        say "model_$t"
        check on_gpu timeout 150 "$build/tests/model_$t"
    done
}

answer() {
    "$build/tandem" run models/lexicon --device "$1" -t 0 -n 40 \
        "What is the meaning of the noun cause?"
}

part_run() {
    local gpu cpu
    gpu=$(answer cuda) && cpu=$(answer cpu) || failed=1
    echo "GPU:       $gpu"
    echo "processor: $cpu"
    if [ "$gpu" != "$cpu" ]; then
        echo "FAILED: the answers differ"
        failed=1
    fi
}

part_sanitize() {
    check compute-sanitizer --error-exitcode 9 "$build/checkops" --target cuda --short
}

part_bench() {
    local model=${TANDEM_BENCH:-/tmp/tandem-bench-moe}
    [ -d "$model" ] || "$build/make_model" --preset bench-moe "$model"
    check "$build/bench_model" --device cuda "$model"
}

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
for part in "${parts[@]}"; do
    say "$part"
    "part_$part"
done
say "done: $([ "$failed" -eq 0 ] && echo "all good" || echo "something failed")"
exit "$failed"
