#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes the Python environment of the API tests in build/venv, if it is not there yet.
# Exits 77 with the reason when that is not possible here (no Python, no package index).
set -uo pipefail
cd "$(dirname "$0")/../../.." || exit 1

venv=build/venv
wanted=tests/e2e/api/requirements.txt
cmp -s "$wanted" "$venv/installed.txt" && exit 0
command -v python3 >/dev/null || {
    echo "there is no python3"
    exit 77
}
mkdir -p build
log=build/venv.log
rm -rf "$venv"
python3 -m venv "$venv" >"$log" 2>&1 || {
    echo "python3 has no venv module (package python3-venv)"
    rm -rf "$venv"
    exit 77
}
"$venv/bin/pip" install -q --disable-pip-version-check --retries 1 --timeout 15 \
    -r "$wanted" >>"$log" 2>&1 || {
    echo "the packages of $wanted cannot be had here; see $log"
    rm -rf "$venv"
    exit 77
}
cp "$wanted" "$venv/installed.txt"
