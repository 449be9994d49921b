#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# File and function gates: 1,000 lines a file, 100 lines a function. Exceptions are lines
# of tools/lint/allow. With --report it prints the sizes instead (`make size`).
#
# Functions are found by the format of the house: their braces stand in column one.
set -euo pipefail

mapfile -t files < <(git ls-files -co --exclude-standard 'src/*.[ch]' 'src/*.cu' \
    'src/*.cuh' 'tools/*.[ch]' 'tests/*.[ch]' '*.sh' '*.py' script .ci | sort -u)
pick() {
    printf '%s\n' "${files[@]}" | grep -E "$1"
}
mapfile -t code < <(pick '\.(c|h|cu|cuh)$')
mapfile -t source < <(pick '^src/')

# One line for each function: lines file:name
functions() {
    awk '
    FNR == 1 { head = ""; start = 0 }
    /^\{/ && head ~ /\(/ && head !~ /;[ ]*$/ { start = FNR; name = head
        sub(/\(.*/, "", name); sub(/.*[ *]/, "", name) }
    /^\}/ && start { print FNR - start + 1, FILENAME ":" name; start = 0 }
    /^[A-Za-z_].*\(/ { head = $0 }
    /^[#}]/ { head = "" }' "${code[@]}"
}

if [ "${1:-}" = --report ]; then
    echo "lines of code, longest files first"
    wc -l "${source[@]}" | sort -rn | head -n 15
    echo
    echo "lines by room"
    wc -l "${source[@]}" | awk '$2 != "total" {
        split($2, p, "/"); n[p[2]] += $1; k[p[2]]++ }
        END { for (r in n) printf "%7d lines %4d files  %s\n", n[r], k[r], r }' | sort -rn
    echo
    list=$(mktemp)
    trap 'rm -f "$list"' EXIT
    functions | sort -n >"$list"
    awk '{ n[NR] = $1 } END { if (NR) printf "%d functions: median %d, nine in ten up to \
%d, longest %d lines\n", NR, n[int((NR + 1) / 2)], n[int(NR * 0.9) + (NR < 10)], n[NR] }' \
        "$list"
    tail -n 10 "$list" | sort -rn
    exit 0
fi

{
    wc -l "${files[@]}" | awk '$2 != "total" && $1 > 1000 {print $2, $1, "lines; a file has at most 1000"}'
    functions | awk '$1 > 100 {print $2, $1, "lines; a function has at most 100"}'
} | awk '
    FILENAME == ARGV[1] { if ($1 == "size") allowed[$2] = 1; next }
    !($1 in allowed) { print; bad = 1 }
    END { exit bad }' tools/lint/allow -
