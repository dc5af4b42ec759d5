#!/usr/bin/env bash
# Builds the one-folder program and this system's installer into packaging/out/, then tries what it built.
#
#   packaging/build.sh [--no-try]
#
# What it needs beyond `make setup`: PyInstaller (installed here); on Linux dpkg-deb and zstd, and strip for a smaller
# folder. Trying it out on Linux installs the package for real (as root, or with sudo), and Xvfb, xdotool, scrot and curl.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PY="${PY:-.venv/bin/python}"
OUT=packaging/out
TRY=1
[ "${1:-}" = "--no-try" ] && TRY=0

# Said now, not after ten minutes of freezing.
if [ "$(uname -s)" = Linux ]; then
    for needed in dpkg-deb:dpkg zstd:zstd; do
        command -v "${needed%:*}" >/dev/null || {
            echo "${needed%:*} is missing. On Debian or Ubuntu: sudo apt-get install ${needed#*:}" >&2
            exit 1
        }
    done
    command -v strip >/dev/null || echo "Without strip the folder is 115 MB bigger: sudo apt-get install binutils" >&2
    if [ "$TRY" = 1 ] && [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
        echo "Trying the package installs it, as root or with sudo. Without: make package ARGS=--no-try" >&2
        exit 1
    fi
fi

cuda="$("$PY" -c 'import torch; print(torch.version.cuda or "")')"
if [ -n "$cuda" ]; then
    echo "PyTorch here is a build with CUDA $cuda, so the package will have several gigabytes. For the small one:" >&2
    echo "make packages TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu, then make package" >&2
fi

started=$SECONDS
say() { printf '%4d s  %s\n' "$((SECONDS - started))" "$*"; }

"$PY" -m pip --disable-pip-version-check --no-input install --quiet -c constraints.txt "pyinstaller"
mkdir -p "$OUT/icons" "$OUT/wheel"
say "drawing icons"
QT_QPA_PLATFORM=offscreen "$PY" packaging/icons.py "$OUT/icons"
say "fetching the demo model's wheel"
wheel="$("$PY" packaging/demo_wheel.py "$OUT/wheel")"
say "freezing (some minutes)"
MILLM_WHEEL="$PWD/$wheel" "$PY" -m PyInstaller --noconfirm --log-level WARN \
    --distpath "$OUT/dist" --workpath "$OUT/work" packaging/millm.spec
"$PY" packaging/trim.py "$OUT/dist/millm-desktop"
say "$(du -sh "$OUT/dist/millm-desktop" | cut -f1) in $OUT/dist/millm-desktop"

case "$(uname -s)" in
    Linux)
        packaging/linux/archive.sh "$OUT"
        say "portable archive made"
        packaging/linux/deb.sh "$OUT"
        say "Debian package made"
        if [ "$TRY" = 1 ]; then
            packaging/linux/try.sh "$OUT"/millm-desktop_*.deb
            say "installed, tried and removed"
        fi
        ;;
    Darwin) packaging/macos/dmg.sh "$OUT" ;;
    *) echo "On Windows run packaging/windows/build.ps1 instead." >&2; exit 1 ;;
esac
ls -lh "$OUT"/millm-desktop* 2>/dev/null || true
