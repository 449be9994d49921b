#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# tandem explain: exit codes, files, folders, standard input, packed logs, all forms of the
# verdict, and its speed on a log of 5 MB.
. tests/e2e/common.bash
cases=tests/cases/explain

tandem explain $cases/five/4-memory-monitor/head.log
check named test "$code" -eq 0
check cause says "$stdout" '^cause +a worker of node 192\.168\.200\.13 was killed .*113\.78 of 119\.70 GB.*\[certain\]$'
check when says "$stdout" '^when +during CUDA graph capture, after the weights were loaded \(49\.20 GiB of KV'
check evidence says "$stdout" '^evidence +head\.log:10 '
check followed says "$stdout" '^followed +engine core failed \(head\.log:8'
check fix says "$stdout" '^fix .*--gpu-memory-utilization 0\.80'
check no_colour test "$(grep -c $'\x1b' <<<"$stdout")" -eq 0

tandem explain --all $cases/five/3-store
check timeline says "$stdout" '^ +\+[0-9.]+ s +192\.168\.200\.13 rank 1 +! head\.log'

tandem explain $cases/healthy/ray
check healthy test "$code" -eq 3
check nothing says "$stdout" '^cause +none: nothing in these files speaks of a failure'

"$TANDEM" explain - <$cases/five/1-executor-whole/head.log >"$box/stdout" 2>"$box/stderr"
code=$? stdout=$(cat "$box/stdout")
check stdin test "$code" -eq 0
check stdin_evidence says "$stdout" '^evidence +stdin:9 '

gzip -c $cases/five/2-placement/head.log >"$box/head.log.gz"
tandem explain "$box/head.log.gz" $cases/five/2-placement/ray_start.log
check gzip test "$code" -eq 0
check address says "$stdout" '10\.20\.0\.12.*192\.168\.200\.12.*\[certain\]'

tandem explain --json $cases/tandem/peer.jsonl
check json python3 - "$box/stdout" <<'EOF'
import json, sys
d = json.load(open(sys.argv[1]))
assert (d["kind"], d["grade"], d["host"], d["rank"], d["phase"]) == \
    ("truncated", "certain", "spark-2", 1, "load"), d
assert d["evidence"][0]["line"] == 4 and d["candidates"][0]["kind"] == "truncated"
assert {"family", "followers", "fix", "missing"} <= d.keys()
EOF

tandem explain --all $cases/tandem/peer.jsonl
check last_of_a_rank says "$stdout" '^last +rank 1 on spark-2, line [0-9]+ of peer\.jsonl'

tandem explain --json --all $cases/five/3-store
check json_timeline python3 - "$box/stdout" <<'EOF'
import json, sys
list = json.load(open(sys.argv[1]))["timeline"]
assert list[0]["seconds"] == 0 and {m["what"] for m in list} >= {"failure", "step"}, list
assert any(m["host"] == "192.168.200.13" and m["rank"] == 1 and m["file"].endswith("head.log")
           and m["what"] == "failure" and m["text"] for m in list), list
EOF

tandem explain
check usage test "$code" -eq 2
tandem explain "$box/nothing"
check missing test "$code" -eq 2
check missing_error says "$stderr" '^error +cannot open .*nothing'

for _ in $(seq 60); do cat $cases/five/*/*.log $cases/healthy/*/*.log; done | head -c 5000000 >"$box/5m.log"
start=$(date +%s%N)
tandem explain "$box/5m.log"
ms=$((($(date +%s%N) - start) / 1000000))
check five_megabytes test "$ms" -lt 2000 # 40 ms of work; the host may be busy

exit "$not_ok"
