#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# tandem inspect: what it says of a good model, and one error with a remedy for what is
# none.
. tests/e2e/common.bash

tandem inspect models/lexicon
check exit test "$code" -eq 0
check layers says "$stdout" '^layers +8 of width 256: 6 Gated DeltaNet, 2 full attention$'
check parameters says "$stdout" '^parameters +35\.217 million, draft head 4\.004 million'
check weights says "$stdout" '43645880 bytes\), 1063 tensors in 3 files$'
check ranks says "$stdout" '^ranks +2 18\.88 MiB each$'
check draft says "$stdout" '^draft head +in the files .*, not loaded$'
check formats says "$stdout" '^formats +F32 1\.69 KiB, BF16 '
check no_ranks says "$stdout" '^ranks +3 not possible: 4 query heads'

tandem inspect models/lexicon --tensors
check first_tensor says "$(grep -m1 ' model-' <<<"$stdout")" ' model-00001-of-'
check tensor_columns test "$(grep ' model-' <<<"$stdout" | awk '{print index($0, " model-")}' | sort -u | wc -l)" -eq 1
check tensor_line says "$stdout" '^mtp\.fc\.weight +BF16 +\[256, 512\] +262144 '

tandem inspect models/lexicon --tensors --json
check json python3 - "$box/stdout" <<'EOF'
import json, sys
d = json.load(open(sys.argv[1]))
assert d["config"]["experts"] == 16 and d["parameters"]["main"] == 35216608
assert d["bytes"]["weights"] == sum(d["bytes"]["by_kind"].values()) == 43645880
assert len(d["tensors"]) == d["tensor_count"] == 1063 and d["unknown"] == []
assert [r["ranks"] for r in d["ranks"] if "bytes_each" in r] == [1, 2]
EOF

tandem inspect Qwen/Qwen3.5-122B-A10B-FP8
check hub_id test "$code" -eq 1
check hub_fix says "$stderr" '^fix +hf download Qwen/Qwen3.5-122B-A10B-FP8 --local-dir '

tandem inspect "$box/nothing"
check missing test "$code" -eq 1
check missing_error says "$stderr" '^error +there is no model directory '

tandem inspect
check usage test "$code" -eq 2

cp -r models/lexicon "$box/broken"
chmod -R u+w "$box/broken"
truncate -s 1000000 "$box/broken/model-00002-of-00003.safetensors"
tandem inspect "$box/broken"
check truncated test "$code" -eq 1
check truncated_error says "$stderr" '00002-of-00003.safetensors has 1000000 bytes, its'

exit "$not_ok"
