# SPDX-License-Identifier: MIT
"""Mounts with sync and dirsync: changes of names are durable when they return, with sync of attributes and
sizes, too. And when directories and symbolic links were read."""

import ctypes
import os
import re
import stat
import time

import pytest

from conftest import run, tool

LATE_COMMIT = "commit=300"


def change_everything(root):
    """Every call that changes names."""
    (root / "made").mkdir()
    (root / "file").write_text("")
    os.mkfifo(root / "fifo")
    os.symlink("target", root / "soft")
    os.link(root / "file", root / "hard")
    (root / "old").touch()
    os.rename(root / "old", root / "new")
    (root / "gone").touch()
    os.unlink(root / "gone")
    (root / "gone.d").mkdir()
    os.rmdir(root / "gone.d")


AFTER = ["fifo", "file", "hard", "made", "new", "soft"]


def after_a_crash(volume, options):
    volume.kill()
    run("umount", "-i", volume.mount_point)
    volume.mount(options=options)
    return sorted(os.listdir(volume.mount_point))


@pytest.mark.parametrize("option, remounted, kept", [
    ("dirsync", "", True), ("sync", "", True), ("async", "", False),
    ("async", "dirsync", True), ("async", "sync", True), ("sync", "async", False)])
def test_names_are_durable(make_volume, option, remounted, kept):
    volume = make_volume(member_count=3, data="raid5", metadata="raid1")
    volume.make()
    options = f"{option},{LATE_COMMIT}"
    volume.mount(options=options)
    if remounted:
        tool("mount.cowraid", volume.devices[0], volume.mount_point, "-o", f"remount,{remounted}")
    change_everything(volume.mount_point)
    found = after_a_crash(volume, options)
    assert found == (AFTER if kept else [])
    if not kept:
        return
    assert os.stat(volume.mount_point / "hard").st_nlink == 2
    assert stat.S_ISFIFO(os.stat(volume.mount_point / "fifo").st_mode)
    volume.unmount()
    volume.check()


def state_of(path):
    found = os.stat(path)
    return {"mode": stat.S_IMODE(found.st_mode), "owner": (found.st_uid, found.st_gid),
            "time": found.st_mtime_ns, "size": found.st_size, "nodump": "d" in flags_of(path),
            "attributes": {name: os.getxattr(path, name) for name in os.listxattr(path)}}


def flags_of(path):
    return run("lsattr", "-d", path).stdout.split()[0]


def copy_into(path, source):
    with open(source, "rb") as one, open(path, "r+b") as other:
        assert os.copy_file_range(one.fileno(), other.fileno(), 5) == 5


def allocate(path):
    with open(path, "r+b") as file:
        os.posix_fallocate(file.fileno(), 0, 50000)


# What each changes, and how.
CHANGES = {
    "mode": lambda path: os.chmod(path, 0o604),
    "owner": lambda path: os.chown(path, 12, 34),
    "time": lambda path: os.utime(path, ns=(10**18, 10**18)),
    "set": lambda path: os.setxattr(path, "user.new", b"value"),
    "removed": lambda path: os.removexattr(path, "user.old"),
    "access list": lambda path: run("setfacl", "-m", "u:9:rw", path),
    "compression": lambda path: os.setxattr(path, "btrfs.compression", b"zstd"),
    "flag": lambda path: run("chattr", "+d", path),
    "truncated": lambda path: os.truncate(path, 100),
    "emptied": lambda path: open(path, "wb").close(),
    "grown": lambda path: os.truncate(path, 20000),
    "allocated": allocate,
    "copied": lambda path: copy_into(path, path.parent / "source"),
}


def syncs(volume):
    """Records of the fsync log, and commits in their place."""
    text = tool("cowraid", "metrics", volume.mount_point).stdout
    return sum(int(number) for number in re.findall(r"^cowraid_fsync_(?:records|commits)_total{.*} (\d+)$",
                                                    text, re.MULTILINE))


@pytest.mark.parametrize("options, kept", [
    (["sync"], True), (["sync", "commit=299"], True), (["async"], False)])
def test_writes_are_durable(make_volume, options, kept):
    """Also after a remount about something else: the kernel forgets then that the mount is sync."""
    volume = make_volume(member_count=3, data="raid5", metadata="raid1")
    volume.make()
    volume.mount(options=f"{options[0]},{LATE_COMMIT}")
    file = volume.mount_point / "file"
    file.write_bytes(bytes(10000))
    run("sync", "-f", volume.mount_point)
    for option in options[1:]:
        tool("mount.cowraid", volume.devices[0], volume.mount_point, "-o", f"remount,{option}")
    with open(file, "r+b") as opened:
        opened.write(b"other")
    after_a_crash(volume, options[0])
    assert file.read_bytes() == (b"other" if kept else bytes(5)) + bytes(9995)


@pytest.mark.parametrize("option, kept", [("sync", True), ("async", False)])
def test_changes_of_files_are_durable(make_volume, option, kept):
    volume = make_volume(member_count=3, data="raid5", metadata="raid1")
    volume.make()
    options = f"{option},{LATE_COMMIT}"
    volume.mount(options=options)
    for name in ("source", *CHANGES):
        path = volume.mount_point / name
        path.write_bytes(bytes(5000))
        os.setxattr(path, "user.old", b"old")
    source = volume.mount_point / "source"
    source.write_bytes(b"other")
    for name in ("access list", "compression", "flag"):  # the first one on a volume is a commit
        CHANGES[name](source)
    run("sync", "-f", volume.mount_point)
    before = {name: state_of(volume.mount_point / name) for name in CHANGES}
    changed, contents = {}, {}
    for name, change in CHANGES.items():
        path = volume.mount_point / name
        count = syncs(volume)
        change(path)
        assert not kept or syncs(volume) > count, name
        changed[name], contents[name] = state_of(path), path.read_bytes()
        assert changed[name] != before[name]
    after_a_crash(volume, options)
    found = {name: state_of(volume.mount_point / name) for name in CHANGES}
    assert found == (changed if kept else before)
    if kept:
        assert {name: (volume.mount_point / name).read_bytes() for name in CHANGES} == contents
    volume.unmount()
    volume.check()


def copy_start(source, target):
    with open(source, "rb") as one:
        assert os.copy_file_range(one.fileno(), target, 5) == 5


def clear_start(target):
    zero_range = 0x10
    assert ctypes.CDLL(None).fallocate(target, zero_range, ctypes.c_long(0), ctypes.c_long(5)) == 0


@pytest.mark.parametrize("flag, kept", [(os.O_DSYNC, True), (os.O_SYNC, True), (0, False)])
def test_copies_and_ranges_by_synchronous_descriptors_are_durable(make_volume, flag, kept):
    volume = make_volume(member_count=3, data="raid5", metadata="raid1")
    volume.make()
    volume.mount(options=LATE_COMMIT)
    source, copied, cleared = (volume.mount_point / name for name in ("source", "copied", "cleared"))
    for path in (source, copied, cleared):
        path.write_bytes(path.name.encode("ascii"))
    run("sync", "-f", volume.mount_point)
    for path, change in ((copied, lambda to: copy_start(source, to)), (cleared, clear_start)):
        descriptor = os.open(path, os.O_WRONLY | flag)
        change(descriptor)
        os.close(descriptor)
    after_a_crash(volume, LATE_COMMIT)
    assert copied.read_bytes() == (b"sourcd" if kept else b"copied")
    assert cleared.read_bytes() == (bytes(5) + b"ed" if kept else b"cleared")


def test_the_mount_table_says_so(make_volume):
    for loops in (True, False):
        volume = make_volume(member_count=2, data="raid1", metadata="raid1", loops=loops)
        volume.make()
        volume.mount(options="dirsync")
        options = run("findmnt", "-n", "-o", "OPTIONS", volume.mount_point).stdout
        assert "dirsync" in options.strip().split(",")
        volume.unmount()


@pytest.mark.parametrize("option, of_directories, of_links, again", [
    ("relatime", True, True, False), ("nodiratime", False, True, False), ("noatime", False, False, False),
    ("strictatime", True, True, True)])
def test_access_times_of_directories_and_links(make_volume, option, of_directories, of_links, again):
    volume = make_volume(member_count=2, data="raid1", metadata="raid1")
    volume.make()
    volume.mount(options=option)
    folder, link = volume.mount_point / "d", volume.mount_point / "link"
    folder.mkdir()
    (folder / "f").touch()
    os.symlink("d", link)

    def changed_by_reading():
        """Of the directory, and of the link. The kernel's caches are empty."""
        volume.drop_caches()
        before = [os.lstat(path).st_atime_ns for path in (folder, link)]
        time.sleep(0.05)
        os.listdir(folder)
        os.readlink(link)
        return [os.lstat(path).st_atime_ns != old for path, old in zip((folder, link), before)]

    assert changed_by_reading() == [of_directories, of_links]
    assert changed_by_reading() == [again and of_directories, again and of_links]
    (folder / "g").touch()
    assert changed_by_reading() == [of_directories, again and of_links]
    for path in (folder, link):
        os.utime(path, (time.time() - 2 * 86400, time.time() - 3 * 86400), follow_symlinks=False)
    assert changed_by_reading() == [of_directories, of_links]
