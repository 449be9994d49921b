#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Half a minute of mixed requests, 64 at a time, then the engine killed twice under load.
# bench/soak.sh and bench/kill.sh are the long forms.
. tests/e2e/common.bash
. tests/e2e/server.bash

if ! command -v python3 >/dev/null; then
    echo "skip soak: python3 is not installed"
    exit 0
fi
check starts serve models/lexicon
python3 tests/e2e/soak.py "$url" "$server" --count 600 --seconds 30 || not_ok=1
python3 tests/e2e/soak.py "$url" "$server" --at-a-time 16 --kill 2 | sed 's/^ok /&kill_/' ||
    not_ok=1
check stops stop_server
[ "$not_ok" -eq 0 ] || sed 's/^/  server: /' "$box/server.log"
exit "$not_ok"
