# SPDX-License-Identifier: MIT
"""Members that were away are caught up as soon as they are mounted again."""

import os
import random

import pytest

from conftest import tool
from test_redundancy import fill, verify


def without(volume, indexes):
    return [device for index, device in enumerate(volume.devices) if index not in indexes]


@pytest.mark.parametrize("data,metadata,count,away",
                         [("raid5", "raid1", 4, [1]), ("raid6", "raid1c3", 5, [0, 3])])
def test_after_catching_up_others_may_go(make_volume, data, metadata, count, away):
    volume = make_volume(data=data, metadata=metadata, member_count=count, member_mib=256)
    volume.make()
    volume.mount()
    old = fill(volume.mount_point, 1, file_count=60)
    big = volume.mount_point / "big"
    content = bytearray(random.Random(2).randbytes(96 << 20))
    big.write_bytes(content)
    volume.unmount()
    volume.hide(away)
    volume.mount(without(volume, away), "degraded")
    missed = random.Random(3).randbytes(16 << 20)
    with open(big, "r+b") as file:
        file.seek(5 << 20)
        file.write(missed)
    content[5 << 20:21 << 20] = missed
    for number in range(30):
        (volume.mount_point / f"new{number}").write_bytes(os.urandom(3000))
    volume.unmount()
    volume.unhide(away)
    volume.mount()
    volume.wait_caught_up()
    report = volume.counters()["device-stats"]
    assert not any(line["corruption_errs"] or line["parity_errs"] for line in report)
    scrubbed = tool("cowraid", "scrub", volume.mount_point)
    assert "no errors found" in scrubbed.stdout
    volume.unmount()
    volume.check()
    others = [index for index in range(count) if index not in away][:len(away)]
    volume.hide(others)
    volume.mount(without(volume, others), "degraded,ro")
    verify(old)
    assert big.read_bytes() == content
