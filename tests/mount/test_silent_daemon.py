# SPDX-License-Identifier: MIT
"""A daemon that lives and does not answer, because it is stopped: nothing is lost, and nothing waits for it
without limit."""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time

import pytest

from conftest import PATIENCE, TOOLS, random_content, tool, wait_for

MOUNT_FAILED = 32
CONTENT = b"dirty" * 20000


@contextlib.contextmanager
def stopped(volume, seconds=5 * PATIENCE):
    """Its daemon; goes on after that time in any case, because what waits for it may be unkillable."""
    daemon = volume.daemon()
    os.kill(daemon, signal.SIGSTOP)
    timer = threading.Timer(seconds, os.kill, (daemon, signal.SIGCONT))
    timer.start()
    try:
        yield daemon
    finally:
        timer.cancel()
        with contextlib.suppress(ProcessLookupError):
            os.kill(daemon, signal.SIGCONT)


def timed(name, *arguments):
    """What it said, and how long that took."""
    started = time.monotonic()
    result = tool(name, *arguments, check=False)
    return result, time.monotonic() - started


def wait_until_stored(volume):
    wait_for(lambda: tool("cowraid", "check", volume.devices[0], check=False).returncode == 0,
             otherwise=lambda: "the daemon has not ended")


@pytest.fixture(params=["images"])
def mounted(request, make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=128,
                         loops=request.param == "loop devices")
    volume.make()
    volume.mount(options="commit=300")
    return volume


@pytest.mark.parametrize("mounted", ["loop devices", "images"], indirect=True)
def test_unmounting_waits_for_no_stopped_daemon_and_loses_nothing(mounted):
    (mounted.mount_point / "f").write_bytes(CONTENT)
    with stopped(mounted) as daemon:
        result, seconds = timed("umount.fuse.cowraid", mounted.mount_point)
        assert result.returncode == MOUNT_FAILED and seconds < PATIENCE
        assert result.stderr == f"umount.fuse.cowraid: the daemon (pid {daemon}) does not answer; " \
            f"{mounted.mount_point} stays mounted: kill -CONT {daemon}, or umount -l to lose what it has " \
            "not stored\n"
        assert mounted.is_mounted()
    assert (mounted.mount_point / "f").read_bytes() == CONTENT
    mounted.unmount()
    mounted.mount()
    assert (mounted.mount_point / "f").read_bytes() == CONTENT


def test_unmounting_does_not_wait_for_a_daemon_that_is_stopped_meanwhile(mounted):
    daemon = mounted.daemon()
    for attempt in range(20):
        content = random_content(60 << 20)
        (mounted.mount_point / "f").write_bytes(content)
        program = subprocess.Popen([TOOLS / "umount.fuse.cowraid", mounted.mount_point], text=True,
                                   stderr=subprocess.PIPE)
        wait_for(lambda: not mounted.is_mounted(), pause=0)
        with contextlib.suppress(ProcessLookupError):
            os.kill(daemon, signal.SIGSTOP)
            break
        assert program.wait() == 0
        mounted.mount(options="commit=300")
        daemon = mounted.daemon()
    else:
        pytest.fail(f"{attempt + 1} times the daemon had ended")
    try:
        error = program.communicate(timeout=2 * PATIENCE)[1]
    finally:
        os.kill(daemon, signal.SIGCONT)
    assert program.returncode == MOUNT_FAILED
    assert error == f"umount.fuse.cowraid: it is unmounted, but the daemon (pid {daemon}) does not answer; " \
        f"it stores the rest when it goes on: kill -CONT {daemon}\n"
    wait_until_stored(mounted)
    mounted.mount()
    assert (mounted.mount_point / "f").read_bytes() == content


@pytest.mark.parametrize("mounted, code", [("loop devices", 0), ("images", MOUNT_FAILED)],
                         indirect=["mounted"])
def test_a_daemon_that_is_not_found_is_waited_for_by_the_kernel_or_by_nobody(mounted, tmp_path, code):
    """The kernel does where the filesystem stands on a device."""
    (mounted.mount_point / "f").write_bytes(CONTENT)
    result = subprocess.run([TOOLS / "umount.fuse.cowraid", mounted.mount_point], check=False,
                            env=os.environ | {"COWRAID_RUN_DIR": str(tmp_path)}, stderr=subprocess.DEVNULL)
    assert result.returncode == code
    assert mounted.is_mounted() == (code != 0)
    if code != 0:
        mounted.unmount()
    mounted.mount()
    assert (mounted.mount_point / "f").read_bytes() == CONTENT


def test_many_refusals_fill_the_queue_of_a_stopped_daemon(mounted):
    with stopped(mounted):
        programs = [threading.Thread(target=timed, args=("umount.fuse.cowraid", mounted.mount_point))
                    for _ in range(20)]
        for program in programs:
            program.start()
        for program in programs:
            program.join()
        assert mounted.is_mounted()
        result, _ = timed("umount.fuse.cowraid", mounted.mount_point)
        assert result.returncode == MOUNT_FAILED and "does not answer" in result.stderr
        assert mounted.is_mounted()


@pytest.mark.parametrize("option", ["-l", "-f"])
@pytest.mark.parametrize("mounted", ["loop devices", "images"], indirect=True)
def test_unmounting_for_all_that(mounted, option):
    with stopped(mounted):
        result, seconds = timed("umount.fuse.cowraid", option, mounted.mount_point)
        assert result.returncode == 0 and seconds < PATIENCE, result.stderr
        assert not mounted.is_mounted()
    wait_until_stored(mounted)


def test_a_dead_mount_beside_a_stopped_daemon_is_unmounted(mounted, volume):
    mounted.kill()
    with stopped(volume):
        result, _ = timed("umount.fuse.cowraid", mounted.mount_point)
        assert result.returncode == 0, result.stderr
        assert not mounted.is_mounted()


def test_no_program_waits_for_a_stopped_daemon_without_limit(mounted):
    with stopped(mounted):
        result, seconds = timed("cowraid", "check", mounted.devices[0])
        assert result.returncode == 1 and "in use" in result.stderr and seconds < PATIENCE
        result, seconds = timed("mount.cowraid", mounted.devices[0], mounted.mount_point)
        assert result.returncode == MOUNT_FAILED and "in use" in result.stderr and seconds < PATIENCE
        assert mounted.is_mounted()


def test_what_names_another_volume_waits_for_none_that_stands_still(mounted, make_volume):
    """Who does not answer is given ten seconds, which each of these waited for."""
    other = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=128)
    uuid = "6a1f0e52-7a0c-4a55-b6ac-6d5d0d8f0a11"
    other.make("-U", uuid)
    mount = other.mount_point
    with stopped(mounted):
        commands = (["mount.cowraid", *other.devices, mount],
                    ["mount.cowraid", "-o", "remount,ro", "x", mount],
                    ["mount.cowraid", "-o", "remount,rw", "x", mount],
                    ["cowraid", "filesystem", "sync", mount],
                    ["cowraid", "status", mount],
                    ["cowraid", "scrub", "start", "-B", f"UUID={uuid}"],
                    ["cowraid", "device", "stats", other.devices[0]],
                    ["umount.fuse.cowraid", mount])
        waited = 0
        for command in commands:
            result, seconds = timed(*command)
            assert result.returncode == 0, (command, result)
            waited += seconds
        assert waited < 5 * len(commands)
        assert not other.is_mounted()


def test_who_names_no_volume_gets_none_while_a_daemon_stands_still(mounted, make_volume):
    """The one that answers is not the only one that is mounted."""
    other = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=128)
    other.make()
    other.mount()
    with stopped(mounted):
        result = tool("cowraid", "scrub", "start", check=False, cwd="/")
        assert result.returncode == 1 and "does not answer" in result.stderr, result
    assert "no scrub was made" in tool("cowraid", "scrub", "status", other.mount_point).stdout
    assert "cowraid_" in tool("cowraid", "metrics", cwd="/").stdout


def test_who_mounted_it_is_told_that_the_daemon_does_not_answer(mounted):
    with stopped(mounted):
        result, _ = timed("cowraid", "filesystem", "sync", mounted.mount_point)
        assert result.returncode == 1 and "its daemon does not answer (stopped or busy)" in result.stderr
        assert "only" not in result.stderr


def scrub_runs(volume):
    status = json.loads(tool("cowraid", "scrub", "status", "--json", volume.mount_point).stdout)
    return status["state"] == "running"


# A daemon ends a connection that brings no request for 5 s, and has 10 s to answer.
@pytest.mark.parametrize("stops, seconds", [("command", 7), ("daemon", 20)])
def test_who_waits_for_a_scrub_outlasts_a_stop(mounted, stops, seconds):
    (mounted.mount_point / "f").write_bytes(random_content(8 << 20))
    tool("cowraid", "filesystem", "sync", mounted.mount_point)
    command = [TOOLS / "cowraid", "scrub", "--limit", "1m", "--json", mounted.mount_point]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as scrub:
        wait_for(lambda: scrub_runs(mounted))
        time.sleep(1)
        process = scrub.pid if stops == "command" else mounted.daemon()
        os.kill(process, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(process, signal.SIGCONT)
        printed, said = scrub.communicate(timeout=5 * PATIENCE)
    assert scrub.returncode == 0, said
    assert '"state": "finished"' in printed
    silent = f"cowraid: waiting: the daemon (pid {process}) does not answer\n"
    assert said == ("" if stops == "command" else silent)


def test_who_waits_for_a_scrub_is_told_that_the_daemon_ended(mounted):
    (mounted.mount_point / "f").write_bytes(random_content(8 << 20))
    tool("cowraid", "filesystem", "sync", mounted.mount_point)
    command = [TOOLS / "cowraid", "scrub", "--limit", "2m", mounted.mount_point]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as scrub:
        wait_for(lambda: scrub_runs(mounted))
        with stopped(mounted):
            assert "does not answer" in scrub.stderr.readline()
            mounted.kill()
        _, said = scrub.communicate(timeout=PATIENCE)
    assert scrub.returncode == 1
    assert said == ("cowraid: the daemon of the volume ended meanwhile: by umount, or see the system log; "
                    "the scrub goes on when it is mounted again\n")
