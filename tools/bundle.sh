#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Fills a relocatable folder with a program and all it needs, and tries it.
#
#   tools/bundle.sh PROGRAM FOLDER [LIBRARY...]
#
# LIBRARY is one of the program's own that it loads when it needs it; what such a one
# needs in turn (Open MPI, whose parts must be of one build; a driver) has to be on the host.
# PROGRAM was linked with the run path $ORIGIN/../lib. FOLDER gets bin/tandem, lib/ (every
# shared library the program loads, but for those of the C library, which have to match
# the kernel and the loader of the host), models/lexicon and the licences. The C library
# of the host must be at least as new as this one's.
#
# The trial runs a copy of the folder under another path: nothing but the C library may
# come from outside of it. Where a private root can be entered (root, or user
# namespaces), the program is run in one that holds only the C library and the copy.
set -euo pipefail

program=$1 folder=$2
shift 2
libc='^(linux-vdso|ld-linux.*|libc|libm|libpthread|libdl|librt|libresolv|libutil|libanl|libnsl)\.so'

rm -rf "$folder"
mkdir -p "$folder/bin" "$folder/lib" "$folder/licences"
install -m 755 "$program" "$folder/bin/tandem"
strip --strip-unneeded "$folder/bin/tandem"
cp LICENSE NOTICE README.md "$folder"
# By this a running program knows that it may copy its folder to other hosts.
"$program" --version | sed 's/.*(\(.*\))$/\1/' >"$folder/build-id"
mkdir -p "$folder/models"
cp -r models/lexicon "$folder/models/"

while read -r name _ path _; do
    [[ $name =~ $libc || $path != /* ]] && continue
    install -m 644 "$path" "$folder/lib/$name"
    owner=$(dpkg-query -S "$(realpath "$path")" 2>/dev/null | head -n 1 | cut -d: -f1) || true
    if [ -n "$owner" ] && [ -f "/usr/share/doc/$owner/copyright" ]; then
        install -m 644 "/usr/share/doc/$owner/copyright" "$folder/licences/$owner"
    fi
done < <(ldd "$program")

for library in "$@"; do
    install -m 755 "$library" "$folder/lib"
    strip --strip-unneeded "$folder/lib/$(basename "$library")"
done

# The trial.
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir "$root/moved"
cp -r "$folder" "$root/moved/tandem"
outside=$(ldd "$root/moved/tandem/bin/tandem" | awk '{print $1, $3}' |
    grep -v " $root/" | grep -vE "$libc|^/.*/ld-linux" || true)
if [ -n "$outside" ]; then
    echo "bundle: these come from outside the folder: $outside"
    exit 1
fi
ldd "$root/moved/tandem/bin/tandem" | grep -oE '/[^ ]+' | grep -v "^$root/" |
    while read -r path; do
        mkdir -p "$root$(dirname "$path")"
        cp -L "$path" "$root$path"
    done
enter=()
if [ "$(id -u)" -eq 0 ]; then
    enter=(chroot "$root")
elif unshare -r true 2>/dev/null; then
    enter=(unshare -r chroot "$root")
fi
if [ ${#enter[@]} -gt 0 ]; then
    # Without /proc the loader cannot see where the program lies; this tells it.
    said=$(LD_ORIGIN_PATH=/moved/tandem/bin "${enter[@]}" /moved/tandem/bin/tandem --version)
    how="ran in a root of its own"
else
    said=$(cd "$root" && ./moved/tandem/bin/tandem --version)
    how="ran from another folder"
fi
echo "bundle: $folder, $(find "$folder/lib" -type f | wc -l) libraries," \
    "$(du -sm "$folder" | cut -f1) MB; $how: $said"
