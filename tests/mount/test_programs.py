# SPDX-License-Identifier: MIT
"""Real programs on a real mount."""

import shutil
import sqlite3
import subprocess

import pytest

from conftest import run


@pytest.mark.parametrize("engine", ["psync", "mmap"])
@pytest.mark.parametrize("direct", [0, 1])
def test_fio_verify(volume, engine, direct):
    if shutil.which("fio") is None or (engine == "mmap" and direct):
        pytest.skip("no fio, or mmap with O_DIRECT")
    run("fio", "--name=verify", f"--directory={volume.mount_point}", f"--ioengine={engine}",
        f"--direct={direct}", "--rw=randwrite", "--bsrange=4k-128k", "--size=24M", "--verify=crc32c",
        "--do_verify=1", "--end_fsync=1", "--verify_fatal=1", "--randseed=1", cwd=volume.folder)


def test_tar_and_rsync(volume, tmp_path):
    source = volume.mount_point / "source"
    shutil.copytree("/usr/include/linux", source, symlinks=True)
    run("tar", "-C", source, "-cf", volume.mount_point / "a.tar", ".")
    (volume.mount_point / "untarred").mkdir()
    run("tar", "-C", volume.mount_point / "untarred", "-xf", volume.mount_point / "a.tar")
    run("diff", "-r", source, volume.mount_point / "untarred")
    if shutil.which("rsync"):
        run("rsync", "-a", f"{source}/", volume.mount_point / "synced")
        assert run("rsync", "-anci", f"{source}/", volume.mount_point / "synced").stdout == ""


def test_sqlite(volume):
    path = volume.mount_point / "test.db"
    for mode in ("delete", "wal"):
        database = sqlite3.connect(path)
        database.execute(f"pragma journal_mode={mode}")
        database.execute("create table if not exists t (a integer primary key, b text)")
        for i in range(20):
            database.execute("insert into t (b) values (?)", (str(i) * 100,))
            database.commit()
        assert database.execute("pragma integrity_check").fetchone() == ("ok",)
        database.close()
    volume.kill()
    volume.mount()
    database = sqlite3.connect(path)
    assert database.execute("select count(*) from t").fetchone() == (40,)
    assert database.execute("pragma integrity_check").fetchone() == ("ok",)
    database.close()
