# SPDX-License-Identifier: MIT
"""What messages give as a reason, and what they advise: that it is true, and that it works."""

import json

from conftest import random_content, tool
from test_catch_up import without
from test_events import wait_for_event
from test_scrub import scrub


def made(make_volume, data, metadata, count, **options):
    volume = make_volume(data=data, metadata=metadata, member_count=count, **options)
    volume.make()
    volume.mount()
    return volume


def report(volume):
    shown = tool("cowraid", "status", "--json", volume.mount_point, check=False).stdout
    return json.loads(shown)["volumes"][0]


def line(text, name):
    return [words.split(maxsplit=1)[1] for words in text.splitlines() if words.startswith(name)][0]


def refused(*arguments, code=1):
    result = tool("cowraid", *arguments, check=False)
    assert result.returncode == code, result.stdout + result.stderr
    return result.stderr


def test_more_is_missing_than_the_profile_tolerates(make_volume):
    """Two of three are there: not their number forbids to write."""
    volume = made(make_volume, "raid0", "raid1c3", 3)
    (volume.mount_point / "data").write_bytes(random_content(8 << 20))
    volume.unmount()
    volume.hide([1])
    forced = volume.mount(without(volume, [1]), "degraded=force", check=False)
    assert "more than raid0 tolerates" in forced.stderr
    volume.mount(without(volume, [1]), "ro,rescue")
    reason = "more is missing than raid0 tolerates"
    assert report(volume)["read_only_reason"] == reason
    text = tool("cowraid", "status", volume.mount_point, check=False).stdout
    assert reason in line(text, "State:") + line(text, "Status:")
    assert "degraded=force" not in text and "mount it with the members that are missing" in text
    assert wait_for_event(volume, "ReadOnly")["text"] == reason
    degraded = wait_for_event(volume, "DegradedArray")["text"]
    assert degraded == "1 member out of service; that is more than the volume tolerates: some files may be " \
        "lost"


def test_commands_on_a_volume_without_a_majority(make_volume):
    """They say why it is only read, and the step that makes it writable is one that does."""
    volume = made(make_volume, "raid1", "raid1", 2)
    volume.unmount()
    volume.hide([1])
    volume.mount(without(volume, [1]), "degraded")
    target, place = volume.another(256), volume.mount_point
    for arguments in (["replace", "start", "missing", target, place], ["device", "remove", "missing", place],
                      ["scrub", "start", place], ["filesystem", "resize", "max", place],
                      ["device", "add", target, place], ["balance", place]):
        said = refused(*arguments)
        assert "too few members are present for safe writing" in said, (arguments, said)
        assert "-o degraded=force" in said and "remount" not in said, (arguments, said)
    assert "-o degraded=force" in line(tool("cowraid", "status", place, check=False).stdout, "Action:")
    volume.unmount()
    volume.mount(without(volume, [1, 2]), "degraded=force")
    tool("cowraid", "replace", "start", "-B", "missing", target, place)
    volume.unmount()
    # Where only the mount says so, that is what is said.
    volume.mount(without(volume, [1]), "ro")
    assert "mounted read-only; remount it for writing" in refused("scrub", "start", place)
