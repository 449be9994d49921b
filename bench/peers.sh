#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# tandem against llama.cpp on equal shapes, in turn, with the same threads: decoding behind
# 1024 tokens (FP8 here, Q8_0 there) and prompts of 1024 tokens (against BF16 and Q8_0).
#
#   bench/peers.sh [OPTIONS] [prepare] [measure]      without a word: both
#
#     --dir DIR       where llama.cpp is built and its files lie (build/peers)
#     --model MODEL   the model folder (DIR/bench-moe, made if it is missing)
#     --threads N     of both (all)
#     --repeats N     rounds; medians are compared (3)
#     --python P      a Python with torch and transformers (one made below DIR)
#
# prepare needs pip, cmake and a C++ compiler, takes half an hour on two cores and 8 GB of
# disk; measure wants the machine for itself. Where two of llama.cpp's settings are tried
# (flash attention for decoding, pieces of 512 or 1024 tokens) the faster one counts.
cd "$(dirname "$0")/.." || exit 1
set -uo pipefail
. bench/peers.bash

# Lines of WHO, what, how, tokens per second.
ours() {
    "$TANDEM" bench "$model" --threads "$threads" --batch 1 --prompt 1024 --json |
        python3 -c '
import json, sys
for p in json.load(sys.stdin)["points"]:
    print("tandem", p["kind"], "-", p["tokens_per_second"])'
}

theirs() {
    "$bin/llama-bench" -m "$gguf/$1.gguf" -t "$threads" -r 1 -o jsonl "${@:2}" \
        2>>"$log" | python3 -c '
import json, sys
for line in sys.stdin:
    p = json.loads(line)
    print(sys.argv[1], "decode" if p["n_gen"] else "prefill",
          "fa=%s,ub=%s" % (int(p["flash_attn"]), p["n_ubatch"]), p["avg_ts"])' "$1"
}

round() {
    ours &&
        theirs q8_0 -p 0 -n 24 -d 1024 -fa off,on &&
        theirs q8_0 -p 1024 -n 0 -fa on &&
        theirs bf16 -p 1024 -n 0 -fa on -ub 512,1024
}

report() {
    {
        for what in "$model" "$gguf/q8_0.gguf" "$gguf/bf16.gguf"; do
            "$python" bench/peer_model.py active "$llama" "$what" || exit
        done
        cat "$1"
    } | python3 -c '
import collections, statistics, sys
lines = [line.split() for line in sys.stdin]
(n, here), (nq, q8), (nb, bf16) = [map(int, line) for line in lines[:3]]
seen = collections.defaultdict(list)
for who, what, how, speed in lines[3:]:
    seen[who, what, how].append(float(speed))
best = {}
for (who, what, how), speeds in sorted(seen.items()):
    m = statistics.median(speeds)
    print("%-7s %-8s %-13s %8.1f tokens/s   (%.1f to %.1f, %d times)" % (
        who, what, how, m, min(speeds), max(speeds), len(speeds)))
    best[who, what] = max(m, best.get((who, what), 0))
print("weights of a token: tandem %d in %.3f GB, q8_0 %d in %.3f GB, bf16 %d in %.3f GB"
      % (n, here / 1e9, nq, q8 / 1e9, nb, bf16 / 1e9))
bad = len({n, nq, nb}) > 1
print("not equal: the shapes differ" if bad else "equal numbers of weights")
def ratio(text, what, peer, wanted, scale=1.0):
    global bad
    r = best["tandem", what] / best[peer, what] * scale
    bad = bad or r < wanted
    verdict = ("wanted %.1f: %s" % (wanted, "met" if r >= wanted else "MISSED")
               if wanted else "reported")
    print("%-42s %.2fx   %s" % (text, r, verdict))
ratio("decode against its Q8_0", "decode", "q8_0", 1.0)
ratio("the same by bytes moved", "decode", "q8_0", 0, here / q8)
ratio("prompt of 1024 against its BF16", "prefill", "bf16", 1.3)
ratio("prompt of 1024 against its Q8_0", "prefill", "q8_0", 0)
sys.exit(bad)'
}

options "$@"
[ ${#words[@]} -gt 0 ] || words=(prepare measure)
for word in "${words[@]}"; do
    case $word in
    prepare) prepare ;;
    measure)
        make_python || fail "cannot make a Python environment, see $log"
        speeds=$(mktemp)
        trap 'rm -f "$speeds"' EXIT
        for _ in $(seq "$repeats"); do
            round >>"$speeds" || fail "a measurement failed, see $log"
        done
        report "$speeds" || exit
        ;;
    *) fail "$word: prepare or measure" ;;
    esac
done
