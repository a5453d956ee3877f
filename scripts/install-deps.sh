#!/bin/bash
# SPDX-License-Identifier: MIT
# Installs what building and testing need, from the distribution (Debian 12, Ubuntu 24.04 or newer).
# Calls apt-get only when something is missing. --runtime: only what scripts/demo.sh needs; --package: what
# scripts/package.sh needs.
set -euo pipefail

# cmake only because doctest-dev describes itself to Meson that way.
build_packages=(meson ninja-build pkg-config cmake g++ libfuse3-dev fuse3 liburing-dev libisal-dev
    libxxhash-dev libzstd-dev libblkid-dev libmount-dev uuid-dev libjansson-dev libseccomp-dev
    libgoogle-perftools-dev doctest-dev python3 util-linux mount procps)
# Where the distribution has no such version, scripts/test.sh takes another compiler or leaves a check out.
clang_packages=(clang-14 clang-format-14 libclang-rt-14-dev llvm-14)
test_packages=(python3-pytest fio stress-ng rsync sqlite3 git strace nbdkit libnbd-bin
    acl attr libcap2-bin e2fsprogs btrfs-progs tar coreutils mandoc zsh systemd udev librsvg2-bin)
# Programs that mount tests run on a volume; a test is left out without its program.
program_packages=(nfs-ganesha nfs-ganesha-vfs rpcbind libnfs-utils iproute2 podman)
package_packages=(dpkg-dev debhelper lintian)
bench_packages=(dbench)  # a row of scripts/bench.py

usage() {
    echo "usage: scripts/install-deps.sh [--runtime | --package]"
}

installed() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

missing_of() {
    local package
    for package in "$@"; do
        installed "$package" || echo "$package"
    done
}

# Those of the named packages that apt knows.
available_of() {
    local package
    for package in "$@"; do
        apt-cache show "$package" >/dev/null 2>&1 && echo "$package"
    done
    return 0
}

# run_quietly COMMAND...: its output only when it fails.
run_quietly() {
    local log status=0
    log=$(mktemp)
    "$@" >"$log" 2>&1 || status=$?
    [ $status -eq 0 ] || tail -n 30 "$log" >&2
    rm -f "$log"
    return $status
}

install() {
    if [ "$(id -u)" -ne 0 ]; then
        echo "missing packages; as root: apt-get install --no-install-recommends $*" >&2
        return 1
    fi
    echo "installing: $*"
    DEBIAN_FRONTEND=noninteractive run_quietly apt-get -qy -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 \
        install --no-install-recommends "$@"
}

main() {
    local packages=("${build_packages[@]}") optional=() missing
    case "${1:-}" in
    --runtime) ;;
    --package) packages+=("${package_packages[@]}") ;;
    "")
        packages+=("${test_packages[@]}")
        optional=("${clang_packages[@]}" "${bench_packages[@]}" "${program_packages[@]}")
        ;;
    *)
        usage >&2
        return 2
        ;;
    esac
    if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
        echo "not a Debian or Ubuntu system; install by hand what these packages hold:" \
            "${packages[@]}" "${optional[@]}" >&2
        return 0
    fi
    mapfile -t missing < <(missing_of "${packages[@]}" "${optional[@]}")
    [ "${#missing[@]}" -gt 0 ] || return 0
    [ "$(id -u)" -ne 0 ] || run_quietly apt-get -q update
    mapfile -t optional < <(available_of "${optional[@]}")
    mapfile -t missing < <(missing_of "${packages[@]}" "${optional[@]}")
    [ "${#missing[@]}" -eq 0 ] || install "${missing[@]}"
}

main "$@"
