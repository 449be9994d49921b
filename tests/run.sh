#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs test programs one after the other and adds up what they report.
#
#   tests/run.sh PROGRAM...
#
# A program is a cmocka binary, or a script that prints one line for each check: `ok
# NAME`, `not ok NAME` or `skip NAME: reason`. One line is printed for each program, all
# of its output only if something failed. A program that crashes, runs longer than
# TEST_TIMEOUT seconds (600) or reports nothing counts as one failure. TEST_RUNNER is put
# before each program (an emulator). The last line is `N passed, N failed, N skipped`; the
# exit status is 1 if anything failed.
set -uo pipefail

# Threads that wait give the processor back: other work may run on this machine.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
limit=${TEST_TIMEOUT:-600}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
passed=0 failed=0 skipped=0

# Counts of one program, "passed failed skipped", from its output.
count() {
    awk '
        /^\[  PASSED  \] [0-9]+ test/                    { passed += $4 }
        /^\[  FAILED  \] .*[0-9]+ test\(s\), listed/     { failed += number() }
        /^\[  SKIPPED \] .*[0-9]+ test\(s\), listed/     { skipped += number() }
        /^ok /     { passed++ }
        /^not ok / { failed++ }
        /^skip /   { skipped++ }
        function number(    s) {
            s = $0; sub(/ test\(s\), listed.*/, "", s); sub(/.* /, "", s); return s + 0
        }
        END { print passed + 0, failed + 0, skipped + 0 }' "$@"
}

for program in "$@"; do
    name=$(basename "$program" .sh)
    start=$(date +%s%N)
    {
        # shellcheck disable=SC2086
        timeout -k 5 "$limit" ${TEST_RUNNER:-} "$program" >"$out/stdout" 2>"$out/stderr" </dev/null
        code=$?
    } 2>/dev/null
    ms=$((($(date +%s%N) - start) / 1000000))
    read -r p f s < <(count "$out/stdout" "$out/stderr")
    note=
    if [ "$code" -eq 124 ] || [ "$code" -eq 137 ]; then
        f=$((f + 1)) note="  longer than $limit s, or killed"
    elif [ "$code" -ne 0 ] && [ "$f" -eq 0 ]; then
        f=1 note="  ended with status $code"
    elif [ $((p + f + s)) -eq 0 ]; then
        f=1 note="  reported no test"
    fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    if [ "$f" -gt 0 ]; then word=FAIL; else word=ok; fi
    printf '%-5s %-32s %4d passed %3d failed %3d skipped %4d.%02d s%s\n' \
        "$word" "$name" "$p" "$f" "$s" $((ms / 1000)) $((ms % 1000 / 10)) "$note"
    if [ "$f" -gt 0 ]; then
        sed 's/^/      | /' "$out/stdout" "$out/stderr"
    elif [ "$s" -gt 0 ]; then
        grep -hE '^(skip |\[  SKIPPED \] [^ ]+$)' "$out/stdout" "$out/stderr" |
            sort -u | sed 's/^/      | /'
    fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ $((passed + skipped)) -gt 0 ]
