#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# tandem bench --url: what it counts, and what it says of a server that refuses; and
# models that consist of a configuration alone.
. tests/e2e/common.bash
. tests/e2e/server.bash

tandem bench --url http://127.0.0.1:9
check nobody test "$code" -eq 1
check nobody_said says "$stderr" '^error +nothing answers at http://127\.0\.0\.1:9$'
tandem bench --concurrency 8,x
check bad_levels test "$code" -eq 2

# a server that does not answer yet
python3 - "$box/port" 2>/dev/null <<'EOT' &
import http.server, sys
class Starting(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_error(503)
with http.server.HTTPServer(("127.0.0.1", 0), Starting) as s:
    open(sys.argv[1] + "~", "w").write(str(s.server_port))
    __import__("os").rename(sys.argv[1] + "~", sys.argv[1])
    s.handle_request()
EOT
for _ in $(seq 100); do
    [ -f "$box/port" ] && break
    sleep 0.1
done
tandem bench --url "http://127.0.0.1:$(cat "$box/port")"
check starting says "$stderr" '^cause   it answers with status 503'

# options that a form does not use are refused by name, with what to use instead
refused() {
    local said=$1
    shift
    tandem bench "$@"
    check "refuses$*" test "$code" -eq 2
    check "refuses$*:fix" says "$stderr" "$said"
}
refused '^fix +give --concurrency, or give a MODEL$' --batch 1
refused '^fix +give --prompt-tokens, or give a MODEL$' --url http://127.0.0.1:9 --context 64
refused '^error +--device is not for a bench of a server$' --device cpu
refused '^fix +give --batch, or leave out the MODEL$' models/lexicon -c 8
refused '^error +--url is not for a bench of a model$' models/lexicon -u http://127.0.0.1:9
refused '^error +unknown option --max-model-len$' models/lexicon --max-model-len 64
for option in threads=1 memory=1G tp=2 hosts=a,b plot=x cpu=ref numerics=f32 weights=random \
    max-num-batched-tokens=64; do
    refused "^error +--${option%=*} is not for a bench of a server$" "--$option"
done
for option in requests=1 completions=true max-tokens=1 prompt-tokens=8 api-key=x; do
    refused "^error +--${option%=*} is not for a bench of a model$" models/lexicon "--$option"
done
for list in x ',' '1,' ',1' '1,,2' -1 0 1.5 99999 ' 1' "$(seq -s , 17)"; do
    tandem bench --concurrency "$list"
    check "bad_levels:$list" test "$code" -eq 2
    tandem bench models/lexicon --batch "$list"
    check "bad_batches:$list" test "$code" -eq 2
    check "bad_batches_said:$list" says "$stderr" '^cause +expected at most 16 numbers from 1 to 4096'
done
TANDEM_CONCURRENCY=2 tandem bench --device cpu --threads 1 --batch 1 --prompt 64 models/lexicon
check environment_is_for_all test "$code" -eq 0

mkdir "$box/shape"
cp models/lexicon/config.json "$box/shape"
tandem bench --device cpu --prompt 64 --batch 1 "$box/shape"
check no_weights test "$code" -eq 1
tandem bench --device cpu --prompt 64 --batch 1 --weights random --json "$box/shape"
check random_weights test "$code" -eq 0
check counts_bytes python3 - "$box/stdout" <<'EOT'
import json, sys
d = json.load(open(sys.argv[1]))
assert [(p["kind"], p["batch"], p["context"]) for p in d["points"]] == [
    ("prefill", 1, 64), ("decode", 1, 64)], d
for p in d["points"]:
    assert p["seconds"] > 0 and p["bytes"] > 1e6 and p["limits"]["read"] > 0, p
    assert p["by_op"]["delta"]["bytes"] > 0, p
EOT
tandem bench --device cpu --prompt 64 --context 128,64 --batch 2,1 --threads 1 models/lexicon
check contexts test "$(grep -oE '^(prefill|decode) +batch [0-9]+, context [0-9]+' \
    <<<"$stdout" | tr -s ' \n' ' ')" = "prefill batch 1, context 64 decode batch 2, context \
128 decode batch 1, context 128 decode batch 2, context 64 decode batch 1, context 64 "
tandem bench --device cpu --threads 1 --batch 1 --prompt 64 --plot "$box/bars.svg" models/lexicon
check plots says "$(tail -1 "$box/bars.svg")" '^</svg>$'
echo "old and longer than nothing" >>"$box/bars.svg"
tandem bench --device cpu --threads 1 --batch 1 --prompt 64 --plot "$box/bars.svg" models/lexicon
check plots_again test "$(grep -c '<svg\|old' "$box/bars.svg")" -eq 1
tandem bench --device cpu --batch 1 --prompt 64 --plot "$box/no/such.svg" models/lexicon
check plots_nowhere test "$code" -eq 1 -a -z "$stdout"
check plots_nowhere_why says "$stderr" '^error   cannot write .*such\.svg: No such file or directory$'
if [ -w /dev/full ]; then
    tandem bench --device cpu --threads 1 --batch 1 --prompt 64 --plot /dev/full models/lexicon
    check plots_full_disk says "$stderr" '^error   cannot write /dev/full: No space'
fi
tandem bench --device cpu --context x models/lexicon
check bad_context test "$code" -eq 2
tandem bench --device cpu --prompt 4096 models/lexicon
check long_context test "$code" -eq 2
check long_context_fix says "$stderr" '^fix .*at most 4032$'
sed 's/"max_position_embeddings": *[0-9]*/"max_position_embeddings": 64/' models/lexicon/config.json \
    >"$box/shape/config.json"
tandem bench --device cpu --prompt 1 --weights random "$box/shape"
check short_context_fix says "$stderr" '^fix +measure a model with a longer context$'
tandem bench --device cpu --batch 99999 models/lexicon
check many_sequences test "$code" -eq 2
tandem bench --device cuda:99 --prompt 64 models/lexicon
check no_gpu says "$stderr" '^error .*(there is no GPU 99|libtandem-cuda\.so|NVIDIA)'
for name in 35B-A3B 122B-A10B; do
    tandem bench --device cpu --weights random --memory 1G "bench/configs/Qwen3.5-$name-FP8"
    check "refuses_$name" test "$code" -eq 1
    check "plans_$name" says "$stderr" 'needs (34|116)\.[0-9] GiB for one sequence'
done

# one of the operations that bench/bars.py reads
"${BUILD:-build}/benchops" --op norm --numerics bf16 --json >"$box/stdout"
check times_operations python3 - "$box/stdout" <<'EOT'
import json, sys
for line in open(sys.argv[1]):
    o = json.loads(line)
    assert o["op"].startswith("norm, ") and o["seconds"] > 0 and o["bytes"] > 0, o
    assert o["read_share"] > 0 and o["numerics"] == "bf16", o
EOT
check refuses_unknown test "$("${BUILD:-build}/benchops" --nonsense x 2>&1 | cut -c1-6)" = usage:

export TANDEM_API_KEY=sesame
check starts serve models/lexicon --max-model-len 512
tandem bench --url "$url" --concurrency 1,3 --requests 6 --prompt-tokens 100 \
    --max-tokens 9 --json
check runs test "$code" -eq 0
check counts python3 - "$box/stdout" <<'EOT'
import json, sys
d = json.load(open(sys.argv[1]))
assert d["model"] == "lexicon" and d["ignore_eos"] and d["usage"], d
assert [l["concurrency"] for l in d["levels"]] == [1, 3]
for l in d["levels"]:
    assert l["answered"] == l["requests"] == 6 and l["errors"] == []
    assert l["output_tokens"] == 54, l
    assert 85 <= l["prompt_tokens"] / 6 <= 115, l
    for name in ("first_token_ms", "inter_token_ms", "whole_ms"):
        s = l[name]
        assert 0 <= s["p50"] <= s["p90"] <= s["p99"], l
    assert 0 < l["first_token_ms"]["p50"] <= l["whole_ms"]["p50"]
EOT

tandem bench --url "$url" --completions --concurrency 2 --requests 4 --max-tokens 5
check completions says "$stdout" '^at 2 +4 of 4 answered .* tokens/s \(5\.0 each\)'

tandem bench --url "$url" --concurrency 1 --requests 2 --prompt-tokens 2000
check too_long test "$code" -eq 1
check too_long_said says "$stdout" '^ +2 x status 400: '

TANDEM_API_KEY=wrong tandem bench --url "$url"
check key says "$stderr" '^error .*wants an API key$'
check key_why says "$stderr" '^cause   the one that was sent is not right$'

check stops stop_server
exit "$not_ok"
