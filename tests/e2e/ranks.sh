#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Ranks as processes under mpirun, on this host: answers equal to those of one rank and to
# the reference's, what is refused before loading, and ranks that are killed or stopped
# while they work or wait.
. tests/e2e/common.bash

model=models/lexicon
question='What does the word lighthouse mean?'
build=$(dirname "$TANDEM")
names='answer sampled four dense sums illegal mixed alone killed stopped idle joining interrupt'

if ! command -v mpirun >/dev/null || [ ! -f "$build/libtandem-mpi.so" ]; then
    for name in $names; do echo "skip $name: no Open MPI"; done
    exit 0
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# ranks N ARGS...: like tandem, as N ranks on one thread each
mpi=(mpirun --oversubscribe --bind-to none --mca pml ob1 --mca btl "self,vader"
    --mca mpi_yield_when_idle 1 --mca odls_base_sigkill_timeout 0)
ranks() {
    local n=$1
    shift
    timeout 120 "${mpi[@]}" -np "$n" "$TANDEM" "$@" --world "$n" --threads 1 \
        >"$box/stdout" 2>"$box/stderr" </dev/null
    code=$?
    stdout=$(cat "$box/stdout") stderr=$(cat "$box/stderr")
}

# ---- the same answers ----

tandem run "$model" "$question" -t 0 --no-think --threads 1
one=$stdout
ranks 2 run "$model" "$question" -t 0 --no-think --stats
check answer test "$(tr -d '\r' <<<"$stdout")" = "$one"
check answer_code test "$code" -eq 0
check answer_stats says "$stderr" '^ranks   2; [0-9]+ sums of [0-9.]+ us each'
ranks 2 run "$model" "$question" --seed 5 --temperature 1.3 --top-k 0 --repetition-penalty 0.9
first=$stdout
ranks 2 run "$model" "$question" --seed 5 --temperature 1.3 --top-k 0 --repetition-penalty 0.9
check sampled test "$stdout" = "$first"
check sampled_code test "$code" -eq 0

# Models that can be split over four, random ones: steps run, of prompts and of tokens.
"$build/make_model" --preset tiny-moe --hidden 128 --heads 8 --kv-heads 2 --head-dim 128 \
    --gdn-key-heads 4 --gdn-value-heads 12 --gdn-key-dim 128 --gdn-value-dim 128 \
    --experts 4 --top-k 2 --moe 512 --shared 512 --vocab 1009 "$box/moe" >/dev/null
"$build/make_model" --preset tiny-dense --heads 8 --kv-heads 4 --head-dim 64 \
    --gdn-key-heads 4 --gdn-value-heads 4 --intermediate 384 --vocab 1009 "$box/dense" >/dev/null
ranks 4 bench "$box/moe" --prompt 100 --batch 3 --json
check four says "$stdout" '"ranks":4.*"all_reduce":\{"seconds":0\.0[0-9]*[1-9]'
ranks 4 bench "$box/dense" --prompt 100 --batch 3 --json
check dense says "$stdout" '"ranks":4.*"all_reduce":\{"seconds":0\.0[0-9]*[1-9]'

# Every size of sum, compared over the ranks.
for n in 2 4; do
    timeout 120 "${mpi[@]}" -np "$n" "$build/bench_comm" "$n" >"$box/stdout" 2>"$box/stderr"
    code=$?
    check "sums_over_$n" test "$code" -eq 0
done

# The reference's data on ranks that are processes: each makes the same calls, and all of
# them have to be right. (On ranks that are threads: the same tests, by themselves.)
golden() {
    local n=$1 name=$2
    EVAL=16 UTIL_WORLD=$n timeout 300 "${mpi[@]}" -x EVAL -x UTIL_WORLD -np "$n" \
        "$build/tests/$name" >"$box/stdout" 2>&1
    code=$? stdout=$(grep -a PASSED "$box/stdout")
    check "$name-over_$n" test "$code" -eq 0 -a "$(grep -c . <<<"$stdout")" -eq "$n"
}
for name in model_golden model_random model_eval; do
    if [ -x "$build/tests/$name" ]; then golden 2 "$name"; else echo "skip $name: not built"; fi
done
[ ! -x "$build/tests/model_random" ] || golden 4 model_random

# ---- refusals ----

ranks 3 run "$model" "$question"
check illegal test "$code" -eq 70
check illegal_names_legal_ones says "$stderr" '^fix .*: 1, 2$'
ranks 4 run "$model" "$question"
check illegal_again test "$code" -eq 70
timeout 60 "${mpi[@]}" -np 1 "$TANDEM" run "$model" hi --world 2 : \
    -np 1 "$TANDEM" run "$model" hi --world 2 --numerics f32 >"$box/stdout" 2>"$box/stderr" </dev/null
code=$? stderr=$(cat "$box/stderr")
check same_numerics_as_rank_0 test "$code" -eq 0
cp -r "$model" "$box/other"
sed -i 's/"rms_norm_eps": *[0-9.e-]*/"rms_norm_eps": 1e-5/' "$box/other/config.json"
timeout 60 "${mpi[@]}" -np 1 "$TANDEM" run "$model" hi --world 2 : \
    -np 1 "$TANDEM" run "$box/other" hi --world 2 >"$box/stdout" 2>"$box/stderr" </dev/null
code=$? stderr=$(cat "$box/stderr")
check mixed test "$code" -eq 70
check mixed_says says "$stderr" 'rank 1 on .* has another model than rank 0 on '
tandem run "$model" hi --world 2
check alone test "$code" -eq 74
check alone_says says "$stderr" '^error +MPI has started 1 ranks, 2 are expected'

# ---- a server that is told to stop while it looks for its hosts ----

printf '#!/bin/sh\nexec sleep 60\n' >"$box/ssh"
chmod +x "$box/ssh"
"$TANDEM" serve "$model" --port 0 --hosts 127.0.0.1,192.0.2.99 --ssh "$box/ssh" \
    >"$box/stdout" 2>"$box/stderr" </dev/null &
server=$!
for _ in $(seq 100); do
    grep -q '^listen' "$box/stderr" && break
    sleep 0.1
done
sleep 0.3
began=$SECONDS
kill -TERM "$server"
wait "$server"
code=$? seconds=$((SECONDS - began)) stderr=$(cat "$box/stderr")
check joining test "$code" -eq 0
check joining_at_once test "$seconds" -le 3

# ---- Ctrl-C while ranks load or measure, the end of a time limit, a terminal that goes:
# the end that a shell expects, and no error ----

interrupt() { # SIGNAL SECONDS CODE
    timeout --foreground --preserve-status -k 30 -s "$1" "$2" "$TANDEM" bench "$model" \
        --tp 2 --prompt 2048,2048,2048,2048 --batch 1,2,3,4,5,6,7,8 \
        >"$box/stdout" 2>"$box/stderr" </dev/null
    code=$? stderr=$(cat "$box/stderr")
    check "interrupt_$1_after_$2" test "$code" -eq "$3"
    check "interrupt_$1_after_${2}_is_no_error" test -z "$(grep '^error' "$box/stderr")"
}
if [ "$(nproc)" -ge 2 ]; then
    interrupt INT 0.3 130
    interrupt INT 1.5 130
    interrupt TERM 1 143
    interrupt HUP 1 129
else
    echo "skip interrupt: one processor"
fi

# ---- faults ----

all_gone() {
    local pid
    for pid; do
        ! grep -qs '^State:.*[RSDT] ' "/proc/$pid/status" || return 1
    done
}

# fault SIGNAL RANK: to a rank of a long benchmark; sets code and seconds
fault() {
    "${mpi[@]}" -np 2 "$TANDEM" "${work[@]}" --world 2 --threads 1 --rank-timeout 2 \
        >"$box/stdout" 2>"$box/stderr" <"$box/quiet" &
    local job=$! pids=()
    for _ in $(seq 100); do
        read -ra pids 2>/dev/null <"/proc/$job/task/$job/children" || true
        [ ${#pids[@]} -eq 2 ] && grep -q '"phase":"serve"' "$box/log" 2>/dev/null && break
        sleep 0.1
    done
    sleep 0.5
    local began=$SECONDS
    kill "-$1" "${pids[$2]}"
    wait "$job"
    code=$? seconds=$((SECONDS - began)) stderr=$(cat "$box/stderr") gone=0
    for _ in $(seq 50); do # mpirun does not wait for those that it kills
        all_gone "${pids[@]}" && gone=1 && break
        sleep 0.1
    done
    rm -f "$box/log"
}
mkfifo "$box/quiet"
exec 9<>"$box/quiet" # open, and nothing comes
work=(bench "$model" --prompt 1024 --batch "1,2,4,8,16,1,2,4,8,16,1,2,4,8,16,32"
    --event-log "$box/log")
fault KILL 1
check killed test "$code" -eq 137
check killed_soon test "$seconds" -le 10 -a "$gone" -eq 1
fault STOP 1
check stopped test "$code" -eq 74
check stopped_soon test "$seconds" -le 20 -a "$gone" -eq 1
check stopped_names says "$stderr" '^error   waited [0-9.]+ s for rank 1 on '
fault STOP 0
check stopped_first test "$code" -eq 74
check stopped_first_names says "$stderr" '^error   waited [0-9.]+ s for rank 0 on '
work=(run "$model" --event-log "$box/log") # waits for a prompt before it loads
fault STOP 1
check idle test "$code" -eq 74
check idle_names says "$stderr" '^error   waited [0-9.]+ s for rank 1 on '

exit $not_ok
