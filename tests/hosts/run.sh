#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Tests of several machines on pretended hosts (testbed.sh), by pytest in build/venv.
#
#   HOSTS="-k PATTERN" tests/hosts/run.sh      some of them
. tests/e2e/common.bash

if ! reason=$(tests/hosts/testbed.sh can); then
    echo "skip hosts: $reason"
    exit 0
fi
if ! reason=$(tests/e2e/api/venv.sh); then
    echo "skip hosts: $reason"
    exit 0
fi
export TANDEM
# shellcheck disable=SC2086
build/venv/bin/python -m pytest -v --tb=short -p no:cacheprovider -W ignore --color=no \
    -rs --durations=15 ${HOSTS:-} tests/hosts >"$box/out" 2>&1
code=$?
awk '/^tests\/.*::.* PASSED/  { sub(/.*::/, "", $1); print "ok " $1 }
     /^tests\/.*::.* SKIPPED/ { sub(/.*::/, "", $1); print "skip " $1 ": see pytest" }
     /^tests\/.*::.* (FAILED|ERROR)/ { sub(/.*::/, "", $1); print "not ok " $1 }
     /^SKIPPED|^[0-9.]+s (call|setup)/ { print "# " $0 }' "$box/out"
[ "$code" -eq 0 ] || cat "$box/out"
exit "$code"
