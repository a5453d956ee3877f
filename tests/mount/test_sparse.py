# SPDX-License-Identifier: MIT
"""Files with holes, as programs see them."""

import errno
import mmap
import os
import random

import pytest

from conftest import run


@pytest.fixture
def mounted(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=256)
    volume.make()
    volume.mount()
    return volume


def runs_of(file):
    """Where it has data, in pairs of offsets."""
    runs, at = [], 0
    while True:
        try:
            begin = os.lseek(file, at, os.SEEK_DATA)
        except OSError as error:
            assert error.errno == errno.ENXIO
            return runs
        at = os.lseek(file, begin, os.SEEK_HOLE)
        assert at > begin
        runs.append((begin, at))


def test_copying_a_sparse_file_reads_its_data_only(mounted):
    source = mounted.mount_point / "source"
    content = random.Random(1).randbytes(5 << 20)
    with open(source, "wb") as file:
        file.truncate(20 << 30)
        file.seek(7 << 30)
        file.write(content)
    for synced in (False, True):
        if synced:
            run("sync", "-f", source)
        with open(source, "rb") as file:
            assert runs_of(file.fileno()) == [(7 << 30, (7 << 30) + len(content))]
        copy = mounted.mount_point / f"copy{synced}"
        run("cp", "--sparse=always" if synced else "--sparse=auto", source, copy, timeout=60)
        assert os.stat(copy).st_size == 20 << 30
        assert os.stat(copy).st_blocks * 512 < 2 * len(content)
        with open(copy, "rb") as file:
            file.seek(7 << 30)
            assert file.read(len(content)) == content
    run("tar", "-C", mounted.mount_point, "-cSf", mounted.mount_point / "tar", "source", timeout=60)
    assert os.stat(mounted.mount_point / "tar").st_size < 2 * len(content)


def test_what_a_mapping_wrote_is_data(mounted):
    path = mounted.mount_point / "mapped"
    with open(path, "w+b") as file:
        file.truncate(64 << 20)
        with mmap.mmap(file.fileno(), 0) as mapping:
            mapping[9 << 20] = 7
            with open(path, "rb") as other:
                assert runs_of(other.fileno()) == [(9 << 20, (9 << 20) + 4096)]
            mapping[30 << 20] = 8
            assert runs_of(file.fileno())[1] == (30 << 20, (30 << 20) + 4096)
            assert mapping[9 << 20] == 7
    with open(path, "rb") as file:
        assert len(runs_of(file.fileno())) == 2
        file.seek(30 << 20)
        assert file.read(1) == b"\x08"


def test_refused_seeks(mounted):
    path = mounted.mount_point / "short"
    path.write_bytes(b"x" * 5000)
    with open(path, "rb") as file:
        assert os.lseek(file.fileno(), 100, os.SEEK_DATA) == 100
        assert os.lseek(file.fileno(), 100, os.SEEK_HOLE) == 5000
        for offset in (5000, 1 << 40, -1):
            for whence in (os.SEEK_DATA, os.SEEK_HOLE):
                with pytest.raises(OSError) as failure:
                    os.lseek(file.fileno(), offset, whence)
                assert failure.value.errno == errno.ENXIO


def test_copying_within_the_volume(mounted):
    """copy_file_range(2): in pieces, at odd offsets, into itself, behind the end, of what was not synced."""
    content = random.Random(2).randbytes((5 << 20) + 777)
    source, target = mounted.mount_point / "source", mounted.mount_point / "target"
    source.write_bytes(content)
    with open(source, "r+b") as one, open(target, "w+b") as other:
        done = 0
        while done < len(content):
            copied = os.copy_file_range(one.fileno(), other.fileno(), len(content) - done, done, done)
            assert copied > 0
            done += copied
        assert os.copy_file_range(one.fileno(), other.fileno(), 4096, len(content), 0) == 0
        assert target.read_bytes() == content
        assert os.copy_file_range(one.fileno(), other.fileno(), 5000, 123, 4567) == 5000
        expected = content[:4567] + content[123:5123] + content[9567:]
        assert target.read_bytes() == expected
        # Within one file, and pages that a mapping has written to.
        with mmap.mmap(one.fileno(), len(content)) as mapping:
            mapping[4096:4100] = b"abcd"
            assert os.copy_file_range(one.fileno(), one.fileno(), 4096, 4096, 1 << 20) == 4096
            assert mapping[1 << 20:(1 << 20) + 4] == b"abcd"
        with pytest.raises(OSError) as failure:
            os.copy_file_range(one.fileno(), one.fileno(), 8192, 0, 4096)
        assert failure.value.errno == errno.EINVAL
    mounted.unmount()
    mounted.mount()
    assert target.read_bytes() == expected
    assert source.read_bytes()[1 << 20:(1 << 20) + 4] == b"abcd"
