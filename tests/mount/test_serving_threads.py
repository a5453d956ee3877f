# SPDX-License-Identifier: MIT
"""Threads that serve requests: they stay, few take part while processors are the limit, and more while
members let requests wait."""

import os
import subprocess
import time
from pathlib import Path

from conftest import PATIENCE, random_content, run, tool
from test_hanging import hanging  # noqa: F401 (a fixture)

REQUESTS = 32  # at the same time
BYTES = 16 << 20
MIB = 1 << 20


def random_reads(volume):
    run("fio", "--name=read", f"--filename={volume.mount_point}/f", "--rw=randread", "--bs=4k", "--direct=1",
        "--ioengine=libaio", f"--iodepth={REQUESTS}", f"--size={BYTES}", "--loops=8")


def threads(volume):
    return set(os.listdir(f"/proc/{volume.daemon()}/task"))


def test_threads_stay_between_requests(volume):
    """One that ends takes its ring along, and the next one makes another."""
    (volume.mount_point / "f").write_bytes(os.urandom(BYTES))
    random_reads(volume)
    before = threads(volume)
    random_reads(volume)
    assert before <= threads(volume)


def test_background_work_leaves_the_processors_to_users(volume):
    """The threads of scrub and catching up exist, and have their priority, from the mount on."""
    nice = {}
    for task in Path("/proc", str(volume.daemon()), "task").iterdir():
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        nice[(task / "comm").read_text().strip()] = int(fields[16])
    assert nice["cowraid-scrub"] == nice["cowraid-catchup"] == 10
    assert nice["cowraid-commit"] == 0  # writers wait for it


def test_requests_that_need_no_member_are_served_beside_reads_that_hang(hanging):
    """As many reads as there are threads but for a few: more than take part at first on most machines."""
    readers = 60
    volume = hanging.volume
    volume.make()
    volume.mount()
    files = [volume.mount_point / f"file{number}" for number in range(readers)]
    for file in files:
        file.write_bytes(random_content(MIB))
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    volume.drop_caches()
    for file in files:
        file.stat()
    hanging.stop()
    started = [subprocess.Popen(["dd", f"if={file}", "of=/dev/null", "bs=1M", "iflag=direct"],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for file in files]
    time.sleep(1)
    slowest = 0
    for number in range(50):
        begin = time.monotonic()
        assert not (volume.mount_point / f"nothing{number}").exists()
        slowest = max(slowest, time.monotonic() - begin)
    waiting = sum(process.poll() is None for process in started)
    hanging.go_on()
    assert [process.wait(timeout=5 * PATIENCE) for process in started] == [0] * readers
    assert waiting == readers, "the members did not hang"
    assert slowest < 1
