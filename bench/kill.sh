#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# kill -9 of the engine ten times under load: no accepted request is lost but those that saw
# two engines end, answers go on where they were, and the engine is back within two seconds
# more than its first start took.
#
#   bench/kill.sh [TIMES [AT A TIME]]
cd "$(dirname "$0")/.." || exit 1
. tests/e2e/common.bash
. tests/e2e/server.bash

serve models/lexicon || exit 1
load=$(sed -n 's|^ready *[^ ]* *\([0-9.]*\) s.*|\1|p' "$box/server.log")
python3 tests/e2e/soak.py "$url" "$server" --kill "${1:-10}" --at-a-time "${2:-32}" \
    --pause 5 --load "$load" || not_ok=1
stop_server || not_ok=1
exit "$not_ok"
