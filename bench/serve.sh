#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What serving costs, measured from outside with `tandem bench --url` and fresh prompts.
#
#   bench/serve.sh [OPTIONS] [prepare] [peer] [front] [idle]     without a word: all
#
#     peer    `tandem serve` against llama.cpp's server, same model and threads, in turn:
#             tokens per second, time to the first token, for each concurrency
#     front   one request at a time against `tandem bench MODEL`: what HTTP, JSON and the
#             second process take, for the model and for models/lexicon
#     idle    1,000 streams of /startupz that nobody feeds: memory and time of a step
#
#     --dir DIR, --model MODEL, --threads N, --repeats N, --python P     as in peers.sh
#     --concurrency N,N    of peer (1,8,32)
#     --kind q8_0|bf16     weights of llama.cpp's server (q8_0)
#
# llama.cpp's server gets one slot for each request on its way, continuous batching, flash
# attention, and nothing that fresh prompts cannot use: no prompt cache, no checkpoints.
cd "$(dirname "$0")/.." || exit 1
set -uo pipefail
. bench/peers.bash
prompt=128 answer=64
box=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill -9 "$server" 2>/dev/null; rm -rf "$box"' EXIT
export HOME=$box # no tandem.conf of the user, no logs in his home

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])'
}

# start COMMAND...: a server on $port; waits until it is ready
start() {
    "$@" </dev/null >"$box/server.log" 2>&1 &
    server=$!
    url=http://127.0.0.1:$port
    for _ in $(seq 1200); do
        curl -sf --max-time 5 "$url/health" >"$box/health" && return
        kill -0 "$server" 2>/dev/null || break
        sleep 0.1
    done
    tail -n 20 "$box/server.log" >&2
    fail "the server did not start"
}

stop() {
    kill -TERM "$server"
    wait "$server" 2>"$box/wait"
    server=
}

start_tandem() { # MODEL [OPTIONS...]
    port=$(free_port)
    start "$TANDEM" serve "$1" --port "$port" --threads "$threads" --device cpu "${@:2}"
}

start_llama() { # SLOTS
    port=$(free_port)
    start "$bin/llama-server" -m "$gguf/$kind.gguf" --port "$port" -t "$threads" \
        -np "$1" -c $(($1 * 512)) -b 2048 -ub 512 -fa on -cram 0 -ctxcp 0 \
        --no-cache-prompt --alias "$name"
}

# drive CONCURRENCY REQUESTS PROMPT ANSWER: the JSON of `tandem bench --url`
drive() {
    "$TANDEM" bench --url "$url" --completions --concurrency "$1" --requests "$2" \
        --prompt-tokens "$3" --max-tokens "$4" --json
}

# ---- peer ------------------------------------------------------------------------------

peer() {
    local n requests
    for n in ${levels//,/ }; do
        requests=$((n == 1 ? 8 : n < 16 ? 3 * n : 2 * n))
        for _ in $(seq "$repeats"); do
            start_tandem "$model" --max-num-seqs "$n" --max-model-len 512
            drive "$n" $requests $prompt $answer >>"$box/tandem" || fail "no answers"
            stop
            start_llama "$n"
            drive "$n" $requests $prompt $answer >>"$box/$kind" || fail "no answers"
            stop
        done
    done
    python3 - "$box/tandem" "$box/$kind" <<'EOF'
import collections, json, statistics, sys

def read(path):
    """Medians by concurrency: tokens/s, first token, between tokens."""
    seen = collections.defaultdict(list)
    for line in open(path, encoding="utf-8"):
        for l in json.loads(line)["levels"]:
            if l["answered"] != l["requests"]:
                print(path, "did not answer all:", l["errors"])
            seen[l["concurrency"]].append((
                l["output_tokens_per_second"], l["first_token_ms"]["p50"],
                l["inter_token_ms"]["p50"]))
    return {n: [statistics.median(x) for x in zip(*rows)] for n, rows in seen.items()}

us, them, bad = read(sys.argv[1]), read(sys.argv[2]), False
for n in us:
    a, b, wanted = us[n], them[n], 1.0 if n == 1 else 1.2
    met = a[0] / b[0] >= wanted and a[1] <= b[1]
    bad = bad or not met
    print("at %-3d output %.1f against %.1f tokens/s: %.2fx (wanted %.1f)" % (
        n, a[0], b[0], a[0] / b[0], wanted), end="")
    print(", first token %.0f against %.0f ms (p50, wanted: not more)" % (a[1], b[1]),
          end="")
    print(", between tokens %.1f against %.1f ms (p50): %s" % (
        a[2], b[2], "met" if met else "MISSED"))
sys.exit(bad)
EOF
}

# ---- front -----------------------------------------------------------------------------

front_of() { # MODEL WANTED ANSWER
    local context=$((prompt + $3 / 2))
    rm -f "$box/inside" "$box/outside"
    for _ in $(seq "$repeats"); do
        "$TANDEM" bench "$1" --threads "$threads" --device cpu --batch 1 \
            --prompt "$prompt,$context" --json >>"$box/inside" || return
        start_tandem "$1"
        drive 1 8 "$prompt" "$3" >>"$box/outside" || return
        stop
    done
    python3 - "$box/inside" "$box/outside" "$1" "$2" "$3" <<'EOF'
import json, statistics, sys
inside = [json.loads(line)["points"] for line in open(sys.argv[1], encoding="utf-8")]
outside = [json.loads(line)["levels"][0] for line in open(sys.argv[2], encoding="utf-8")]
wanted, answer = float(sys.argv[4]), int(sys.argv[5])

def inner(kind, which):
    """Seconds by `tandem bench`; which: the shorter or the longer context."""
    return statistics.median(
        which((p["context"], p["seconds"]) for p in points if p["kind"] == kind)[1]
        for points in inside)

step = inner("decode", max)
gap = statistics.median(l["inter_token_ms"]["mean"] for l in outside) / 1000
whole = statistics.median(l["output_tokens_per_second"] for l in outside)
best = answer / (inner("prefill", min) + (answer - 1) * step)
print("%s: decode %.1f tokens/s served, %.1f inside: %.1f %% (wanted %.0f)" % (
    sys.argv[3], 1 / gap, 1 / step, 100 * step / gap, wanted))
print("%s: whole answers %.1f tokens/s served, %.1f at best: %.1f %%" % (
    sys.argv[3], whole, best, 100 * whole / best))
sys.exit(step / gap * 100 < wanted)
EOF
}

front() {
    local bad=0
    front_of "$model" 95 "$answer" || bad=1
    front_of models/lexicon 70 1000 || bad=1
    return $bad
}

# ---- idle ------------------------------------------------------------------------------

idle() {
    start_tandem models/lexicon
    python3 bench/idle.py "$url" "$server" --streams 1000 --repeats "$repeats"
    local code=$?
    stop
    return $code
}

options "$@"
[ ${#words[@]} -gt 0 ] || words=(prepare peer front idle)
bad=0
for word in "${words[@]}"; do
    case $word in
    prepare | peer | front | idle) "$word" || bad=1 ;;
    *) fail "$word: prepare, peer, front or idle" ;;
    esac
done
exit $bad
