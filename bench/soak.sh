#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# 20,000 mixed requests, 64 at a time, against a server with the embedded model: all
# answered or refused with a reason, memory flat, nothing left, greedy answers as ever.
#
#   bench/soak.sh [REQUESTS]
cd "$(dirname "$0")/.." || exit 1
. tests/e2e/common.bash
. tests/e2e/server.bash

serve models/lexicon || exit 1
python3 tests/e2e/soak.py "$url" "$server" --count "${1:-20000}" || not_ok=1
stop_server || not_ok=1
exit "$not_ok"
