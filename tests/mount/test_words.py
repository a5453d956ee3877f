# SPDX-License-Identifier: MIT
"""What commands say to people: the sentence of a check, progress on a terminal, mistyped commands."""

import json
import os
import pty
import re
import subprocess

from conftest import TOOLS, random_content, run, tool


def on_terminal(*arguments):
    """(exit code, standard output, what standard error, a terminal, got)."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([TOOLS / "cowraid", *map(str, arguments)], stdout=subprocess.PIPE, stderr=theirs,
                          text=True) as process:
        output = process.communicate(timeout=300)[0]
    os.close(theirs)
    seen = b""
    try:
        while more := os.read(ours, 65536):
            seen += more
    except OSError:  # the other end is closed, and everything was read
        pass
    os.close(ours)
    return process.returncode, output, seen.decode()


def damage(volume, index, mebibytes):
    with open(volume.images[index], "r+b") as file:
        file.seek(32 << 20)
        file.write(random_content(mebibytes << 20))
    volume.drop_caches()


def test_check_ends_in_a_sentence_and_shows_progress(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=256)
    volume.make()
    volume.mount()
    (volume.mount_point / "data").write_bytes(random_content(200 << 20))
    volume.unmount()
    code, output, _ = on_terminal("check", volume.devices[0])
    assert code == 0 and output.splitlines()[-1].split() == ["Result:", "clean"]
    damage(volume, 1, 16)
    code, output, seen = on_terminal("check", volume.devices[0])
    assert code == 3
    said = output.splitlines()[-1].split(maxsplit=1)[1]
    match = re.fullmatch(rf"member 2 \({volume.devices[1]}\) is damaged in (\d+) blocks; nothing is lost; "
                         r"mount it and run cowraid scrub", said)
    assert match and 3000 < int(match[1]) <= 4096, said
    assert re.search(r"\[=* +\] \d+% done, [0-9.]+[KMG]iB/s, \d:\d\d:\d\d left", seen), seen
    damage(volume, 0, 16)
    code, output, _ = on_terminal("check", volume.devices[0])
    assert code == 3
    said = output.splitlines()[-1]
    assert "member 1" in said and "member 2" in said and "1 file lost data and is named above" in said
    assert any("data: lost: " in line for line in output.splitlines())


def test_scrub_shows_its_limit(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=256)
    volume.make()
    volume.mount()
    (volume.mount_point / "data").write_bytes(random_content(100 << 20))
    run("sync", "-f", volume.mount_point)
    code, output, seen = on_terminal("scrub", "--limit", "100m", volume.mount_point)
    assert code == 0 and "no errors found" in output
    assert re.search(r"\d+% done, [0-9.]+[KMG]iB/s \(limit 100\.00MiB/s\), 0:00:\d\d left", seen), seen


def test_a_word_near_a_command_may_be_a_volume(make_volume, tmp_path, monkeypatch):
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=256)
    volume.make("-L", "stauts")
    monkeypatch.chdir(tmp_path)
    assert tool("cowraid", "scrub", "stauts", check=False).returncode == 2
    volume.mount()
    for place in ("stauts", volume.mount_point, json.loads(
            tool("cowraid", "status", "--json", volume.mount_point).stdout)["volumes"][0]["uuid"]):
        assert "no errors found" in tool("cowraid", "scrub", place).stdout
        assert "Status:            finished" in tool("cowraid", "balance", place).stdout
    (tmp_path / "puase").symlink_to(volume.mount_point)
    assert "no errors found" in tool("cowraid", "scrub", "puase").stdout
    tool("cowraid", "balance", "--convert", "raid1", volume.mount_point)
    two = tool("cowraid", "scrub", volume.mount_point, volume.mount_point, check=False)
    assert two.returncode == 2 and "one volume at a time" in two.stderr


def test_mistyped_commands():
    for typed, meant in ((["statsu"], "status"), (["usage", "/"], "filesystem usage"),
                         (["filesystem", "usgae"], "filesystem usage"), (["blance"], "balance")):
        result = tool("cowraid", *typed, check=False)
        assert result.returncode == 2 and f"did you mean 'cowraid {meant}'?" in result.stderr, result.stderr
    # The group is a command of its own, and takes a volume.
    for typed, meant in ((["scrub", "stauts"], "scrub status"), (["scrub", "cancle", "/mnt"], "scrub cancel"),
                         (["balance", "stauts", "/mnt"], "balance status"),
                         (["scrub", "stop"], "scrub cancel"), (["balance", "stop"], "balance cancel"),
                         (["balance", "puase"], "balance pause"),
                         (["device", "offlien"], "device offline"), (["replace", "cancle"], "replace cancel"),
                         (["balance", "continue", "/mnt"], "balance resume")):
        result = tool("cowraid", *typed, check=False)
        assert result.returncode == 2, (typed, result.stderr)
        assert result.stderr == f"cowraid: '{typed[1]}' is not a command; did you mean 'cowraid {meant}'?\n"
    result = tool("cowraid", "scrub", "frobnicate", "/mnt", check=False)
    assert result.returncode == 2
    assert "'frobnicate' is not a command; there are: start, status" in result.stderr
    result = tool("cowraid", "frobnicate", check=False)
    assert result.returncode == 2 and "there are: status, events, " in result.stderr
    for typed in (["statsu"], ["filesystem", "x"], ["scrub", "s"], ["device"], ["--raid"], [],
                  ["status", "--frobnicate"], ["status", "--watch=x"], ["scrub", "start", "--limit=x"],
                  ["balance", "-dsize=3"], ["filesystem", "sync"], ["replace", "start", "1"]):
        for how in (["--json"], ["--format", "json"], ["--format=json"]):
            for words in ([*how, *typed], [*typed, *how]):
                plain = tool("cowraid", *typed, check=False)
                result = tool("cowraid", *words, check=False)
                assert result.returncode == plain.returncode == 2 and plain.stdout == "", words
                shown = json.loads(result.stdout)
                assert (shown["schema"], shown["error"]["code"]) == ("cowraid.error", "EINVAL"), words
                assert shown["error"]["message"] in result.stderr
                assert plain.stderr.splitlines()[0].split(": ", 1)[1] in result.stderr or not typed, words
    help_text = tool("cowraid", "status", "--json", "--help")
    assert help_text.stdout.startswith("Usage: cowraid status") and help_text.stderr == ""
    commands = tool("cowraid", "--help").stdout
    for command in ("status", "events", "metrics", "map", "filesystem usage", "device stats", "scrub status",
                    "balance start", "replace start", "check"):
        assert f"  {command} " in commands
