#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The page at / in a headless Chromium, against a server with the embedded model.
. tests/e2e/common.bash
. tests/e2e/server.bash

if ! command -v python3 >/dev/null; then
    echo "skip page: python3 is not installed"
    exit 0
fi
check starts serve models/lexicon
python3 tests/e2e/page.py "$url" || not_ok=1
check stops stop_server
[ "$not_ok" -eq 0 ] || sed 's/^/  server: /' "$box/server.log"
exit "$not_ok"
