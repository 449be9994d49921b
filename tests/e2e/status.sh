#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# tandem status: a server that runs, one that starts, none, and what is none of ours.
. tests/e2e/common.bash
. tests/e2e/server.bash

tandem status --url http://127.0.0.1:9
check nobody test "$code" -eq 1
check nobody_said says "$stderr" '^error +nothing answers at http://127\.0\.0\.1:9$'
check nobody_fix says "$stderr" '^fix .*tandem serve'
tandem status --url 'ftp://x'
check bad_address test "$code" -eq 2

check starts serve models/lexicon
tandem status --url "$url/v1/"
check runs test "$code" -eq 0
check model says "$stdout" '^model +lexicon$'
check state says "$stdout" '^state +ready, after [0-9.]+ s \(.*load [0-9.]+.*\)$'
check requests says "$stdout" '^requests 0 running of 32, 0 waiting of 1024; 0 answered'
check cache says "$stdout" '^cache +0 % of [1-9][0-9]* blocks of 64 tokens'
check engine says "$stdout" '^engine +1 rank, .* context 4096 tokens; lost 0 times$'

tandem status --url "$url" --json
check json says "$stdout" '^\{"model":"lexicon",.*"ready":true.*\}$'

timeout 3 "$TANDEM" status --url "$url" --watch --json >"$box/watched"
check watches test "$(wc -l <"$box/watched")" -ge 2

read -r engine <"/proc/$server/task/$server/children"
kill -9 "$engine"
for _ in $(seq 100); do
    tandem status --url "$url"
    says "$stdout" '^error ' && break
done
check loss_said says "$stdout" '^error +the engine '

check stops stop_server

# who may ask is said where others can
for host in 127.0.0.1 localhost; do
    check "listens_$host" listen models/lexicon --host "$host"
    check "own_$host" test -z "$(grep '^note' "$box/server.log")"
    stop_server
done
check listens_all listen models/lexicon --host 0.0.0.0
check no_key says "$(cat "$box/server.log")" '^note    whoever reaches that address may ask: .*TANDEM_API_KEY'
stop_server
TANDEM_API_KEY=sesame listen models/lexicon --host 0.0.0.0
check with_key test -z "$(grep '^note' "$box/server.log")"
stop_server
exit "$not_ok"
