#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Each header of src/ compiles alone, and includes nothing that leads back to itself
# unguarded: it is included twice in an otherwise empty file.
set -uo pipefail
one() {
    # shellcheck disable=SC2086
    printf '#include "%s"\n#include "%s"\nextern int td_lint_nothing;\n' \
        "${1#src/}" "${1#src/}" |
        ${CC:-gcc} $LINT_FLAGS -Werror -fsyntax-only -x c - || exit 255
}
export -f one
export LINT_FLAGS="${LINT_FLAGS:--std=c11 -Wall -Wextra -Isrc}"
git ls-files -co --exclude-standard 'src/*.h' |
    xargs -P 2 -I {} bash -c 'one {} || { echo "{}: does not compile alone"; exit 1; }'
