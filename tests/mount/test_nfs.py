# SPDX-License-Identifier: MIT
"""A volume exported with NFS, by a server in user space, and clients that go on after a remount."""

import ctypes
import errno
import os
import signal
import stat

import pytest

import nfs
from conftest import random_content

pytestmark = pytest.mark.skipif(not nfs.is_there(), reason="no nfs-ganesha, rpcbind or libnfs")

LEVELS = [("raid5", "raid1"), ("raid6", "raid1c3")]


@pytest.fixture(params=LEVELS, ids=[level[0] for level in LEVELS])
def exported(request, make_volume):
    """A mounted volume and the server of it, started."""
    volume = make_volume(data=request.param[0], metadata=request.param[1])
    volume.make()
    volume.mount()
    server = nfs.Server(volume.folder / "nfs", volume.mount_point)
    try:
        server.start()
        yield volume, server
    finally:
        server.close()


def names_of(listed):
    return set(listed) - {".", ".."}


@pytest.mark.parametrize("version", [3, 4])
def test_what_clients_do(exported, version):
    volume, server = exported
    root = volume.mount_point
    client = nfs.Client(server, str(root) if version == 3 else "/export", version)
    content = random_content(3 << 20 if version == 3 else 100_000)
    client.close(client.create("/file", 0o640))
    handle = client.open("/file")
    client.write(handle, content)
    assert (root / "file").read_bytes() == content
    # By version 4 libnfs asks for no mode.
    assert stat.S_IMODE((root / "file").stat().st_mode) == (0o640 if version == 3 else 0o600)
    client.write(handle, b"inside", 1000)
    content = content[:1000] + b"inside" + content[1006:]
    assert (root / "file").read_bytes() == content == client.read(handle)
    client.close(handle)

    client.on("mkdir", "/folder")
    client.on("rename", "/file", "/folder/renamed")
    client.on("symlink", "renamed", "/folder/link")
    client.on("link", "/folder/renamed", "/folder/second")
    client.on("truncate", "/folder/second", ctypes.c_uint64(5000))
    client.on("chmod", "/folder/second", 0o751)
    client.on("chown", "/folder/second", 1000, 1001)
    assert sorted(os.listdir(root)) == ["folder"]
    assert os.readlink(root / "folder" / "link") == client.link_target("/folder/link") == "renamed"
    assert (root / "folder" / "renamed").read_bytes() == content[:5000]
    here, there = (root / "folder" / "renamed").stat(), client.status("/folder/second")
    assert (here.st_nlink, here.st_ino, here.st_mode, here.st_uid, here.st_gid, here.st_size) == \
        (there.nlink, there.ino, there.mode, there.uid, there.gid, there.size) == \
        (2, here.st_ino, stat.S_IFREG | 0o751, 1000, 1001, 5000)

    many = {f"{number} {'n' * (number % 200)}" for number in range(400)}
    for name in many:
        (root / "folder" / name).touch()
    listed = client.list("/folder")
    assert names_of(listed) == many | {"renamed", "link", "second"}
    if version == 3:  # else libnfs shows no numbers
        assert all(listed[name] == os.lstat(root / "folder" / name).st_ino for name in names_of(listed))
    with pytest.raises(OSError) as caught:
        client.on("rmdir", "/folder")
    assert caught.value.errno in (errno.ENOTEMPTY, errno.EEXIST)
    for name in many | {"renamed", "link"}:
        client.on("unlink", f"/folder/{name}")
    assert os.listdir(root / "folder") == ["second"] and (root / "folder" / "second").stat().st_nlink == 1
    client.on("unlink", "/folder/second")
    client.on("rmdir", "/folder")
    assert os.listdir(root) == []
    with pytest.raises(OSError) as caught:
        client.open("/file")
    assert caught.value.errno == errno.ENOENT
    server.stop()
    volume.unmount()
    volume.check()


def stop_and_unmount(volume, server):
    server.stop()
    volume.unmount()
    volume.check()


def kill_both(volume, server):
    server.stop(signal.SIGKILL)
    volume.kill()


@pytest.mark.parametrize("ending", [stop_and_unmount, kill_both], ids=["unmounted", "killed"])
def test_clients_go_on_after_a_remount(exported, ending):
    """With the handles that they have."""
    volume, server = exported
    root = volume.mount_point
    client = nfs.Client(server, str(root))
    content = {name: random_content(300_000) for name in ("kept", "moved", "gone")}
    client.on("mkdir", "/a")
    client.on("mkdir", "/a/b")
    kept = {}
    for name, data in content.items():
        kept[name] = client.create(f"/a/b/{name}")
        client.write(kept[name], data)
    numbers = {name: client.status_of(handle).ino for name, handle in kept.items()}
    for round_ in range(3):
        ending(volume, server)
        volume.mount()
        if round_ == 0:
            os.rename(root / "a" / "b" / "moved", root / "elsewhere")
        elif round_ == 1:
            os.unlink(root / "a" / "b" / "gone")
            kept.pop("gone"), content.pop("gone")
        server.start()
        for name, handle in kept.items():
            assert client.read(handle) == content[name], name
            assert client.status_of(handle).ino == numbers[name]
            more = random_content(70_000)
            client.write(handle, more, 1000 * round_)
            content[name] = content[name][:1000 * round_] + more + content[name][1000 * round_ + 70_000:]
        assert (root / "a" / "b" / "kept").read_bytes() == content["kept"]
        assert (root / "elsewhere").read_bytes() == content["moved"]
        # Names are looked up from the handle of the root.
        assert names_of(client.list("/")) == {"a", "elsewhere"}
        assert names_of(client.list("/a/b")) == {"kept", "gone"} & set(kept)
        client.on("mkdir", f"/a/round {round_}")
        assert (root / "a" / f"round {round_}").is_dir()
        client.on("rmdir", f"/a/round {round_}")


def test_a_removed_file_is_stale(exported):
    volume, server = exported
    client = nfs.Client(server, str(volume.mount_point))
    handle, other = client.create("/file"), client.create("/other")
    client.write(handle, b"content")
    client.write(other, b"other")
    stop_and_unmount(volume, server)
    volume.mount()
    os.unlink(volume.mount_point / "file")
    (volume.mount_point / "new").write_bytes(b"not for that handle")
    server.start()
    with pytest.raises(OSError) as caught:
        client.read(handle)
    assert caught.value.errno == errno.ESTALE
    assert client.read(other) == b"other"


def test_handles_name_the_device(exported):
    """The server puts the number of the device into them from which the volume is mounted: FUSE has no other
    number of a filesystem (docs/LIMITS.md). With another device they are stale, with that one they work."""
    volume, server = exported
    client = nfs.Client(server, str(volume.mount_point))
    handle = client.create("/file")
    client.write(handle, b"content")
    first, *others = volume.devices
    for devices, works in (([first, *reversed(others)], True), ([*others, first], False), ([first], True)):
        stop_and_unmount(volume, server)
        volume.mount(devices=devices)
        assert (volume.mount_point.stat().st_dev == os.stat(first).st_rdev) == works
        assert os.statvfs(volume.mount_point).f_fsid == 0
        server.start()
        if works:
            assert client.read(handle) == b"content"
        else:
            with pytest.raises(OSError) as caught:
                client.read(handle)
            assert caught.value.errno == errno.ESTALE
            assert nfs.Client(server, str(volume.mount_point)).list("/").keys() >= {"file"}
