# SPDX-License-Identifier: MIT
"""cowraid status: what it says of volumes that are well, degraded, being filled, and with errors."""

import json
import os
import signal
import subprocess
import threading

from conftest import PATIENCE, TOOLS, random_content, run, tool
from test_catch_up import without
from test_redundancy import fill


def status(volume, *arguments):
    return tool("cowraid", "status", *arguments, volume.mount_point).stdout


def health(volume):
    shown = json.loads(status(volume, "--json"))
    assert len(shown["volumes"]) == 1
    return shown["volumes"][0]["health"]


def line(text, name):
    return [words.split(maxsplit=1)[1] for words in text.splitlines() if words.startswith(name)][0]


def test_from_healthy_to_degraded_and_back(make_volume):
    volume = make_volume(data="raid6", metadata="raid1c3", member_count=5, member_mib=256)
    volume.make("-L", "told")
    refused = tool("cowraid", "status", volume.devices[0], check=False)
    assert (refused.returncode, "not mounted" in refused.stderr) == (1, True), refused.stderr
    volume.mount()
    fill(volume.mount_point, 1, file_count=60)
    text = status(volume)
    assert line(text, "State:") == "ONLINE" and "Action:" not in text
    assert line(text, "Options:") == "rw,relatime"
    shown = json.loads(status(volume, "--json"))["volumes"][0]
    assert shown["mount_options"].startswith("rw,relatime,commit=5,compress=no,mem=1G,dirty_max=256M,")
    assert line(text, "Scrub:") == "none yet"
    assert "any 2 members" in text and "raid6 for data, raid1c3 for metadata" in text
    members = [words.split()[1:] for words in text.splitlines() if "/dev/loop" in words]
    assert members == [[device, "online", "0", "0", "0"] for device in volume.devices]
    assert status(volume, "-x") == status(volume, "-x", "--check") == "all volumes are healthy\n"
    tool("cowraid", "scrub", volume.mount_point)
    assert tool("cowraid", "scrub", "status", "--check", volume.mount_point).returncode == 0
    assert "no errors found" in line(status(volume), "Scrub:")
    volume.unmount()
    volume.hide([1])
    volume.mount(without(volume, [1]), "degraded,noatime,commit=7")
    assert tool("cowraid", "status", "--check", volume.mount_point, check=False).returncode == 1
    for words in (["no such volume"], ["--frobnicate"], [volume.mount_point, "--watch=never"]):
        unknown = tool("cowraid", "status", *words, "--check", check=False)
        assert unknown.returncode == 4, unknown
    text = status(volume, "-x")
    assert line(text, "Options:") == "rw,degraded,noatime,commit=7"
    assert line(text, "State:") == "DEGRADED" and "1 member out of service" in text
    assert "cowraid replace start ID DEVICE" in text and "any 1 member" in text
    assert health(volume) == "DEGRADED"
    (volume.mount_point / "meanwhile").write_bytes(random_content(8 << 20))
    run("sync", "-f", volume.mount_point)
    tool("cowraid", "replace", "start", "missing", volume.another(256), volume.mount_point)
    volume.wait_caught_up()
    assert health(volume) == "ONLINE"
    tool("cowraid", "balance", "start", "-dusage=10", volume.mount_point)
    assert "finished, moves data" in line(status(volume), "Balance:")


def test_errors_are_told_with_their_member(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=256)
    volume.make()
    volume.mount()
    fill(volume.mount_point, 1, file_count=60)
    (volume.mount_point / "big").write_bytes(random_content(64 << 20))
    volume.unmount()
    with open(volume.images[1], "r+b") as file:
        file.seek(24 << 20)
        file.write(random_content(64 << 20))
    volume.drop_caches()
    volume.mount()
    tool("cowraid", "scrub", volume.mount_point, check=False)
    shown = json.loads(status(volume, "--json"))["volumes"][0]
    assert shown["health"] == "ONLINE" and "errors were met" in shown["problem"]
    text = status(volume)
    wrong = {member["id"]: member["errors"]["corruption_errs"] for member in shown["members"]}
    assert wrong[2] > 0 and wrong[1] == wrong[3] == 0
    assert "cowraid device stats -z" in text and "nothing is lost" in line(text, "Scrub:")
    tool("cowraid", "device", "stats", "-z", volume.mount_point)
    assert line(status(volume), "State:") == "ONLINE" and "Action:" not in status(volume)


def test_watch_ends_with_an_interrupt(make_volume):
    volume = make_volume(data="raid1", metadata="raid1", member_count=2, member_mib=128)
    volume.make()
    volume.mount()
    command = [TOOLS / "cowraid", "status", "--watch=1", volume.mount_point]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        limit = threading.Timer(PATIENCE, watching.kill)
        limit.start()
        text = ""
        while text.count("State:") < 2 and (more := watching.stdout.readline()):
            text += more
        watching.send_signal(signal.SIGINT)
        watching.communicate()
        limit.cancel()
        assert watching.returncode == 0
    assert text.count("State:") == 2
    for seconds in ("soon", "", "0", "-1", "5x", "86401", "4294967297", "18446744073709551617"):
        bad = run("timeout", "60", TOOLS / "cowraid", "status", f"--watch={seconds}", volume.mount_point,
                  check=False)
        assert bad.returncode == 2 and "--watch takes a number of seconds" in bad.stderr, seconds


def test_a_dead_daemon_is_told(make_volume):
    volume = make_volume(member_mib=128)
    volume.make()
    volume.mount()
    volume.kill()
    told = tool("cowraid", "status", "-x", check=False)
    assert told.returncode == 1, told.stdout
    assert str(volume.mount_point) in told.stderr and "its daemon is dead" in told.stderr
    assert "healthy" not in told.stdout
    told = tool("cowraid", "status", "--json", check=False)
    assert told.returncode == 1
    silent = {one["mount_point"]: one["problem"] for one in json.loads(told.stdout)["not_answering"]}
    assert "dead" in silent[str(volume.mount_point)]


def test_a_mount_that_is_served_elsewhere_is_no_failure(make_volume):
    volume, other = (make_volume(member_mib=128) for _ in range(2))
    for one in (volume, other):
        one.make()
    volume.mount()
    elsewhere = {**os.environ, "COWRAID_RUN_DIR": str(other.folder / "run")}
    tool("mount.cowraid", *other.loops, other.mount_point, env=elsewhere)
    try:
        for words in ([], ["--check"]):
            told = tool("cowraid", "status", *words)
            assert f"'{other.mount_point}': it has no control socket here; is it served" in told.stderr
            assert "COWRAID_RUN_DIR" in told.stderr and str(volume.mount_point) in told.stdout
        # Nobody knows how the only one is.
        nowhere = {**os.environ, "COWRAID_RUN_DIR": str(other.folder / "none")}
        assert tool("cowraid", "status", "--check", check=False, env=nowhere).returncode == 4
        os.kill(volume.daemon(), signal.SIGSTOP)
        told = tool("cowraid", "status", check=False)
        assert told.returncode == 1 and "does not answer (stopped or busy)" in told.stderr
    finally:
        os.kill(volume.daemon(), signal.SIGCONT)
        tool("umount.fuse.cowraid", other.mount_point, env=elsewhere)


def test_who_may_not_ask_is_told_whose_a_volume_is(make_volume):
    volume = make_volume(member_mib=128)
    volume.make()
    volume.mount()
    for words in ([], ["-x"]):
        told = run("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", TOOLS / "cowraid", "status",
                   *words)
        assert f"'{volume.mount_point}': root mounted it; only root may ask its daemon" in told.stderr
        assert "no volume is mounted" not in told.stdout


def test_a_lazily_unmounted_volume_is_called_so(make_volume):
    volume = make_volume(member_mib=128)
    volume.make("-L", "lazy")
    volume.mount()
    with subprocess.Popen(["sleep", "60"], cwd=volume.mount_point) as holder:
        assert line(status(volume), "Mounted:") == str(volume.mount_point)
        tool("umount.fuse.cowraid", "-l", volume.mount_point)
        mounted = line(tool("cowraid", "status", "lazy").stdout, "Mounted:")
        assert mounted.startswith(f"lazily unmounted from {volume.mount_point}"), mounted
        assert f"pid {holder.pid}" in mounted
        holder.kill()
