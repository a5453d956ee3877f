# SPDX-License-Identifier: MIT
"""What the daemon gives up before it reads a member, seen from outside, and that nobody misses it."""

import os
import re
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest
from conftest import PATIENCE, TOOLS, run, runs, wait_for

SOMEBODY = 1000


def status_of(process):
    text = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


def monitor_of(daemon):
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cmdline").read_bytes().startswith(b"cowraid-mount-monitor\0") and \
                    status_of(entry.name)["PPid"] == str(daemon):
                return int(entry.name)
        except OSError:
            continue
    raise AssertionError("the daemon has no monitor")


def wait_until_gone(process):
    wait_for(lambda: not runs(process), pause=0.02, otherwise=lambda: f"process {process} is still there")


# To detach and to drop pages: CAP_SYS_ADMIN, and what reaches any path.
OF_THE_MONITOR = 1 << 21 | 1 << 1 | 1 << 2


def test_what_the_daemon_may(volume):
    daemon = volume.daemon()
    status = status_of(daemon)
    for name in ("CapPrm", "CapEff", "CapInh", "CapBnd", "CapAmb"):
        assert int(status[name], 16) == 0, name
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
    limits = Path(f"/proc/{daemon}/limits").read_text(encoding="ascii")
    assert re.search(r"Max core file size +0 +0 ", limits)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert int(re.search(r"Max data size +(\d+) ", limits).group(1)) <= max(memory, 4 << 30)
    assert int(status_of(monitor_of(daemon))["CapPrm"], 16) == OF_THE_MONITOR


def test_a_slow_monitor_gives_up_its_rights_before_the_volume_is_served(make_volume):
    volume = make_volume()
    volume.make()
    subprocess.run(["strace", "-D", "-f", "-q", "-o", volume.folder / "calls", "-e", "trace=close_range",
                    "-e", "inject=close_range:delay_enter=1000000",
                    TOOLS / "mount.cowraid", *volume.devices, volume.mount_point],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert int(status_of(monitor_of(volume.daemon()))["CapPrm"], 16) == OF_THE_MONITOR
    volume.unmount()


def test_nothing_of_the_caller_is_kept(make_volume):
    volume = make_volume()
    volume.make()
    reader, writer = os.pipe()
    environment = os.environ | {"A_PASSWORD": "top secret"}
    run(TOOLS / "mount.cowraid", *volume.devices, volume.mount_point, env=environment, pass_fds=[writer])
    os.close(writer)
    assert os.read(reader, 1) == b""  # nobody holds the other end
    os.close(reader)
    assert b"secret" not in Path(f"/proc/{volume.daemon()}/environ").read_bytes()
    volume.unmount()


def test_a_user_may_not_look_into_the_daemon(make_volume):
    """An ordinary user's own, too: what it holds of the volume is not for other programs of the user."""
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=128, loops=False)
    mode = stat.S_IMODE(os.stat("/dev/fuse").st_mode)
    os.chmod("/dev/fuse", 0o666)
    try:
        for path in (volume.folder, volume.mount_point, *volume.images):
            os.chown(path, SOMEBODY, SOMEBODY)
        user = ["setpriv", f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", "--clear-groups"]
        environment = os.environ | {"COWRAID_RUN_DIR": str(volume.folder / "run")}
        run(*user, TOOLS / "mkfs.cowraid", "-q", *volume.devices, env=environment)
        run(*user, TOOLS / "mount.cowraid", *volume.devices, volume.mount_point, env=environment)
        daemon = volume.daemon()
        assert status_of(daemon)["Seccomp"] == "2"
        result = run(*user, "cat", f"/proc/{daemon}/maps", check=False)
        assert result.returncode != 0
        os.kill(daemon, signal.SIGTERM)  # its monitor goes through fusermount3
        wait_until_gone(daemon)
        assert not volume.is_mounted()
    finally:
        os.chmod("/dev/fuse", mode)


@pytest.mark.parametrize("in_use", [False, True])
def test_ended_by_a_signal(volume, in_use):
    """The monitor detaches what the daemon no longer may."""
    (volume.mount_point / "file").write_bytes(b"kept" * 5000)
    user = subprocess.Popen(["sleep", "100"], cwd=volume.mount_point) if in_use else None
    daemon, monitor = volume.daemon(), monitor_of(volume.daemon())
    os.kill(daemon, signal.SIGTERM)
    wait_until_gone(daemon)
    wait_until_gone(monitor)
    assert not volume.is_mounted()
    if user is not None:
        user.kill()
        user.wait()
    volume.mount()
    assert (volume.mount_point / "file").read_bytes() == b"kept" * 5000


def test_a_user_holds_the_lock_of_the_mount_table(make_volume):
    """Everybody may read the file of the lock. It is not worth waiting for."""
    volume = make_volume()
    volume.make()
    lock = Path("/run/mount/utab.lock")
    lock.parent.mkdir(exist_ok=True)
    lock.touch()
    holder = subprocess.Popen(["setpriv", f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", "--clear-groups",
                               "flock", lock, "sleep", str(5 * PATIENCE)])
    try:
        while run("flock", "-n", lock, "true", check=False).returncode == 0:
            time.sleep(0.02)
        for end in ("unmount", "signal"):
            began = time.monotonic()
            volume.mount()
            (volume.mount_point / end).write_bytes(b"kept" * 5000)
            if end == "unmount":
                volume.unmount()
            else:
                daemon = volume.daemon()
                os.kill(daemon, signal.SIGTERM)
                wait_until_gone(daemon)
            assert time.monotonic() - began < PATIENCE
        volume.mount()
        for end in ("unmount", "signal"):
            assert (volume.mount_point / end).read_bytes() == b"kept" * 5000
    finally:
        subprocess.run(["pkill", "-P", str(holder.pid)], check=False)
        holder.kill()
        holder.wait()


def test_the_monitor_is_killed(volume):
    """The daemon serves on, drops pages by itself, and commits when a signal ends it."""
    daemon, monitor = volume.daemon(), monitor_of(volume.daemon())
    os.kill(monitor, signal.SIGKILL)
    path = volume.mount_point / "file"
    path.write_bytes(b"a" * 65536)
    direct = os.open(path, os.O_RDWR | os.O_DIRECT)
    with open(path, "rb", buffering=0) as file:
        assert file.read() == b"a" * 65536
        run("dd", "if=/dev/zero", f"of={path}", "bs=4096", "count=4", "oflag=direct", "conv=notrunc")
        assert os.pread(file.fileno(), 65536, 0) == bytes(16384) + b"a" * 49152
    os.close(direct)
    os.kill(daemon, signal.SIGTERM)
    wait_until_gone(daemon)
    run("umount", "-i", "-l", volume.mount_point)
    volume.mount()
    assert path.read_bytes() == bytes(16384) + b"a" * 49152
    volume.unmount()
    assert volume.check()["clean"]
