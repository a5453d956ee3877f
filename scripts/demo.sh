#!/bin/bash
# SPDX-License-Identifier: MIT
# Builds cowraid, makes a raid6 volume of four members, fills it, takes one member away, reads everything
# back by checksum, and prints what it saw. Run as root; installs what it needs; leaves nothing behind.
#   scripts/demo.sh
# TMPDIR chooses where the members live (about 1.5 GiB).
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."

readonly member_count=4 member_mib=512 big_file_mib=256 tree_mib_max=100
readonly build=build-release
readonly mkfs=$build/tools/mkfs.cowraid mount_cowraid=$build/tools/mount.cowraid
readonly umount_cowraid=$build/tools/umount.fuse.cowraid cowraid=$build/tools/cowraid

work=
images=()
loops=()
members=()
report=()

fail() {
    echo "demo: $*" >&2
    exit 1
}

step() {
    echo "-- $*"
}

note() {
    report+=("$(printf '%-34s %s' "$1" "$2")")
}

unmount() {
    "$umount_cowraid" "$work/mnt"
}

cleanup() {
    local status=$? loop
    trap - EXIT INT TERM
    [ -n "$work" ] || exit $status
    if mountpoint -q "$work/mnt"; then
        unmount 2>/dev/null || umount -l "$work/mnt" || true
    fi
    for loop in "${loops[@]}"; do
        losetup -d "$loop" 2>/dev/null || true
    done
    # Never below a mount: a daemon that did not stop keeps its files.
    mountpoint -q "$work/mnt" || rm -rf --one-file-system "$work"
    exit $status
}

prepare() {
    [ "$(id -u)" -eq 0 ] || fail "run me as root: mounting needs it"
    scripts/install-deps.sh --runtime || fail "dependencies are missing"
    [ -c /dev/fuse ] || modprobe fuse 2>/dev/null || true
    [ -c /dev/fuse ] || fail "no /dev/fuse: this kernel or container has no FUSE"
}

build_release() {
    local log=$work/build.log started=$SECONDS
    step "building a release in $build"
    if [ ! -f "$build/build.ninja" ]; then
        rm -rf "$build"
        meson setup "$build" -Dbuildtype=release -Doptimization=2 >"$log" 2>&1 ||
            { tail -n 30 "$log"; fail "meson setup"; }
    fi
    ninja -C "$build" tools/{mkfs.cowraid,mount.cowraid,umount.fuse.cowraid,cowraid} >"$log" 2>&1 ||
        { grep -v '^\[' "$log" | head -n 40; fail "build"; }
    echo "   $((SECONDS - started)) s"
}

# The first tree of a system that is real but not too large.
choose_tree() {
    local folder mib
    for folder in /usr/include /usr/share/doc /usr/lib/python3 /usr/share/perl /usr/share/perl5 /etc; do
        [ -d "$folder" ] || continue
        mib=$(du -sm "$folder" 2>/dev/null | cut -f1)
        [ "$mib" -ge 2 ] && [ "$mib" -le "$tree_mib_max" ] && echo "$folder" && return 0
    done
    fail "no tree of 2 to $tree_mib_max MiB to copy"
}

make_members() {
    local number image loop
    for ((number = 1; number <= member_count; number++)); do
        image=$work/member$number.img
        truncate -s "${member_mib}M" "$image"
        images+=("$image")
        if loop=$(losetup --find --show "$image" 2>/dev/null) && [ -b "$loop" ]; then
            loops+=("$loop")
        fi
    done
    members=("${loops[@]}")
    if [ "${#loops[@]}" -ne "$member_count" ]; then
        echo "   no loop devices here: the members are plain image files"
        [ "${#loops[@]}" -eq 0 ] || losetup -d "${loops[@]}"
        loops=()
        members=("${images[@]}")
    fi
}

take_last_member_away() {
    local last=$((member_count - 1))
    [ "${#loops[@]}" -eq 0 ] || losetup -d "${loops[$last]}"
    mkdir "$work/away"
    mv "${images[$last]}" "$work/away/"
    loops=("${loops[@]:0:$last}")
}

bring_last_member_back() {
    local last=$((member_count - 1)) loop
    mv "$work/away/$(basename "${images[$last]}")" "${images[$last]}"
    [ "${#loops[@]}" -gt 0 ] || return 0
    loop=$(losetup --find --show "${images[$last]}")
    loops+=("$loop")
    members[last]=$loop
}

now_ms() {
    echo $(($(date +%s%N) / 1000000))
}

# timed NAME MIB COMMAND...: notes the throughput.
timed() {
    local name=$1 mib=$2 started elapsed
    shift 2
    started=$(now_ms)
    "$@"
    elapsed=$(($(now_ms) - started))
    [ "$elapsed" -gt 0 ] || elapsed=1
    note "$name" "$(awk -v mib="$mib" -v ms="$elapsed" \
        'BEGIN { printf "%d MiB in %.2f s: %d MiB/s", mib, ms / 1000, mib * 1000 / ms }')"
}

drop_caches() {
    sync
    { echo 3 >/proc/sys/vm/drop_caches; } 2>/dev/null || echo "   (cannot drop the kernel's caches here)"
}

copy_tree() {
    cp -a "$tree" "$work/mnt/tree"
    "$cowraid" filesystem sync "$work/mnt"
}

copy_big_file() {
    dd if="$work/big" of="$work/mnt/big" bs=1M conv=fsync status=none
}

verify() {
    (cd "$work/mnt" && sha256sum --quiet -c "$work/sums") || fail "content differs"
}

sums_of() {
    find "$@" -type f -print0 | sort -z | xargs -0r sha256sum
}

# The sums come from the sources, so that a wrong copy is found, not recorded.
list_sums() {
    (cd "$work" && sha256sum big) >"$work/sums"
    (cd "$tree" && sums_of .) | sed 's|  \./|  tree/|' >>"$work/sums"
}

fill() {
    tree=$(choose_tree)
    tree_mib=$(du -sm --apparent-size "$tree" | cut -f1)
    step "copying $tree and a file of $big_file_mib MiB in"
    dd if=/dev/urandom of="$work/big" bs=1M count="$big_file_mib" status=none
    timed "big file written and fsynced" "$big_file_mib" copy_big_file
    timed "tree copied and synced" "$tree_mib" copy_tree
    list_sums
    verify
    note "files checked by sha256" "$(wc -l <"$work/sums")"
}

without_a_member() {
    step "taking ${members[member_count - 1]} away"
    take_last_member_away
    if "$mount_cowraid" "${members[@]:0:member_count - 1}" "$work/mnt" 2>"$work/refused"; then
        fail "mounted without a member although nobody said -o degraded"
    fi
    sed 's/^/   refused: /' "$work/refused"
    "$mount_cowraid" "${members[@]:0:member_count - 1}" "$work/mnt" -o degraded
    drop_caches
    timed "read back without one member" $((big_file_mib + tree_mib)) verify
    "$cowraid" filesystem show "$work/mnt" | sed 's/^/   /'
    unmount
}

# A member that missed commits stays out until replacement is there; then the mount says so.
with_it_again() {
    step "mounting with it again"
    bring_last_member_back
    if ! "$mount_cowraid" "${members[@]}" "$work/mnt" 2>"$work/refused"; then
        sed 's/^/   refused: /' "$work/refused"
        "$mount_cowraid" "${members[@]}" "$work/mnt" -o degraded
        note "member that was away" "is back but missed commits: mounted degraded"
    fi
    drop_caches
    timed "read back with it again" $((big_file_mib + tree_mib)) verify
    "$cowraid" filesystem usage "$work/mnt" | sed 's/^/   /'
    "$cowraid" device stats "$work/mnt" | sed 's/^/   /'
    unmount
}

demonstrate() {
    local started=$SECONDS
    step "making $member_count members of $member_mib MiB"
    make_members
    mkdir "$work/mnt"
    "$mkfs" -d raid6 -m raid1c3 -L demo "${members[@]}" | sed 's/^/   /'
    "$mount_cowraid" "${members[@]}" "$work/mnt"
    fill
    unmount
    step "checking the unmounted volume"
    "$cowraid" check "${members[@]}" | sed 's/^/   /'
    without_a_member
    with_it_again
    note "time without the build" "$((SECONDS - started)) s"
}

main() {
    prepare
    work=$(mktemp -d "${TMPDIR:-/var/tmp}/cowraid-demo.XXXXXX")
    trap cleanup EXIT
    trap 'exit 130' INT TERM
    build_release
    demonstrate
    echo
    echo "cowraid demo: raid6 over ${#members[@]} members, one was away, every byte came back"
    printf '  %s\n' "${report[@]}"
}

main "$@"
