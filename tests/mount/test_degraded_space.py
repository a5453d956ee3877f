# SPDX-License-Identifier: MIT
"""Members that fail under a live mount or are away: the volume stays writable and says what it can hold."""

import hashlib
import os
import threading

import pytest

from conftest import PATIENCE, random_content, wait_for

PROFILES = [("raid6", "raid1c3"), ("raid5", "raid1")]
MIB = 1 << 20


class Writer(threading.Thread):
    """New files, each with fsync, until it is told to stop; every refusal counts."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.folder, self.over = folder, threading.Event()
        self.sums, self.refused = {}, []

    def run(self):
        self.folder.mkdir()
        number = 0
        while not self.over.is_set():
            content = os.urandom(4096 + number * 977 % 60000)
            path = self.folder / f"file{number}"
            number += 1
            try:
                with open(path, "wb", buffering=0) as file:
                    file.write(content)
                    os.fsync(file.fileno())
            except OSError as error:
                self.refused.append(error)
                continue
            self.sums[path] = hashlib.sha256(content).digest()

    def verify(self):
        for path, expected in self.sums.items():
            assert hashlib.sha256(path.read_bytes()).digest() == expected, path


@pytest.mark.parametrize("position", range(4))
@pytest.mark.parametrize("data,metadata", PROFILES)
def test_any_member_fails_under_load(make_volume, data, metadata, position):
    volume = make_volume(data=data, metadata=metadata, member_mib=192, may_fail=[position])
    volume.make()
    volume.mount()
    writers = [Writer(volume.mount_point / f"writer{index}") for index in range(3)]
    for writer in writers:
        writer.start()
    wait_for(lambda: all(len(writer.sums) > 20 for writer in writers), 5 * PATIENCE)
    volume.fail_writes()
    before = [len(writer.sums) for writer in writers]
    wait_for(lambda: all(len(writer.sums) > count + 150 for writer, count in zip(writers, before)),
             5 * PATIENCE)
    for writer in writers:
        writer.over.set()
        writer.join()
    assert [writer.refused for writer in writers] == [[], [], []]
    states = [member["state"] for member in volume.counters()["device-stats"]]
    assert states.count("failed") == 1, "no write failed: the test shows nothing"
    volume.drop_caches()
    for writer in writers:
        writer.verify()
    volume.unmount()
    volume.hide([position])
    left = [device for index, device in enumerate(volume.devices) if index != position]
    volume.mount(left, "degraded")
    for writer in writers:
        writer.verify()
    again = volume.mount_point / "again"
    content = random_content(8 * MIB)
    again.write_bytes(content)
    os.sync()
    volume.drop_caches()
    assert again.read_bytes() == content
    volume.unmount()


def available(volume):
    space = os.statvfs(volume.mount_point)
    return space.f_bavail * space.f_frsize


def write_until_full(path):
    written, piece = 0, random_content(MIB)
    with open(path, "wb", buffering=0) as file:
        try:
            while True:
                written += file.write(piece)
        except OSError:
            pass
    return written


def test_emptied_volume_has_room_with_a_member_away(make_volume):
    volume = make_volume(member_count=5, data="raid5", metadata="raid1")
    volume.make()
    volume.mount()
    fresh = available(volume)
    written = write_until_full(volume.mount_point / "big")
    assert written > fresh - 2 * MIB
    (volume.mount_point / "big").unlink()
    wait_for(lambda: available(volume) > fresh - 64 * MIB)
    volume.unmount()
    volume.hide([0])
    volume.mount(volume.devices[1:], "degraded")
    assert available(volume) >= 300 * MIB
    content = random_content(MIB) * 300
    (volume.mount_point / "again").write_bytes(content)
    os.sync()
    volume.drop_caches()
    assert (volume.mount_point / "again").read_bytes() == content
    volume.unmount()
    volume.unhide([0])
    volume.mount()
    assert (volume.mount_point / "again").read_bytes() == content
    (volume.mount_point / "again").unlink()
    wait_for(lambda: abs(available(volume) - fresh) <= 64 * MIB)
    volume.unmount()
    volume.check()
