# SPDX-License-Identifier: MIT
"""cowraid metrics: what Prometheus reads is what cowraid status says."""

import json
import os
import re
import signal

from conftest import random_content, run, tool

SAMPLE = re.compile(r'^(cowraid_[a-z_]+)\{volume="([0-9a-f-]{36})"((?:,[a-z_]+="(?:[^"\\]|\\.)*")*)\} (\d+)$')


def metrics(volume):
    """Value by (name, labels behind that of the volume); every line is checked."""
    lines = tool("cowraid", "metrics", volume.mount_point).stdout.splitlines()
    values, heads = {}, []
    for line in lines:
        if line.startswith("#"):
            heads.append(line.split()[1:3])
            continue
        match = SAMPLE.match(line)
        assert match, line
        assert heads[-1] == ["TYPE", match[1]]
        assert (match[1], match[3]) not in values
        values[match[1], match[3]] = int(match[4])
    assert len(heads) > 80 and len({tuple(head) for head in heads}) == len(heads)
    return values


def test_metrics_are_what_status_says(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=256)
    volume.make("-L", "num\"bers")
    volume.mount()
    (volume.mount_point / "data").write_bytes(random_content(30 << 20))
    run("sync", "-f", volume.mount_point)
    tool("cowraid", "scrub", volume.mount_point)
    values = metrics(volume)
    status = json.loads(tool("cowraid", "status", "--json", volume.mount_point).stdout)["volumes"][0]
    assert values["cowraid_healthy", ""] == 1 and values["cowraid_state", ',state="ONLINE"'] == 1
    assert values["cowraid_tolerance_members", ""] == status["may_fail"] == 1
    assert values["cowraid_space_used_bytes", ',content="data",profile="raid5"'] == 30 << 20
    assert values["cowraid_scrub_finished_timestamp_seconds", ""] == status["scrub"]["ended"] > 0
    assert values["cowraid_scrub_data_blocks", ""] == status["scrub"]["data_blocks"] > 30 << 8
    assert values["cowraid_device_write_bytes_total", ""] >= 45 << 20
    assert values["cowraid_device_read_bytes_total", ""] >= 45 << 20
    for member in status["members"]:
        label = f',member="{member["id"]}"'
        assert values["cowraid_member_state", label + ',state="online"'] == 1
        assert values["cowraid_member_size_bytes", label] == member["size_bytes"]
        assert values["cowraid_member_allocated_bytes", label] == member["used_bytes"]
    assert sum(name == "cowraid_member_errors_total" for name, _ in values) == 3 * 8
    assert any('label="num\\"bers"' in labels for name, labels in values if name == "cowraid_volume_info")


def test_a_volume_that_does_not_answer_hides_no_other(make_volume):
    here, other = (make_volume(data="raid1", metadata="raid1", member_count=2, member_mib=64, loops=False)
                   for _ in range(2))
    for volume in (here, other):
        volume.make()
        volume.mount()
    uuid = json.loads(tool("cowraid", "status", "--json", here.mount_point).stdout)["volumes"][0]["uuid"]
    daemon = other.daemon()
    os.kill(daemon, signal.SIGSTOP)
    try:
        lines = tool("cowraid", "metrics").stdout.splitlines()
        listed = json.loads(tool("cowraid", "metrics", "--json").stdout)
        assert tool("cowraid", "metrics", other.mount_point, check=False).returncode == 1
    finally:
        os.kill(daemon, signal.SIGCONT)
    assert f'cowraid_up{{volume="",pid="{daemon}"}} 0' in lines
    assert f'cowraid_up{{volume="{uuid}"}} 1' in lines and f'cowraid_healthy{{volume="{uuid}"}} 1' in lines
    assert uuid in [volume["uuid"] for volume in listed["volumes"]]
    assert {"uuid": "", "pid": daemon} in listed["unanswered"]
