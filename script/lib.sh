#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What script/test, script/demo and .ci/run share: which packages of Debian 12 and Ubuntu
# 24.04 the build stands on, and how missing ones get installed. Sourced, not run.
# shellcheck disable=SC2034

# One need a line: how to see that it is there, its name, the package that brings it.
build_needs='
command gcc gcc
header  stdio.h libc6-dev
command make make
command pkg-config pkg-config
library jansson libjansson-dev
library libpcre2-8 libpcre2-dev
library libutf8proc libutf8proc-dev
library libedit libedit-dev
library hwloc libhwloc-dev
library libmicrohttpd libmicrohttpd-dev
library libcurl libcurl4-openssl-dev
library zlib zlib1g-dev
library libzstd libzstd-dev'

test_needs='
library cmocka libcmocka-dev
library ompi-c libopenmpi-dev
command mpirun openmpi-bin
command python3 python3'

# Clients of the server: a browser for the page's test (Ubuntu has it as a snap only), and
# what Python needs to install the public client. Without them those tests are skipped.
client_needs='
command chromium chromium
python  ensurepip python3-venv'

# Hosts that are pretended (tests/hosts) and MPI between them.
hosts_needs='
command ip iproute2
command nft nftables
file    /usr/sbin/sshd openssh-server
command ssh openssh-client
command curl curl
command mpirun openmpi-bin
python  ensurepip python3-venv'

lint_needs='
command git git
command shellcheck shellcheck
command clang-14 clang-14
command clang-format-14 clang-format-14
command clang-tidy-14 clang-tidy-14
file    /usr/lib/llvm-14/lib/clang/14.0.6/lib/linux/libclang_rt.fuzzer-*.a libclang-rt-14-dev'

cross_needs='
command aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
command qemu-aarch64 qemu-user'

# Is one need there? is_there KIND NAME
is_there() {
    case $1 in
    command) command -v "$2" >/dev/null ;;
    header) echo "#include <$2>" | gcc -E - >/dev/null 2>&1 ;;
    library) pkg-config --exists "$2" 2>/dev/null ;;
    python) python3 -c "import $2" 2>/dev/null ;;
    file) compgen -G "$2" >/dev/null ;;
    esac
}

# Prints the packages that are missing: missing_packages NEEDS...
missing_packages() {
    local kind name package
    while read -r kind name package; do
        [ -z "$kind" ] || is_there "$kind" "$name" || echo "$package"
    done <<<"$(printf '%s\n' "$@")"
}

# Installs what is missing, and nothing when everything is there: install_missing NEEDS...
install_missing() {
    local packages sudo=() log
    mapfile -t packages < <(missing_packages "$@")
    [ ${#packages[@]} -eq 0 ] && return 0
    echo "missing: ${packages[*]}"
    if ! command -v apt-get >/dev/null; then
        echo "This is no Debian or Ubuntu. Please install what these packages bring" \
            "and start this script again." >&2
        return 1
    fi
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "Installing them needs root and there is no sudo. As root, run:" >&2
            echo "    apt-get install ${packages[*]}" >&2
            return 1
        fi
        sudo=(sudo)
    fi
    log=$(mktemp)
    "${sudo[@]}" apt-get update -qq || true
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
        -o Dpkg::Use-Pty=0 --no-install-recommends "${packages[@]}" >/dev/null 2>"$log" || {
        cat "$log" >&2
        echo "apt-get could not install them: ${packages[*]}" >&2
        return 1
    }
    rm -f "$log"
    mapfile -t packages < <(missing_packages "$@")
    if [ ${#packages[@]} -gt 0 ]; then
        echo "installed, but still not found: ${packages[*]}" >&2
        return 1
    fi
}
