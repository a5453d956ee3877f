# SPDX-License-Identifier: MIT
"""Calls on files as POSIX and Linux have them, by tests/posix/, as root and as two users."""

import os
import re

import pytest

from conftest import PATIENCE, TOOLS, run
from test_catch_up import without

PROGRAM = TOOLS.parent / "tests" / "posix_suite"
ASSERTIONS_MIN = 3000
LONG = os.environ.get("COWRAID_LONG") == "1"
# Features that are not there yet, by their names in tests/posix/expect.cc.
MISSING = ["acl", "security", "whiteout", "tmpfile", "handles", "btime", "chattr", "dirtimes"]


def posix_suite(folder, *more):
    missing = [f"--expect-missing={','.join(MISSING)}"] if MISSING else []
    result = run(PROGRAM, folder, *missing, *more, check=False, timeout=15 * PATIENCE)
    failed = [line for line in result.stdout.splitlines() if line.startswith("FAILED")]
    print("\n".join(line for line in result.stdout.splitlines() if line.startswith("skipped")))
    assert failed == [] and result.returncode == 0, "\n".join(failed[:100]) + result.stderr
    done, = re.findall(r"^(\d+) assertions, 0 failed$", result.stdout, re.MULTILINE)
    assert int(done) >= ASSERTIONS_MIN
    assert len(re.findall("^skipped", result.stdout, re.MULTILINE)) >= len(MISSING)


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
