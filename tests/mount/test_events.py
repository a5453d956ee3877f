# SPDX-License-Identifier: MIT
"""cowraid events: what it tells of a volume that loses a member, and the program that is called with it."""

import json
import os
import signal
import subprocess
import time

from conftest import PATIENCE, TOOLS, random_content, run, tool, wait_for
from test_catch_up import without


def events(volume, *arguments):
    """(event, text) of each so far."""
    text = tool("cowraid", "events", "--json", *arguments, volume.mount_point).stdout
    return [json.loads(line) for line in text.splitlines()]


def wait_for_event(volume, name):
    """The first one of that name."""
    return wait_for(lambda: [event for event in events(volume) if event["event"] == name],
                    otherwise=lambda: f"no {name} in {events(volume)}")[0]


def test_events_of_a_volume(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=256)
    volume.make("-L", "told")
    volume.mount()
    first = wait_for_event(volume, "NewArray")
    assert first["sequence"] == 1 and first["label"] == "told"
    assert first["mount_point"] == str(volume.mount_point) and abs(first["time"] - time.time()) < 60
    (volume.mount_point / "data").write_bytes(random_content(30 << 20))
    tool("cowraid", "scrub", volume.mount_point)
    assert wait_for_event(volume, "ScrubFinished")["text"] == "no errors found"
    volume.unmount()
    volume.hide([1])
    volume.mount(without(volume, [1]), "degraded")
    degraded = wait_for_event(volume, "DegradedArray")
    assert "1 member out of service; no other member may fail" in degraded["text"]
    (volume.mount_point / "meanwhile").write_bytes(random_content(8 << 20))
    run("sync", "-f", volume.mount_point)
    tool("cowraid", "replace", "start", "missing", volume.another(256), volume.mount_point)
    wait_for_event(volume, "Redundant")
    names = [event["event"] for event in events(volume)]
    assert names[:2] == ["NewArray", "DegradedArray"]
    order = [name for name in names if name in ("MemberBack", "RebuildStarted", "RebuildFinished")]
    assert set(order) == {"MemberBack", "RebuildStarted", "RebuildFinished"}
    assert order.index("RebuildStarted") < order.index("RebuildFinished")
    text = tool("cowraid", "events", volume.mount_point).stdout
    assert text.count("\n") == len(events(volume)) and "RebuildFinished" in text
    sequences = [event["sequence"] for event in events(volume)]
    assert sequences == list(range(1, len(sequences) + 1))


def test_scrubs_in_a_row_are_all_told_to_end(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=256)
    volume.make()
    volume.mount()
    (volume.mount_point / "data").write_bytes(random_content(60 << 20))
    run("sync", "-f", volume.mount_point)
    wait_for_event(volume, "NewArray")
    for _ in range(4):  # each one longer than the daemon looks away, and the next begins at once
        tool("cowraid", "scrub", "--limit", "20m", volume.mount_point)

    def told():
        return [event for event in events(volume) if event["event"].startswith("Scrub")]
    wait_for(lambda: len(told()) >= 8, otherwise=told)
    assert [event["event"] for event in told()] == ["ScrubStarted", "ScrubFinished"] * 4
    assert {event["text"] for event in told()} == {"verifies and repairs", "no errors found"}


def first_line_followed(*arguments):
    command = [TOOLS / "cowraid", "events", "-f", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        line = following.stdout.readline()
        following.send_signal(signal.SIGTERM)
        assert following.wait(timeout=PATIENCE) == 0
    return line


def test_events_that_are_followed_are_json_lines(make_volume):
    volume = make_volume(data="raid1", metadata="raid1", member_count=2, member_mib=128)
    volume.make()
    volume.mount()
    wait_for_event(volume, "NewArray")
    event = json.loads(first_line_followed(volume.mount_point))
    assert event["event"] == "NewArray" and event["mount_point"] == str(volume.mount_point)
    text = first_line_followed("--format", "text", volume.mount_point)
    assert f"  {volume.mount_point}  NewArray  " in text


def test_a_program_is_called_with_each_event(make_volume, tmp_path):
    volume = make_volume(data="raid1", metadata="raid1", member_count=2, member_mib=128)
    volume.make()
    volume.mount()
    tmp_path.chmod(0o755)
    called = tmp_path / "called"
    hook = tmp_path / "hook"
    hook.write_text(f'#!/bin/sh\necho "$*" >>{called}\n', encoding="ascii")
    hook.chmod(0o777)
    refused = tool("cowraid", "events", "--program", hook, check=False)
    assert refused.returncode == 1 and "others may change it" in refused.stderr
    hook.chmod(0o755)
    command = [TOOLS / "cowraid", "events", "--test", "--program", str(hook)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as following:

        def lines_called():
            return called.read_text(encoding="ascii").splitlines() if called.exists() else []

        def wait_called(line):
            wait_for(lambda: line in lines_called(), otherwise=lines_called)

        wait_called(f"TestMessage {volume.mount_point}")
        tool("cowraid", "scrub", volume.mount_point)
        wait_called(f"ScrubFinished {volume.mount_point}")
        device = volume.another(128)
        tool("cowraid", "device", "add", device, volume.mount_point)
        wait_called(f"MemberAdded {volume.mount_point} {device}")
        volume.unmount()
        wait_called(f"DeviceDisappeared {volume.mount_point}")
        volume.mount([*volume.loops])
        wait_called(f"NewArray {volume.mount_point}")
        following.send_signal(signal.SIGTERM)
        assert following.wait(timeout=PATIENCE) == 0
    lines = lines_called()
    # What was before the program is not told again: the volume is new with its second mount only.
    assert lines.count(f"NewArray {volume.mount_point}") == 1


def test_a_new_mount_is_told_after_the_end_of_the_one_before(make_volume):
    volume = make_volume(data="raid1", metadata="raid1", member_count=2, member_mib=128)
    volume.make()
    volume.mount()
    command = [TOOLS / "cowraid", "events", "-f", volume.mount_point]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:

        def next_name():
            return json.loads(following.stdout.readline())["event"]

        assert next_name() == "NewArray"
        for _ in range(4):
            volume.unmount()
            volume.mount()
            assert [next_name(), next_name()] == ["DeviceDisappeared", "NewArray"]
        following.send_signal(signal.SIGTERM)
        assert following.wait(timeout=PATIENCE) == 0


def test_a_daemon_that_stood_still_at_first_has_nothing_old_to_tell(make_volume, tmp_path):
    volume = make_volume(data="raid1", metadata="raid1", member_count=2, member_mib=128)
    volume.make()
    volume.mount()
    wait_for_event(volume, "NewArray")
    tmp_path.chmod(0o755)
    called = tmp_path / "called"
    hook = tmp_path / "hook"
    hook.write_text(f'#!/bin/sh\necho "$*" >>{called}\n', encoding="ascii")
    hook.chmod(0o755)
    daemon = volume.daemon()
    os.kill(daemon, signal.SIGSTOP)
    # Of all volumes: who names one is told that it does not answer.
    command = [TOOLS / "cowraid", "events", "--test", "--program", str(hook)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as following:
        try:
            time.sleep(12)  # it is not waited for longer than that
        finally:
            os.kill(daemon, signal.SIGCONT)

        def lines_called():
            return called.read_text(encoding="ascii").splitlines() if called.exists() else []

        wait_for(lambda: f"TestMessage {volume.mount_point}" in lines_called(), otherwise=lines_called)
        tool("cowraid", "scrub", volume.mount_point)
        wait_for(lambda: f"ScrubFinished {volume.mount_point}" in lines_called(), otherwise=lines_called)
        following.send_signal(signal.SIGTERM)
        assert following.wait(timeout=PATIENCE) == 0
    assert f"NewArray {volume.mount_point}" not in lines_called()


def test_what_happened_just_before_the_unmount_is_told(make_volume, tmp_path):
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=256)
    volume.make()
    volume.mount()
    (volume.mount_point / "data").write_bytes(random_content(60 << 20))
    tmp_path.chmod(0o755)
    called = tmp_path / "called"
    hook = tmp_path / "hook"
    hook.write_text(f'#!/bin/sh\necho "$1" >>{called}\n', encoding="ascii")
    hook.chmod(0o755)
    command = [TOOLS / "cowraid", "events", "--test", "-f", "--program", str(hook), volume.mount_point]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:

        def names_until(last):
            names = []
            while not names or names[-1] != last:
                names.append(json.loads(following.stdout.readline())["event"])
            return names

        try:
            names_until("TestMessage")
            for act, told in ((["replace", "start", "-B", "1", volume.another(256)], "ReplaceFinished"),
                              (["device", "offline", "2"], "DegradedArray"),
                              (["scrub", "start", "--limit", "1m"], "ScrubStarted")):
                tool("cowraid", *act, volume.mount_point)
                volume.unmount()
                names = names_until("DeviceDisappeared")
                assert told in names, names
                assert not {"ScrubPaused", "ScrubFinished", "ReadOnly", "Fail"} & set(names), names
                volume.mount(volume.loops[1:])
                names_until("NewArray")
        finally:
            following.send_signal(signal.SIGTERM)
            assert following.wait(timeout=PATIENCE) == 0
    assert {"ReplaceFinished", "DegradedArray", "ScrubStarted"} <= set(called.read_text().split())
