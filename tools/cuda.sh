#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the CUDA shelf for all its targets, warnings being errors, and tries what it says
# where no GPU can be used, if the program is built. The rest is run on a machine with a GPU
# (bench/gpu.sh). Exits 77 where there is no CUDA toolkit of version 13 or later; none is
# fetched.
set -euo pipefail
cd "$(dirname "$0")/.."
unset MAKEFLAGS MAKELEVEL # another flavour: nothing of a make that called us counts

nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[ -x "$nvcc" ] || {
    echo "cuda: nvcc is not installed"
    exit 77
}
version=$("$nvcc" --version | sed -n 's/.*release \([0-9]*\).*/\1/p')
[ "${version:-0}" -ge 13 ] || {
    echo "cuda: nvcc is of version ${version:-?}, 13 is needed for all targets"
    exit 77
}
make --no-print-directory -s -j2 B=build/nvcc WERROR=1 cuda
[ ! -x build/tandem ] || CUDA_SHELF=build/nvcc tests/run.sh tests/e2e/gpu.sh
echo "cuda: libtandem-cuda.so, $(du -k build/nvcc/libtandem-cuda.so | cut -f1) KiB, no warnings"
