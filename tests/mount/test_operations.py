# SPDX-License-Identifier: MIT
"""Every operation of a filesystem, on a real mount."""

import errno
import fcntl
import mmap
import os
import stat
import subprocess

import pytest

from conftest import tool


def raises(number):
    return pytest.raises(OSError, match=rf"\[Errno {number}\]")


def test_names(volume):
    root = volume.mount_point
    (root / "d").mkdir()
    (root / "d" / "f").write_bytes(b"content")
    os.link(root / "d" / "f", root / "hard")
    assert os.stat(root / "hard").st_nlink == 2
    os.symlink("d/f", root / "soft")
    assert os.readlink(root / "soft") == "d/f"
    assert (root / "soft").read_bytes() == b"content"
    with raises(errno.ENOTEMPTY):
        os.rmdir(root / "d")
    with raises(errno.EEXIST):
        (root / "d").mkdir()
    with raises(errno.EISDIR):
        os.unlink(root / "d")
    os.rename(root / "hard", root / "d" / "moved")
    assert sorted(os.listdir(root / "d")) == ["f", "moved"]
    os.unlink(root / "d" / "f")
    assert (root / "d" / "moved").read_bytes() == b"content"
    assert os.stat(root / "d" / "moved").st_nlink == 1
    long = "n" * 255
    (root / long).touch()
    with raises(errno.ENAMETOOLONG):
        (root / ("n" * 256)).touch()
    os.mkfifo(root / "fifo")
    assert stat.S_ISFIFO(os.stat(root / "fifo").st_mode)
    volume.unmount()
    volume.mount()
    assert sorted(os.listdir(root)) == sorted(["d", "soft", "fifo", long])


def test_rename_flags(volume):
    root = volume.mount_point
    (root / "a").write_text("a")
    (root / "b").write_text("b")
    libc = __import__("ctypes").CDLL(None, use_errno=True)

    def renameat2(old, new, flags):
        result = libc.renameat2(-100, os.fsencode(root / old), -100, os.fsencode(root / new), flags)
        return 0 if result == 0 else __import__("ctypes").get_errno()

    assert renameat2("a", "b", 1) == errno.EEXIST
    assert renameat2("a", "b", 2) == 0
    assert (root / "a").read_text() == "b" and (root / "b").read_text() == "a"


def test_open_unlinked_file_lives_until_closed(volume):
    path = volume.mount_point / "f"
    with open(path, "w+b") as file:
        file.write(b"x" * 100000)
        os.unlink(path)
        file.flush()
        os.fsync(file.fileno())
        file.seek(0)
        assert file.read() == b"x" * 100000
        assert os.fstat(file.fileno()).st_nlink == 0
    volume.unmount()
    volume.check()


def test_times_modes_and_owners(volume):
    path = volume.mount_point / "f"
    path.touch()
    os.utime(path, ns=(1234567890123456789, 987654321987654321))
    os.chmod(path, 0o4755)
    os.chown(path, 1000, 1001)
    os.chmod(path, 0o6755)
    volume.unmount()
    volume.mount()
    status = os.stat(path)
    assert status.st_atime_ns == 1234567890123456789
    assert status.st_mtime_ns == 987654321987654321
    assert (status.st_uid, status.st_gid) == (1000, 1001)
    assert stat.S_IMODE(status.st_mode) == 0o6755
    somebody = ["setpriv", "--reuid=1000", "--regid=1001", "--clear-groups"]
    subprocess.run([*somebody, "sh", "-c", f"echo x >> {path}"], check=True)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o755


def test_xattrs(volume):
    path = volume.mount_point / "f"
    path.touch()
    os.setxattr(path, "user.a", b"1")
    os.setxattr(path, "trusted.b", b"\0" * 3000)
    with raises(errno.EEXIST):
        os.setxattr(path, "user.a", b"2", os.XATTR_CREATE)
    with raises(errno.ENODATA):
        os.setxattr(path, "user.c", b"2", os.XATTR_REPLACE)
    volume.unmount()
    volume.mount()
    assert sorted(os.listxattr(path)) == ["trusted.b", "user.a"]
    assert os.getxattr(path, "trusted.b") == b"\0" * 3000
    os.removexattr(path, "user.a")
    with raises(errno.ENODATA):
        os.getxattr(path, "user.a")


def test_many_entries_and_stable_cursors(volume):
    root = volume.mount_point / "many"
    root.mkdir()
    names = {f"entry{i}" for i in range(3000)}
    for name in names:
        (root / name).touch()
    seen = []
    with os.scandir(root) as entries:
        for count, entry in enumerate(entries):
            seen.append(entry.name)
            if count == 500:
                for i in range(0, 3000, 7):
                    if f"entry{i}" not in seen:
                        os.unlink(root / f"entry{i}")
    assert len(seen) == len(set(seen))
    assert {name for name in names if (root / name).exists()} <= set(seen)


def test_sparse_truncate_fallocate(volume):
    path = volume.mount_point / "f"
    with open(path, "w+b") as file:
        file.truncate(1 << 30)
        os.pwrite(file.fileno(), b"end", (1 << 30) - 3)
        assert os.fstat(file.fileno()).st_blocks * 512 < 1 << 20
        os.fsync(file.fileno())
        assert os.pread(file.fileno(), 10, 12345) == b"\0" * 10
        file.truncate(5000)
        os.pwrite(file.fileno(), b"a" * 5000, 0)
        file.truncate(100)
        file.truncate(5000)
        assert os.pread(file.fileno(), 5000, 0) == b"a" * 100 + b"\0" * 4900
        os.posix_fallocate(file.fileno(), 0, 1 << 20)
        assert os.fstat(file.fileno()).st_size == 1 << 20
        assert os.fstat(file.fileno()).st_blocks * 512 >= 1 << 20
    volume.unmount()
    volume.check()


def test_block_count_of_a_sparse_file_after_the_flush(volume):
    path = volume.mount_point / "f"
    with open(path, "w+b") as file:
        file.truncate(1 << 30)
        for i in range(10):
            os.pwrite(file.fileno(), b"a" * 4096, i << 20)
        os.fsync(file.fileno())
        tool("cowraid", "filesystem", "sync", volume.mount_point)
        assert os.stat(path).st_blocks == 80
        for i in range(5, 15):
            os.pwrite(file.fileno(), b"b" * 4096, i << 20)
        assert os.stat(path).st_blocks >= 15 * 8
        tool("cowraid", "filesystem", "sync", volume.mount_point)
        assert os.stat(path).st_blocks == 15 * 8


def test_append_direct_sync_and_mmap(volume):
    path = volume.mount_point / "f"
    with open(path, "ab") as one, open(path, "ab") as two:
        for i in range(50):
            (one if i % 2 else two).write(b"%03d\n" % i)
            one.flush(), two.flush()
    assert path.read_bytes() == b"".join(b"%03d\n" % i for i in range(50))
    block = mmap.mmap(-1, 65536)
    block.write(b"D" * 65536)
    fd = os.open(volume.mount_point / "direct", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    assert os.pwrite(fd, block, 131072) == 65536
    back = mmap.mmap(-1, 65536)
    assert os.preadv(fd, [back], 131072) == 65536 and back[:] == block[:]
    os.close(fd)
    fd = os.open(volume.mount_point / "sync", os.O_WRONLY | os.O_CREAT | os.O_DSYNC)
    os.write(fd, b"synced")
    os.close(fd)
    volume.kill()
    volume.mount()
    assert (volume.mount_point / "sync").read_bytes() == b"synced"
    with open(volume.mount_point / "mapped", "w+b") as file:
        file.truncate(100000)
        with mmap.mmap(file.fileno(), 100000) as mapping:
            mapping[50000:50005] = b"hello"
            mapping.flush()
        assert os.pread(file.fileno(), 5, 50000) == b"hello"


def test_locks_are_local(volume):
    path = volume.mount_point / "f"
    with open(path, "w") as one, open(path, "w") as two:
        fcntl.flock(one, fcntl.LOCK_EX)
        with raises(errno.EWOULDBLOCK):
            fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB)
