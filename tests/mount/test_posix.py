# SPDX-License-Identifier: MIT
"""Calls on files as POSIX and Linux have them, by tests/posix/, as root and as two users."""

import os
import re

import pytest

from conftest import PATIENCE, TOOLS, run
from test_catch_up import without

PROGRAM = TOOLS.parent / "tests" / "posix_suite"
ASSERTIONS_MIN = 17_000
LONG = os.environ.get("COWRAID_LONG") == "1"
# Features that are not there yet, by their names in tests/posix/expect.cc.
MISSING = []


def posix_suite(folder, *more):
    missing = [f"--expect-missing={','.join(MISSING)}"] if MISSING else []
    result = run(PROGRAM, folder, *missing, *more, check=False, timeout=15 * PATIENCE)
    failed = [line for line in result.stdout.splitlines() if line.startswith("FAILED")]
    print("\n".join(line for line in result.stdout.splitlines() if line.startswith("skipped")))
    assert failed == [] and result.returncode == 0, "\n".join(failed[:100]) + result.stderr
    done, = re.findall(r"^(\d+) assertions, 0 failed$", result.stdout, re.MULTILINE)
    assert int(done) >= ASSERTIONS_MIN
    assert ("skipped" in result.stdout) == bool(MISSING)


@pytest.mark.parametrize("data,metadata,count,away", [
    ("raid5", "raid1", 4, []), ("raid6", "raid1c3", 5, []), ("raid5", "raid1", 4, [1])])
def test_calls_on_files(make_volume, data, metadata, count, away):
    volume = make_volume(data=data, metadata=metadata, member_count=count, member_mib=256)
    volume.make()
    volume.hide(away)
    volume.mount(without(volume, away), "degraded" if away else None)
    # 65,000 links take as long as all the rest: once is enough.
    first = data == "raid5" and not away
    posix_suite(volume.mount_point, *([] if LONG or first else ["--skip=many links"]))
    volume.unmount()
    if not away:
        assert volume.check()["clean"]


def test_a_feature_that_is_there_is_not_missing(volume):
    """What fails is said, by a line and by the status."""
    result = run(PROGRAM, volume.mount_point, "--only=missing features", "--expect-missing=acl,btime",
                 check=False)
    assert result.returncode == 1
    assert result.stdout.count("FAILED: missing features: ") == 2
    assert "2 assertions, 2 failed" in result.stdout
    assert run(PROGRAM, volume.mount_point, "--expect-missing=nonsense", check=False).returncode == 2
