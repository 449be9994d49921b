#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Two hosts against one, on pretended hosts (tests/hosts/testbed.sh): what a start, a check
# and a decode step cost there, what each host reads, and ten kills under load.
#
#   bench/hosts.sh [--model DIR] [check] [start] [decode] [kills]     without a word: all
#
#     check    `tandem check` and `tandem plan` of both hosts, seconds
#     start    `serve --hosts`: ready, against the load alone; bytes read by each rank
#              (rchar) against its slice
#     decode   tokens a second: two hosts with a core each against one with two threads, in
#              turns, and the share of a step that goes into all-reduces
#     kills    2,000 requests while a rank on one of the hosts is killed ten times; on
#              models/lexicon
#
# --model: as `make_model --preset bench-moe` makes it; default models/lexicon. Root only.
cd "$(dirname "$0")/.." || exit 1
reason=$(tests/hosts/testbed.sh can) || {
    echo "cannot run here: $reason"
    exit 77
}
exec python3 bench/hosts.py "$@"
