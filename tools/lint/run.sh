#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the checks of tools/lint and prints one line for each.
#
#   tools/lint/run.sh [CHECK...]        all checks, or some: layers size format ...
#
# `make lint` calls it with the compiler flags in LINT_FLAGS and the build folder in B.
# A check is a program tools/lint/check_NAME.sh or .py: it prints what is wrong and exits
# 0 (fine), 1 (not) or 77 (cannot run here; its last line says why). Exceptions live in
# tools/lint/allow, each with its reason.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
unset MAKEFLAGS MAKELEVEL # checks that build have flags of their own
export LC_ALL=C B="${B:-build}"

# Cheap ones first.
order=(text layers size calls catalog docs shell format headers gcc clang tidy)
[ $# -gt 0 ] && order=("$@")
out=$(mktemp)
trap 'rm -f "$out"' EXIT
passed=0 failed=0 skipped=0

for name in "${order[@]}"; do
    check=$(find tools/lint -name "check_$name.*" | head -n 1)
    start=$(date +%s%N)
    if [ -z "$check" ]; then
        echo "there is no tools/lint/check_$name" >"$out"
        code=1
    else
        "$check" >"$out" 2>&1 </dev/null
        code=$?
    fi
    seconds=$((($(date +%s%N) - start) / 1000000000))
    case $code in
    0) word=ok passed=$((passed + 1)) ;;
    77) word=skip skipped=$((skipped + 1)) ;;
    *) word=FAIL failed=$((failed + 1)) ;;
    esac
    printf '%-5s %-10s %4d s\n' "$word" "$name" "$seconds"
    if [ "$word" = FAIL ]; then
        head -n 200 "$out" | sed 's/^/      | /'
    elif [ "$word" = skip ]; then
        tail -n 1 "$out" | sed 's/^/      | /'
    fi
done
echo "lint: $passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
