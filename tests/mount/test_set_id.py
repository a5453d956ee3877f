# SPDX-License-Identifier: MIT
"""Who keeps set-id bits and who loses them: as on a filesystem of the kernel."""

import json
import os
import stat
import sys
import tempfile

import pytest

from conftest import run

USER = 1000
GROUP = 1001
MODES = [0o6666, 0o6676, 0o6766, 0o6777, 0o4666, 0o2666, 0o2676, 0o666]
CALLERS = {
    "root": [],
    "root without CAP_FSETID": ["--bounding-set=-fsetid", "--inh-caps=-fsetid"],
    "user": [f"--reuid={USER}", "--regid=1002", "--clear-groups"],
    "user of the group": [f"--reuid={USER}", "--regid=1002", f"--groups={GROUP}"],
    "user with CAP_FSETID": [f"--reuid={USER}", "--regid=1002", "--clear-groups", "--inh-caps=+fsetid",
                             "--ambient-caps=+fsetid"],
    "user with a user namespace": [f"--reuid={USER}", "--regid=1002", "--clear-groups", "unshare", "-Ur"],
}


def write(path, flags):
    fd = os.open(path, flags)
    try:
        os.pwrite(fd, b"x" * 4096, 0)
    finally:
        os.close(fd)


def allocate(path, mode):
    libc = __import__("ctypes").CDLL(None, use_errno=True)
    fd = os.open(path, os.O_RDWR)
    try:
        assert libc.fallocate64(fd, mode, *map(__import__("ctypes").c_long, (0, 8192))) == 0
    finally:
        os.close(fd)


OPERATIONS = {
    "write": lambda path: write(path, os.O_RDWR),
    "write only": lambda path: write(path, os.O_WRONLY),
    "append": lambda path: write(path, os.O_WRONLY | os.O_APPEND),
    "open and truncate": lambda path: os.close(os.open(path, os.O_WRONLY | os.O_TRUNC)),
    "truncate": lambda path: os.truncate(path, 100),
    "extend": lambda path: os.truncate(path, 100000),
    "fallocate": lambda path: allocate(path, 0),
    "punch": lambda path: allocate(path, 3),
    "chown": lambda path: os.chown(path, -1, os.getegid()),
    "chmod": lambda path: os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) | stat.S_ISGID),
    "read": lambda path: open(path, "rb").read(),
}


def perform(folder):
    """Every operation on its file of every mode; in the process of the caller."""
    for name, operation in OPERATIONS.items():
        for mode in MODES:
            try:
                operation(f"{folder}/{name} {mode:o}")
            except PermissionError:
                pass


def modes_after(folder, caller):
    for name in OPERATIONS:
        for mode in MODES:
            path = f"{folder}/{name} {mode:o}"
            with open(path, "wb") as file:
                file.write(b"y" * 10000)
            os.chown(path, USER, GROUP)
            os.chmod(path, mode)
            assert stat.S_IMODE(os.stat(path).st_mode) == mode
    run("setpriv", *CALLERS[caller], sys.executable, __file__, folder)
    found = {name: f"{stat.S_IMODE(os.stat(folder / name).st_mode):o}" for name in os.listdir(folder)}
    for name in found:
        os.unlink(folder / name)
    return found


@pytest.mark.parametrize("caller", CALLERS)
def test_set_id_bits_as_linux_does(volume, caller):
    volume.mount_point.chmod(0o777)
    ours = volume.mount_point / "d"
    ours.mkdir(mode=0o777)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        reference = volume.mount_point.parent / name
        os.chmod(reference, 0o755)
        theirs = modes_after(reference, caller)
    assert len(theirs) == len(OPERATIONS) * len(MODES)
    cleared = sum(name.split()[-1] != mode for name, mode in theirs.items())
    assert cleared >= 8
    assert json.dumps(modes_after(ours, caller), indent=1, sort_keys=True) == \
        json.dumps(theirs, indent=1, sort_keys=True)


if __name__ == "__main__":
    perform(sys.argv[1])
