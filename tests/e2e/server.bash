# SPDX-License-Identifier: Apache-2.0
#
# For end-to-end tests of the server: starts one on a free port. Sourced after
# common.bash.
#
#   serve ARGS...             starts `tandem serve ARGS...` and waits until it is ready;
#                             sets url and server (its process). False if it ended.
#   listen ARGS...            the same, but waits only for the port
#   stop_server               ends it in order; its exit status
# shellcheck shell=bash disable=SC2034,SC2154
code=0
server=''
touch "$box/stdout" "$box/stderr"
trap '[ -z "$server" ] || kill -9 "$server" 2>/dev/null; rm -rf "$box"' EXIT

# Waits until the server's log has a line that begins so.
await() {
    for _ in $(seq 1200); do
        grep -q "^$1" "$box/server.log" && return 0
        kill -0 "$server" 2>/dev/null || break
        sleep 0.05
    done
    grep -q "^$1" "$box/server.log"
}

listen() {
    "$TANDEM" serve "$@" --port 0 </dev/null >"$box/server.log" 2>&1 &
    server=$!
    await listen || return 1
    url=http://127.0.0.1:$(sed -n 's/^listen .* port //p' "$box/server.log")
}

serve() {
    listen "$@" && await ready
}

stop_server() {
    local pid=$server
    kill -TERM "$pid"
    wait "$pid"
    local status=$?
    server=
    return $status
}
