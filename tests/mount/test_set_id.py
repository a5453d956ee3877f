# SPDX-License-Identifier: MIT
"""Who keeps set-id bits and who loses them: as on a filesystem of the kernel."""

import json
import mmap
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from conftest import run, wait_for

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


def write_directly(path):
    fd = os.open(path, os.O_RDWR | os.O_DIRECT)
    with mmap.mmap(-1, 4096) as page:
        page[:] = b"z" * 4096
        assert os.pwritev(fd, [page], 0) == 4096
    os.close(fd)


def is_traced(process):
    try:
        return all("TracerPid:\t0\n" not in (task / "status").read_text(encoding="ascii")
                   for task in Path(f"/proc/{process}/task").iterdir())
    except OSError:  # a thread ended
        return False


def test_the_daemon_looks_at_no_process_that_may_end_before_its_write_is_answered(volume, tmp_path):
    """An ending process waits for its asynchronous writes in whoever looked at its memory last."""
    # A descriptor for writing alone is direct, too: asynchronous writes to it go on before the answer.
    files = {way: volume.mount_point / way for way in ("direct", "write only", "cached")}
    looked = {}
    for way, path in files.items():
        path.write_bytes(b"y" * 8192)
        os.chown(path, USER, GROUP)
        path.chmod(0o6777)
        calls = tmp_path / way
        tracer = subprocess.Popen(["strace", "-f", "-q", "-o", calls, "-e", "trace=openat,open", "-p",
                                   str(volume.daemon())])
        try:
            wait_for(lambda: is_traced(volume.daemon()))
            writer = os.fork()
            if writer == 0:
                os.setresgid(1002, 1002, 1002)
                os.setresuid(USER, USER, USER)
                if way == "direct":
                    write_directly(path)
                else:
                    fd = os.open(path, os.O_RDWR if way == "cached" else os.O_WRONLY)
                    os.pwrite(fd, b"z" * 4096, 0)
                os._exit(0)
            assert os.waitpid(writer, 0)[1] == 0
        finally:
            tracer.terminate()
            tracer.wait()
        assert stat.S_IMODE(path.stat().st_mode) == 0o777
        assert path.read_bytes() == b"z" * 4096 + b"y" * 4096
        looked[way] = f"/proc/{writer}/status" in calls.read_text(encoding="ascii")
    assert looked == {"direct": False, "write only": False, "cached": True}


if __name__ == "__main__":
    perform(sys.argv[1])
