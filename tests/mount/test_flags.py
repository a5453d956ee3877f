# SPDX-License-Identifier: MIT
"""chattr and lsattr: what flags forbid, also to root, who may set them, and what new files inherit."""

import errno
import fcntl
import mmap
import os
import pwd
import struct
import subprocess
import time

import pytest

from conftest import run, tool, wait_for

GETFLAGS, SETFLAGS = 0x80086601, 0x40086602
FSGETXATTR, FSSETXATTR = 0x801C581F, 0x401C5820
SYNC, IMMUTABLE, APPEND, NODUMP, NOATIME = 8, 0x10, 0x20, 0x40, 0x80
XIMMUTABLE, XAPPEND, XNOATIME, XNODUMP = 8, 0x10, 0x40, 0x80
NOBODY = pwd.getpwnam("nobody").pw_uid


@pytest.fixture
def mounted(make_volume):
    volume = make_volume(member_count=3, member_mib=128, data="raid5", metadata="raid1", loops=False)
    volume.make()
    volume.mount()
    return volume


def get(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return struct.unpack("I", fcntl.ioctl(descriptor, GETFLAGS, b"\0" * 4))[0]
    finally:
        os.close(descriptor)


def set_flags(path, flags):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, SETFLAGS, struct.pack("I", flags))
    finally:
        os.close(descriptor)


def refused(call, *arguments, **options):
    """The error with which it is refused; None: it is not."""
    try:
        call(*arguments, **options)
    except OSError as error:
        return error.errno
    return None


def open_for(path, flags):
    os.close(os.open(path, flags))


def write_through(descriptor, data):
    os.write(descriptor, data)


def as_nobody(code):
    """What a program of another user prints."""
    head = f"import errno, fcntl, os, struct\nos.setgid({NOBODY}); os.setuid({NOBODY})\n"
    return run("python3", "-c", head + code).stdout.strip()


def test_flags_come_back_by_every_way(mounted):
    root = mounted.mount_point
    file, directory = root / "file", root / "directory"
    file.write_text("text")
    directory.mkdir()
    for path in (file, directory):
        assert get(path) == 0
        set_flags(path, NODUMP | NOATIME)
        assert get(path) == NODUMP | NOATIME
        descriptor = os.open(path, os.O_RDONLY)
        extended = struct.unpack("IIIII8x", fcntl.ioctl(descriptor, FSGETXATTR, b"\0" * 28))
        assert extended == (XNODUMP | XNOATIME, 0, 0, 0, 0)
        fcntl.ioctl(descriptor, FSSETXATTR, struct.pack("IIIII8x", XNODUMP | XAPPEND, 0, 0, 0, 0))
        assert get(path) == NODUMP | APPEND
        assert refused(fcntl.ioctl, descriptor, FSSETXATTR, struct.pack("IIIII8x", 0, 0, 0, 5, 0)) in (
            errno.EOPNOTSUPP, errno.EINVAL)
        os.close(descriptor)
        assert refused(set_flags, path, SYNC) == errno.EOPNOTSUPP
        assert get(path) == NODUMP | APPEND
        run("chattr", "=", path)
        run("chattr", "+i", path)
        assert get(path) == IMMUTABLE
    listed = run("lsattr", "-d", file, directory).stdout.splitlines()
    assert [line.split()[0].strip("-") for line in listed] == ["i", "i"]
    run("chattr", "=", file)
    run("chattr", "+a", file)
    mounted.unmount()
    mounted.check()
    mounted.mount()
    assert (get(file), get(directory)) == (APPEND, IMMUTABLE)
    assert refused(file.unlink) == errno.EPERM
    assert refused((directory / "new").write_text, "") == errno.EPERM


def test_flags_survive_a_daemon_that_dies_after_fsync(mounted):
    file = mounted.mount_point / "file"
    file.write_text("text")
    with open(file, "rb") as opened:
        os.fsync(opened.fileno())
        run("chattr", "+i", file)
        os.fsync(opened.fileno())
    mounted.kill()
    mounted.mount()
    assert get(file) == IMMUTABLE
    assert refused(file.unlink) == errno.EPERM
    assert file.read_text() == "text"


def test_immutable_forbids_every_change(mounted):
    root = mounted.mount_point
    file, other, directory = root / "file", root / "other", root / "directory"
    file.write_text("text")
    other.write_text("other")
    directory.mkdir()
    (directory / "inside").write_text("inside")
    opened = os.open(file, os.O_RDWR)
    os.setxattr(file, "user.name", b"value")
    before = os.stat(file)
    set_flags(file, IMMUTABLE)
    set_flags(directory, IMMUTABLE)
    calls = [
        (open_for, file, os.O_WRONLY), (open_for, file, os.O_RDWR),
        (open_for, file, os.O_WRONLY | os.O_APPEND),
        (open_for, file, os.O_RDWR | os.O_TRUNC), (os.truncate, file, 1), (write_through, opened, b"more"),
        (os.ftruncate, opened, 2), (os.posix_fallocate, opened, 0, 100000), (os.unlink, file),
        (os.rename, file, root / "new"), (os.rename, other, file), (os.link, file, root / "new"),
        (os.chmod, file, 0o600), (os.chown, file, 1, 1), (os.utime, file), (os.utime, file, (1, 1)),
        (os.setxattr, file, "user.name", b"new"), (os.setxattr, file, "user.more", b"new"),
        (os.removexattr, file, "user.name"),
        (os.mkdir, directory / "new"), (open_for, directory / "new", os.O_CREAT | os.O_WRONLY),
        (os.symlink, "target", directory / "new"), (os.mkfifo, directory / "new"),
        (os.link, other, directory / "new"), (os.rename, other, directory / "new"),
        (os.unlink, directory / "inside"), (os.rename, directory / "inside", root / "new"),
        (os.rmdir, directory), (os.rename, directory, root / "new"), (os.chmod, directory, 0o700),
        (os.setxattr, directory, "user.name", b"value"),
    ]
    for call, *arguments in calls:
        assert refused(call, *arguments) == errno.EPERM, (call, arguments)
    assert file.read_text() == "text" and os.getxattr(file, "user.name") == b"value"
    after = os.stat(file)
    assert (before.st_mode, before.st_mtime_ns, before.st_nlink) == (after.st_mode, after.st_mtime_ns,
                                                                     after.st_nlink)
    assert sorted(os.listdir(root)) == ["directory", "file", "other"] and os.listdir(directory) == ["inside"]
    # A file in it may be written to.
    (directory / "inside").write_text("changed")
    set_flags(file, 0)
    set_flags(directory, 0)
    write_through(opened, b"more")
    os.close(opened)
    assert file.read_text() == "more"
    os.unlink(file)
    os.unlink(directory / "inside")
    os.rmdir(directory)


def test_append_only_lets_files_and_directories_grow(mounted):
    root = mounted.mount_point
    file, directory = root / "file", root / "directory"
    file.write_text("text")
    directory.mkdir()
    (directory / "inside").write_text("inside")
    set_flags(file, APPEND)
    set_flags(directory, APPEND)
    calls = [
        (open_for, file, os.O_WRONLY), (open_for, file, os.O_WRONLY | os.O_APPEND | os.O_TRUNC),
        (os.truncate, file, 1), (os.truncate, file, 100), (os.unlink, file), (os.rename, file, root / "new"),
        (os.link, file, root / "new"), (os.chmod, file, 0o600), (os.utime, file, (1, 1)),
        (os.setxattr, file, "user.name", b"new"), (os.unlink, directory / "inside"),
        (os.rename, directory / "inside", root / "new"), (os.rmdir, directory),
        (os.rename, directory / "inside", directory / "new"),
    ]
    for call, *arguments in calls:
        assert refused(call, *arguments) == errno.EPERM, (call, arguments)
    # Who may read and write could change what is there through a mapping.
    assert refused(open_for, file, os.O_RDWR | os.O_APPEND) == errno.EPERM
    # The flag of a descriptor can be taken away again.
    fd = os.open(file, os.O_WRONLY | os.O_APPEND)
    fcntl.fcntl(fd, fcntl.F_SETFL, 0)
    assert refused(os.pwrite, fd, b"over", 0) == errno.EPERM
    os.close(fd)
    with open(file, "a", encoding="ascii") as appended:
        appended.write(" and more")
        appended.flush()
        assert refused(os.ftruncate, appended.fileno(), 1) == errno.EPERM
        hole = subprocess.run(["fallocate", "-p", "-l", "4096", file], capture_output=True, check=False)
        assert hole.returncode != 0
    assert file.read_text() == "text and more"
    (directory / "new").write_text("new")
    (directory / "folder").mkdir()
    os.utime(file)
    assert sorted(os.listdir(directory)) == ["folder", "inside", "new"]


def test_who_may_set_what(mounted):
    root = mounted.mount_point
    os.chmod(root, 0o777)
    mine, theirs = root / "mine", root / "theirs"
    mine.write_text("")
    theirs.write_text("")
    os.chmod(mine, 0o666)
    os.chown(theirs, NOBODY, NOBODY)
    code = (f"fd = os.open('{{}}', os.O_RDONLY)\n"
            f"try: fcntl.ioctl(fd, {SETFLAGS}, struct.pack('I', {{}})); print('done')\n"
            "except OSError as error: print(errno.errorcode[error.errno])")
    assert as_nobody(code.format(theirs, NODUMP | NOATIME)) == "done"
    assert as_nobody(code.format(theirs, NODUMP | IMMUTABLE)) == "EPERM"
    assert as_nobody(code.format(theirs, APPEND)) == "EPERM"
    assert as_nobody(code.format(mine, NODUMP)) in ("EPERM", "EACCES")
    assert (get(mine), get(theirs)) == (0, NODUMP | NOATIME)
    set_flags(theirs, APPEND)
    assert as_nobody(code.format(theirs, 0)) == "EPERM"
    assert as_nobody(code.format(theirs, APPEND | NODUMP)) == "done"
    assert get(theirs) == APPEND | NODUMP

    def as_capable(capabilities, code):
        return run("setpriv", f"--reuid={NOBODY}", "--clear-groups", f"--inh-caps={capabilities}",
                   f"--ambient-caps={capabilities}", "/usr/bin/python3", "-c",
                   f"import fcntl, os, struct\n{code}", check=False)

    code = f"fcntl.ioctl(os.open('{mine}', os.O_RDONLY), {SETFLAGS}, struct.pack('I', {APPEND | NODUMP}))"
    for capabilities in ("+fowner", "+linux_immutable"):
        assert "Operation not permitted" in as_capable(capabilities, code).stderr
        assert get(mine) == 0
    assert as_capable("+fowner,+linux_immutable", code).returncode == 0
    assert get(mine) == APPEND | NODUMP
    set_flags(mine, 0)
    assert as_capable("+fowner", f"os.setxattr('{mine}', 'btrfs.compression', b'zstd')").returncode == 0
    assert os.getxattr(mine, "btrfs.compression") == b"zstd"


def test_new_files_inherit_what_ext4_hands_down(mounted):
    directory = mounted.mount_point / "directory"
    directory.mkdir()
    set_flags(directory, NODUMP | NOATIME | APPEND)
    (directory / "file").write_text("text")
    (directory / "folder").mkdir()
    assert get(directory / "file") == get(directory / "folder") == NODUMP | NOATIME
    (directory / "folder" / "file").write_text("text")
    assert get(directory / "folder" / "file") == NODUMP | NOATIME


def test_noatime_keeps_the_access_time(make_volume):
    volume = make_volume(member_count=3, member_mib=128, data="raid5", metadata="raid1", loops=False)
    volume.make()
    volume.mount(options="strictatime")
    kept, other = volume.mount_point / "kept", volume.mount_point / "other"
    for path in (kept, other):
        path.write_text("text")
        os.utime(path, (1000, 1000))
    set_flags(kept, NOATIME)

    def read_again():
        volume.drop_caches()
        assert kept.read_text() == other.read_text() == "text"
        return os.stat(other).st_atime > 1000

    wait_for(read_again)
    assert os.stat(kept).st_atime == 1000


def test_mapped_data_from_before_is_not_lost(mounted):
    """What a program stored through a mapping before the flag is written back all the same."""
    file = mounted.mount_point / "file"
    file.write_bytes(b"a" * 8192)
    with open(file, "r+b") as opened:
        mapping = mmap.mmap(opened.fileno(), 8192)
        mapping[:4] = b"text"
        set_flags(file, IMMUTABLE)
        mapping.flush()
        mapping.close()
    mounted.drop_caches()
    assert file.read_bytes()[:8] == b"textaaaa"


def test_older_volumes_have_no_flags(mounted):
    file = mounted.mount_point / "file"
    file.write_text("text")
    dump = tool("cowraid", "inspect", "dump-super", mounted.devices[0]).stdout
    assert "inode_flags" not in dump
    set_flags(file, NODUMP)
    tool("cowraid", "filesystem", "sync", mounted.mount_point)
    assert "inode_flags" in tool("cowraid", "inspect", "dump-super", mounted.devices[0]).stdout


def test_the_time_of_the_change_is_seen_at_once(mounted):
    for path in (mounted.mount_point / "file", mounted.mount_point / "folder"):
        path.write_text("text") if path.name == "file" else path.mkdir()
        run("sync", "-f", path)  # until then the kernel asks for its blocks each time
        before = path.stat().st_ctime_ns
        time.sleep(0.02)
        set_flags(path, NODUMP)
        assert path.stat().st_ctime_ns > before
