# SPDX-License-Identifier: MIT
"""What the manual calls impossible over FUSE is answered as it says. A kernel that learns one of them fails
the test, so that the manual and the daemon learn it, too."""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import re
import struct
import time

import pytest
from test_manual import PAGES, rendered

FIBMAP, FIFREEZE, FIEMAP = 1, 0xC0045877, 0xC020660B
FICLONE, FIDEDUPERANGE = 0x40049409, 0xC0189436
ENABLE_VERITY, SET_ENCRYPTION, GET_UUID = 0x40806685, 0x800C6613, 0x80111500
COLLAPSE, INSERT, UNSHARE = 8, 0x20, 0x40
NOWAIT, ATOMIC, DONTCACHE = 8, 0x40, 0x80
MAP_SHARED_VALIDATE, MAP_SYNC = 3, 0x80000
QUOTACTL_FD, OPEN_TREE, MOUNT_SETATTR = 443, 428, 442
Q_GETFMT = 0x800004 << 8
CLONE_TREE, TREE_CLOSE_ON_EXEC, EMPTY_PATH, IDMAP = 1, 0x80000, 0x1000, 0x100000
NEW_USER_NAMESPACE = 0x10000000
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_long


def call(function, *arguments):
    """The name of its error, or None."""
    return errno.errorcode[ctypes.get_errno()] if function(*arguments) < 0 else None


def ioctl(fd, request, argument):
    try:
        return fcntl.ioctl(fd, request, argument)
    except OSError as error:
        return errno.errorcode[error.errno]


def fallocate(fd, mode):
    return call(libc.fallocate, fd, mode, ctypes.c_long(0), ctypes.c_long(4096))


def write_with(fd, flag):
    try:
        return os.pwritev(fd, [bytes(4096)], 0, flag)
    except OSError as error:
        return errno.errorcode[error.errno]


def map_sync(fd):
    size, protection, flags = ctypes.c_long(4096), mmap.PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC
    return call(libc.mmap, None, size, protection, flags, fd, ctypes.c_long(0))


@contextlib.contextmanager
def user_namespace():
    child = os.fork()
    if child == 0:
        libc.unshare(NEW_USER_NAMESPACE)
        time.sleep(60)
        os._exit(0)
    try:
        own, deadline = os.readlink("/proc/self/ns/user"), time.monotonic() + 10
        while os.readlink(f"/proc/{child}/ns/user") == own:
            if time.monotonic() > deadline:
                pytest.skip("this system has no user namespaces")
            time.sleep(0.01)
        for name in ("uid_map", "gid_map"):
            with open(f"/proc/{child}/{name}", "w", encoding="ascii") as file:
                file.write("0 100000 1000")
        with open(f"/proc/{child}/ns/user", "rb") as namespace:
            yield namespace.fileno()
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def map_ids(folder):
    tree = libc.syscall(OPEN_TREE, -100, os.fsencode(folder), CLONE_TREE | TREE_CLOSE_ON_EXEC)
    assert tree >= 0
    with user_namespace() as namespace:
        attributes = ctypes.create_string_buffer(struct.pack("QQQQ", IDMAP, 0, 0, namespace), 32)
        answer = call(libc.syscall, MOUNT_SETATTR, tree, b"", EMPTY_PATH, attributes, ctypes.c_size_t(32))
    os.close(tree)
    return answer


def answers(folder, file):
    """Rows of the table of the manual, and what the kernel answers."""
    dedupe = bytearray(struct.pack("QQHHIqQQiI", 0, 4096, 1, 0, 0, file, 8192, 0, 0, 0))
    return {
        "quotactl(2)": [call(libc.syscall, QUOTACTL_FD, folder, Q_GETFMT, 0, bytes(256))],
        "FIEMAP": [ioctl(file, FIEMAP, struct.pack("QQIIII", 0, 65536, 0, 0, 0, 0))],
        "FIBMAP, swap files": [struct.unpack("i", ioctl(file, FIBMAP, struct.pack("i", 0)))[0]],
        "FICLONE, FIDEDUPERANGE": [ioctl(file, FICLONE, file), ioctl(file, FIDEDUPERANGE, dedupe)],
        "fallocate that collapses, inserts, unshares":
            [fallocate(file, mode) for mode in (COLLAPSE, INSERT, UNSHARE)],
        "FIFREEZE": [ioctl(folder, FIFREEZE, 0)],
        "MAP_SYNC": [map_sync(file)],
        "RWF_NOWAIT, RWF_ATOMIC, RWF_DONTCACHE":
            [write_with(file, flag) for flag in (NOWAIT, ATOMIC, DONTCACHE)],
        "encryption and verity of files": [ioctl(file, SET_ENCRYPTION, bytes(12)),
                                           ioctl(file, ENABLE_VERITY, bytes(128))],
        "FS_IOC_GETFSUUID, f_fsid": [ioctl(folder, GET_UUID, bytes(17)), os.fstatvfs(file).f_fsid],
    }


EXPECTED = {
    "quotactl(2)": ["ENOSYS"],
    "FIEMAP": ["ENOTSUP"],
    "FIBMAP, swap files": [0],
    "FICLONE, FIDEDUPERANGE": ["ENOTSUP"] * 2,
    "fallocate that collapses, inserts, unshares": ["ENOTSUP"] * 3,
    "FIFREEZE": ["ENOTSUP"],
    "MAP_SYNC": ["ENOTSUP"],
    "RWF_NOWAIT, RWF_ATOMIC, RWF_DONTCACHE": ["ENOTSUP"] * 3,
    "encryption and verity of files": ["ENOTTY"] * 2,
    "FS_IOC_GETFSUUID, f_fsid": ["ENOTTY", 0],
}


def test_the_kernel_answers_as_the_manual_says(volume):
    path = volume.mount_point / "file"
    path.write_bytes(b"content" * 10000)
    with open(path, "r+b") as file:
        folder = os.open(volume.mount_point, os.O_RDONLY)
        found = answers(folder, file.fileno())
        os.close(folder)
    assert found == EXPECTED
    assert path.read_bytes()[4096:] == (b"content" * 10000)[4096:]


def test_no_swap_and_no_mapped_ids(volume):
    swap = volume.mount_point / "swap"
    page = bytes(mmap.PAGESIZE - 10) + b"SWAPSPACE2"
    header = struct.pack("II", 1, 255).join([bytes(1024), bytes(0)])
    swap.write_bytes(header + page[len(header):] + bytes(255 * mmap.PAGESIZE))
    swap.chmod(0o600)
    assert call(libc.swapon, os.fsencode(swap), 0) == "EINVAL"
    assert map_ids(volume.mount_point) == "EINVAL"


@pytest.mark.parametrize("row", [*EXPECTED, "mounts with mapped ids"])
def test_the_manual_has_the_row(row):
    if not (PAGES / "mount.cowraid.8").exists():
        pytest.skip("the build folder has no manual pages; build all of it")
    section = rendered("mount.cowraid.8").split("WHAT IS NOT POSSIBLE")[1].split("EXIT STATUS")[0]
    words = re.findall(r"[\w().]+", row)
    assert all(word in section for word in words), row
