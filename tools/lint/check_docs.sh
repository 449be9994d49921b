#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Documents: the generated ones (docs/OPTIONS.md, docs/ERRORS.md) equal what the program
# prints, and every relative link and every `path` of the hand-written ones exists.
set -uo pipefail
bad=0
say() {
    echo "$1"
    bad=1
}

for page in options errors; do
    doc=docs/${page^^}.md
    tools/gen_docs.sh "$page" | cmp -s - "$doc" || say "$doc is not current: run \`make docs\`"
done

for doc in $(git ls-files -co --exclude-standard '*.md' | grep -v '^models/'); do
    folder=$(dirname "$doc")
    for link in $(grep -oE '\]\([^)#]+' "$doc" | sed 's/](//' | grep -v '://'); do
        [ -e "$folder/$link" ] || say "$doc: the link $link leads nowhere"
    done
    for path in $(grep -oE '`(src|docs|tools|tests|script|models|\.ci)/[A-Za-z0-9_./-]+`' \
        "$doc" | tr -d '`' | grep -v NAME); do
        [ -e "$path" ] || say "$doc: $path does not exist"
    done
done
exit "$bad"
