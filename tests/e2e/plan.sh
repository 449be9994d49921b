#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# tandem plan: sizes of a real and of published models, refusals with the nearest plan
# that fits, and the peak of a real process against what was planned for it.
. tests/e2e/common.bash
. tests/e2e/server.bash

maker=$(dirname "$TANDEM")/make_model

# Bytes from the JSON form: an expression over `d`, and `r`, its first rank.
of_plan() {
    python3 -c "import json,sys; d=json.load(open(sys.argv[1])); r=d['ranks'][0]; print($1)" \
        "$box/stdout"
}

# Is A within N parts of a thousand of B?
within() {
    python3 -c "import sys; a,b,n=map(float,sys.argv[1:]); sys.exit(abs(a-b) > n/1000*b)" "$@"
}

tandem plan models/lexicon
check exit test "$code" -eq 0
check weights says "$stdout" '^weights +37\.7[0-9] MiB$'
check no_draft test -z "$(grep '^draft' <<<"$stdout")" # nothing generates with it
check context says "$stdout" '^context +4096 tokens, at most 4096 would fit'
check sequences says "$stdout" '^sequences +32 at a time, 32 of them at full length \(131072 '
check decode says "$stdout" '^decode '

tandem plan models/lexicon --tp 2 --json
check ranks test "$(of_plan 'len(d["ranks"])')" -eq 2
check second_half test "$(of_plan 'd["ranks"][1]["heads"]')" = '[2, 2]'
check kv_token test "$(of_plan 'd["kv_per_token"]')" -eq "$((2 * 2 * 128 * 2))"

tandem plan models/lexicon --tp 3
check no_split test "$code" -eq 1
check no_split_why says "$stderr" '4 query heads do not divide by 3'

tandem plan models/lexicon --hosts 198.51.100.1
check not_here test "$code" -eq 1
check not_here_why says "$stderr" '^error +this machine \(.*\) is not among the hosts$'
tandem plan models/lexicon --hosts 127.0.0.1
check here test "$code" -eq 0

tandem plan models/lexicon --memory 60M --max-model-len 4096
check refused test "$code" -eq 1
check refused_needs says "$stderr" '^error .* needs [0-9.]+ MiB for one sequence of 4096 tokens: '
check refused_has says "$stderr" '^cause +--memory allows 60\.0 MiB'
tandem plan models/lexicon --memory 105M --max-model-len 4096
check nearest says "$stderr" '^fix .*--max-num-seqs [0-9]+ fits'
seqs=$(grep -oE 'max-num-seqs [0-9]+' <<<"$stderr" | grep -oE '[0-9]+')
tandem plan models/lexicon --memory 105M --max-model-len 4096 --max-num-seqs "${seqs:-0}"
check nearest_fits test "$code" -eq 0

# a checkpoint of which only headers exist, then only its index
"$maker" --preset 122b-a10b --headers-only "$box/large" >/dev/null
for form in headers index; do
    tandem plan "$box/large" --tp 2 --memory 120G --json
    check "large_$form" test "$code" -eq 0
    check "large_weights_$form" within "$(of_plan 'r["weights"]')" 61898000000 1
    check "large_from_$form" says "$(of_plan 'd["sizes_from"]')" "$form"
    rm -f "$box"/large/model-0*
done
tandem plan "$box/large" --memory 64G
check large_refused test "$code" -eq 1
check large_ranks says "$stderr" 'it fits over [248] ranks with as much memory each'

# What an engine really takes at most, against the plan made before and its own. Where the
# load ends before its caches are touched, its staging areas are given back by then.
four=(--max-num-seqs 4 --prefix-cache 0)
tandem plan models/lexicon "${four[@]}" --json
planned=$(of_plan 'r["peak"]') staging=$(of_plan 'r["staging"]')
serve models/lexicon "${four[@]}" --event-log "$box/events"
stop_server
read -r peak said < <(python3 - "$box/events" <<'EOF'
import json, sys
events = [json.loads(line) for line in open(sys.argv[1])]
n = {e["event"]: e.get("n", {}) for e in events}
print(int(n["memory"]["peak"]), int(n["plan"]["peak"]))
EOF
)
foreseen() {
    within "$1" "$2" 30 || within "$1" "$(($2 - staging))" 30
}
check peak_planned foreseen "$peak" "$planned"
check peak_of_engine foreseen "$peak" "$said"

exit "$not_ok"
