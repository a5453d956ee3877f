# SPDX-License-Identifier: MIT
"""O_TMPFILE, and the time of birth in statx."""

import ctypes
import errno
import os
import stat
import time

import pytest

from conftest import run, wait_for

libc = ctypes.CDLL(None, use_errno=True)
LINUX = tuple(int(part) for part in os.uname().release.split(".")[:2])
needs_tmpfile = pytest.mark.skipif(LINUX < (6, 1), reason="the kernel has no O_TMPFILE on FUSE")
needs_statx = pytest.mark.skipif(LINUX < (6, 6), reason="the kernel asks for no time of birth")


def make(folder, flags=0, mode=0o640):
    return os.open(folder, os.O_TMPFILE | os.O_RDWR | flags, mode)


def link(fd, path):
    """With AT_SYMLINK_FOLLOW, as linkat(2) is used for that."""
    if libc.linkat(-100, f"/proc/self/fd/{fd}".encode(), -100, os.fsencode(path), 0x400) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def used_inodes(volume):
    found = os.statvfs(volume.mount_point)
    return found.f_files - found.f_ffree


@needs_tmpfile
def test_a_file_without_a_name_gets_one(volume):
    folder = volume.mount_point / "d"
    folder.mkdir()
    before = os.umask(0o027)
    try:
        fd = make(folder, mode=0o666)
    finally:
        os.umask(before)
    os.write(fd, b"content")
    assert os.fstat(fd).st_nlink == 0
    assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o640
    assert os.listdir(folder) == []
    link(fd, folder / "name")
    assert os.fstat(fd).st_nlink == 1
    with pytest.raises(OSError, match=rf"\[Errno {errno.EEXIST}\]"):
        link(fd, folder / "name")
    link(fd, folder / "second")
    os.close(fd)
    assert (folder / "name").read_bytes() == b"content"
    volume.unmount()
    volume.check()
    volume.mount()
    assert sorted(os.listdir(folder)) == ["name", "second"]
    assert (folder / "second").read_bytes() == b"content"
    assert (folder / "name").stat().st_nlink == 2


@needs_tmpfile
def test_a_file_without_a_name_goes(volume):
    before = used_inodes(volume)
    kept = make(volume.mount_point, os.O_EXCL)
    with pytest.raises(OSError, match=rf"\[Errno {errno.ENOENT}\]"):
        link(kept, volume.mount_point / "name")
    given_up = make(volume.mount_point)
    os.write(given_up, b"x" * 100000)
    os.fsync(given_up)
    assert used_inodes(volume) == before + 2
    os.close(given_up)
    wait_for(lambda: used_inodes(volume) == before + 1)
    os.write(kept, b"y" * 100000)
    os.fsync(kept)
    volume.kill()
    os.close(kept)
    run("umount", "-i", volume.mount_point)
    volume.mount()
    wait_for(lambda: used_inodes(volume) == before)
    volume.unmount()
    volume.check()


@needs_tmpfile
def test_default_lists_are_inherited_without_a_name(volume):
    run("setfacl", "-d", "-m", "u:7:rw", volume.mount_point)
    fd = make(volume.mount_point, mode=0o666)
    link(fd, volume.mount_point / "file")
    os.close(fd)
    assert "user:7:rw-" in run("getfacl", "-np", volume.mount_point / "file").stdout


@needs_statx
def test_time_of_birth(volume):
    file = volume.mount_point / "file"
    begin = time.time()
    file.touch()
    end = time.time()
    os.utime(file, (5, 5))

    def birth(path):
        return float(run("stat", "-c", "%.9W", path).stdout)

    assert begin - 1 <= birth(file) <= end + 1
    born = birth(file)
    file.write_text("changed")
    file.chmod(0o751)
    os.mknod(volume.mount_point / "device", 0o600 | stat.S_IFCHR, os.makedev(300, 70000))
    volume.unmount()
    volume.mount()
    assert birth(file) == born
    shown = run("stat", "-c", "%W %a %s %F %h", file).stdout.split()
    assert shown == [str(int(born)), "751", "7", "regular", "file", "1"]
    assert run("stat", "-c", "%W %t %T", volume.mount_point / "device").stdout.split()[1:] == \
        [f"{300:x}", f"{70000:x}"]
