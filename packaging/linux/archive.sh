#!/usr/bin/env bash
# The portable archive: the folder and a launcher, to be unpacked anywhere.
set -euo pipefail
out="$1"
here="$(dirname "${BASH_SOURCE[0]}")"
version="$(sed -n 's/^VERSION = "\(.*\)"/\1/p' app/about.py)"
name="millm-desktop-$version-linux-$(uname -m)"
rm -rf "${out:?}/$name"
mkdir -p "$out/$name"
cp -a "$out/dist/millm-desktop" "$out/$name/program"
install -m 755 "$here/launcher" "$out/$name/millm-desktop"
install -m 644 LICENSE "$out/THIRD-PARTY-NOTICES.txt" "$out/$name/"
tar -C "$out" -I 'zstd -10 -T0' -cf "$out/$name.tar.zst" "$name"
rm -rf "${out:?}/$name"
