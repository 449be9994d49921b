#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What a machine with an NVIDIA GPU has to show, in one run of less than ten minutes:
#
#   bench/gpu.sh [PART...]      all parts, in this order, or some
#
#   ops       every operation against the reference on odd shapes (checkops)
#   sanitize  compute-sanitizer on a few operations, where the tool is there
#   golden    logits, hidden states, draft head, greedy ids of the embedded model
#   random    random models against the reference, draft head included
#   bits      rows alone and among others, pieces of prompts, recorded steps: equal bits
#   prefix    a server's answers under load, with and without known prefixes: equal bits
#   eval      the questions of the evaluation set
#   greedy    the program's answers on GPU and processor
#   ranks     two ranks: directly where there are two GPUs, else by way of the host
#   faults    a GPU that is not there, a budget that is too small
#   load      weights from files onto the GPU, beside plain reads and plain copies
#   bench     time of steps and prompts of the shapes in SHAPES, beside this GPU's limits
#   serve     a server of the first of them against its steps (gpu_serve.py)
#   two       the shapes over two GPUs, where there are two, and mpirun
#
# A part that does not come to an end is stopped. The last lines say of each part whether
# it passed; the exit status is 1 if one did not.
#
# It runs from the repository root; TANDEM_BUILD (build) is the folder of the programs and
# of libtandem-cuda.so, TANDEM_BENCH the folder of a model to load, made when it is not
# there, SHAPES the configurations to time. With cuBLASLt where the loader finds it,
# products are compared with its own.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=${TANDEM_BUILD:-build}
model=${TANDEM_BENCH:-/tmp/tandem-bench-moe}
shapes=${SHAPES:-bench/configs/Qwen3.5-35B-A3B-FP8 bench/configs/Qwen3.5-122B-A10B-FP8}
all=(ops sanitize golden random bits prefix eval greedy ranks faults load bench serve two)
parts=("$@")
[ $# -gt 0 ] || parts=("${all[@]}")
table=
failed=0
export BUILD=$build

# The tests read device memory and results at once.
on_gpu() {
    TANDEM_DEVICE=cuda TANDEM_CUDA_MEMORY=host CUDA_LAUNCH_BLOCKING=1 "$@"
}

part_ops() {
    timeout 150 "$build/checkops" --target cuda
}

part_sanitize() {
    local op
    command -v compute-sanitizer >/dev/null || return 77
    for op in norm linear experts attention delta candidates; do
        timeout 40 compute-sanitizer --error-exitcode 9 --print-limit 3 \
            "$build/checkops" --target cuda --short --op "$op" || return 1
    done
}

part_golden() {
    on_gpu timeout 90 "$build/tests/model_golden"
}

part_random() {
    on_gpu timeout 90 "$build/tests/model_random"
}

part_bits() {
    on_gpu timeout 90 "$build/tests/model_bits"
}

part_prefix() {
    timeout 90 "$build/tests/engine_worker"
}

part_eval() {
    on_gpu timeout 120 "$build/tests/model_eval"
}

answer() {
    timeout 60 "$build/tandem" run models/lexicon --device "$1" -t 0 -n 40 "$2"
}

part_greedy() {
    local word gpu cpu differ=0
    for word in cause lighthouse river winter bread honest; do
        gpu=$(answer cuda "What is the meaning of the word $word?") &&
            cpu=$(answer cpu "What is the meaning of the word $word?") || return 1
        [ "$gpu" = "$cpu" ] && continue
        printf 'GPU:       %s\nprocessor: %s\n' "$gpu" "$cpu"
        differ=$((differ + 1))
    done
    echo "$differ of 6 answers differ"
    [ "$differ" -eq 0 ]
}

part_ranks() {
    TANDEM_DEVICE=cuda timeout 90 "$build/tests/engine_device"
}

# The command fails, and its words are those of the pattern.
refused() {
    local pattern=$1 said
    shift
    said=$(timeout 60 "$@" 2>&1) && return 1
    echo "$said"
    grep -qE "$pattern" <<<"$said"
}

part_faults() {
    refused 'there is no GPU 99' "$build/tandem" run models/lexicon --device cuda:99 x &&
        refused 'needs .* for one sequence' "$build/tandem" run models/lexicon \
            --device cuda --memory 20M x &&
        CUDA_VISIBLE_DEVICES='' refused 'there is no NVIDIA GPU' "$build/tandem" run \
            models/lexicon --device cuda x
}

part_load() {
    [ -d "$model" ] || "$build/make_model" --preset bench-moe "$model" || return 1
    timeout 100 "$build/bench_load" --gpu "$model"
}

part_bench() {
    local shape
    for shape in $shapes; do
        timeout 150 "$build/tandem" bench --device cuda --weights random \
            --batch 1,8,32,64 --context 512 --prompt 512,2048,8192 \
            --max-num-batched-tokens 8192 "$shape" || return 1
    done
}

part_serve() {
    timeout 150 bench/gpu_serve.py "${shapes%% *}"
}

part_two() {
    local shape graphs
    [ "$(nvidia-smi -L | wc -l)" -ge 2 ] && command -v mpirun >/dev/null || return 77
    for shape in $shapes; do
        for graphs in on off; do
            timeout 100 "$build/tandem" bench --tp 2 --device cuda --weights random \
                --batch 1,8,32 --context 512 --prompt 2048,8192 --graphs "$graphs" \
                --max-num-batched-tokens 8192 "$shape" || return 1
        done
    done
}

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
for part in "${parts[@]}"; do
    began=$SECONDS
    printf '\n== %s\n' "$part"
    "part_$part" 2>&1
    case $? in
    0) word=pass ;;
    77) word=skip ;;
    *) word=FAIL failed=1 ;;
    esac
    table+=$(printf '%-8s %s %4d s' "$part" "$word" $((SECONDS - began)))$'\n'
done
printf '\n%s' "$table"
exit "$failed"
