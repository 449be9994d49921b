#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The error catalogue: every code of base/status.h has a slug, a title, a cause and a
# remedy, no slug occurs twice, and every code is used somewhere in src/.
#
# The texts come from the program itself (`tandem help errors`), the codes from the list
# in the header.
set -euo pipefail
header=src/base/status.h
tandem=${B:-build}/tandem
[ -x "$tandem" ] || {
    echo "$tandem is not built"
    exit 1
}

bad=0
codes=$(grep -oE 'X\(TD_E_[A-Z0-9_]+' "$header" | sed 's/X(//')
for code in $codes; do
    grep -rlw --include='*.[ch]' "$code" src | grep -qv "^$header$" || {
        echo "$header: $code is never used"
        bad=1
    }
done

rows=$("$tandem" help errors | grep '^| `')
[ "$(wc -l <<<"$rows")" -eq "$(wc -w <<<"$codes")" ] || {
    echo "$header lists $(wc -w <<<"$codes") codes, \`tandem help errors\` $(wc -l <<<"$rows")"
    bad=1
}
awk -F ' *[|] *' '
    { for (i = 2; i <= 5; i++) if ($i == "") { print $2 ": an empty text"; bad = 1 }
      if (seen[$2]++) { print $2 ": two codes have this slug"; bad = 1 } }
    END { exit bad }' <<<"$rows" || bad=1
exit "$bad"
