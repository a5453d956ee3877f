# SPDX-License-Identifier: MIT
"""Threads that serve requests stay: one that ends takes its ring along, and the next one makes another."""

import os
from pathlib import Path

from conftest import run

REQUESTS = 32  # at the same time
BYTES = 16 << 20


def random_reads(volume):
    run("fio", "--name=read", f"--filename={volume.mount_point}/f", "--rw=randread", "--bs=4k", "--direct=1",
        "--ioengine=libaio", f"--iodepth={REQUESTS}", f"--size={BYTES}", "--loops=8")


def threads(volume):
    return set(os.listdir(f"/proc/{volume.daemon()}/task"))


def test_threads_stay_between_requests(volume):
    (volume.mount_point / "f").write_bytes(os.urandom(BYTES))
    random_reads(volume)
    before = threads(volume)
    assert len(before) > REQUESTS // 2
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
