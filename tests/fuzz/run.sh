#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs fuzz targets for some seconds each, two at a time.
#
#   tests/fuzz/run.sh SECONDS TARGET...
#
# A target build/fuzz/fuzz_NAME starts from the kept corpus tests/fuzz/corpus/NAME. New
# inputs go to build/fuzz/corpus/NAME and are used again by later runs; the kept corpus is
# never written. A crash leaves its input beside the target and its report on the screen:
# fix the cause, then keep the input in the corpus.
set -uo pipefail

if [ "${1:-}" = one ]; then
    seconds=$2 target=$3
    name=$(basename "$target") name=${name#fuzz_}
    folder=$(dirname "$target")
    kept=tests/fuzz/corpus/$name new=$folder/corpus/$name log=$folder/$name.log
    mkdir -p "$new"
    dirs=("$new")
    [ -d "$kept" ] && dirs+=("$kept")
    dict=()
    [ -f "tests/fuzz/$name.dict" ] && dict=("-dict=tests/fuzz/$name.dict")
    if "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=3072 \
        -artifact_prefix="$folder/$name-" -verbosity=1 -print_final_stats=1 "${dict[@]}" \
        "${dirs[@]}" >"$log" 2>&1 </dev/null; then
        runs=$(awk '/stat::number_of_executed_units/ {print $2}' "$log")
        kept_count=$(find "$kept" -type f 2>/dev/null | wc -l)
        echo "ok $name: ${runs:-0} runs, $kept_count kept inputs"
    else
        echo "not ok $name"
        tail -n 60 "$log" | sed 's/^/  | /'
    fi
    exit 0
fi

seconds=$1
shift
if [ $# -eq 0 ]; then
    echo "no fuzz targets"
    exit 1
fi
result=$(printf '%s\n' "$@" | xargs -n 1 -P 2 "$0" one "$seconds")
echo "$result"
passed=$(grep -c '^ok ' <<<"$result")
failed=$(grep -c '^not ok ' <<<"$result")
[ $((passed + failed)) -eq $# ] || failed=$(($# - passed))
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
