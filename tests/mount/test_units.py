# SPDX-License-Identifier: MIT
"""What is installed beside the programs: the units for systemd, and that all of it goes again."""

import re
import shutil

import pytest

from conftest import ROOT, TOOLS, run, tool

SYSTEM = TOOLS.parent / "system"
TIMER = ROOT / "system" / "units" / "cowraid-scrub@.timer"


def test_systemd_accepts_the_units(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd")
    for service in ("cowraid-scrub@.service", "cowraid-events.service"):
        text, changes = re.subn(r"(?<==)/\S+/cowraid ", f"{TOOLS}/cowraid ", (SYSTEM / service).read_text())
        assert changes == 1
        (tmp_path / service.replace("@", "@srv-my\\x20pool")).write_text(text)
    (tmp_path / "cowraid-scrub@srv-my\\x20pool.timer").write_text(TIMER.read_text())
    result = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no",
                 *sorted(tmp_path.glob("cowraid*")), check=False)
    assert "cowraid" not in result.stdout + result.stderr and result.returncode == 0, result
    when = re.search(r"OnCalendar=(\S+)", TIMER.read_text())[1]
    assert "Next elapse" in run("systemd-analyze", "calendar", when).stdout


def test_the_command_of_the_service_scrubs_and_waits(volume):
    text = (SYSTEM / "cowraid-scrub@.service").read_text()
    command = re.search(r"^ExecStart=\S+/cowraid (.*) %f$", text, re.MULTILINE)[1].split()
    (volume.mount_point / "f").write_bytes(b"x" * 3000000)
    assert "no errors found" in tool("cowraid", *command, volume.mount_point).stdout


def test_uninstall_leaves_no_file(tmp_path):
    if shutil.which("meson") is None or not (TOOLS.parent / "build.ninja").exists():
        pytest.skip("no Meson build folder to install from")
    run("meson", "install", "-C", TOOLS.parent, "--no-rebuild", "--quiet", "--destdir", tmp_path)
    installed = {path.name for path in tmp_path.rglob("*") if not path.is_dir()}
    assert {"cowraid", "mkfs.cowraid", "mount.cowraid", "umount.fuse.cowraid", "fsck.cowraid", "_cowraid",
            "cowraid.8", "cowraid.5", "mount.fuse.cowraid.8", "64-cowraid.rules", "cowraid-scrub@.service",
            "cowraid-scrub@.timer", "cowraid-events.service"} <= installed
    run("ninja", "-C", TOOLS.parent, "uninstall")
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []
