# SPDX-License-Identifier: Apache-2.0
#
# For comparisons with llama.cpp: gets and builds it, and writes a model of ours in its
# format. Sourced by bench/peers.sh and bench/serve.sh.
#
# llama.cpp comes with the source package of its Python binding, so that pip is all that is
# needed to get it. It is built for this very processor, with its own defaults.
#
#   options ARGS...   reads --dir, --model, --threads, --repeats, --python and the words
#                     that the script knows; sets dir, model, threads, repeats, words
#   make_python       a Python with PyTorch and numpy, in python
#   prepare           everything below dir that is missing: llama.cpp, its programs, a
#                     Python environment for its converter, the model, its GGUF files
# shellcheck shell=bash disable=SC2034

TANDEM=${TANDEM:-build/tandem}
version=0.3.36 # of llama-cpp-python
dir=build/peers
model=
threads=$(nproc)
repeats=3
python=
words=()
tokens=1024
levels=1,8,32
kind=q8_0

fail() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

options() {
    while [ $# -gt 0 ]; do
        case $1 in
        --dir) dir=$2 && shift ;;
        --model) model=$2 && shift ;;
        --threads) threads=$2 && shift ;;
        --repeats) repeats=$2 && shift ;;
        --python) python=$2 && shift ;;
        --concurrency) levels=$2 && shift ;;
        --kind) kind=$2 && shift ;;
        -*) fail "there is no option $1; the head of this file lists them" ;;
        *) words+=("$1") ;;
        esac
        shift || fail "an option lacks its value"
    done
    [ -n "$model" ] || model=$dir/bench-moe
    name=$(basename "$model")
    llama=$dir/llama.cpp
    bin=$dir/build/bin
    gguf=$dir/gguf-$name
    log=$dir/prepare.log
}

get_source() {
    [ -d "$llama" ] && return
    local package=llama-cpp-python tmp
    echo "fetch   $package $version (log: $log)"
    tmp=$(mktemp -d "$dir/source-XXXXXX")
    "${python:-python3}" -m pip download --no-deps --no-binary "$package" \
        -d "$tmp" "$package==$version" >>"$log" 2>&1 || return
    mkdir "$tmp/llama.cpp"
    tar -xzf "$tmp"/llama_cpp_python-*.tar.gz -C "$tmp/llama.cpp" --strip-components=3 \
        --wildcards '*/vendor/llama.cpp/*' || return
    mv "$tmp/llama.cpp" "$llama"
    rm -rf "$tmp"
}

build_programs() {
    [ -x "$bin/llama-bench" ] && [ -x "$bin/llama-server" ] && return
    echo "build   llama-bench, llama-server (log: $log)"
    cmake -S "$llama" -B "$dir/build" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
        -DBUILD_SHARED_LIBS=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF \
        -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF \
        -DLLAMA_USE_PREBUILT_UI=OFF >>"$log" 2>&1 &&
        cmake --build "$dir/build" --target llama-bench llama-server -j2 >>"$log" 2>&1
}

# The converter needs PyTorch, as our reference does.
make_python() {
    [ -n "$python" ] && return
    python=$dir/venv/bin/python
    [ -x "$python" ] && return
    echo "make    $dir/venv"
    tools/reference_venv.sh "$dir/venv" >>"$log" 2>&1 &&
        "$python" -m pip install requests pyyaml tqdm >>"$log" 2>&1
}

make_gguf() {
    [ -f "$gguf/$1.gguf" ] && return
    make_python || return
    echo "convert $name to $1"
    mkdir -p "$gguf"
    "$python" bench/peer_model.py convert "$llama" "$model" "$gguf/part.gguf" "$1" \
        >>"$log" 2>&1 && mv "$gguf/part.gguf" "$gguf/$1.gguf"
}

prepare() {
    local format
    mkdir -p "$dir"
    [ -x "$TANDEM" ] || fail "$TANDEM is missing: make"
    get_source || fail "cannot get llama.cpp, see $log"
    build_programs || fail "cannot build llama.cpp, see $log"
    if [ ! -e "$model" ]; then
        build/make_model "$model" --preset bench-moe || fail "cannot make $model"
    fi
    for format in q8_0 bf16; do
        make_gguf "$format" || fail "cannot write $gguf/$format.gguf, see $log"
    done
}
