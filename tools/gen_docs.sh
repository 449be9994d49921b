#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Prints a generated document: tools/gen_docs.sh options|errors. `make docs` writes both;
# `make lint` compares.
set -euo pipefail
tandem=${B:-build}/tandem
case $1 in
options)
    cat <<'END'
# Options

Generated from the option table (`src/cmd/options.h`) by `make docs`. A flag beats a
variable, a variable beats a line of `tandem.conf`, the file beats the default.
`tandem help VERB` shows the options of one verb.

END
    ;;
errors)
    cat <<'END'
# Errors

Generated from the catalogue (`src/base/status.h`) by `make docs`. The code is what event
logs, `--json` output and `tandem explain` show. The cause and the remedy are what is
printed when the function that failed knows nothing more exact.

END
    ;;
*) exit 2 ;;
esac
"$tandem" help "$1"
