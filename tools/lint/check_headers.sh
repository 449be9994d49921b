#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Each header of src/ compiles alone, and includes nothing that leads back to itself
# unguarded: it is included twice in an otherwise empty file. Those of the CUDA shelf only
# where the toolkit's headers are.
set -uo pipefail
one() {
    # shellcheck disable=SC2086
    printf '#include "%s"\n#include "%s"\nextern int td_lint_nothing;\n' \
        "${1#src/}" "${1#src/}" |
        ${CC:-gcc} $LINT_FLAGS -Werror -fsyntax-only -x c - || exit 255
}
export -f one
export LINT_FLAGS="${LINT_FLAGS:--std=c11 -Wall -Wextra -Isrc}"
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
cuda=$(dirname "$(dirname "$nvcc")")/include leave_out='^src/ops/cuda/'
if [ -f "$cuda/cuda_runtime_api.h" ]; then
    LINT_FLAGS="$LINT_FLAGS -isystem $cuda" leave_out='^$'
fi
git ls-files -co --exclude-standard 'src/*.h' | grep -v "$leave_out" |
    xargs -P 2 -I {} bash -c 'one {} || { echo "{}: does not compile alone"; exit 1; }'
