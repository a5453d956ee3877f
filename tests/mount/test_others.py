# SPDX-License-Identifier: MIT
"""What one account asks for, however much of it, leaves others what they need."""

import contextlib
import ctypes
import mmap
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from conftest import PATIENCE
from test_coherence import droppers
from test_long_requests import SECONDS_MAX, timed

USER, OTHER = 1000, 1001
SEEK_COUNT = 2100  # more than direct writes that may wait for pages
LIBC = ctypes.CDLL(None, use_errno=True)


def seek_all(folder):
    """As many callers at once as there are files. All of them find the end of the byte."""
    fds = [os.open(f"{folder}/{index}", os.O_RDWR | os.O_CREAT) for index in range(SEEK_COUNT)]
    for fd in fds:
        os.write(fd, b"x")
    found = []
    threading.stack_size(64 << 10)
    threads = [threading.Thread(target=lambda fd: found.append(os.lseek(fd, 0, os.SEEK_HOLE)), args=(fd,))
               for fd in fds]
    for thread in threads:
        thread.start()
    print("begun", flush=True)
    for thread in threads:
        thread.join()
    assert found == [1] * SEEK_COUNT


def write_directly(folder):
    """Also over pages that were read before, and a file's room is reserved."""
    path = f"{folder}/direct"
    page = mmap.mmap(-1, 4096)
    reader = os.open(path, os.O_RDONLY | os.O_CREAT)  # before the writer: through the page cache
    fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
    for fill in (b"a", b"b"):
        page[:] = fill * 4096
        assert os.write(fd, page) == 4096
        os.lseek(fd, 0, os.SEEK_SET)
        if sys.argv[3] == "cached":
            assert os.pread(reader, 8192, 0) == fill * 4096
    if LIBC.fallocate64(fd, 0, ctypes.c_long(4096), ctypes.c_long(1 << 20)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")
    os.close(fd)
    assert Path(path).read_bytes() == b"b" * 4096 + bytes(1 << 20)


def list_again_and_again(folder):
    """As many callers as there are serving threads, and some more. Each reads 240 MB of attributes."""
    path = f"{folder}/file"
    Path(path).touch()
    names = sorted(f"user.{index}" for index in range(4000))
    for name in names:
        os.setxattr(path, name, b"x" * 60000)
    assert sorted(os.listxattr(path)) == names
    for _ in range(70):
        threading.Thread(target=lambda: [os.listxattr(path) for _ in range(20)]).start()
    print("begun", flush=True)


PROGRAMS = {"seek": seek_all, "write": write_directly, "list": list_again_and_again}


@contextlib.contextmanager
def another(volume, uid, name, *words):
    """One of PROGRAMS under way in the user's folder."""
    folder = volume.mount_point / f"{name}{uid}"
    folder.mkdir()
    os.chown(folder, uid, uid)
    with subprocess.Popen(["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", sys.executable,
                           __file__, name, folder, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as process:
        yield process


def ends_well(process):
    """Nobody else is asked to go on meanwhile."""
    errors = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 0, errors


@contextlib.contextmanager
def stopped_seeks(volume):
    """What drops pages for seeks does not go on."""
    fd = os.open(volume.mount_point / "mapped", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"x")
    os.lseek(fd, 0, os.SEEK_HOLE)
    os.close(fd)
    dropper, = droppers(volume.daemon())
    os.kill(dropper, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(dropper, signal.SIGCONT)


@pytest.fixture(name="many_files", autouse=True)
def fixture_many_files():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = [max(limit, 2 * SEEK_COUNT) for limit in before]
    resource.setrlimit(resource.RLIMIT_NOFILE, wanted)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_many_seeks_refuse_nobody_a_direct_write(volume):
    with contextlib.ExitStack() as programs:
        with stopped_seeks(volume):
            seeking = programs.enter_context(another(volume, USER, "seek"))
            assert seeking.stdout.readline() == "begun\n"
            time.sleep(2)  # all threads have come to the call
            ends_well(programs.enter_context(another(volume, OTHER, "write", "uncached")))
        ends_well(seeking)
    volume.unmount()
    assert volume.check()["clean"]


def test_pages_dropped_for_a_seek_delay_no_direct_write(volume):
    with contextlib.ExitStack() as programs:
        with stopped_seeks(volume):
            seeking = programs.enter_context(another(volume, USER, "seek"))
            assert seeking.stdout.readline() == "begun\n"
            ends_well(programs.enter_context(another(volume, OTHER, "write", "cached")))
        ends_well(seeking)
        assert len(droppers(volume.daemon())) == 2
    volume.unmount()
    assert volume.check()["clean"]


def test_lists_of_large_attributes_delay_nobody(make_volume):
    volume = make_volume(data="raid5", metadata="raid1")
    volume.make()
    volume.mount()
    with another(volume, USER, "list") as listing:
        assert listing.stdout.readline() == "begun\n"
        longest = max(timed(os.path.exists, volume.mount_point / f"missing{index}") for index in range(50))
        listing.kill()
    print(f"{longest * 1000:.1f} ms")
    assert longest < SECONDS_MAX
    volume.unmount()
    assert volume.check()["clean"]


if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](sys.argv[2])
