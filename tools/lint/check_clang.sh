#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Compiles everything (program, tools, unit tests) with clang, warnings being errors.
set -uo pipefail
clang=$(command -v clang-14 || command -v clang) || {
    echo "clang is not installed"
    exit 77
}
make -s --no-print-directory -j2 -k B=build/clang CC="$clang" OPT=-O1 KOPT=-O1 WERROR=1 compile 2>&1
