# SPDX-License-Identifier: MIT
"""A machine, or a container, that gives no more threads."""

import os
from pathlib import Path

import pytest

from conftest import TOOLS, run, wait_for

CGROUPS = Path("/sys/fs/cgroup")
NO_THREAD = "no thread could be started; raise the limit of processes (ulimit -u, pids.max)"


class Group:
    """A cgroup that limits how many processes and threads there are."""

    def __init__(self, name):
        root = CGROUPS / "pids" if (CGROUPS / "pids" / "cgroup.procs").exists() else CGROUPS
        self.place = root / f"cowraid-test-{os.getpid()}{name}"
        self.place.mkdir()
        if not (self.place / "pids.max").exists():
            self.place.rmdir()
            raise OSError("no controller of processes")

    def limit(self, count):
        (self.place / "pids.max").write_text(str(count))

    def count(self):
        return int((self.place / "pids.current").read_text())

    def is_empty(self):
        return self.count() == 0

    def run(self, *words):
        return run("sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', self.place, *words, check=False)


@pytest.fixture
def make_group():
    """Another one each time: processes that were killed count for seconds."""
    groups = []

    def make():
        try:
            groups.append(Group(f"-{len(groups)}"))
        except OSError as error:
            pytest.skip(str(error))
        return groups[-1]

    yield make
    for group in groups:
        wait_for(group.is_empty)
        group.place.rmdir()


def test_a_mount_and_a_remount_for_which_there_are_no_threads(make_group, make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=128)
    volume.make()
    volume.mount()
    (volume.mount_point / "f").write_text("content")
    volume.unmount()

    mount = (TOOLS / "mount.cowraid", *volume.devices, volume.mount_point)

    def tries():
        """Until processes are enough: what was said with fewer. Flushes need threads of io_uring, too."""
        said = []
        for limit in range(5, 60):
            group = make_group()
            group.limit(limit)
            mounted = group.run(*mount)
            if mounted.returncode == 0:
                group.limit("max")
                return said
            assert "assertion" not in mounted.stderr and "without a reason" not in mounted.stderr
            said.append(mounted.stderr.strip())
        raise AssertionError(said)

    said = tries()
    assert said.count(f"mount.cowraid: {NO_THREAD}") > 10, said
    assert (volume.mount_point / "f").read_text() == "content"
    volume.unmount()
    assert volume.check()["clean"]

    group = make_group()
    assert group.run(*mount, "-o", "ro").returncode == 0
    daemon = volume.daemon()
    group.limit(group.count() + 8)
    said = run(*mount, "-o", "remount,rw", check=False)
    assert said.returncode != 0 and NO_THREAD in said.stderr
    with pytest.raises(OSError, match="Read-only"):
        (volume.mount_point / "g").write_text("more")
    assert (volume.mount_point / "f").read_text() == "content"
    group.limit("max")
    run(*mount, "-o", "remount,rw")
    (volume.mount_point / "g").write_text("more")
    assert volume.daemon() == daemon
    volume.unmount()
    assert volume.check()["clean"]
