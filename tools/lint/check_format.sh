#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# clang-format 14 on all C and CUDA files; other versions format differently, so they are not used.
# With --fix it rewrites the files (`make format`), or only those that are named.
set -uo pipefail
tool=$(command -v clang-format-14 || command -v clang-format)
[ -n "$tool" ] && "$tool" --version | grep -q 'version 14\.' || {
    echo "clang-format 14 is not installed"
    exit 77
}
list() {
    git ls-files -co --exclude-standard 'src/*.[ch]' 'src/*.cu' 'src/*.cuh' 'tools/*.[ch]' \
        'tests/*.[ch]'
}
if [ "${1:-}" = --fix ]; then
    shift
    if [ $# -gt 0 ]; then "$tool" -i "$@"; else list | xargs "$tool" -i; fi
    exit
fi
bad=0
for f in $(list | xargs -P 2 -n 20 "$tool" --dry-run 2>&1 | grep -oE '^[^:]+\.(c|h|cu|cuh):' |
    sort -u | tr -d :); do
    echo "$f: not in the format of the house; run \`make format\`"
    bad=1
done
exit "$bad"
