#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The server against the public openai client and against clients that misbehave:
# tests/e2e/api/test_*.py, run by pytest in build/venv (made by tests/e2e/api/venv.sh).
. tests/e2e/common.bash

if ! reason=$(tests/e2e/api/venv.sh); then
    echo "skip serve: $reason"
    exit 0
fi
export TANDEM
build/venv/bin/python -m pytest -v --tb=short -p no:cacheprovider -W ignore --color=no \
    tests/e2e/api >"$box/out" 2>&1
code=$?
awk '/^tests\/.*::.* PASSED/  { sub(/.*::/, "", $1); print "ok " $1 }
     /^tests\/.*::.* SKIPPED/ { sub(/.*::/, "", $1); print "skip " $1 ": see pytest" }
     /^tests\/.*::.* (FAILED|ERROR)/ { sub(/.*::/, "", $1); print "not ok " $1 }' "$box/out"
[ "$code" -eq 0 ] || cat "$box/out"
exit "$code"
