# SPDX-License-Identifier: MIT
"""Lost members, rotten members, full volumes."""

import errno
import hashlib
import os
import random

import pytest

from conftest import random_content, tool

CASES = [("raid5", "raid1", 4, 1), ("raid6", "raid1c3", 5, 2), ("raid1c3", "raid1c3", 4, 2),
         ("raid10", "raid10", 4, 1), ("raid1c4", "raid1c4", 5, 3)]


def fill(root, seed, file_count=40, size_max=400000):
    """Writes files and returns their checksums."""
    generator = random.Random(seed)
    sums = {}
    for index in range(file_count):
        content = generator.randbytes(generator.randrange(size_max))
        path = root / f"dir{index % 5}" / f"file{index}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        sums[path] = hashlib.sha256(content).hexdigest()
    return sums


def verify(sums):
    for path, expected in sums.items():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == expected, path


@pytest.mark.parametrize("data,metadata,count,tolerance", CASES)
def test_members_lost(make_volume, data, metadata, count, tolerance):
    volume = make_volume(data=data, metadata=metadata, member_count=count)
    volume.make()
    volume.mount()
    sums = fill(volume.mount_point, 1)
    volume.unmount()
    for lost in ([1], [0, count - 1])[:tolerance]:
        left = [device for index, device in enumerate(volume.devices) if index not in lost]
        volume.hide(lost)
        refused = volume.mount(left, check=False)
        assert refused.returncode == 32 and "degraded" in refused.stderr
        volume.mount(left, "degraded,ro")
        verify(sums)
        with pytest.raises(OSError) as caught:
            (volume.mount_point / "x").touch()
        assert caught.value.errno == errno.EROFS
        volume.unmount()
        volume.unhide(lost)
    volume.mount()
    verify(sums)
    volume.unmount()
    volume.check()


def test_degraded_writes_then_the_member_returns(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=4)
    volume.make()
    volume.mount()
    before = fill(volume.mount_point, 2)
    volume.unmount()
    volume.hide([0])
    volume.mount(volume.devices[1:], "degraded")
    (volume.mount_point / "while-away").mkdir()
    during = fill(volume.mount_point / "while-away", 3)
    volume.unmount()
    volume.unhide([0])
    volume.mount()
    verify(before | during)
    volume.unmount()
    volume.check()


def test_rot_under_a_live_mount(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=128)
    volume.make()
    volume.mount()
    sums = fill(volume.mount_point, 4, file_count=60)
    volume.unmount()
    volume.mount(options="cache=1M")
    generator = random.Random(5)
    size = os.path.getsize(volume.images[2])
    with open(volume.images[2], "r+b") as image:
        for _ in range(size // 10 // 65536):
            image.seek(generator.randrange(size // 4096 - 16) * 4096)
            image.write(generator.randbytes(65536))
    volume.drop_caches()
    verify(sums)
    first = volume.counters()
    volume.drop_caches()
    verify(sums)
    assert volume.counters() == first
    volume.unmount()
    volume.mount()
    verify(sums)


def test_full_volume(make_volume):
    volume = make_volume(member_mib=128)
    volume.make()
    volume.mount()
    chunk = random.Random(7).randbytes(1 << 20)
    written = 0
    with open(volume.mount_point / "fill", "wb", buffering=0) as file:
        with pytest.raises(OSError) as caught:
            while True:
                written += file.write(chunk)
        assert caught.value.errno == errno.ENOSPC
        os.fsync(file.fileno())
    status = os.statvfs(volume.mount_point)
    assert status.f_bavail * status.f_frsize <= 2 << 20
    volume.unmount()
    volume.mount()
    assert (volume.mount_point / "fill").read_bytes() == (chunk * (written // len(chunk) + 1))[:written]
    os.unlink(volume.mount_point / "fill")
    fd = os.open(volume.mount_point, os.O_RDONLY)
    os.fsync(fd)
    os.fsync(fd)
    os.close(fd)
    (volume.mount_point / "again").write_bytes(chunk * 20)
    volume.unmount()
    volume.check()


def test_check_names_the_files_that_are_lost(make_volume):
    volume = make_volume(data="raid5", metadata="raid1c3", member_count=4, member_mib=128)
    volume.make()
    volume.mount()
    (volume.mount_point / "folder").mkdir()
    contents = {name: random_content(8 << 20) for name in ("a", "b", "folder/c\033d")}
    for name, content in contents.items():
        (volume.mount_point / name).write_bytes(content)
        tool("cowraid", "filesystem", "sync", volume.mount_point)
    volume.unmount()
    # Two members lose what they hold of everything from the middle of the slots on.
    for image in volume.images[:2]:
        with open(image, "r+b") as file:
            for place in range(24 << 20, 128 << 20, 1 << 20):
                os.pwrite(file.fileno(), random_content(1 << 20), place)
            os.fsync(file.fileno())
    report = volume.check(3)
    lost = {finding["text"].partition(": lost: ")[0] for finding in report["findings"]
            if finding["kind"] == "file"}
    assert lost
    text = tool("cowraid", "check", volume.devices[0], check=False).stdout
    assert "\033" not in text
    assert len([line for line in text.splitlines() if "member 1" in line]) < 50
    volume.mount()
    for name, content in contents.items():
        shown = "/" + name
        try:
            assert (volume.mount_point / name).read_bytes() == content
            assert shown not in lost
        except OSError:
            assert shown in lost
