# SPDX-License-Identifier: Apache-2.0
#
# For end-to-end tests: runs the program and checks what it says. Sourced by each of them.
#
#   tandem ARGS...            runs the program; sets code, stdout and stderr
#   check NAME COMMAND...     prints `ok NAME` if the command succeeds, else `not ok NAME`
#   says TEXT PATTERN         does a line of TEXT match the extended regular expression?
# shellcheck shell=bash disable=SC2034
set -uo pipefail

TANDEM=$(realpath "${TANDEM:-build/tandem}")
box=$(mktemp -d)
trap 'rm -rf "$box"' EXIT
export HOME=$box # no tandem.conf of the user
for name in $(env | grep -oE '^TANDEM_[A-Z_]+'); do unset "$name"; done
not_ok=0

tandem() {
    "$TANDEM" "$@" >"$box/stdout" 2>"$box/stderr" </dev/null
    code=$?
    stdout=$(cat "$box/stdout") stderr=$(cat "$box/stderr")
}

says() {
    grep -qE -e "$2" <<<"$1"
}

check() {
    local name=$1
    shift
    if "$@"; then
        echo "ok $name"
    else
        not_ok=1
        echo "not ok $name"
        echo "  check:  $*"
        echo "  status: $code"
        sed 's/^/  stdout: /' "$box/stdout"
        sed 's/^/  stderr: /' "$box/stderr"
    fi
}
