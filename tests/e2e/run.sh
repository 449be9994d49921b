#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# tandem run with the embedded model: one answer from an argument and from a pipe, what
# is written where, JSON, wrong usage, and a conversation on a terminal.
. tests/e2e/common.bash

model=models/lexicon
question='What does the word lighthouse mean?'
answer='^lighthouse \(noun\): a tower with a light that gives warning of shoals to passing ships$'

# ---- one answer ----

tandem run --no-think "$model" "$question"
check answer test "$code" -eq 0
check answer_text says "$stdout" "$answer"
check answer_alone test "$(grep -c . <<<"$stdout")" -eq 1
check answer_silent test -z "$stderr"

tandem run "$model" "$question" --stats --numerics f32 --threads 1
check reasoning_left_out says "$stdout" "$answer"
check reasoning_not_shown test "$(grep -c . <<<"$stdout")" -eq 1
check stats_on_stderr says "$stderr" '^stats   [0-9]+ prompt tokens, first token after [0-9.]+ s; [0-9]+ tokens, [0-9.]+ tokens/s'

echo "$question" >"$box/question"
"$TANDEM" run --no-think "$model" <"$box/question" >"$box/stdout" 2>"$box/stderr"
code=$? stdout=$(cat "$box/stdout")
check pipe_is_one_question says "$stdout" "$answer"

TANDEM_MAX_TOKENS=3 tandem run --no-think "$model" "$question"
check max_tokens_exit test "$code" -eq 0
check max_tokens_note says "$stderr" '^note    the answer was cut after 3 tokens'

# ---- JSON ----

tandem run "$model" "$question" --json --seed 7
check json_exit test "$code" -eq 0
check json_one_line test "$(wc -l <"$box/stdout")" -eq 1
check json_text says "$stdout" '"text":"lighthouse \(noun\): [^"]*ships"'
check json_reasoning says "$stdout" '"reasoning":"[^"]+'
check json_finish says "$stdout" '"finish_reason":"stop"'
check json_usage says "$stdout" '"usage":\{"prompt_tokens":[0-9]+,"completion_tokens":[0-9]+,"total_tokens":[0-9]+\}'
check json_timings says "$stdout" '"timings":\{"load":[0-9.]+,"first_token":[0-9.]+,"decode":[0-9.]+,'
check json_seed says "$stdout" '"seed":7,'

tandem run --no-think "$model" "$question" --json --max-tokens 2
check json_length says "$stdout" '"reasoning":null,"finish_reason":"length"'

# ---- sampling ----

word='What does the word glimfaster mean?' # made up: many words are as good as others
hot=(run --no-think "$model" "$word" --temperature 2 --max-tokens 12)
tandem "${hot[@]}" --seed 1
one=$stdout
tandem "${hot[@]}" --seed 1
check same_seed_same_text test "$one" = "$stdout"
tandem "${hot[@]}" --seed 2
check other_seed_other_text test "$one" != "$stdout"
tandem "${hot[@]}" --seed 1 --top-k 1
check top_k_1_is_greedy test "$one" != "$stdout"
greedy=$stdout
tandem run --no-think "$model" "$word" --max-tokens 12
check greedy_by_default test "$greedy" = "$stdout"

# ---- wrong usage ----

# said with the limit; and what would not help is no advice
head -c 17000000 /dev/zero | tr '\0' a >"$box/long"
"$TANDEM" run "$model" <"$box/long" >"$box/stdout" 2>"$box/stderr"
code=$? stdout=$(cat "$box/stdout") stderr=$(cat "$box/stderr")
check long_prompt says "$stderr" '^cause   at most 16 MiB are read$'
head -c 50000 "$box/long" | "$TANDEM" run "$model" >"$box/stdout" 2>"$box/stderr"
code=$? stdout=$(cat "$box/stdout") stderr=$(cat "$box/stderr")
check many_tokens test "$code" -eq 1
check many_tokens_fix says "$stderr" '^fix     shorten it: the model was made for no more$'

usage() {
    local name=$1 pattern=$2
    shift 2
    tandem "$@"
    check "${name}_exit" test "$code" -eq 2
    check "${name}_says" says "$stderr" "$pattern"
    check "${name}_nothing_else" test -z "$stdout"
}
usage no_model '^error   no model is given' run
usage no_value 'tandem help run' run "$model" x --seed
usage glued_value '^fix     between -n and its value there is a space' run "$model" x -n3
usage no_memory '--memory is "0"' run "$model" x --memory 0
usage words '^fix     put the prompt between quotes' run "$model" What is this
usage empty_prompt '^error   the prompt is empty' run "$model" '  '
usage empty_pipe '^error   the prompt is empty' run "$model"
check empty_pipe_why says "$stderr" '^cause   standard input has no word'
usage hot '--temperature' run "$model" x --temperature 3
usage no_top_p '--top-p' run "$model" x --top-p 0
usage numerics 'f32' run "$model" x --numerics f16
usage long_context 'at most 4096' run "$model" x --max-model-len 100000
usage foreign_flag 'max-tokens' run "$model" x --n-predict 5

# ---- failures with a cause ----

fails() {
    local name=$1 pattern=$2
    shift 2
    tandem "$@"
    check "${name}_exit" test "$code" -eq 1
    check "${name}_says" says "$stderr" "$pattern"
    check "${name}_nothing_else" test -z "$stdout"
}
fails no_directory '^error   there is no model directory' run "$box/none" x
fails hub_id '^fix     hf download Qwen/Qwen3.5-4B ' run Qwen/Qwen3.5-4B x
fails not_utf8 '^cause   at its byte 1 no' run "$model" $'a\xff\xfe'
fails small_context '^cause   the context holds 64' run "$model" --max-model-len 64 \
    "$(printf 'word %.0s' {1..100})"
check small_context_fix says "$stderr" '^fix     shorten it, or give --max-model-len up to 4096$'
fails memory 'needs .* MiB for one sequence.* MiB weights' run "$model" x --memory 20M
cp -r "$model" "$box/model"
chmod -R u+w "$box/model"
rm "$box/model/tokenizer.json"
fails no_tokenizer 'tokenizer\.json' run "$box/model" x
cp "$model/tokenizer.json" "$box/model"
: >"$box/model/chat_template.jinja"
fails empty_template "^error   the chat template of .* gives an empty text" run "$box/model" x
rm "$box/model/chat_template.jinja" "$box/model/tokenizer_config.json"
fails no_template "has no chat template" run "$box/model" x
if [ -w /dev/full ]; then
    "$TANDEM" run --no-think "$model" "$question" >/dev/full 2>"$box/stderr" </dev/null
    code=$? stderr=$(cat "$box/stderr")
    check full_disk test "$code" -eq 1
    check full_disk_says says "$stderr" '^error   cannot write the answer'
fi

# ---- a conversation on a terminal ----
#
# script(1) gives the program a terminal. `until PATTERN` reads what it shows up to the
# pattern, into $seen; `type_in TEXT` presses keys.

if ! command -v script >/dev/null; then
    echo "skip conversation: script(1) is not installed"
    exit "$not_ok"
fi

if ! script -qec true /dev/null >/dev/null 2>&1 </dev/null; then
    echo "skip conversation: no terminal can be made here"
    exit "$not_ok"
fi

start() {
    # no shell stays in between: ^C would end it, and some give its status as theirs
    coproc TERMINAL { exec script -qefc "exec env $1" /dev/null; }
    terminal=$TERMINAL_PID
}
until_seen() {
    local c end=$((SECONDS + 60))
    seen=
    while [ $SECONDS -lt $end ]; do
        IFS= read -r -d '' -n 1 -t 1 -u "${TERMINAL[0]}" c || continue
        seen+=$c
        [[ $seen == *"$1" ]] && return 0
    done
    return 1
}
type_in() {
    sleep 0.3 # until the line editor has the terminal
    printf '%b' "$1" >&"${TERMINAL[1]}"
}

export TERM=xterm LC_ALL=C.UTF-8 XDG_STATE_HOME=$box/state
unset NO_COLOR
esc=$'\033'
start "'$TANDEM' run $model --stats"
check greeting until_seen '/new starts over'
check prompt until_seen '> '
type_in 'not this\003What does the word boat mean?\r'
check dimmed until_seen "${esc}[2mThe user asks"
check undimmed until_seen "${esc}[0m"
check boat until_seen 'boat (noun): a small vessel for travel on water'
check stats until_seen 'tokens/s'
check prompt_again until_seen '> '
type_in 'Say that again.\r'
check history_grows until_seen '> '
type_in '/new\r'
check new until_seen '> '
type_in '\033[A\033[A\r' # two lines up
check line_from_history until_seen 'Say that again.'
until_seen '> '
type_in 'What does the word lighthouse mean?\r'
check answer_begins until_seen 'The user'
printf '\003' >&"${TERMINAL[1]}"
check interrupted until_seen '> '
check interrupted_early test "${seen/passing ships/}" = "$seen"
type_in '\004'
wait "$terminal"
code=$?
check leaves test "$code" -eq 0
check history_kept grep -q lighthouse "$box/state/tandem/history"
check history_private test "$(stat -c %a "$box/state/tandem/history")" = 600
check history_without_dropped test "$(grep -c 'not' "$box/state/tandem/history")" -eq 0

# a full context, of the answer and of the next question
start "'$TANDEM' run --no-think --max-model-len 64 $model"
until_seen '> '
type_in "$(printf 'word %.0s' {1..40})\r"
check cut_by_context until_seen 'the context is full; /new starts over'
until_seen '> '
type_in 'What does the word boat mean?\r'
check full until_seen 'start over with /new; --max-model-len up to 4096 holds more'
until_seen '> '
type_in '/exit\r'
check no_command until_seen 'there is no /exit: /new starts over, ^D leaves'
until_seen '> '
type_in ' /new \r'
until_seen '> '
type_in 'What does the word boat mean?\r'
check full_no_more until_seen 'a small vessel for travel on water'
type_in '\004'
wait "$terminal"

start "NO_COLOR=1 '$TANDEM' run $model '$question'"
check no_color until_seen 'thinking: '
check no_color_answer until_seen 'passing ships'
check no_color_plain test "${seen/$esc/}" = "$seen"
wait "$terminal"

start "'$TANDEM' run $model --json"
check json_needs_prompt until_seen '--json needs a prompt'
wait "$terminal"
check json_needs_prompt_exit test $? -eq 2

exit "$not_ok"
