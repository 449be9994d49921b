#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Shell scripts: shellcheck, where it is installed; bash's own syntax check elsewhere.
set -uo pipefail
mapfile -t files < <(git ls-files -co --exclude-standard '*.sh' 'script/*' '.ci/*' | sort -u)
bad=0
for f in "${files[@]}"; do
    bash -n "$f" || bad=1
done
command -v shellcheck >/dev/null || {
    [ "$bad" -eq 0 ] || exit 1
    echo "shellcheck is not installed; bash -n finds no fault"
    exit 77
}
shellcheck -x -S warning "${files[@]}" || bad=1
exit "$bad"
