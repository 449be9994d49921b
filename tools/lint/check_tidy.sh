#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# clang-tidy with the checks of .clang-tidy on src/ and tools/, two files at a time. Files
# that passed and did not change since, with all they include, are not read again. Only the
# findings are printed; the steps that lead to one are shown by running clang-tidy on the
# file by hand: clang-tidy FILE -- -std=c11 -Isrc.
set -uo pipefail
tool=$(command -v clang-tidy-14 || command -v clang-tidy)
[ -n "$tool" ] || {
    echo "clang-tidy is not installed"
    exit 77
}
make -s --no-print-directory -j2 -k TIDY="$tool" tidy 2>&1 |
    grep -E ' (error|warning): ' | sed "s|^$PWD/||" | sort -u
exit "${PIPESTATUS[0]}"
