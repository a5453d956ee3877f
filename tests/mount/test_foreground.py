# SPDX-License-Identifier: MIT
"""Users of a volume go before work in the background, which goes on all the same."""

import mmap
import os
import random
import threading
import time

from conftest import PATIENCE, random_content, tool, wait_for
from test_redundancy import fill
from test_scrub import check_clean, scrub, status_of

BLOCK = 4096


class Users:
    """A reader and a writer of random blocks, not as fast as they could; the writer with an fsync each."""

    def __init__(self, path):
        self.path, self.latencies, self.ended = path, [], threading.Event()
        path.write_bytes(random_content(16 << 20))
        self.threads = [threading.Thread(target=self.run, args=(writes,)) for writes in (False, True)]

    def run(self, writes):
        memory = mmap.mmap(-1, BLOCK)
        fd = os.open(self.path, os.O_RDWR | os.O_DIRECT)
        generator = random.Random(writes)
        while not self.ended.wait(0.002):
            place = generator.randrange(16 << 20 >> 12) * BLOCK
            began = time.monotonic()
            if writes:
                os.pwrite(fd, memory, place)
                os.fsync(fd)
            else:
                os.preadv(fd, [memory], place)
            self.latencies.append(time.monotonic() - began)
        os.close(fd)

    def take(self):
        """The 95th percentile since the last call, in seconds."""
        wait_for(lambda: len(self.latencies) > 50)
        latencies = sorted(self.latencies)
        self.latencies = []
        return latencies[len(latencies) * 95 // 100]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join()


def scrub_beside_users(volume):
    """One scrub after the other, for some seconds, until all that a user may see was seen."""
    held_back, finished, progress = 0, 0, set()
    end = time.monotonic() + 3
    deadline = end + PATIENCE
    tool("cowraid", "scrub", "start", volume.mount_point)
    while time.monotonic() < end or held_back == 0 or len(progress) <= 2:
        assert time.monotonic() < deadline, (held_back, progress)
        status = status_of(volume)
        if status["state"] == "running":
            held_back += status["held_back"]
            progress.add((finished, status["bytes_done"]))
        else:
            check_clean(status)
            finished += 1
            tool("cowraid", "scrub", "start", volume.mount_point)


def test_a_scrub_gives_way_to_users_and_goes_on(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=256)
    volume.make()
    volume.mount()
    fill(volume.mount_point, 1, file_count=60)
    (volume.mount_point / "big").write_bytes(random_content(384 << 20))
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    check_clean(scrub(volume))
    with Users(volume.mount_point / "used") as users:
        quiet, beside = [], []
        for _ in range(3):
            tool("cowraid", "scrub", "cancel", volume.mount_point, check=False)  # if one is under way
            users.take()
            time.sleep(2)
            quiet.append(users.take())
            scrub_beside_users(volume)
            beside.append(users.take())
    # The median, for a machine that does other things, too: the benchmark has figures.
    assert sorted(beside)[1] < 10 * sorted(quiet)[1] + 1, (quiet, beside)
    text = tool("cowraid", "scrub", volume.mount_point).stdout
    assert "no errors found" in text and "held back" not in text


def test_who_looks_at_a_scrub_does_not_hold_it_back(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=256)
    volume.make()
    volume.mount()
    (volume.mount_point / "big").write_bytes(random_content(128 << 20))
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    tool("cowraid", "scrub", "start", "--limit", "5m", volume.mount_point)
    looks = [status_of(volume) for _ in range(20)]
    assert all(status["state"] == "running" for status in looks)
    # The kernel may have had something of its own to ask; what the commands ask is asked each time.
    assert sum(status["held_back"] for status in looks) < 5, looks
    tool("cowraid", "scrub", "cancel", volume.mount_point)


def rate_of(report):
    """MiB a second."""
    check_clean(report)
    return report["bytes_done"] / (1 << 20) / (report["run_ms"] / 1000)


def test_a_limit_is_kept(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=256)
    volume.make()
    volume.mount()
    (volume.mount_point / "big").write_bytes(random_content(384 << 20))
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    # Near to it, or to what the machine can. That changes with what else it does.
    for _ in range(5):
        possible, rate = rate_of(scrub(volume)), rate_of(scrub(volume, "--limit", "150m"))
        assert rate < 165
        if enough := rate > 0.5 * min(150, possible):
            break
    assert enough, (possible, rate)
