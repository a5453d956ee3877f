# SPDX-License-Identifier: MIT
"""One system call must not own the daemon: long holes, files of many extents, killed callers, shutdown."""

import concurrent.futures
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time

import pytest

from conftest import run, runs, wait_for

USER = 1000
FAR = 1 << 62
PUNCH = 3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
LIBC = ctypes.CDLL(None, use_errno=True)
# What a request may take; 0.1 on a machine that does nothing else.
SECONDS_MAX = float(os.environ.get("COWRAID_REQUEST_SECONDS", "5"))
END_SECONDS_MAX = 30  # of a request that is given up
# Looks up names until it is told to end, then says how many seconds each took. A process of its own: it is
# not to wait for the other threads of Python.
LOOK_PROGRAM = """
import os, select, sys, time
seconds = []
print("begins", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    begin = time.monotonic()
    os.path.exists(f"{sys.argv[1]}/missing{len(seconds)}")
    seconds.append(time.monotonic() - begin)
print(*seconds)
"""


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


def as_user(folder):
    """In an ordinary user's process: 70 callers again and again, beside somebody who looks up names, which
    are requests that reach the daemon."""
    assert max(punch_far(folder, "one") for _ in range(3)) < SECONDS_MAX
    with subprocess.Popen([sys.executable, "-c", LOOK_PROGRAM, folder], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as looking, \
            concurrent.futures.ThreadPoolExecutor(70) as pool:
        assert looking.stdout.readline() == "begins\n"
        futures = [pool.submit(punch_far, folder, f"far{i}") for i in range(70) for _ in range(20)]
        for future in futures:
            future.result()
        lookups = sorted(float(word) for word in looking.communicate("end\n")[0].split())
    most = lookups[len(lookups) * 99 // 100]
    print(f"{len(lookups)} lookups, 99th percentile {most * 1000:.1f} ms, slowest {lookups[-1] * 1000:.1f}")
    assert most < SECONDS_MAX


def test_the_length_of_a_hole_costs_nothing(make_volume):
    volume = make_volume(data="raid5", metadata="raid1")
    volume.make()
    volume.mount()
    volume.mount_point.chmod(0o777)
    result = run("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", sys.executable, __file__,
                 volume.mount_point, check=False)
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


def now(fd):
    """Size and blocks as the daemon has them, whatever the kernel remembers."""
    empty_path, force_sync, wanted = 0x1000, 0x2000, 0x600
    answer = ctypes.create_string_buffer(256)
    assert LIBC.statx(fd, b"", empty_path | force_sync, wanted, answer) == 0
    return [int.from_bytes(answer.raw[at:at + 8], sys.byteorder) for at in (40, 48)]


def in_child(function, *arguments):
    child = os.fork()
    if child == 0:
        try:
            function(*arguments)
        except OSError as error:
            os._exit(error.errno)
        os._exit(0)
    return child


def begun_in_child(fd, function, *arguments):
    """What shrinks or clears the file of `fd` has done a part of that."""
    before = now(fd)
    child = in_child(function, *arguments)
    wait_for(lambda: now(fd) != before, pause=0, otherwise=lambda: "it does not begin")
    return child


def end_of(child):
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
        child = begun_in_child(fd, os.open, path, os.O_WRONLY | os.O_TRUNC)
    else:
        child = begun_in_child(fd, os.truncate, path, 0)
    os.kill(child, signal.SIGKILL)
    end_of(child)
    assert os.pread(fd, 4096, last) == b""
    assert os.write(appender, b"tail") == 4
    assert os.pread(fd, 4096, 0) == b"tail"
    assert os.fstat(fd).st_size == 4
    os.close(appender)
    os.close(fd)
    volume.unmount()
    volume.check()


def test_a_killed_caller_ends_a_long_clearing(volume):
    path = volume.mount_point / "file"
    # On a busy machine it may come to its end before the kill does. Then it is tried again.
    for _ in range(5):
        fd = fragmented(path)
        child = begun_in_child(fd, fallocate, fd, PUNCH, 0, EXTENTS * 8192)
        os.kill(child, signal.SIGKILL)
        seconds, status = end_of(child)
        begin, last = (os.pread(fd, 4096, at) for at in (0, (EXTENTS - 1) * 8192))
        os.close(fd)
        os.unlink(path)
        assert begin == bytes(4096)
        if os.WIFSIGNALED(status) and last == b"x" * 4096:
            break
    assert os.WIFSIGNALED(status) and seconds < END_SECONDS_MAX, (seconds, status)
    assert last == b"x" * 4096, "it came to its end before"
    volume.unmount()
    volume.check()


def test_the_daemon_ends_beside_a_long_truncation(volume):
    # As above.
    for _ in range(5):
        fd = fragmented(volume.mount_point / "file")
        daemon = volume.daemon()
        child = begun_in_child(fd, os.ftruncate, fd, 0)
        os.kill(daemon, signal.SIGTERM)
        seconds, status = end_of(child)
        with contextlib.suppress(OSError):
            os.close(fd)
        wait_for(lambda: not runs(daemon), otherwise=lambda: "the daemon is still there")
        if status != 0:
            break
        volume.mount()
    assert os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0, status
    assert seconds < END_SECONDS_MAX
    volume.check()


if __name__ == "__main__":
    as_user(sys.argv[1])
