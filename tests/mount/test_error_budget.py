# SPDX-License-Identifier: MIT
"""A member with many unreadable blocks."""

import time

import pytest

from conftest import PATIENCE, random_content, tool, wait_for
from unreadable_members import MIB, UnreadableMembers


@pytest.fixture
def unreadable(tmp_path):
    members = UnreadableMembers(tmp_path)
    try:
        yield members
    finally:
        members.destroy()


def read_slowly(unreadable, options, rounds):
    """Files with unreadable blocks, one a second, and all of them again."""
    volume = unreadable.volume
    volume.mount(unreadable.devices, options)
    contents = [random_content(MIB) for _ in range(rounds)]
    for number, content in enumerate(contents):
        (volume.mount_point / f"f{number}").write_bytes(content)
    assert unreadable.damage(b"".join(contents)) > 20 * rounds
    volume.drop_caches()
    for number, content in enumerate(contents):
        assert (volume.mount_point / f"f{number}").read_bytes() == content
        time.sleep(1.1)
    time.sleep(2.5)
    for number, content in enumerate(contents):
        assert (volume.mount_point / f"f{number}").read_bytes() == content


def test_too_many_seconds_with_errors_that_are_mended(unreadable):
    read_slowly(unreadable, "error_budget=3", 6)
    assert unreadable.wait_for_condition("degraded")["may_fail"] == 1
    volume = unreadable.volume
    unreadable.wait_for_event("ManyErrors")
    assert "many errors" in tool("cowraid", "status", volume.mount_point).stdout
    # A spare gets all that it has, without redundancy lost meanwhile.
    spare = volume.another(256)
    tool("cowraid", "device", "add", "--spare", spare, volume.mount_point)

    def is_replaced():
        status = unreadable.status()
        done = status["members"][3]["path"] == spare
        assert done or status["may_fail"] == 1, status
        return done

    wait_for(is_replaced, 5 * PATIENCE, otherwise=unreadable.status)
    status = unreadable.status()
    # Nobody but the spare begins one. That it is one is told if the events meet it while it waits.
    told = unreadable.wait_for_event("ReplaceFinished")
    assert "ReplaceStarted" in told and "DegradedArray" not in told, told
    assert [line["condition"] for line in status["members"]] == ["online"] * 4
    assert status["spares"] == []


def test_repairs_that_do_not_hold(unreadable):
    volume = unreadable.volume
    volume.mount(unreadable.devices)
    content = random_content(MIB // 2)
    (volume.mount_point / "f").write_bytes(content)
    for _ in range(7):
        unreadable.damage(content)
        volume.drop_caches()
        assert (volume.mount_point / "f").read_bytes() == content
        time.sleep(1.1)
    status = unreadable.wait_for_condition("faulted")
    member = status["members"][3]
    assert "repairs of it do not hold" in member["reason"], member
    assert status["may_fail"] == 0
    assert [line["condition"] for line in status["members"][:3]] == ["online"] * 3
    assert "Fail" in unreadable.wait_for_event("repairs of it do not hold")
    # It is there again when somebody says so, and gets what it missed.
    tool("cowraid", "device", "online", "4", volume.mount_point)
    volume.wait_caught_up()
    assert unreadable.status()["members"][3]["condition"] == "online"
    assert (volume.mount_point / "f").read_bytes() == content


@pytest.mark.parametrize("options", ["error_budget=0", "error_budget=200"])
def test_some_bad_blocks_are_mended(unreadable, options):
    read_slowly(unreadable, options, 6)
    member = unreadable.status()["members"][3]
    assert member["condition"] == "online" and member["errors"]["read_io_errs"] > 100, member
    scrubbed = tool("cowraid", "scrub", unreadable.volume.mount_point, check=False)
    assert scrubbed.returncode == 0, scrubbed
    assert unreadable.status()["members"][3]["condition"] == "online"
