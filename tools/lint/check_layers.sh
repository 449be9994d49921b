#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The include graph of src/ against the layer table of docs/ARCHITECTURE.md.
#
# The table lies between the marks `layers:begin` and `layers:end`; its columns are level,
# room, what the room may include, what it holds. The third column says either `lower`
# (every room of a lower level) or names rooms. A shelf of ops (src/ops/x86/...) may
# include only base, headers that lie in ops itself, and its own folder. A room that has
# a folder but no row, or the reverse, is an error too.
set -euo pipefail
doc=docs/ARCHITECTURE.md

table=$(mktemp)
trap 'rm -f "$table"' EXIT
awk '/layers:begin/ {on = 1; next} /layers:end/ {on = 0} on && /^\| [0-9]/' "$doc" |
    sed 's/`//g' >"$table"
[ -s "$table" ] || {
    echo "$doc: no layer table between layers:begin and layers:end"
    exit 1
}

for dir in src/*/; do
    room=$(basename "$dir")
    awk -F '|' -v r="$room" '{gsub(/ /, "", $3)} $3 == r {found = 1} END {exit !found}' \
        "$table" || {
        echo "src/$room: the layer table of $doc has no row for it"
        exit 1
    }
done

git ls-files -co --exclude-standard 'src/*.[ch]' 'src/*.cu' 'src/*.cuh' |
    xargs grep -Hn '^ *# *include *"' |
    awk -F '|' '
    function trim(s) { gsub(/^ +| +$/, "", s); return s }
    FILENAME == ARGV[1] {
        room = trim($3); level[room] = trim($2) + 0; may[room] = trim($4); next
    }
    FILENAME == ARGV[2] {
        if ($0 ~ /^layers /) { split($0, w, " "); allowed[w[2]] = 1 }
        next
    }
    {
        split($0, at, ":"); file = at[1]; where = at[1] ":" at[2]
        header = $0; sub(/^[^"]*"/, "", header); sub(/".*/, "", header)
        n = split(file, f, "/"); from = f[2]; shelf = n > 3 ? f[3] : ""
        m = split(header, h, "/"); to = h[1]
        if (m < 2 || !(to in level)) {
            print where ": \"" header "\" does not name a room (\"room/file.h\")"; bad = 1
            next
        }
        if ((file ":" to) in allowed) next
        if (shelf != "" && to == from) {
            if (m == 3 && h[2] != shelf) {
                print where ": shelf " shelf " includes shelf " h[2]; bad = 1
            }
            next
        }
        if (to == from) next
        if (may[from] == "lower") {
            if (level[to] < level[from]) next
            print where ": " from " (level " level[from] ") includes " to " (level " \
                level[to] ")"
            bad = 1
            next
        }
        k = split(may[from], list, /[ ,]+/)
        for (i = 1; i <= k; i++) if (list[i] == to) next
        print where ": " from " may include " may[from] ", not " to; bad = 1
    }
    END { exit bad }' "$table" tools/lint/allow -
