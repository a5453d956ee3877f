#!/bin/bash
# SPDX-License-Identifier: MIT
# Shows that the package works: installs it on a clean Debian 12 root, boots that in a container with systemd
# and udev of its own, mounts two volumes from fstab at boot by label, scrubs by the systemd unit, shuts down
# while a service still writes, boots again, with a member missing, and removes the package. Prints what it
# saw. Run as root; needs the distribution's package archive, FUSE and loop devices; leaves nothing behind.
#   scripts/package_show.sh [PACKAGE]      default: build-package/cowraid_*.deb, made by scripts/package.sh
# TMPDIR chooses where the root lies (about 600 MiB).
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."

readonly release=bookworm mirror=http://deb.debian.org/debian
readonly member_count=5 member_mib=256
work=
loops=()
missing=()  # of them, at the next boot
report=()

fail() {
    echo "package_show: $*" >&2
    exit 1
}

step() {
    echo "-- $*"
}

note() {
    report+=("$(printf '%-42s %s' "$1" "$2")")
}

# Process 1 of the container; empty when it does not run.
leader() {
    local nspawn
    nspawn=$(cat "$work/nspawn.pid" 2>/dev/null) && pgrep -P "$nspawn" -x systemd
}

# inside COMMAND...: in the container that runs.
inside() {
    nsenter -a -t "$(leader)" "$@"
}

# boot [degraded]: with a unit that fails. The container has cgroups of its own, not those of who runs this,
# and no network: udev in it must not see the interfaces. It sees the members, and may mount.
boot() {
    local arguments=() index expected=${1:-running}
    for index in "${!loops[@]}"; do
        [[ " ${missing[*]} " == *" ${loops[$index]} "* ]] || arguments+=("--bind=${loops[$index]}")
        # Whose the file behind a loop device is: without that udev brings none back.
        arguments+=("--bind-ro=$work/member$((index + 1)).img")
    done
    unshare -m bash -c '
        umount -l /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup
        mkdir -p "/sys/fs/cgroup/$1" && echo $$ >"/sys/fs/cgroup/$1/cgroup.procs"
        echo $$ >"$2/nspawn.pid"
        shift 2
        SYSTEMD_NSPAWN_API_VFS_WRITABLE=yes exec systemd-nspawn --boot --register=no --keep-unit \
            --capability=all --private-network --console=pipe --bind=/dev/fuse --quiet "$@"
        ' - "${work##*/}" "$work" --directory="$root" "${arguments[@]}" </dev/null >"$work/console" 2>&1 &
    for _ in $(seq 600); do
        state=$(inside systemctl is-system-running 2>/dev/null) || true
        case $state in
        "$expected") return 0 ;;
        degraded)
            inside systemctl --failed --no-pager
            inside journalctl --no-pager -b -p warning | tail -n 40
            fail "a unit failed"
            ;;
        esac
        sleep 0.1
    done
    tail -n 20 "$work/console"
    inside systemctl list-jobs --no-pager || true
    fail "the container does not boot"
}

shut_down() {
    local process
    process=$(cat "$work/nspawn.pid")
    inside systemctl poweroff 2>>"$work/console"  # which is gone before it answers
    for _ in $(seq 900); do
        [ -d "/proc/$process" ] || break
        sleep 0.1
    done
    [ ! -d "/proc/$process" ] || fail "the container does not shut down"
    rm "$work/nspawn.pid"
    rm -rf --one-file-system "${root:?}$work"  # where the members' files were mounted
}

remove_cgroup() {
    unshare -m bash -c '
        umount -l /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup
        for _ in $(seq 50); do
            [ -d "/sys/fs/cgroup/$1" ] || break
            find "/sys/fs/cgroup/$1" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.1
        done
        ' - "${work##*/}" || true
}

cleanup() {
    local status=$? process loop
    trap - EXIT INT TERM
    [ -n "$work" ] || exit $status
    if process=$(cat "$work/nspawn.pid" 2>/dev/null); then
        kill -KILL "$(leader)" "$process" 2>/dev/null || true
        wait || true
    fi
    for loop in "${loops[@]}"; do
        losetup -d "$loop" 2>/dev/null || true
    done
    remove_cgroup
    rm -rf --one-file-system "$work"
    exit $status
}

prepare() {
    [ "$(id -u)" -eq 0 ] || fail "run me as root: containers and mounts need it"
    local program packages=()
    for program in debootstrap:debootstrap systemd-nspawn:systemd-container; do
        command -v "${program%:*}" >/dev/null || packages+=("${program#*:}")
    done
    [ "${#packages[@]}" -eq 0 ] || apt-get -qy install --no-install-recommends "${packages[@]}" >/dev/null
    [ -c /dev/fuse ] || fail "no /dev/fuse: this kernel or container has no FUSE"
}

make_root() {
    step "a clean Debian $release"
    debootstrap --variant=minbase --include=systemd-sysv,udev,dbus "$release" "$root" "$mirror" \
        >"$work/log" 2>&1 || { tail -n 20 "$work/log"; fail "debootstrap"; }
    rm -f "$root/etc/machine-id"
    touch "$root/etc/machine-id"
    # There is no console. And where /dev is no devtmpfs systemd listens to udev only when that is there
    # before it.
    ln -s /dev/null "$root/etc/systemd/system/console-getty.service"
    cat >"$root/etc/systemd/system/see-udev.service" <<-END
	[Unit]
	DefaultDependencies=no
	After=systemd-udevd-control.socket
	Before=systemd-udev-trigger.service
	[Service]
	Type=oneshot
	ExecStart=systemctl daemon-reexec
	END
    mkdir -p "$root/etc/systemd/system/sysinit.target.wants"
    ln -s ../see-udev.service "$root/etc/systemd/system/sysinit.target.wants"
}

# All names below the root but logs, caches and what the package manager writes down.
list_files() {
    (cd "$root" && find . -xdev \( -path ./var/lib/apt -o -path ./var/lib/dpkg -o -path ./var/cache -o \
        -path ./var/log -o -path ./tmp -o -path ./root -o -path ./srv \) -prune -o -print) | sort
}

# apt COMMAND...: in the root, whether or not it is booted.
apt_in_root() {
    DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get -qy --no-install-recommends "$@" \
        >"$work/log" 2>&1 || { tail -n 20 "$work/log"; fail "apt-get $1"; }
}

install_package() {
    step "installing $package"
    cp "$package" "$root/tmp/cowraid.deb"
    apt_in_root install /tmp/cowraid.deb
    ls "$root"/usr/share/doc/cowraid/EVENTS.md* >/dev/null || fail "events are not described"
    note "package installed" "$(chroot "$root" dpkg-query -W -f '${Version}, ${Installed-Size} KiB' cowraid)"
}

make_members() {
    local number image
    for ((number = 1; number <= member_count; number++)); do
        image=$work/member$number.img
        truncate -s "${member_mib}M" "$image"
        loops+=("$(losetup --find --show "$image")")
    done
}

# A service that writes to the volume until it is stopped, and once more then.
write_writer() {
    cat >"$root/etc/systemd/system/writer.service" <<-END
	[Unit]
	RequiresMountsFor=/srv/tank /srv/vault
	[Service]
	ExecStart=/bin/sh -c 'while :; do date >>/srv/tank/dates; sleep 0.1; done'
	ExecStop=/bin/sh -c 'echo stopped >/srv/tank/last; echo stopped >/srv/vault/last'
	[Install]
	WantedBy=multi-user.target
	END
}

all_labels_known() {
    inside lsblk -nro LABEL "${loops[@]}" | sort | uniq -c | tr -s ' \n' ' ' | grep -qx ' 2 tank 3 vault '
}

make_volumes() {
    step "first boot: two volumes are made, and udev knows their members"
    boot
    inside mkfs.cowraid -q -d raid1 -L tank "${loops[0]}" "${loops[1]}"
    inside mkfs.cowraid -q -d raid1 -L vault "${loops[@]:2}"
    # What udev is told when a file is closed comes some time after that.
    for _ in $(seq 100); do
        inside udevadm settle
        ! all_labels_known || break
        sleep 0.1
    done
    inside lsblk -f "${loops[@]}" | sed 's/^/   /'
    inside test -b /dev/disk/by-label/tank || fail "no link by label"
    all_labels_known || fail "lsblk does not know the labels"
    note "labels known to udev" "$(inside sh -c 'cd /dev/disk/by-label && echo *')"
    mkdir -p "$root/srv/tank" "$root/srv/vault"
    local settle=,x-systemd.requires=systemd-udev-settle.service
    cat >>"$root/etc/fstab" <<-END
	LABEL=tank     /srv/tank   cowraid  x-systemd.requires=systemd-udev-settle.service  0 2
	cowraid:vault  /srv/vault  cowraid  x-systemd.requires=/dev/disk/by-label/vault$settle  0 0
	END
    write_writer
    inside systemctl daemon-reload
    inside systemctl -q enable writer.service
    shut_down
}

boot_with_fstab() {
    step "second boot: both are mounted from fstab, before the service that uses them"
    boot
    inside findmnt -lo TARGET,SOURCE,FSTYPE -t fuse.cowraid,fuseblk.cowraid | sed 's/^/   /'
    inside mountpoint -q /srv/tank && inside mountpoint -q /srv/vault || fail "not mounted"
    inside systemctl is-active -q writer.service srv-tank.mount srv-vault.mount || fail "not active"
    note "mounted at boot, LABEL= and cowraid:" \
        "both; $(inside systemctl show -P ControlGroup srv-tank.mount)"
    inside sh -c 'head -c 20000000 /dev/urandom >/srv/tank/big; sha256sum /srv/tank/big >/srv/vault/sums'
    step "the scrub of the timer"
    inside systemctl -q enable --now cowraid-scrub@srv-tank.timer
    inside systemctl list-timers --no-pager 'cowraid*' | sed -n '2s/^/   /p'
    inside systemctl start cowraid-scrub@srv-tank.service
    for _ in $(seq 300); do
        inside systemctl is-active -q cowraid-scrub@srv-tank.service || break
        sleep 0.1
    done
    result=$(inside cowraid scrub status /srv/tank | sed -n 's/^Result: *//p')
    [ "$result" = "no errors found" ] || fail "scrub: $result"
    note "scrub by cowraid-scrub@srv-tank.service" "$result"
    step "a member that is out of service appears, as udev sees it"
    inside cowraid device offline "${loops[3]}" /srv/vault >/dev/null
    inside sh -c 'head -c 3000000 /dev/urandom >/srv/vault/missed
        sha256sum /srv/vault/missed >>/srv/vault/sums'
    inside udevadm trigger --settle --action=add "${loops[3]}"
    for _ in $(seq 100); do
        [ "$(inside cowraid status -x /srv/vault)" != "all volumes are healthy" ] || break
        sleep 0.1
    done
    inside cowraid status -x /srv/vault | sed 's/^/   /'
    inside journalctl --no-pager -b -o cat -u "cowraid-online@$(basename "${loops[3]}")" | sed 's/^/   /'
    inside cowraid status -x /srv/vault | grep -q "all volumes are healthy" || fail "the member is not back"
    note "a member of vault appeared again" "back in service by cowraid-online@.service"
    step "the device that the label leads to vanishes, as udev sees it"
    inside udevadm trigger --settle --action=remove "$(inside readlink -f /dev/disk/by-label/vault)"
    sleep 1
    inside systemctl is-active -q srv-vault.mount || fail "systemd has unmounted the volume"
    note "a device of cowraid:vault vanished" "still mounted"
    step "shutdown while the service writes"
    shut_down
}

boot_again() {
    step "third boot: what was written is there"
    boot
    [ "$(inside cat /srv/tank/last /srv/vault/last | tr '\n' ' ')" = "stopped stopped " ] ||
        fail "the volumes went before the service that used them"
    inside sha256sum --quiet -c /srv/vault/sums || fail "content differs"
    inside journalctl --no-pager -b -1 -o cat -t cowraid | grep -c "unmounted from /srv" | grep -qx 2 ||
        fail "the daemons did not say that they unmounted"
    note "at shutdown" "service stopped, last commit, daemons ended; content equal"
    inside systemctl -q disable --now writer.service
    rm "$root/etc/systemd/system/writer.service"
    shut_down
}

# Refused or mounted, as the line of fstab has it; the boot goes on either way.
boot_with_members_missing() {
    step "fourth boot: a member of each is missing; the line of vault has degraded, that of tank has not"
    sed -i -e 's/ cowraid  / cowraid  nofail,missing_dev_timeout=2,/' \
        -e '/vault/s/nofail,/nofail,degraded,/' "$root/etc/fstab"
    grep cowraid "$root/etc/fstab" | sed 's/^/   /'
    missing=("${loops[0]}" "${loops[2]}")
    boot degraded
    inside systemctl is-active -q multi-user.target || fail "the boot did not go on"
    [ "$(inside systemctl --failed --plain --no-legend | awk '{print $1}')" = srv-tank.mount ] ||
        fail "another unit failed"
    ! inside mountpoint -q /srv/tank || fail "tank is mounted without degraded"
    inside journalctl --no-pager -b -o cat -u srv-tank.mount >"$work/said"
    grep "member 1 is absent.*-o degraded" "$work/said" | sed 's/^/   /' || fail "the journal has no reason"
    note "a member missing, nofail" "refused, said in the journal; the boot goes on"
    inside mountpoint -q /srv/vault || fail "vault is not mounted with degraded"
    inside journalctl --no-pager -b -o cat -p warning -t cowraid >"$work/said"
    grep "member 1 is absent" "$work/said" | sed 's/^/   /' || fail "the log does not name the member"
    inside cowraid status -x /srv/vault | sed 's/^/   /'
    inside cowraid status /srv/vault | grep -q DEGRADED || fail "status does not say it"
    inside cowraid events /srv/vault | grep -q DegradedArray || fail "there is no event"
    inside sh -c 'grep /srv/vault /srv/vault/sums | sha256sum --quiet -c' || fail "content differs"
    inside sh -c 'head -c 3000000 /dev/urandom >/srv/vault/without
        sha256sum /srv/vault/without >>/srv/vault/sums'
    note "a member missing, nofail,degraded" "mounted, written; warned of in log, status and events"
    shut_down
    step "fifth boot: all are there again"
    missing=()
    boot
    for _ in $(seq 100); do
        ! inside cowraid status -x | grep -q "all volumes are healthy" || break
        sleep 0.1
    done
    inside cowraid status -x | sed 's/^/   /'
    inside cowraid status -x | grep -q "all volumes are healthy" || fail "the member is not caught up"
    inside sha256sum --quiet -c /srv/vault/sums || fail "content differs"
    note "the member is there again" "caught up; content equal"
    inside umount /srv/tank /srv/vault
    inside cowraid check "${loops[0]}" | tail -n 1 | sed 's/^/   tank: /'
    inside cowraid check "${loops[2]}" | tail -n 1 | sed 's/^/   vault: /'
}

wipe_and_remove() {
    step "wiping the members, removing the package"
    inside cowraid device wipe "${loops[@]}" | sed 's/^/   /'
    inside udevadm settle
    ! inside test -e /dev/disk/by-label/tank || fail "a wiped member has its link"
    cp "$work/fstab" "$root/etc/fstab"
    shut_down
    apt_in_root purge cowraid
    apt_in_root autoremove --purge
    list_files >"$work/after"
    diff "$work/before" "$work/after" || fail "files were left, or are gone"
    note "files left after removing it" "none of $(wc -l <"$work/after") differ"
}

main() {
    prepare
    package=${1:-$(ls build-package/cowraid_*.deb 2>/dev/null || true)}
    [ -f "$package" ] || fail "no package $package; scripts/package.sh makes it"
    work=$(mktemp -d "${TMPDIR:-/var/tmp}/cowraid-package.XXXXXX")
    root=$work/root
    trap cleanup EXIT
    trap 'exit 130' INT TERM
    make_root
    make_members
    # What a first boot and reading names of users write is not the package's.
    boot
    shut_down
    cp "$root/etc/fstab" "$work/fstab"
    list_files >"$work/before"
    install_package
    make_volumes
    boot_with_fstab
    boot_again
    boot_with_members_missing
    wipe_and_remove
    echo
    echo "package_show: $package installs, mounts at boot, and leaves no file when it is removed"
    printf '  %s\n' "${report[@]}"
}

main "$@"
