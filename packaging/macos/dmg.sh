#!/usr/bin/env bash
# The disk image with the .app. Signed and notarised where the owner's keys are named:
#   MILLM_SIGN_IDENTITY   "Developer ID Application: …"
#   MILLM_NOTARY_PROFILE  a profile kept with `xcrun notarytool store-credentials`
set -euo pipefail
out="$1"
here="$(dirname "${BASH_SOURCE[0]}")"
version="$(sed -n 's/^VERSION = "\(.*\)"/\1/p' app/about.py)"
app="$out/dist/miLLM Desktop.app"
image="$out/millm-desktop-$version-macos-$(uname -m).dmg"

if [ -n "${MILLM_SIGN_IDENTITY:-}" ]; then
    codesign --force --deep --options runtime --timestamp --entitlements "$here/entitlements.plist" \
        --sign "$MILLM_SIGN_IDENTITY" "$app"
else
    echo "MILLM_SIGN_IDENTITY is not set: the app is signed for this machine only" >&2
    codesign --force --deep --sign - "$app"
fi
"$here/smoke.sh" "$app/Contents/MacOS/millm-desktop"

stage="$(mktemp -d)"
cp -R "$app" "$stage/"
ln -s /Applications "$stage/Applications"
cp LICENSE "$out/THIRD-PARTY-NOTICES.txt" "$stage/"
rm -f "$image"
hdiutil create -volname "miLLM Desktop" -srcfolder "$stage" -ov -format ULFO "$image"
rm -rf "$stage"
if [ -n "${MILLM_NOTARY_PROFILE:-}" ]; then
    xcrun notarytool submit "$image" --keychain-profile "$MILLM_NOTARY_PROFILE" --wait
    xcrun stapler staple "$image"
fi
