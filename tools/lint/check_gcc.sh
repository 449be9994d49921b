#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Compiles everything (program, tools, unit tests) with gcc, warnings being errors.
set -uo pipefail
command -v gcc >/dev/null || {
    echo "gcc is not installed"
    exit 77
}
make -s --no-print-directory -j2 -k B=build/gcc CC=gcc OPT=-O2 KOPT=-O1 WERROR=1 compile 2>&1
