#!/bin/bash
# SPDX-License-Identifier: MIT
# Builds the Debian package into build-package/ and says what lintian finds. Run as root the first time: it
# installs what the build needs.
#   scripts/package.sh
set -euo pipefail
cd "$(dirname "$0")/.."

readonly out=$PWD/build-package
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

scripts/install-deps.sh --package
# Of the tree as it is, whether committed or not.
mkdir "$work/cowraid"
tar -c --exclude-vcs --exclude='./build*' --exclude=__pycache__ . | tar -x -C "$work/cowraid"
mkdir -p "$out"
if ! (cd "$work/cowraid" &&
    DEB_BUILD_OPTIONS=noautodbgsym dpkg-buildpackage --no-sign --build=binary) >"$out/build.log" 2>&1; then
    tail -n 30 "$out/build.log"
    exit 1
fi
rm -f "$out"/*.deb
cp "$work"/*.deb "$out"
# What only an upload to Debian needs does not count.
lintian --allow-root --fail-on error,warning --suppress-tags \
    initial-upload-closes-no-bugs,bogus-mail-host,bogus-mail-host-in-debian-changelog "$work"/*.changes
ls "$out"/*.deb
