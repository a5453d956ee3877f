# SPDX-License-Identifier: MIT
"""What a mount after a crash reads, however large the members are."""

import os
import random
from pathlib import Path

import pytest

READ_BYTES_MAX = 16 << 20
FSYNC_LOG_BYTES = 115 << 20  # of members from 64 GiB on (format/member_layout.cc); a crash lets all be read
SECTOR_BYTES = 512
SECTORS_READ = 2  # field of /sys/block/*/stat


def bytes_read(volume):
    """By everybody, the search for members included; the block layer counts holes like anything else."""
    stats = [Path("/sys/block", os.path.basename(loop), "stat").read_text().split() for loop in volume.loops]
    return sum(int(fields[SECTORS_READ]) for fields in stats) * SECTOR_BYTES


@pytest.mark.parametrize("member_tib", [1, 16])
@pytest.mark.parametrize("data,metadata", [("raid5", "raid1"), ("raid6", "raid1c3")])
def test_mount_after_a_crash_reads_little(make_volume, data, metadata, member_tib):
    """A good part of the volume is reserved, so that the block-group map is that of a volume in use."""
    logs_bytes = 8 * FSYNC_LOG_BYTES
    volume = make_volume(data=data, metadata=metadata, member_count=8, member_mib=member_tib << 20)
    volume.make()
    volume.mount()
    content = random.Random(1).randbytes(3 << 20)
    with open(volume.mount_point / "reserved", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, member_tib << 40)
    for index in range(200):
        (volume.mount_point / f"small{index}").write_bytes(content[index * 1000:index * 2000])
    with open(volume.mount_point / "f", "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        file.write(content)
        file.flush()
        volume.kill()
    before = bytes_read(volume)
    volume.mount()
    read = bytes_read(volume) - before
    print(f"{data}, eight members of {member_tib} TiB: the mount after a crash read {read / 2**20:.1f} MiB")
    assert logs_bytes < read <= logs_bytes + READ_BYTES_MAX
    assert (volume.mount_point / "f").read_bytes()[:len(content)] == content
    assert os.stat(volume.mount_point / "reserved").st_blocks * 512 >= member_tib << 40
    for index in range(200):
        assert (volume.mount_point / f"small{index}").read_bytes() == content[index * 1000:index * 2000]
    volume.unmount()
    assert volume.check()["clean"]
