# SPDX-License-Identifier: MIT
"""What members are known by: cowraid device probe, the udev rule, cowraid device wipe."""

import json
import re
import shutil
from pathlib import Path

import pytest

from conftest import TOOLS, run, tool

MAGIC = b"COWRAID1"
RINGS = (64 << 10, 12 << 20)
SLOT = 64 << 10
SLOTS = 8
LABEL = 'my "pool"; $(reboot) é'
RULE = TOOLS.parent / "system" / "64-cowraid.rules"


@pytest.fixture
def made(make_volume):
    volume = make_volume(member_count=3, member_mib=128, data="raid5", metadata="raid1")
    volume.make("-L", LABEL)
    return volume


def probe(path, expect=0):
    result = tool("cowraid", "device", "probe", path, check=False)
    assert result.returncode == expect, result
    return dict(line.split("=", 1) for line in result.stdout.splitlines())


def superblocks(image):
    """How many copies of a superblock an image has."""
    data = image.read_bytes()[:16 << 20]
    return sum(data[ring + slot * SLOT:].startswith(MAGIC, 8) for ring in RINGS for slot in range(SLOTS))


def wipe(*arguments, expect=0):
    result = tool("cowraid", "device", "wipe", *arguments, check=False)
    assert result.returncode == expect, result
    return result


def test_members_have_one_uuid_and_another_each(made):
    uuid = json.loads(tool("cowraid", "filesystem", "show", "--json", made.devices[0]).stdout)
    uuid = uuid["volumes"][0]["uuid"]
    answers = [probe(device) for device in made.devices]
    for answer in answers:
        assert answer["ID_FS_TYPE"] == "cowraid" and answer["ID_FS_USAGE"] == "filesystem"
        assert answer["ID_FS_UUID"] == answer["ID_FS_UUID_ENC"] == uuid
        assert answer["ID_FS_LABEL_ENC"] == r"my\x20\x22pool\x22\x3b\x20\x24\x28reboot\x29\x20é"
    assert len({answer["ID_FS_UUID_SUB"] for answer in answers}) == 3
    assert json.loads(tool("cowraid", "device", "probe", "--json",
                           made.images[0]).stdout)["ID_FS_UUID_SUB"] == answers[0]["ID_FS_UUID_SUB"]


def test_a_mounted_member_is_known_and_the_mount_not_disturbed(made):
    made.mount()
    assert probe(made.devices[1])["ID_FS_TYPE"] == "cowraid"
    (made.mount_point / "f").write_bytes(b"x" * 100000)
    made.unmount()
    made.check()


def test_what_is_no_member_is_not_known(made):
    blank = made.another(64)
    assert probe(blank, expect=1) == {}
    assert probe(made.folder / "nothing", expect=1) == {}
    run("mkfs.ext4", "-q", "-F", "-E", "nodiscard", made.devices[0])
    assert superblocks(made.images[0]) > 0, "ext4 has overwritten all copies: nothing was tried"
    assert probe(made.devices[0], expect=1) == {}


def test_nothing_is_read_before_the_process_is_confined(made):
    log = made.folder / "calls"
    device = made.devices[0]
    run("strace", "-f", "-o", log, TOOLS / "cowraid", "device", "probe", device)
    calls = log.read_text().splitlines()
    opened = next(number for number, call in enumerate(calls) if f'"{device}"' in call and "openat(" in call)
    confined = next(number for number, call in enumerate(calls) if "PR_SET_NO_NEW_PRIVS" in call)
    reads = [number for number, call in enumerate(calls)
             if number > opened and re.search(r"\b(p?read\w*|io_uring_enter)\(", call)]
    assert opened < confined and len(reads) > 2
    assert not [number for number in reads if number < confined and "io_uring" in calls[number]]
    descriptor = calls[opened].rpartition("= ")[2]
    assert not [number for number in reads if number < confined
                and re.search(rf"read\w*\({descriptor},", calls[number])]


def test_the_rule_asks_the_program_and_udev_reads_what_it_says(made):
    """As udev carries out the rule; where no device manager runs, as far as that goes."""
    text = RULE.read_text(encoding="ascii")
    assert re.search(r'IMPORT\{program\}="/\S+/cowraid device probe \$devnode"', text)
    for name in ("ID_FS_UUID_ENC", "ID_FS_LABEL_ENC"):
        assert f"$env{{{name}}}" in text and name in probe(made.devices[0])
    if shutil.which("udevadm") is None:
        pytest.skip("no udevadm")
    rule = Path("/etc/udev/rules.d") / f"64-{made.folder.name}.rules"
    rule.parent.mkdir(parents=True, exist_ok=True)
    rule.write_text(re.sub(r"/\S+/cowraid ", f"{TOOLS}/cowraid ", text), encoding="ascii")
    device = made.devices[1]
    block = "/sys/class/block/" + device.removeprefix("/dev/")
    try:
        # It makes the links and remembers what it found.
        result = run("udevadm", "test", "-a", "change", block)
        shown = json.loads(run("lsblk", "-Jo", "FSTYPE,UUID,LABEL", device).stdout)["blockdevices"][0]
        by_label = run("findfs", f"LABEL={LABEL}").stdout.strip()
    finally:
        run("udevadm", "test", "-a", "remove", block)
        rule.unlink()
    found = dict(re.findall(r"^(ID_FS_\w+)=(.*)$", result.stdout, re.MULTILINE))
    assert found == probe(device)
    assert shown == {"fstype": "cowraid", "uuid": found["ID_FS_UUID"], "label": LABEL}
    assert by_label == device
    assert not Path("/dev/disk/by-uuid", found["ID_FS_UUID"]).is_symlink()


def test_members_that_appear_by_a_change_come_back(made):
    """As those of the device mapper and of md do. A loop device stands for one."""
    text = RULE.read_text(encoding="ascii")
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    [line] = [line for line in lines if '"dm-*|md*"' in line]
    assert line.startswith('ACTION=="change", ')
    if shutil.which("udevadm") is None:
        pytest.skip("no udevadm")
    block = "/sys/class/block/" + made.devices[0].removeprefix("/dev/")
    rule = Path("/etc/udev/rules.d") / f"64-{made.folder.name}.rules"
    rule.parent.mkdir(parents=True, exist_ok=True)

    def wanted(rules, action):
        rule.write_text(re.sub(r"/\S+/cowraid ", f"{TOOLS}/cowraid ", rules), encoding="ascii")
        try:
            shown = run("udevadm", "test", "-a", action, block).stdout
        finally:
            rule.unlink()
            run("udevadm", "test", "-a", "remove", block)
        assert "ID_FS_TYPE=cowraid" in shown
        return re.findall(r"^SYSTEMD_WANTS=(.*)$", shown, re.MULTILINE)

    service = f"cowraid-online@{Path(made.devices[0]).name}.service"
    assert wanted(text, "add") == [service]
    assert wanted(text, "change") == []
    assert wanted(text.replace('"dm-*|md*"', '"loop*|md*"'), "change") == [service]


def test_wiping_erases_all_copies(made):
    made.mount()
    for number in range(20):
        (made.mount_point / f"f{number}").write_bytes(b"x" * 5000)
        tool("cowraid", "filesystem", "sync", made.mount_point)
    made.unmount()
    assert superblocks(made.images[0]) == len(RINGS) * SLOTS
    assert "held cowraid" in wipe(made.devices[0]).stdout
    assert superblocks(made.images[0]) == 0
    assert probe(made.devices[0], expect=1) == {}
    assert "nothing known" in wipe(made.devices[0]).stdout
    assert tool("mkfs.cowraid", "-q", made.devices[0]).stderr == ""
    # The others are as they were, and the volume goes on without it.
    made.mount(made.devices[1:], "degraded")
    assert (made.mount_point / "f7").read_bytes() == b"x" * 5000


def test_wiping_refuses_what_is_in_use(made):
    made.mount()
    for options in ([], ["-f"]):
        assert "in use" in wipe(*options, made.devices[0], expect=1).stderr
    made.unmount()
    made.check()


def test_wiping_refuses_what_is_another_s(made):
    foreign, image = made.another(64), made.images[-1]
    run("mkfs.ext4", "-q", foreign)
    before = image.read_bytes()
    result = wipe(made.devices[0], foreign, expect=1)
    assert "holds ext4" in result.stderr and "-f" in result.stderr
    assert image.read_bytes() == before
    made.check()  # nothing was wiped, although its own member came first
    answer = json.loads(wipe("-f", "--json", foreign).stdout)
    assert answer["devices"] == [{"path": foreign, "held": "ext4"}]
    assert run("blkid", "-p", foreign, check=False).returncode == 2
    assert "name the devices" in wipe(expect=2).stderr


@pytest.mark.parametrize("passes", ["-a", "-n", "-y", "-p"])
def test_fsck_has_the_exit_codes_of_fsck(made, passes):
    assert tool("fsck.cowraid", passes, made.devices[0]).returncode == 0
    assert tool("fsck.cowraid", passes, "cowraid:no-such-label").returncode == 0
    missing = tool("fsck.cowraid", passes, made.folder / "nothing", check=False)
    assert missing.returncode == 8 and "does not exist" in missing.stderr
