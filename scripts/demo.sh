#!/bin/bash
# SPDX-License-Identifier: MIT
# The life of a volume. Builds cowraid, makes raid5 of four members, fills it, adds a fifth, converts to
# raid6, takes two members away, replaces one, removes the other, scrubs, reads everything back by checksum at
# each step, and prints what it saw. Run as root; installs what it needs; leaves nothing behind.
#   scripts/demo.sh
# TMPDIR chooses where the members live (about 2.5 GiB).
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."

readonly member_count=4 member_mib=512 big_file_mib=256 tree_mib_max=100
readonly build=build-release
readonly mkfs=$build/tools/mkfs.cowraid mount_cowraid=$build/tools/mount.cowraid
readonly umount_cowraid=$build/tools/umount.fuse.cowraid cowraid=$build/tools/cowraid

work=
with_loops=true
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

# new_member NUMBER: a device that is no member yet, as ${members[NUMBER - 1]}.
new_member() {
    local image=$work/member$1.img
    truncate -s "${member_mib}M" "$image"
    images[$1 - 1]=$image
    members[$1 - 1]=$image
    if "$with_loops"; then
        loops[$1 - 1]=$(losetup --find --show "$image")
        members[$1 - 1]=${loops[$1 - 1]}
    fi
}

make_members() {
    local number
    losetup --find >/dev/null 2>&1 || with_loops=false
    "$with_loops" || echo "   no loop devices here: the members are plain image files"
    for ((number = 1; number <= member_count; number++)); do
        new_member "$number"
    done
}

# lose_member NUMBER: nobody finds it any more.
lose_member() {
    ! "$with_loops" || losetup -d "${loops[$1 - 1]}"
    rm "${images[$1 - 1]}"
    unset "loops[$1 - 1]" "images[$1 - 1]" "members[$1 - 1]"
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

# show COMMAND...: what a command of cowraid says.
show() {
    "$cowraid" "$@" "$work/mnt" | sed 's/^/   /'
}

grow_and_convert() {
    step "adding a fifth member, converting data to raid6 and metadata to raid1c3"
    new_member 5
    "$cowraid" device add "${members[4]}" "$work/mnt" | sed 's/^/   /'
    timed "converted to raid6" $((big_file_mib + tree_mib)) show balance --convert raid6
    verify
    unmount
}

lose_two() {
    step "losing ${members[1]} and ${members[3]}"
    lose_member 2
    lose_member 4
    if "$mount_cowraid" "${members[@]}" "$work/mnt" 2>"$work/refused"; then
        fail "mounted without members although nobody said -o degraded"
    fi
    sed 's/^/   refused: /' "$work/refused"
    "$mount_cowraid" "${members[@]}" "$work/mnt" -o degraded
    drop_caches
    timed "read back without two members" $((big_file_mib + tree_mib)) verify
}

# Until no member lacks anything.
wait_until_filled() {
    while "$cowraid" filesystem show "$work/mnt" | grep -q STALE; do
        sleep 0.1
    done
}

replace_and_remove() {
    step "replacing one by a new device, removing the other"
    new_member 6
    "$cowraid" replace start 2 "${members[5]}" "$work/mnt" | sed 's/^/   /'
    timed "new member filled" $(((big_file_mib + tree_mib) / 3)) wait_until_filled
    timed "lost member removed" $((big_file_mib + tree_mib)) show device remove missing
    show filesystem show
    show scrub
    drop_caches
    timed "read back" $((big_file_mib + tree_mib)) verify
    show filesystem usage
    unmount
    step "checking the unmounted volume"
    "$cowraid" check "${members[@]}" | sed 's/^/   /'
}

demonstrate() {
    local started=$SECONDS
    step "making raid5 of $member_count members of $member_mib MiB"
    make_members
    mkdir "$work/mnt"
    "$mkfs" -d raid5 -m raid1 -L demo "${members[@]}" | sed 's/^/   /'
    "$mount_cowraid" "${members[@]}" "$work/mnt"
    fill
    grow_and_convert
    lose_two
    replace_and_remove
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
    echo "cowraid demo: raid5 became raid6, two members were lost, every byte came back"
    printf '  %s\n' "${report[@]}"
}

main "$@"
