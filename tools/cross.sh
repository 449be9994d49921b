#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the whole program for aarch64 and runs it, and its unit tests, under qemu.
#
#   tools/cross.sh [TEST...]      patterns of unit tests; without, those of cross_tests
#
# The libraries are the distribution's own arm64 packages, unpacked into a folder of the
# build: apt-get reads the host's package sources with a state of its own, so nothing is
# installed and no foreign architecture is added. Exits 77 where those packages, the
# cross compiler or qemu are not to be had.
set -euo pipefail
cd "$(dirname "$0")/.."
unset MAKEFLAGS MAKELEVEL # another flavour: nothing of a make that called us counts

out=build/aarch64
root=$PWD/$out/root
triple=aarch64-linux-gnu
# Under qemu a test runs some twenty times slower; these rooms are where an architecture
# shows, and quick enough.
cross_tests="base_% text_% ops_% load_% sample_%"

for tool in $triple-gcc qemu-aarch64 apt-get dpkg-deb; do
    command -v "$tool" >/dev/null || {
        echo "cross: $tool is not installed"
        exit 77
    }
done

packages="libc6-dev libjansson-dev libpcre2-dev libutf8proc-dev libedit-dev
    libhwloc-dev libmicrohttpd-dev libcurl4-openssl-dev zlib1g-dev libzstd-dev
    libcmocka-dev libgcc-$($triple-gcc -dumpversion)-dev"

# Fills the folder with the packages and all that they depend on.
fetch_root() {
    local apt=$PWD/$out/apt
    mkdir -p "$apt"/{state/lists/partial,cache/archives/partial} "$root"
    : >"$apt/status"
    local options=(-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64
        -o Dir::State="$apt/state" -o Dir::State::status="$apt/status"
        -o Dir::Cache="$apt/cache" -o APT::Install-Recommends=0
        -o Acquire::Languages=none -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update >"$apt/log" 2>&1 || true
    # shellcheck disable=SC2086
    apt-get "${options[@]}" -y --download-only install $packages >>"$apt/log" 2>&1 || {
        tail -n 3 "$apt/log"
        echo "cross: the package sources of this host have no arm64 packages"
        exit 77
    }
    for package in "$apt"/cache/archives/*.deb; do
        dpkg-deb -x "$package" "$root"
    done
    rm -rf "$apt/cache"
    touch "$root/.complete"
}

[ -f "$root/.complete" ] || fetch_root

export PKG_CONFIG_SYSROOT_DIR=$root
export PKG_CONFIG_LIBDIR=$root/usr/lib/$triple/pkgconfig:$root/usr/share/pkgconfig
lib=$root/usr/lib/$triple
build=(make --no-print-directory -s -j2 B="$out" AR="$triple-ar"
    CC="$triple-gcc --sysroot=$root"
    LDFLAGS="-Wl,-rpath-link,$lib:$root/lib/$triple")
"${build[@]}" "$out/tandem"
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
if [ -f "$(dirname "$(dirname "$nvcc")")/include/cuda_runtime_api.h" ]; then
    "${build[@]}" WERROR=1 B="$out/cuda" cuda-host
else
    echo "cross: the host side of the CUDA shelf is left out: no CUDA headers"
fi

export TEST_RUNNER="qemu-aarch64 -L $root" TEST_TIMEOUT=900
$TEST_RUNNER "$out/tandem" --version
[ $# -gt 0 ] || read -r -a tests <<<"$cross_tests"
[ $# -eq 0 ] || tests=("$@")
programs=()
for pattern in "${tests[@]}"; do
    for source in tests/unit/${pattern//%/*}.c; do
        [ -f "$source" ] && programs+=("$out/tests/$(basename "$source" .c)")
    done
done
"${build[@]}" "${programs[@]}"
tests/run.sh "${programs[@]}"
