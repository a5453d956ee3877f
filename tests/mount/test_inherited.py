# SPDX-License-Identifier: MIT
"""What a program inherits from the one that starts it, and cannot work with, does no harm."""

import contextlib
import os
import resource
import signal
from pathlib import Path

import pytest

from conftest import TOOLS, run, runs, wait_for

MOUNT_FAILED = 32
CONTENT = b"precious" * 5000


def ignore_children():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def block_signals():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGCHLD})


def limited(which, soft):
    return lambda: resource.setrlimit(which, (soft, resource.getrlimit(which)[1]))


def mount(volume, *options, inherits, check=True, before=()):
    return run(*before, TOOLS / "mount.cowraid", *volume.devices, volume.mount_point, *options, check=check,
               preexec_fn=inherits)


@pytest.fixture
def images(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=128, loops=False)
    volume.make()
    return volume


def test_who_waits_for_no_child_takes_no_living_mount_for_a_dead_one(images, tmp_path):
    mount(images, "-o", "commit=300", inherits=ignore_children)
    (images.mount_point / "f").write_bytes(CONTENT)
    device = images.mount_point.stat().st_dev
    mount(images, inherits=ignore_children, check=False)
    assert images.is_mounted() and images.mount_point.stat().st_dev == device
    # Who does not find the daemon asks the mount itself.
    result = run(TOOLS / "umount.fuse.cowraid", images.mount_point, check=False, preexec_fn=ignore_children,
                 env=os.environ | {"COWRAID_RUN_DIR": str(tmp_path)})
    assert result.returncode == MOUNT_FAILED and images.is_mounted()
    assert (images.mount_point / "f").read_bytes() == CONTENT
    run(TOOLS / "umount.fuse.cowraid", images.mount_point, preexec_fn=ignore_children)
    images.mount(options="ro")
    assert (images.mount_point / "f").read_bytes() == CONTENT


def test_a_daemon_that_was_started_with_signals_blocked_ends_when_it_is_told_to(images):
    mount(images, inherits=block_signals)
    daemon = images.daemon()
    (images.mount_point / "f").write_bytes(CONTENT)
    file = os.open(images.mount_point / "f", os.O_RDONLY)
    try:
        os.kill(daemon, signal.SIGTERM)
        wait_for(lambda: not runs(daemon), otherwise=lambda: "the daemon has not ended")
    finally:
        with contextlib.suppress(OSError):
            os.close(file)
    images.mount(options="ro")
    assert (images.mount_point / "f").read_bytes() == CONTENT


@pytest.mark.parametrize("stack_mib", [1, 1024])
def test_threads_have_stacks_of_one_size_whatever_the_limit_is(images, stack_mib):
    """They count as memory, which is limited."""
    mount(images, inherits=limited(resource.RLIMIT_STACK, stack_mib << 20))
    status = Path(f"/proc/{images.daemon()}/status").read_text(encoding="ascii")
    data, = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmData")]
    assert data < 2 << 20
    (images.mount_point / "f").write_bytes(CONTENT)
    assert (images.mount_point / "f").read_bytes() == CONTENT


def test_few_descriptors_are_more_where_that_is_allowed(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=40, member_mib=64, loops=False)
    volume.make()
    mount(volume, inherits=limited(resource.RLIMIT_NOFILE, 64))
    (volume.mount_point / "f").write_bytes(CONTENT)
    volume.unmount()
    hard = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    # The daemon may end before everything is sent, and after.
    slow = ["strace", "-D", "-o", "/dev/null", "-e", "trace=sendmsg",
            "-e", "inject=sendmsg:delay_enter=20000"]
    for before in ([], slow):
        refused = mount(volume, inherits=hard, check=False, before=before)
        assert refused.returncode == MOUNT_FAILED
        assert refused.stderr == "mount.cowraid: the members could not be taken over; for more open files " \
            "raise their limit (ulimit -n)\n"
    volume.mount()
    assert (volume.mount_point / "f").read_bytes() == CONTENT


def test_a_control_lock_that_cannot_be_made_is_named(images, tmp_path):
    (tmp_path / "lock").mkdir()
    refused = run(TOOLS / "mount.cowraid", *images.devices, images.mount_point, check=False,
                  env=os.environ | {"COWRAID_RUN_DIR": str(tmp_path)})
    assert refused.returncode == MOUNT_FAILED
    assert f"control directory {tmp_path}: its lock: " in refused.stderr
