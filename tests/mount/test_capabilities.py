# SPDX-License-Identifier: MIT
"""security.* extended attributes: kept, and file capabilities gone when Linux takes them away."""

import errno
import mmap
import os
import shutil
import tempfile

import pytest

from conftest import run

NAME = "security.capability"


def write(path, flags=0):
    fd = os.open(path, os.O_RDWR | flags)
    try:
        data = mmap.mmap(-1, 4096)
        os.writev(fd, [data])
    finally:
        os.close(fd)


def copy_range(path):
    with open(f"{path}.source", "wb") as source:
        source.write(b"s" * 4096)
    fds = [os.open(f"{path}.source", os.O_RDONLY), os.open(path, os.O_WRONLY)]
    try:
        assert os.copy_file_range(*fds, 4096) == 4096
    finally:
        os.close(fds[0])
        os.close(fds[1])


OPERATIONS = {
    "write": write,
    "direct write": lambda path: write(path, os.O_DIRECT),
    "append": lambda path: write(path, os.O_APPEND),
    "open and truncate": lambda path: os.close(os.open(path, os.O_WRONLY | os.O_TRUNC)),
    "truncate": lambda path: os.truncate(path, 10),
    "extend": lambda path: os.truncate(path, 100000),
    "fallocate": lambda path: run("fallocate", "-l", "1M", path),
    "punch": lambda path: run("fallocate", "-p", "-l", "4096", path),
    "copy_file_range": copy_range,
    "chown": lambda path: os.chown(path, 5, 5),
    "chmod": lambda path: os.chmod(path, 0o700),
    "rename": lambda path: (os.rename(path, f"{path}.new"), os.rename(f"{path}.new", path)),
    "link": lambda path: os.link(path, f"{path}.link"),
    "read": lambda path: open(path, "rb").read(),
    "utime": lambda path: os.utime(path, (1, 1)),
    "other attribute": lambda path: os.setxattr(path, "trusted.other", b"x"),
}


def keeps(folder, operation, written_before):
    """Whether the capability survives; the kernel may know that the file had none before."""
    path = f"{folder}/{operation}"
    with open(path, "wb") as file:
        file.write(b"y" * 10000)
    if written_before:
        write(path)
    run("setcap", "cap_net_raw+ep", path)
    assert "cap_net_raw" in run("getcap", path).stdout
    OPERATIONS[operation](path)
    return NAME in os.listxattr(path)


@pytest.mark.parametrize("written_before", [False, True])
def test_what_takes_capabilities_away(volume, written_before):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as reference:
        theirs = {operation: keeps(reference, operation, written_before) for operation in OPERATIONS
                  if operation != "direct write"}
    ours = {operation: keeps(volume.mount_point, operation, written_before) for operation in OPERATIONS}
    assert not ours.pop("direct write")
    assert ours == theirs
    assert not ours["write"] and not ours["chown"] and ours["chmod"] and ours["read"]


def test_programs_get_their_capabilities(volume):
    program = volume.mount_point / "cat"
    shutil.copy(shutil.which("cat"), program)
    run("setcap", "cap_dac_read_search+ep", program)
    volume.unmount()
    volume.mount()
    assert run("getcap", program).stdout.split() == [str(program), "cap_dac_read_search=ep"]
    secret = volume.folder / "secret"
    secret.write_text("seen")
    secret.chmod(0o600)
    user = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"]
    assert run(*user, program, secret).stdout == "seen"
    assert run(*user, shutil.which("cat"), secret, check=False).returncode != 0
    with open(program, "ab") as file:
        file.write(b"x")
    assert run(*user, program, secret, check=False).returncode != 0


def test_security_attributes_are_kept(volume):
    file = volume.mount_point / "file"
    file.touch()
    with pytest.raises(OSError, match=rf"\[Errno {errno.ENODATA}\]"):
        os.getxattr(file, NAME)
    os.setxattr(file, "security.cowraid", b"value")
    os.setxattr(file, "user.other", b"other")
    assert sorted(os.listxattr(file)) == ["security.cowraid", "user.other"]
    volume.unmount()
    volume.check()
    volume.mount()
    assert os.getxattr(file, "security.cowraid") == b"value"
    os.removexattr(file, "security.cowraid")
    assert os.listxattr(file) == ["user.other"]
