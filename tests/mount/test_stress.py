# SPDX-License-Identifier: MIT
"""stress-ng's class of filesystem stressors, two of each at a time. A slice of the class, a few seconds
each; all of it, half a minute each, with COWRAID_LONG=1."""

import os
import re
import shutil
import signal

import pytest

from conftest import PATIENCE, run, runs, sanitized, tool, wait_for

LONG = os.environ.get("COWRAID_LONG") == "1"
SECONDS = int(os.environ.get("COWRAID_STRESS_SECONDS", "30" if LONG else "2"))
# Not run, and why.
SKIPPED = {
    "bind-mount": "mounts / upon / again and again, nothing of it on a path; only with --pathological",
    "binderfs": "mounts a filesystem of its own, which few kernels have, and nothing else",
    "fiemap": "Linux hands no FS_IOC_FIEMAP to a filesystem in user space",
    "verity": "there is no fs-verity: every block has a checksum below a checksummed root",
}
# These count rounds, of which half a minute may not end one on a slow machine. The first counts none on ext4
# either. Others may end none in less time.
LONG_ROUNDS = ["inode-flags", "xattr"]
SLICE = ["copy-file", "dentry", "dir", "fallocate", "fpunch", "handle", "hdd", "iomix", "mknod", "rename"]
PROFILES = {"raid5": ("raid1", 4), "raid6": ("raid1c3", 5)}
# One stressor syncs every mount: mounts of others, which may go meanwhile, are not there for it.
ALONE = """grep ' fuse' /proc/self/mounts | cut -d ' ' -f 2 | grep -vxF "$0" | xargs -r umount -i -l
exec "$@"
"""
SIZES = ["--copy-file-bytes=128m", "--fallocate-bytes=256m", "--hdd-bytes=256m", "--iomix-bytes=256m"]

pytestmark = pytest.mark.skipif(shutil.which("stress-ng") is None, reason="no stress-ng")


def stressors():
    """All of the class, as this version of stress-ng knows it."""
    result = run("stress-ng", "--class", "filesystem?", check=False)
    names = re.search(r"class 'filesystem' stressors: (.*)", result.stdout + result.stderr).group(1).split()
    assert len(names) > 40 and set(SLICE) <= set(names)
    return names


def stress(volume, chosen):
    skipped = [name for name in stressors() if name not in chosen]
    results = volume.folder / "results"
    result = run("unshare", "--mount", "sh", "-c", ALONE, volume.mount_point,
                 "stress-ng", "--class", "filesystem", "--sequential", "2", "-x", ",".join(skipped),
                 "-t", SECONDS, "--verify", "--temp-path", volume.mount_point, *SIZES, "--metrics",
                 "--yaml", results, check=False, cwd=volume.folder,  # one leaves a file there
                 timeout=PATIENCE + 4 * SECONDS * len(chosen))
    print(result.stdout, result.stderr, sep="")
    assert result.returncode == 0, result.stdout + result.stderr
    assert not re.search(r"stress-ng: (fail|error)", result.stdout + result.stderr)
    done = re.findall(r"stressor: (\S+)\n\s+bogo-ops: (\d+)(?:\n.*)*?\n\s+wall-clock-time: ([\d.]+)",
                      results.read_text(encoding="utf-8"))
    # What is not supported ends at once. The time begins with the process, of which the second may be late.
    assert sorted(name for name, _, seconds in done if float(seconds) > SECONDS / 2) == sorted(chosen), done
    idle = {name for name, operations, _ in done if operations == "0"}
    assert SECONDS < 30 or idle <= set(LONG_ROUNDS)


@pytest.mark.parametrize("data", PROFILES)
def test_under_stress(make_volume, data):
    metadata, count = PROFILES[data]
    volume = make_volume(data=data, metadata=metadata, member_count=count, member_mib=512)
    volume.make()
    volume.mount()
    daemon = volume.daemon()
    stress(volume, [name for name in stressors() if name not in SKIPPED and (LONG or name in SLICE)])
    assert volume.daemon() == daemon and list(volume.mount_point.iterdir()) == []
    assert "no errors found" in tool("cowraid", "scrub", volume.mount_point).stdout
    volume.unmount()
    wait_for(lambda: not runs(daemon))
    assert volume.check()["clean"]


@pytest.mark.parametrize("name", ["fiemap", "verity"])
def test_a_mount_does_not_have_what_is_skipped(volume, name):
    result = run("stress-ng", f"--{name}", "1", "-t", "1", "--temp-path", volume.mount_point, check=False)
    assert re.search("not supported .*, skipping stress", result.stdout + result.stderr)


@pytest.mark.skipif(not sanitized(), reason="the programs were built without the address sanitizer")
def test_a_report_is_found(volume, reports):
    """Where a daemon's report goes: sanitizers make one of a signal that stands for a fault."""
    assert reports() == ""
    os.kill(volume.daemon(), signal.SIGSEGV)
    wait_for(lambda: "AddressSanitizer" in reports())
