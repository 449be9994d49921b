#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Plain text rules: no trailing blanks, no tabs outside Makefiles, a final newline; C,
# shell and Python files open with the SPDX line and a comment that explains the file;
# nothing names the paths of one machine or a package host.
set -uo pipefail
bad=0
say() {
    echo "$1"
    bad=1
}

mapfile -t files < <(git ls-files -co --exclude-standard '*.c' '*.h' '*.cu' '*.cuh' \
    '*.sh' '*.py' '*.awk' '*.md' 'script/*' '.ci/*' Makefile 'tools/*' |
    grep -vE '^(models|tests/golden)/|\.(gz|zst|json|jsonl)$' | sort -u)

found=$(grep -nE '[[:blank:]]+$' -- "${files[@]}") && say "trailing blanks:
$found"
found=$(printf '%s\n' "${files[@]}" | grep -v '^Makefile$' | xargs grep -nP '^ *\t') &&
    say "tabs:
$found"
for f in "${files[@]}"; do
    [ -z "$(tail -c 1 "$f")" ] || say "$f: no newline at the end"
    case $f in
    *.c | *.h | *.cu | *.cuh)
        [ "$(sed -n 1p "$f")" = '/* SPDX-License-Identifier: Apache-2.0 */' ] ||
            say "$f: the first line is not the SPDX line"
        [[ "$(sed -n 2p "$f")" == '/*'* ]] || say "$f: no comment explains the file"
        ;;
    *.sh | script/* | .ci/*)
        [ "$(sed -n 2p "$f")" = '# SPDX-License-Identifier: Apache-2.0' ] ||
            [ "$(sed -n 1p "$f")" = '# SPDX-License-Identifier: Apache-2.0' ] ||
            say "$f: no SPDX line below the first"
        sed -n 2,5p "$f" | grep -qE '^# [A-Za-z]' || say "$f: no comment explains the file"
        ;;
    *.py)
        head -n 3 "$f" | grep -q '^# SPDX-License-Identifier: Apache-2.0$' ||
            say "$f: no SPDX line at the top"
        head -n 5 "$f" | grep -qE '^("""|# [A-Za-z])' || say "$f: no docstring"
        ;;
    esac
done

# Letters in brackets, so that this file does not find itself.
private='/wor[k]/|/tmp/ven[v]|/tmp/tande[m]/|\.\./share[d]/|[w]t-repo'
hosts='pypi\.or[g]|pythonhosted\.or[g]|deb\.debian\.or[g]|snapshot\.debian\.or[g]'
hosts="$hosts|archive\.ubuntu\.co[m]|ports\.ubuntu\.co[m]"
found=$(git ls-files -co --exclude-standard | grep -vE '^(models|tests/golden)/' |
    xargs grep -nIE "$private|$hosts") && say "paths of a machine, or package hosts:
$found"
exit "$bad"
