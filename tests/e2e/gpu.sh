#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What is said where a GPU cannot be used: the program, the CUDA shelf and NVIDIA's runtime
# as they are, on a driver that only fails (tests/fake/libcuda.c), or on none. CUDA_SHELF is
# the folder of libtandem-cuda.so, if that does not lie beside the program.
. tests/e2e/common.bash

shelf=${CUDA_SHELF:-$(dirname "$TANDEM")}
if [ ! -f "$shelf/libtandem-cuda.so" ]; then
    echo "skip gpu: libtandem-cuda.so is not built (make cuda)"
    exit 0
fi
mkdir "$box/driver"
"${CC:-cc}" -shared -fPIC -Wno-cast-function-type -o "$box/driver/libcuda.so.1" \
    tests/fake/libcuda.c || exit 1
export LD_LIBRARY_PATH=$box/driver:$shelf FAKE_CUDA=0
words=(run models/lexicon --no-think --max-tokens 12 --temperature 0 "What does bank mean?")

# NAME NUMBER ERROR CAUSE FIX: the same from a GPU that is asked for and from any device
refused() {
    local name=$1 device
    export FAKE_CUDA=$2
    for device in cuda auto; do
        tandem "${words[@]}" --device "$device"
        check "${name}_$device" test "$code" -eq 1
        check "${name}_what_$device" says "$stderr" "^error +$3\$"
        check "${name}_why_$device" says "$stderr" "^cause +.*$4"
        check "${name}_fix_$device" says "$stderr" "^fix +.*$5"
    done
}

FAKE_CUDA_VERSION=12040 refused old 3 'the NVIDIA driver is too old' \
    'it supports CUDA 12\.4, this build needs 13' 'update the driver'
refused module 3 'the NVIDIA driver does not start' '/dev/nvidia' 'nvidia-smi'
refused exclusive 46 'the GPU is not free' 'exclusive mode' 'another GPU'
refused switches 802 'the GPUs of this machine are not ready' 'NVSwitch' \
    'nvidia-fabricmanager'
refused mismatch 803 'the NVIDIA driver and its libraries are of different versions' \
    'updated' 'restart'
refused memory_error 214 'cuda:0 stopped working in its start' 'could not be corrected' \
    'nvidia-smi -q -d ECC'

# where there is none, what may run anywhere runs on the processor
none() {
    export FAKE_CUDA=100
    tandem "${words[@]}" --device cuda
    check "$1" test "$code" -eq 1
    check "$1_what" says "$stderr" "^error +there is no NVIDIA $2\$"
    check "$1_fix" says "$stderr" '^fix '
    tandem "${words[@]}" --device auto
    check "$1_auto" test "$code" -eq 0
    check "$1_answers" test -n "$stdout"
}

none none GPU
echo 'no library' >"$box/driver/libcuda.so.1"
none driver driver

exit "$not_ok"
