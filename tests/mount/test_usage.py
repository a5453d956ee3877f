# SPDX-License-Identifier: MIT
"""cowraid filesystem usage -T and --layout: every slot of every member, mounted or not."""

import json
import os

from conftest import random_content, run, tool, wait_for


def usage(volume, *arguments, where=None):
    return tool("cowraid", "filesystem", "usage", *arguments, where or volume.mount_point).stdout


def slots(layout):
    """(member, slot) of every column of every group; none may be there twice."""
    taken = [(column["member"], slot) for group in layout["groups"] for column in group["columns"]
             for slots in column["slots"]
             for slot in range(slots["first_slot"], slots["first_slot"] + slots["slot_count"])]
    assert len(taken) == len(set(taken)) > 0
    return taken


def test_layout_and_table(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=256)
    volume.make("-L", "drawn")
    volume.mount()
    (volume.mount_point / "data").write_bytes(random_content(100 << 20))
    run("sync", "-f", volume.mount_point)
    shown = json.loads(usage(volume, "--layout", "--json"))
    layout = shown["layout"]
    assert layout["label"] == "drawn" and layout["uuid"] == shown["uuid"]
    per_member = {member["id"]: 0 for member in layout["members"]}
    slot_bytes = {member["id"]: member["slot_bytes"] for member in layout["members"]}
    for member, _ in slots(layout):
        per_member[member] += slot_bytes[member]
    assert per_member == {member["id"]: member["used_bytes"] for member in shown["members"]}
    data = [group for group in layout["groups"] if group["content"] == ["data"]]
    assert sum(group["used_bytes"] for group in data) == 100 << 20
    assert all(group["profile"] == "raid5" and len(group["columns"]) == 4 for group in data)

    lines = usage(volume, "--layout").splitlines()
    drawn = [lines[index + 1].strip() for index, line in enumerate(lines) if line.startswith("Member ")]
    assert len(drawn) == 4
    letters = set("".join(drawn)) - {"."}
    assert len(letters) == len(layout["groups"])
    assert sum(line.startswith(tuple(letters)) and " raid" in line for line in lines) == len(letters)

    listed = usage(volume)
    assert "\nData,RAID5: Size:" in listed
    for member in shown["members"]:
        assert f"   {member['path']}\t" in listed.partition("\nData,RAID5: ")[2].partition("\n\n")[0]
    table = usage(volume, "-T").splitlines()
    head = [line for line in table if line.startswith("Id ")]
    assert len(head) == 1 and "Data,RAID5" in head[0] and "Metadata+System,RAID1" in head[0]
    assert sum(line.split()[1:2] == [device] for line in table for device in volume.devices) == 4
    assert any(line.split()[:2] == ["Used", "100.00MiB"] for line in table)

    volume.unmount()
    after = json.loads(usage(volume, "--layout", "--json", where=volume.devices[0]))
    offline = after["layout"]
    assert {tuple(place) for place in slots(layout)} == {tuple(place) for place in slots(offline)}


def test_a_missing_member_is_drawn(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=256)
    volume.make()
    volume.hide([2])
    volume.mount(volume.loops[:2], options="degraded")
    (volume.mount_point / "data").write_bytes(random_content(8 << 20))
    run("sync", "-f", volume.mount_point)
    assert "Member 3 (missing)" in usage(volume, "--layout")
    assert any(line.split()[1:2] == ["missing"] for line in usage(volume, "-T").splitlines())


def test_usage_metrics_and_df_agree_after_a_deletion(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=4, member_mib=256)
    volume.make()
    volume.mount()
    gone = volume.mount_point / "gone"
    gone.write_bytes(random_content(64 << 20))
    run("sync", "-f", volume.mount_point)

    def df():
        space = os.statvfs(volume.mount_point)
        return space.f_bavail * space.f_frsize

    def metrics():
        lines = tool("cowraid", "metrics", volume.mount_point).stdout.splitlines()
        line = next(line for line in lines if line.startswith("cowraid_available_bytes{"))
        return int(line.split()[-1])

    def agreed():
        """What all three say, if nothing changes meanwhile."""
        before = df()
        others = {json.loads(usage(volume, "--json"))["available_bytes"], metrics()}
        if df() != before:
            return None
        assert others == {before}
        return before

    full = wait_for(agreed)
    gone.unlink()
    wait_for(lambda: (agreed() or 0) >= full + (48 << 20))


def test_where_one_volume_is_meant_it_need_not_be_named(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=256)
    volume.make()
    volume.mount()
    uuid = json.loads(usage(volume, "--json"))["uuid"]
    for words in (("filesystem", "usage"), ("filesystem", "df"), ("device", "stats"), ("map",)):
        shown = tool("cowraid", *words, "--json", cwd=volume.mount_point).stdout
        assert json.loads(shown)["uuid"] == uuid
        two = tool("cowraid", *words, volume.mount_point, volume.mount_point, check=False)
        assert two.returncode == 2 and "one volume at a time" in two.stderr
