#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The command line before any verb does its work: version, help, wrong usage, and where
# options come from.
. tests/e2e/common.bash

tandem --version
check version test "$code" -eq 0
check version_text says "$stdout" '^tandem [0-9]+\.[0-9]+\.[0-9]+ \([0-9a-z]+\)$'

tandem
check bare_is_help says "$stdout" '^  tandem help'
check bare_exit test "$code" -eq 0

tandem help help
check help_of_a_verb says "$stdout" '^tandem help'
check help_lists_options says "$stdout" '--event-log'

tandem help no-such-verb
check help_unknown test "$code" -eq 2

tandem help options
check options_table says "$stdout" '^\| `--json` \| `TANDEM_JSON` \|'

tandem help errors
check errors_table says "$stdout" '^\| `usage` \|'

tandem frobnicate
check unknown_verb test "$code" -eq 2
check unknown_verb_error says "$stderr" '^error   unknown verb "frobnicate"$'
check unknown_verb_fix says "$stderr" '^fix     '
check unknown_verb_silent test -z "$stdout"

tandem help --no-such-option
check unknown_option test "$code" -eq 2
check unknown_option_named says "$stderr" 'no-such-option'

tandem help --tensor-parallel-size 2
check foreign_option test "$code" -eq 2
check foreign_option_hint says "$stderr" '--tp'

tandem help --no-help
check no_help says "$stdout" '^  tandem run'

# ---- standard files that are not there ----

"$TANDEM" --version >&- 2>"$box/stderr"
code=$? stderr=$(cat "$box/stderr")
check closed_output test "$code" -eq 1
check closed_output_says says "$stderr" '^error   cannot write to standard output'
if [ -w /dev/full ]; then
    "$TANDEM" inspect models/lexicon >/dev/full 2>"$box/stderr"
    code=$? stderr=$(cat "$box/stderr")
    check full_disk test "$code" -eq 1
    check full_disk_says says "$stderr" '^error   cannot write to standard output: No space'
    tandem help --event-log /dev/full nothing
    check full_log test "$code" -eq 2
    check full_log_says says "$stderr" '^note    the event log ends early: No space'
    (ulimit -f 0; exec "$TANDEM" help --event-log "$box/large" nothing) 2>&1 | cat >"$box/said"
    check size_limit says "$(cat "$box/said")" '^note    the event log ends early: File too large$'
    # also where the verb itself has an exit status for what it found
    "$TANDEM" explain README.md >/dev/full 2>"$box/stderr"
    code=$? stderr=$(cat "$box/stderr")
    check full_disk_status test "$code" -eq 1
    check full_disk_status_says says "$stderr" '^error   cannot write to standard output: No space'
fi
# errors must not end up in the event log, the next file that is opened
"$TANDEM" help --event-log "$box/log" nothing 2>&- >"$box/stdout"
check closed_errors test "$(grep -cv '^{' "$box/log")" -eq 0

# ---- words and flags that a verb has no use for ----

wrong() { # what the error says, then the command
    local said=$1
    shift
    tandem "$@"
    check "wrong:$*" test "$code" -eq 2
    check "wrong_says:$*" says "$stderr" "^error +$said"
}
for verb in run serve plan inspect worker; do
    wrong 'no model is given$' "$verb"
done
wrong 'no log is given$' explain
for verb in serve plan inspect check bench help; do
    wrong 'there is a word too many: "extra"$' "$verb" models/lexicon extra
done
wrong 'there is a word too many: "http://127.0.0.1:9"$' status http://127.0.0.1:9
check status_fix says "$stderr" '^fix +give the address with --url$'
wrong 'there is a word too many: "x"$' agent x
wrong 'unknown option --json$' serve models/lexicon --json
check json_fix says "$stderr" '^fix .*--event-log FILE$'
wrong 'unknown option --json$' help --json
for option in --fabric=lo --ssh=ssh; do
    wrong "${option%=*} is given, but this machine alone is used" check "$option"
    wrong "${option%=*} is given, but this machine alone is used" check --hosts localhost "$option"
    wrong "${option%=*} is given, but this machine alone is used" run models/lexicon --tp 2 \
        "$option" x
done
for option in --rank-timeout=3 --load-timeout=9; do
    wrong "${option%=*} is given, but this machine alone is used" run models/lexicon "$option" x
done
# a list of one host is this machine, whoever made the list
echo localhost >"$box/one"
SLURM_JOB_NODELIST=localhost tandem run models/lexicon --no-think --hosts slurm \
    'What does the word lighthouse mean?'
check one_host_of_slurm says "$stdout" '^lighthouse \(noun\)'
tandem run models/lexicon --no-think --hosts "@$box/one" 'What does the word lighthouse mean?'
check one_host_of_a_file says "$stdout" '^lighthouse \(noun\)'
check one_host_has_no_ranks test -z "$stderr"
echo 198.51.100.1 >"$box/one"
tandem run models/lexicon --hosts "@$box/one" hello
check one_other_host says "$stderr" '^error +this machine \(.*\) is not among the hosts$'

# what cannot be spread or split is refused before ssh is run
printf '#!/bin/sh\ntouch %s/ssh_ran\n' "$box" >"$box/ssh"
chmod +x "$box/ssh"
for verb in run serve bench plan; do
    case $verb in run) words=(hello) ;; serve) words=(--port 0) ;; *) words=() ;; esac
    tandem "$verb" models/lexicon --tp 3 --hosts localhost,198.51.100.1 --ssh "$box/ssh" \
        "${words[@]}"
    check "${verb}_uneven" test "$code" -eq 2
    check "${verb}_uneven_says" says "$stderr" '^error +3 ranks do not divide over 2 hosts$'
    tandem "$verb" models/lexicon --hosts localhost,198.51.100.1,198.51.100.2 \
        --ssh "$box/ssh" "${words[@]}"
    check "${verb}_no_split" test "$code" -eq 1
    check "${verb}_no_split_says" says "$stderr" '^cause +4 query heads do not divide by 3$'
done
check ssh_did_not_run test ! -e "$box/ssh_ran"
TANDEM_FABRIC=lo tandem run models/lexicon --no-think hello
check variables_are_for_all_verbs test "$code" -eq 0

for verb in run serve plan inspect check bench explain help; do
    wrong "the first argument of $verb is empty\$" "$verb" ''
done
tandem serve models/lexicon --host 198.51.100.1
check serve_details says "$(tail -1 <<<"$stderr")" "^details $box/.*\.jsonl\$"
wrong '--served-model-name is ""$' serve models/lexicon --served-model-name ''
wrong '--max-body is "65M"$' serve models/lexicon --max-body 65M
TANDEM_API_KEYS=sesame wrong 'TANDEM_API_KEYS is no variable of tandem$' serve models/lexicon
check variable_fix says "$stderr" '^fix +did you mean TANDEM_API_KEY\?$'

# ---- where options come from ----

printf 'no-such-entry = 1\n' >"$box/wrong.conf"
tandem help --config "$box/wrong.conf"
check conf_unknown test "$code" -eq 2
check conf_line says "$stderr" 'wrong\.conf.*1'

tandem help --config "$box/missing.conf"
check conf_missing test "$code" -ne 0

export TANDEM_EVENT_LOG=$box/no/such/folder/log
tandem help
check variable_is_read test "$code" -eq 1
unset TANDEM_EVENT_LOG

TANDEM_API_KEY='' tandem serve models/lexicon --port 0
check empty_key test "$code" -eq 2
check empty_key_says says "$stderr" '^error   the API key is empty$'

tandem help --event-log "$box/events" nothing
check event_log says "$(cat "$box/events")" '"event":"error".*"code":"usage"'

exit "$not_ok"
