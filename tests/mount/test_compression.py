# SPDX-License-Identifier: MIT
"""Compressed files on real mounts: what they take, who asks for it, and what members see."""

import errno
import json
import os
import shutil
import subprocess
import sys

import pytest
from conftest import random_content, run, tool, wait_for

MIB = 1 << 20
NAME = "btrfs.compression"


def text(size):
    words = [f"line {number * 2654435761 % 9973} of text that repeats itself\n" for number in range(4000)]
    content = "".join(words).encode("ascii")
    return (content * (size // len(content) + 1))[:size]


def stored(path):
    return os.stat(path).st_blocks * 512


def write(path, content):
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def comes_to_take_less(path, size):
    """By the next commit: until then a record of the fsync log has the data."""
    wait_for(lambda: stored(path) < size, otherwise=lambda: f"{path} takes {stored(path)}")


@pytest.mark.parametrize("data, metadata", [("raid5", "raid1"), ("raid6", "raid1c3")])
def test_text_takes_less_and_survives_lost_members(make_volume, data, metadata):
    volume = make_volume(member_count=5, member_mib=256, data=data, metadata=metadata)
    volume.make()
    volume.mount(options="compress=zstd:1")
    content = {"text": text(20 * MIB), "random": random_content(8 * MIB), "odd": text(300_001),
               "small": b"x" * 50}
    for name, data_of in content.items():
        write(volume.mount_point / name, data_of)
    comes_to_take_less(volume.mount_point / "text", 5 * MIB)
    assert stored(volume.mount_point / "random") == 8 * MIB
    comes_to_take_less(volume.mount_point / "odd", 100_000)
    lost = 1 if data == "raid5" else 2
    volume.unmount()
    volume.check()
    volume.hide(list(range(lost)))
    volume.mount(devices=volume.devices[lost:], options="degraded,ro")
    for name, data_of in content.items():
        assert (volume.mount_point / name).read_bytes() == data_of
    volume.unmount()
    volume.unhide(list(range(lost)))
    volume.mount()
    assert tool("cowraid", "scrub", "start", "-B", volume.mount_point).returncode == 0
    # Overwritten, cut and punched without the option.
    with open(volume.mount_point / "text", "r+b") as file:
        file.seek(5 * MIB + 123)
        file.write(b"changed")
        file.truncate(19 * MIB + 1)
    run("fallocate", "-p", "-o", 3 * MIB + 5, "-l", 70000, volume.mount_point / "text")
    model = bytearray(content["text"][:19 * MIB + 1])
    model[5 * MIB + 123:5 * MIB + 130] = b"changed"
    model[3 * MIB + 5:3 * MIB + 70005] = bytes(70000)
    volume.unmount()
    volume.mount()
    assert (volume.mount_point / "text").read_bytes() == bytes(model)
    volume.unmount()
    volume.check()


def extents(path):
    return json.loads(tool("cowraid", "inspect", "extents", "--json", path).stdout)["extents"]


def test_small_files_are_kept_in_nodes(make_volume, tmp_path):
    volume = make_volume(member_count=5, member_mib=256, data="raid6", metadata="raid1c3")
    volume.make()
    volume.mount(options="compress=zstd:3")
    folder = volume.mount_point / "small"
    folder.mkdir()
    content = {f"file{number}": text(37 * number + 1) for number in range(300)}
    for name, data_of in content.items():
        (folder / name).write_bytes(data_of)
    (folder / "random").write_bytes(random_content(3000))

    def holds_all(where):
        return all((where / name).read_bytes() == data_of for name, data_of in content.items())

    assert holds_all(folder)
    volume.unmount()
    assert volume.check()["data_blocks"] < 100  # what does not become 2 KiB, and the random one
    volume.hide([0, 1])
    volume.mount(devices=volume.devices[2:], options="degraded")
    assert holds_all(folder)
    assert all(stored(folder / name) == 4096 for name in ("file0", "file10", "file100"))
    listed = extents(folder / "file50")
    assert len(listed) == 1 and listed[0]["inline"] and listed[0]["compressed"]
    assert listed[0]["bytes"] == 4096 and listed[0]["stored_bytes"] < 2048 and listed[0]["first_block"] == []
    assert not extents(folder / "random")[0]["inline"]
    assert "in a node (compressed)" in tool("cowraid", "inspect", "extents", folder / "file50").stdout
    # Who looks for holes finds none: content is there, though no block is.
    with open(folder / "file50", "rb") as file:
        assert os.lseek(file.fileno(), 0, os.SEEK_HOLE) == len(content["file50"])
    run("tar", "-S", "-cf", tmp_path / "all", "-C", volume.mount_point, "small")
    run("tar", "-xf", tmp_path / "all", "-C", tmp_path)
    assert holds_all(tmp_path / "small")
    # Made longer, changed in place, cut.
    with open(folder / "file299", "r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(b"behind")
    content["file299"] += b"behind"
    with open(folder / "file200", "r+b") as file:
        file.seek(4000)
        file.write(b"over the end of a block" * 10)
    changed = bytearray(content["file200"])
    changed[4000:4230] = b"over the end of a block" * 10
    content["file200"] = bytes(changed)
    os.truncate(folder / "file250", 5000)
    content["file250"] = content["file250"][:5000]
    volume.unmount()
    volume.unhide([0, 1])
    volume.mount()
    assert holds_all(folder)
    assert "no errors found" in tool("cowraid", "scrub", "start", "-B", volume.mount_point).stdout
    assert holds_all(folder)
    shutil.rmtree(folder)
    volume.unmount()
    assert volume.check()["data_blocks"] == 0


def test_usage_says_what_is_compressed(volume):
    def told():
        tool("cowraid", "filesystem", "sync", volume.mount_point)  # counted by commits
        return usage(volume.mount_point)

    def usage(where):
        report = json.loads(tool("cowraid", "filesystem", "usage", "--json", where).stdout)
        return report["compressed_file_bytes"], report["compressed_bytes"]

    assert told() == (0, 0)
    assert "Compressed:" not in tool("cowraid", "filesystem", "usage", volume.mount_point).stdout
    volume.mount(options="remount,compress=zstd")
    for name in ("one", "other"):
        write(volume.mount_point / name, text(4 * MIB))
    write(volume.mount_point / "random", random_content(2 * MIB))
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    taken = stored(volume.mount_point / "one") + stored(volume.mount_point / "other")
    assert told() == (8 * MIB, taken) and 0 < taken < 2 * MIB
    line = [line for line in tool("cowraid", "filesystem", "usage", volume.mount_point).stdout.splitlines()
            if "Compressed:" in line]
    assert len(line) == 1 and line[0].split()[1:4] == ["8.00MiB", "(of", "files,"]
    assert line[0].endswith(f"ratio {8 * MIB / taken:.2f})")
    metrics = tool("cowraid", "metrics").stdout
    uuid = json.loads(tool("cowraid", "filesystem", "usage", "--json", volume.mount_point).stdout)["uuid"]
    assert f'cowraid_compressed_file_bytes{{volume="{uuid}"}} {8 * MIB}\n' in metrics
    assert f'cowraid_compressed_bytes{{volume="{uuid}"}} {taken}\n' in metrics
    # Part of a frame keeps its blocks.
    run("fallocate", "-p", "-o", 4096, "-l", 8192, volume.mount_point / "one")
    assert told() == (8 * MIB - 8192, taken)
    (volume.mount_point / "other").unlink()
    rest = stored(volume.mount_point / "one")
    wait_for(lambda: told() == (4 * MIB - 8192, rest), otherwise=told)
    volume.unmount()
    assert usage(volume.devices[0]) == (4 * MIB - 8192, rest)
    volume.check()


def test_a_remount_begins_and_ends_compression(volume):
    write(volume.mount_point / "before", text(4 * MIB))
    volume.mount(options="remount,compress-force=zstd:5")
    write(volume.mount_point / "with", text(4 * MIB))
    volume.mount(options="remount,compress=no")
    write(volume.mount_point / "after", text(4 * MIB))
    assert stored(volume.mount_point / "before") == 4 * MIB
    comes_to_take_less(volume.mount_point / "with", MIB)
    assert stored(volume.mount_point / "after") == 4 * MIB


def test_mkfs_makes_a_volume_that_compresses(make_volume):
    volume = make_volume()
    volume.make("--compress", "none")
    volume.mount()
    with pytest.raises(OSError):
        os.getxattr(volume.mount_point, NAME)
    volume.unmount()
    volume.make("-f", "--compress", "zstd")
    volume.mount()
    root = volume.mount_point
    assert tool("cowraid", "property", "get", root).stdout == "compression=zstd\n"
    (root / "deeper").mkdir()
    for name in ("file", "deeper/file"):
        write(root / name, text(4 * MIB))
        comes_to_take_less(root / name, MIB)
    # The root directory is one like any other.
    tool("cowraid", "property", "set", root, "compression", "")
    write(root / "plain", text(4 * MIB))
    assert stored(root / "plain") == 4 * MIB
    volume.unmount()
    volume.mount()
    for name in ("file", "deeper/file", "plain"):
        assert (root / name).read_bytes() == text(4 * MIB)
    assert os.getxattr(root / "deeper", NAME) == b"zstd"
    volume.unmount()
    volume.check()


def test_stat_follows_what_a_flush_makes_of_a_file_that_is_to_be_compressed_since(make_volume):
    volume = make_volume()
    volume.make()
    volume.mount(options="commit=300")
    path = volume.mount_point / "file"
    path.write_bytes(text(MIB))
    run("chattr", "+c", path)
    assert stored(path) == MIB
    tool("cowraid", "filesystem", "sync", volume.mount_point)
    assert stored(path) < MIB / 4


def test_files_and_folders_ask_for_themselves(volume):
    root = volume.mount_point
    (root / "logs").mkdir()
    tool("cowraid", "property", "set", root / "logs", "compression", "zstd")
    assert tool("cowraid", "property", "get", root / "logs").stdout == "compression=zstd\n"
    assert os.getxattr(root / "logs", NAME) == b"zstd"
    assert NAME in os.listxattr(root / "logs")
    (root / "logs" / "deeper").mkdir()
    write(root / "logs" / "deeper" / "file", text(4 * MIB))
    assert os.getxattr(root / "logs" / "deeper" / "file", NAME) == b"zstd"
    comes_to_take_less(root / "logs" / "deeper" / "file", MIB)
    write(root / "plain", text(4 * MIB))
    assert stored(root / "plain") == 4 * MIB
    with pytest.raises(OSError):
        os.getxattr(root / "plain", NAME)
    # A file that is not to be, where the mount says so.
    volume.mount(options="remount,compress=zstd")
    os.setxattr(root / "plain", NAME, b"none")
    write(root / "plain", text(4 * MIB))
    assert stored(root / "plain") == 4 * MIB
    os.removexattr(root / "plain", NAME)
    write(root / "plain", text(4 * MIB))
    comes_to_take_less(root / "plain", MIB)
    with pytest.raises(OSError):
        os.setxattr(root / "plain", NAME, b"lzo")
    # chattr sets the same flags.
    run("chattr", "+c", root / "plain")
    assert os.getxattr(root / "plain", NAME) == b"zstd"
    # rsync takes them along.
    if shutil.which("rsync"):
        run("rsync", "-aX", f"{root}/logs/", f"{root}/copy/")
        assert os.getxattr(root / "copy" / "deeper" / "file", NAME) == b"zstd"
    result = tool("cowraid", "property", "set", root / "plain", "colour", "red", check=False)
    assert result.returncode == 2 and "no property 'colour'" in result.stderr
    result = tool("cowraid", "property", "set", root / "plain", "compression", "lzo", check=False)
    assert result.returncode == 2 and "compression is zstd, none" in result.stderr
    # What holds no data has no such property, although it stands in a folder that has.
    os.mkfifo(root / "logs" / "fifo")
    for value in ("zstd", ""):
        result = tool("cowraid", "property", "set", root / "logs" / "fifo", "compression", value, check=False)
        assert result.returncode == 1 and "neither a file nor a folder" in result.stderr
    assert NAME not in os.listxattr(root / "logs" / "fifo")
    with pytest.raises(OSError) as refused:
        os.setxattr(root / "logs" / "fifo", NAME, b"zstd")
    assert refused.value.errno == errno.EOPNOTSUPP
    volume.unmount()
    volume.mount()
    assert os.getxattr(root / "logs", NAME) == b"zstd"
    volume.unmount()
    volume.check()


CUT = """
import errno, mmap, os, sys
folder, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
refused = 0
for number in range(count):
    fd = os.open(f"{folder}/text{number}", os.O_RDWR)
    with mmap.mmap(fd, size) as mapped:
        mapped[size - 1] = 7
        try:
            os.ftruncate(fd, size - 4096 - 1)
        except OSError as error:
            assert error.errno == errno.ENOSPC
            refused += 1
            end = size
        else:
            end = size - 4096 - 1
    with open(f"{folder}/text{number}", "rb") as file:
        assert len(file.read()) == end
    os.close(fd)
print(refused)
"""


def test_a_cut_that_is_refused_does_not_wait_for_what_a_mapping_changed_behind_it(make_volume):
    """The kernel writes no pages back while it waits for the answer to a change of the size."""
    volume = make_volume(member_count=4, member_mib=112, data="raid5", metadata="raid1")
    volume.make()
    volume.mount(options="compress=zstd:1")
    count, size = 200, 8 * 4096
    for number in range(count):
        (volume.mount_point / f"text{number}").write_bytes(random_content(size // 2).hex().encode("ascii"))
    os.sync()
    with open(volume.mount_point / "rest", "wb", buffering=0) as rest:
        for block in (MIB, 4096):
            while True:
                try:
                    assert rest.write(random_content(block)) > 0
                except OSError as error:
                    assert error.errno == errno.ENOSPC
                    break
    cuts = subprocess.Popen([sys.executable, "-c", CUT, volume.mount_point, str(count), str(size)],
                            stdout=subprocess.PIPE)
    wait_for(lambda: cuts.poll() is not None, otherwise=lambda: "a cut waits")
    assert cuts.returncode == 0 and int(cuts.stdout.read()) > 0
    os.unlink(volume.mount_point / "rest")
    (volume.mount_point / "again").write_bytes(b"room")
    volume.unmount()
    assert volume.check()["clean"]
