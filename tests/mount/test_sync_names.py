# SPDX-License-Identifier: MIT
"""Mounts with sync and dirsync: changes of names are durable when they return. And when directories and
symbolic links were read."""

import os
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
