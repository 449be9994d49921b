#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What splitting costs: decode steps of two ranks on one thread each against one rank on
# two threads, on this host, in turns; then the sums alone.
#
#   bench/ranks.sh MODEL [ROUNDS [BATCHES [RANKS]]]
#
# For each number of sequences: the tokens per second of every round, the ratio of the
# medians, and the share of the split step that goes into sums over ranks (of that, part is
# waiting for the other rank).
set -euo pipefail
cd "$(dirname "$0")/.."
model=${1:?usage: bench/ranks.sh MODEL [ROUNDS [BATCHES [RANKS]]]}
rounds=${2:-3} batches=${3:-1,8} ranks=${4:-2}
build=${BUILD:-build}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpi=(mpirun --oversubscribe --bind-to none --mca pml ob1 --mca btl "self,vader" -np "$ranks")
measure=(bench "$model" --prompt 64 --batch "$batches" --json)

for ((i = 1; i <= rounds; i++)); do
    "$build/tandem" "${measure[@]}" --threads "$ranks" >"$out/one.$i"
    "${mpi[@]}" "$build/tandem" "${measure[@]}" --threads 1 --world "$ranks" >"$out/split.$i"
done
python3 - "$out" "$rounds" "$ranks" <<'PY'
import json, statistics, sys

folder, rounds, ranks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def points(kind):
    runs = [json.load(open(f"{folder}/{kind}.{i + 1}")) for i in range(rounds)]
    decode = [[p for p in r["points"] if p["kind"] == "decode"] for r in runs]
    return list(zip(*decode))


for one, split in zip(points("one"), points("split")):
    rates = [[p["tokens_per_second"] for p in kind] for kind in (one, split)]
    share = statistics.median(p["by_op"]["all_reduce"]["seconds"] / p["seconds"] for p in split)
    a, b = (statistics.median(r) for r in rates)
    print(f"decode of {one[0]['batch']}: one rank, {ranks} threads "
          f"{' '.join(f'{x:.1f}' for x in rates[0])} tokens/s; {ranks} ranks "
          f"{' '.join(f'{x:.1f}' for x in rates[1])}; ratio {b / a:.2f}; "
          f"sums {100 * share:.1f} % of the step")
PY
echo "sums of $ranks ranks through shared memory, then over TCP"
"${mpi[@]}" "$build/bench_comm" "$ranks"
mpirun --oversubscribe --bind-to none --mca pml ob1 --mca btl "self,tcp" -np "$ranks" \
    "$build/bench_comm" "$ranks"
