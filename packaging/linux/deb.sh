#!/usr/bin/env bash
# The Debian package: the folder under /opt, a launcher, a menu entry, an icon and the two kinds of document.
set -euo pipefail
out="$1"
here="$(dirname "${BASH_SOURCE[0]}")"
version="$(sed -n 's/^VERSION = "\(.*\)"/\1/p' app/about.py)"
architecture="$(dpkg --print-architecture)"
# The program runs where the C library is at least as new as on the machine that built it.
libc="$(getconf GNU_LIBC_VERSION | cut -d' ' -f2)"
root="$out/deb"
rm -rf "${root:?}"
mkdir -p "$root"/{DEBIAN,opt/millm-desktop,usr/bin,usr/share/applications,usr/share/mime/packages,usr/share/doc/millm-desktop}

cp -a "$out/dist/millm-desktop" "$root/opt/millm-desktop/program"
install -m 755 "$here/launcher" "$root/opt/millm-desktop/millm-desktop"
ln -s ../../opt/millm-desktop/millm-desktop "$root/usr/bin/millm-desktop"
install -m 644 "$here/millm-desktop.desktop" "$root/usr/share/applications/"
install -m 644 "$here/millm-desktop.xml" "$root/usr/share/mime/packages/"
install -m 644 LICENSE "$root/usr/share/doc/millm-desktop/copyright"
install -m 644 "$out/THIRD-PARTY-NOTICES.txt" "$root/usr/share/doc/millm-desktop/"
for size in 16 24 32 48 64 128 256 512; do
    install -D -m 644 "$out/icons/millm-desktop-$size.png" \
        "$root/usr/share/icons/hicolor/${size}x$size/apps/millm-desktop.png"
done
install -D -m 644 assets/icon.svg "$root/usr/share/icons/hicolor/scalable/apps/millm-desktop.svg"

cat > "$root/DEBIAN/control" <<CONTROL
Package: millm-desktop
Version: $version
Architecture: $architecture
Maintainer: miLLM Desktop <millm-desktop@localhost>
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Depends: libc6 (>= $libc), libgl1, libegl1, libxkbcommon0, libdbus-1-3, libfontconfig1, libglib2.0-0 | libglib2.0-0t64, libxcb-cursor0, libxkbcommon-x11-0, libxcb-icccm4, libxcb-keysyms1, libxcb-shape0, fonts-dejavu-core
Section: science
Priority: optional
Description: run, steer and serve local language models
 Runs language models on this computer, attaches sparse autoencoders, steers
 what the models write with one dial, says how well each effect was tested,
 and serves the same engine as an OpenAI-compatible API on localhost.
CONTROL
# Menu, icon and file-type caches are refreshed by those packages' own triggers, so no scripts are needed.
dpkg-deb --root-owner-group -Zzstd -z10 --build "$root" "$out/millm-desktop_${version}_$architecture.deb"
rm -rf "${root:?}"
