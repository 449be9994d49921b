#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Makes the Python environment in which tools/reference.py runs.
#
#   tools/reference_venv.sh DIR
#
# The versions are those that computed the results in tests/golden/random. Needs Python
# 3.10 or newer with its venv module, and some GB for PyTorch. Nothing else in the
# repository needs this environment.
set -euo pipefail
[ $# = 1 ] || {
    echo "usage: tools/reference_venv.sh DIR" >&2
    exit 2
}

python3 -m venv "$1"
"$1/bin/pip" install torch==2.15.0 transformers==5.24.0 safetensors==0.8.0 numpy
echo "now run $1/bin/python tools/reference.py --help"
