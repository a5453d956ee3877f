# SPDX-License-Identifier: MIT
"""One system call must not own the daemon: long holes, files of many extents, killed callers, shutdown."""

import concurrent.futures
import contextlib
import ctypes
import os
import signal
import sys
import time

import pytest

from conftest import run, runs

USER = 1000
FAR = 1 << 62
PUNCH = 3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
LIBC = ctypes.CDLL(None, use_errno=True)
# What a request may take; 0.1 on a machine that does nothing else.
SECONDS_MAX = float(os.environ.get("COWRAID_REQUEST_SECONDS", "1"))


def fallocate(fd, mode, offset, length):
    if LIBC.fallocate64(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def timed(function, *arguments):
    begin = time.monotonic()
    function(*arguments)
    return time.monotonic() - begin


def punch_far(folder, name):
    """A byte far away, and everything before it punched. Seconds of the punch."""
    fd = os.open(f"{folder}/{name}", os.O_RDWR | os.O_CREAT)
    try:
        os.pwrite(fd, b"x", FAR)
        seconds = timed(fallocate, fd, PUNCH, 0, FAR)
        assert os.pread(fd, 2, FAR) == b"x"
    finally:
        os.close(fd)
    return seconds


def worst_lookup(folder, futures):
    """The slowest of the requests that reach the daemon while others are at work."""
    worst = number = 0
    while not all(future.done() for future in futures):
        worst = max(worst, timed(os.path.exists, f"{folder}/missing{number}"))
        number += 1
    return worst


def as_user(folder):
    """In an ordinary user's process: 70 callers again and again, beside somebody who looks up names."""
    assert max(punch_far(folder, "one") for _ in range(3)) < SECONDS_MAX
    with concurrent.futures.ThreadPoolExecutor(70) as pool:
        futures = [pool.submit(punch_far, folder, f"far{i}") for i in range(70) for _ in range(20)]
        worst = worst_lookup(folder, futures)
        for future in futures:
            future.result()
    print(f"slowest lookup {worst * 1000:.1f} ms")
    assert worst < SECONDS_MAX


def test_the_length_of_a_hole_costs_nothing(make_volume):
    volume = make_volume(data="raid5", metadata="raid1")
    volume.make()
    volume.mount()
    volume.mount_point.chmod(0o777)
    result = run("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", sys.executable, __file__,
                 volume.mount_point, timeout=120, check=False)
    print(result.stdout)
    assert result.returncode == 0, result.stderr
    volume.unmount()
    volume.check()


EXTENTS = 60000


def fragmented(path):
    """A file of many extents: cutting it takes hundreds of operations."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    for index in range(EXTENTS):
        os.pwrite(fd, b"x" * 4096, index * 8192)
    os.fsync(fd)
    return fd


def size_now(fd):
    """As the daemon has it, whatever the kernel remembers."""
    empty_path, force_sync, size_wanted = 0x1000, 0x2000, 0x200
    answer = ctypes.create_string_buffer(256)
    assert LIBC.statx(fd, b"", empty_path | force_sync, size_wanted, answer) == 0
    return int.from_bytes(answer.raw[40:48], sys.byteorder)


def in_child(function, *arguments):
    child = os.fork()
    if child == 0:
        try:
            function(*arguments)
        except OSError as error:
            os._exit(error.errno)
        os._exit(0)
    return child


def truncate_in_child(fd):
    child = in_child(os.ftruncate, fd, 0)
    deadline = time.monotonic() + 10
    while size_now(fd) == EXTENTS * 8192 - 4096:
        assert time.monotonic() < deadline, "it does not begin"
    return child


def wait_for(child):
    """Seconds, and the status."""
    begin = time.monotonic()
    status = os.waitpid(child, 0)[1]
    return time.monotonic() - begin, status


@pytest.mark.parametrize("how", ["open", "truncate"])
def test_a_truncation_goes_on_when_its_caller_is_killed(volume, how):
    """Else the kernel keeps the old size, shows old bytes, and appends behind them."""
    path = volume.mount_point / "file"
    fd = fragmented(path)
    last = (EXTENTS - 1) * 8192
    assert os.pread(fd, 4096, last) == b"x" * 4096
    appender = os.open(path, os.O_WRONLY | os.O_APPEND)
    if how == "open":
        child = in_child(os.open, path, os.O_WRONLY | os.O_TRUNC)
    else:
        child = in_child(os.truncate, path, 0)
    time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    wait_for(child)
    assert os.pread(fd, 4096, last) == b""
    assert os.write(appender, b"tail") == 4
    assert os.pread(fd, 4096, 0) == b"tail"
    assert os.fstat(fd).st_size == 4
    os.close(appender)
    os.close(fd)
    volume.unmount()
    volume.check()


def test_a_killed_caller_ends_a_long_clearing(volume):
    fd = fragmented(volume.mount_point / "file")
    child = in_child(fallocate, fd, PUNCH, 0, EXTENTS * 8192)
    time.sleep(0.03)
    os.kill(child, signal.SIGKILL)
    seconds, status = wait_for(child)
    assert os.WIFSIGNALED(status) and seconds < SECONDS_MAX, (seconds, status)
    assert os.pread(fd, 4096, (EXTENTS - 1) * 8192) == b"x" * 4096, "it came to its end before"
    assert os.pread(fd, 4096, 0) == bytes(4096)
    os.close(fd)
    volume.unmount()
    volume.check()


def test_the_daemon_ends_beside_a_long_truncation(volume):
    fd = fragmented(volume.mount_point / "file")
    child = truncate_in_child(fd)
    daemon = volume.daemon()
    os.kill(daemon, signal.SIGTERM)
    seconds, status = wait_for(child)
    assert os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0, status
    assert seconds < 2 * SECONDS_MAX
    with contextlib.suppress(OSError):
        os.close(fd)
    deadline = time.monotonic() + 10
    while runs(daemon):
        assert time.monotonic() < deadline, "the daemon is still there"
        time.sleep(0.02)
    volume.check()


if __name__ == "__main__":
    as_user(sys.argv[1])
