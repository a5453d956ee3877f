# SPDX-License-Identifier: MIT
"""What the programs say to users, root and others, and what the system log keeps."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest

from conftest import PATIENCE, TOOLS, Volume, random_content, run, runs, tool, wait_for

MOUNT_FAILED = 32
LABEL = f"messages-test-{os.getpid()}"
SOMEBODY = 1000
STRANGER = 2000


@pytest.fixture
def made(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=128)
    volume.make("-L", LABEL)
    return volume


def as_user(volume, name, *arguments, check=True, places=None):
    """Runs a program as an ordinary user, with a place for control sockets: that in the volume's folder, or
    the variables `places`."""
    environment = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
    environment |= {"COWRAID_RUN_DIR": str(volume.folder / "run")} if places is None else places
    return run("setpriv", f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", "--clear-groups", TOOLS / name,
               *arguments, check=check, env=environment, timeout=5 * PATIENCE)


@pytest.fixture
def images(make_volume):
    """A volume of image files that belongs to an ordinary user, folder included; FUSE is open to users."""
    mode = stat.S_IMODE(os.stat("/dev/fuse").st_mode)
    os.chmod("/dev/fuse", 0o666)
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=128, loops=False)
    for path in (volume.folder, volume.mount_point, *volume.images):
        os.chown(path, SOMEBODY, SOMEBODY)
    yield volume
    os.chmod("/dev/fuse", mode)


@pytest.fixture
def mounted_by_user(images):
    as_user(images, "mkfs.cowraid", "-q", *images.devices)
    as_user(images, "mount.cowraid", *images.devices, images.mount_point)
    yield images
    as_user(images, "umount.fuse.cowraid", images.mount_point, check=False)


class SystemLog:
    """Stands where a system log listens, and keeps what it is sent, without priority, time and process id."""

    PATH = "/dev/log"

    def __init__(self):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.PATH)
        self.lines = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        """A log that is not read stops who writes to it."""
        while line := self.socket.recv(65536).decode():
            self.lines.append(re.sub(r"^<\d+>.*? cowraid\[\d+\]: ", "", line))

    def wait_for(self, text):
        return wait_for(lambda: [line for line in list(self.lines) if text in line],
                        otherwise=lambda: f"'{text}' is not in {self.lines}")

    def close(self):
        os.unlink(self.PATH)
        self.socket.shutdown(socket.SHUT_RDWR)
        self.reader.join()
        self.socket.close()


@pytest.fixture
def system_log():
    if os.path.lexists(SystemLog.PATH):
        pytest.skip("this machine has a system log of its own")
    log = SystemLog()
    yield log
    log.close()


def test_mkfs_over_a_loop_device_of_a_live_image(make_volume):
    volume = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=128, loops=False)
    volume.make()
    volume.mount()
    (volume.mount_point / "f").write_text("content")
    loop = Volume.attach(volume.images[1])
    try:
        for program in (["mkfs.cowraid", "-f", loop], ["mount.cowraid", loop, volume.folder]):
            result = tool(*program, check=False)
            assert result.returncode != 0
            assert loop in result.stderr or "already mounted" in result.stderr
        result = tool("mkfs.cowraid", "-f", loop, check=False)
        assert result.returncode == 1
        assert f"{loop} leads to the same bytes as {volume.images[1]}, which is in use" in result.stderr
    finally:
        run("losetup", "-d", loop)
    volume.unmount()
    assert volume.check()["clean"]
    volume.mount()
    assert (volume.mount_point / "f").read_text() == "content"


def test_a_busy_mount_becomes_read_only_and_that_is_said(made):
    made.mount()
    with subprocess.Popen(["sleep", "60"], cwd=made.mount_point) as holder:
        said = tool("umount.fuse.cowraid", "-r", made.mount_point).stderr
        assert f"{made.mount_point} is in use; it is read-only now\n" in said
        with pytest.raises(OSError, match="Read-only"):
            (made.mount_point / "file").write_text("x")
        holder.kill()
    made.unmount()


def test_the_volume_of_a_user_belongs_to_that_user(mounted_by_user):
    folder = mounted_by_user.mount_point
    identity = ["setpriv", f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", "--clear-groups"]
    owner = run(*identity, "stat", "-c", "%u:%g %a", folder).stdout.strip()
    assert owner == f"{SOMEBODY}:{SOMEBODY} 755"
    run(*identity, "mkdir", folder / "mine")


@pytest.mark.parametrize("place", ["/tmp", "/run", "XDG_RUNTIME_DIR"])
def test_root_of_a_user_namespace_has_control_sockets_of_its_own(images, place):
    """The machine's root has its own at the usual place, which this one may not enter."""
    inside = ("setpriv", f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", "--clear-groups", "unshare", "-Urm")
    if run(*inside, "true", check=False).returncode != 0:
        pytest.skip("users may make no user namespaces")
    Path("/run/cowraid").mkdir(mode=0o700, exist_ok=True)
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("XDG_RUNTIME_DIR", "COWRAID_RUN_DIR")}
    if place == "/run":  # which it takes all the same: who has no session looks there
        environment["XDG_RUNTIME_DIR"] = str(images.folder)
    private, sockets = f"mount -t tmpfs -o mode=755 none {place}", f"{place}/cowraid"
    if place == "/tmp":
        sockets += "-0"
    elif place == "XDG_RUNTIME_DIR":
        environment[place], private, sockets = str(images.folder), "true", f"{images.folder}/cowraid"
    devices, point = " ".join(map(str, images.devices)), images.mount_point
    script = f"""
        {private}
        PATH={TOOLS}:$PATH
        mkfs.cowraid -q {devices}
        mount.cowraid {devices} {point}
        echo content >{point}/file
        ls {sockets}
        cowraid status {point}
        umount.fuse.cowraid {point}
        ! test -e {point}/file"""
    said = run(*inside, "sh", "-ec", script, env=environment, timeout=5 * PATIENCE)
    assert said.stderr == "" and f"Mounted:           {point}\n" in said.stdout
    assert re.search(r"^[0-9a-f]{8}-[0-9a-f-]{27}$", said.stdout, re.MULTILINE)


@pytest.fixture(params=["/tmp", "/run/user", "COWRAID_RUN_DIR"])
def slow_mount_of_user(request, images):
    """A user has mounted it, and it has no commit but the last one. Calls umount as root; what it said."""
    places = None if request.param == "COWRAID_RUN_DIR" else {}
    if request.param == "/run/user":
        request.getfixturevalue("session_folder")()
    as_user(images, "mkfs.cowraid", "-q", *images.devices)
    as_user(images, "mount.cowraid", *images.devices, images.mount_point, "-o", "commit=300", places=places)
    environment = dict(os.environ)
    environment.pop("COWRAID_RUN_DIR", None)
    if places is None:
        environment["COWRAID_RUN_DIR"] = str(images.folder / "run")
    return lambda *options: tool("umount.fuse.cowraid", *options, images.mount_point, check=False,
                                 env=environment)


def written_by_user(images):
    """What the user has written into the file f, which nobody has asked to be stored."""
    content = random_content(64 << 20)
    (images.folder / "from").write_bytes(content)
    run("setpriv", f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", "--clear-groups", "cp",
        images.folder / "from", images.mount_point / "f")
    return content


def test_root_waits_for_the_last_commit_of_the_mount_of_a_user(slow_mount_of_user, images):
    content = written_by_user(images)
    daemon = images.daemon()
    result = slow_mount_of_user("-v")
    with contextlib.suppress(ProcessLookupError):
        os.kill(daemon, signal.SIGKILL)
    assert result.returncode == 0 and not images.is_mounted()
    images.mount(options="ro")
    assert (images.mount_point / "f").read_bytes() == content
    assert result.stderr == \
        f"umount.fuse.cowraid: {images.mount_point} is unmounted, its members are free\n"


def test_root_leaves_the_mount_of_a_user_whose_daemon_is_stopped(slow_mount_of_user, images):
    content, point = written_by_user(images), images.mount_point
    daemon = images.daemon()
    os.kill(daemon, signal.SIGSTOP)
    try:
        result = slow_mount_of_user()
        assert images.is_mounted()
        assert result.returncode == MOUNT_FAILED
        assert f"the daemon (pid {daemon}) does not answer; {point} stays mounted" in result.stderr
    finally:
        os.kill(daemon, signal.SIGCONT)
    assert slow_mount_of_user().returncode == 0
    images.mount(options="ro")
    assert (images.mount_point / "f").read_bytes() == content


@pytest.mark.parametrize("option", ["-l", "-f"])
def test_root_takes_away_the_mount_of_a_user_for_all_that(slow_mount_of_user, images, option):
    daemon = images.daemon()
    os.kill(daemon, signal.SIGSTOP)
    try:
        assert slow_mount_of_user(option).returncode == 0
        assert not images.is_mounted()
    finally:
        os.kill(daemon, signal.SIGCONT)


def test_root_unmounts_the_dead_mount_of_a_user(slow_mount_of_user, images):
    daemon = images.daemon()
    os.kill(daemon, signal.SIGKILL)
    wait_for(lambda: not runs(daemon))
    result = slow_mount_of_user()
    assert (result.returncode, result.stderr) == (0, "")
    assert not images.is_mounted()


def test_a_mount_whose_daemon_is_not_found_stays_unless_nobody_wants_to_wait(images):
    """Neither root nor the user looks where this one has its socket."""
    as_user(images, "mkfs.cowraid", "-q", *images.devices)
    as_user(images, "mount.cowraid", *images.devices, images.mount_point)
    point = images.mount_point
    for said in (tool("umount.fuse.cowraid", point, check=False),
                 as_user(images, "umount.fuse.cowraid", point, check=False, places={})):
        assert said.returncode == MOUNT_FAILED and images.is_mounted()
        assert said.stderr == \
            f"umount.fuse.cowraid: no way to the daemon was found; {point} stays mounted: unmount it as " \
            f"user {SOMEBODY} with the COWRAID_RUN_DIR or XDG_RUNTIME_DIR of the mount, or end its daemon " \
            "by SIGTERM, which stores everything, or umount -l to wait for nothing\n"
    said = tool("umount.fuse.cowraid", "-l", point)
    assert said.stderr == "" and not images.is_mounted()


def test_root_believes_no_socket_that_somebody_else_has_made(images, false_daemon):
    as_user(images, "mkfs.cowraid", "-q", *images.devices)
    as_user(images, "mount.cowraid", *images.devices, images.mount_point)
    device = run("findmnt", "-n", "-o", "MAJ:MIN", images.mount_point).stdout.strip()
    folder = f"/tmp/cowraid-{SOMEBODY}"
    fakes = [false_daemon(Path(f"{folder}-{name}"), uuid_of(images), STRANGER, STRANGER, device)
             for name in ("one", "two")]
    # The folder may be the user's: who listens is asked for, too.
    run("chown", "-R", SOMEBODY, f"{folder}-two")
    said = tool("umount.fuse.cowraid", images.mount_point, check=False)
    assert said.returncode == MOUNT_FAILED and "no way to the daemon was found; " in said.stderr
    assert [was_asked(fake) for fake in fakes] == ["", ""]
    as_user(images, "umount.fuse.cowraid", images.mount_point)


def test_users_change_what_the_daemon_does_of_their_mount(mounted_by_user):
    def remount(options, check=True):
        return as_user(mounted_by_user, "mount.cowraid", mounted_by_user.devices[0],
                       mounted_by_user.mount_point, "-o", f"remount,{options}", check=check)

    def shown():
        told = as_user(mounted_by_user, "cowraid", "status", "--json", mounted_by_user.mount_point).stdout
        return json.loads(told)["volumes"][0]["mount_options"]

    before = shown()
    for kernels in ("ro", "noexec,commit=9"):
        refused = remount(kernels, check=False)
        assert refused.returncode == MOUNT_FAILED and "only root may change" in refused.stderr, kernels
    assert shown() == before
    for daemons in ("commit=7,compress=zstd", "async", "sync"):
        assert remount(daemons).stderr == ""
    assert "commit=7" in shown() and "compress=zstd" in shown() and shown() != before


def test_a_mount_point_that_root_made_read_only_is_no_read_only_volume(mounted_by_user):
    def remount(options, check=True):
        return as_user(mounted_by_user, "mount.cowraid", mounted_by_user.devices[0], point, "-o",
                       f"remount,{options}", check=check)

    def shown():
        told = as_user(mounted_by_user, "cowraid", "status", "--json", point).stdout
        return json.loads(told)["volumes"][0]["mount_options"].split(",")

    point = mounted_by_user.mount_point
    touch = ("setpriv", f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", "--clear-groups", "touch",
             point / "file")
    run("mount", "-i", "-o", "remount,bind,ro", point)
    assert remount("commit=7").stderr == ""
    assert "commit=7" in shown() and "ro" not in shown()
    for options in ("ro", "rw"):
        said = remount(options, check=False)
        assert said.returncode == MOUNT_FAILED and "only root may change" in said.stderr
    assert "Read-only" in run(*touch, check=False).stderr
    run("mount", "-i", "-o", "remount,bind,rw", point)
    run(*touch)
    assert "ro" not in shown()


def test_a_volume_that_a_user_mounted_read_only_stays_so(images):
    as_user(images, "mkfs.cowraid", "-q", *images.devices)
    as_user(images, "mount.cowraid", *images.devices, images.mount_point, "-o", "ro")
    said = as_user(images, "mount.cowraid", images.devices[0], images.mount_point, "-o", "remount,commit=7")
    assert said.stderr == ""
    told = as_user(images, "cowraid", "status", "--json", images.mount_point).stdout
    assert {"ro", "commit=7"} <= set(json.loads(told)["volumes"][0]["mount_options"].split(","))
    as_user(images, "umount.fuse.cowraid", images.mount_point)


def test_nofail_is_silent_about_absent_devices(made):
    for source in ("cowraid:no-such-label", "/dev/no-such-disk", "/dev/no-such-disk:/dev/no-such-disk2",
                   "UUID=01234567-89ab-cdef-0123-456789abcdef"):
        result = tool("mount.cowraid", source, made.mount_point, "-o", "nofail,missing_dev_timeout=0")
        assert result.stdout + result.stderr == "", source
        result = tool("mount.cowraid", source, made.mount_point, "-o", "missing_dev_timeout=0", check=False)
        assert result.returncode == MOUNT_FAILED and result.stderr != ""
    # What is there and does not work is not passed over.
    result = tool("mount.cowraid", "/dev/null", made.mount_point, "-o", "nofail", check=False)
    assert result.returncode == MOUNT_FAILED and "/dev/null" in result.stderr
    made.hide([0])
    result = made.mount([made.devices[1]], "nofail", check=False)
    assert result.returncode == MOUNT_FAILED and "member 1" in result.stderr
    made.unhide([0])


def test_hints_fit_who_reads_them(made, images):
    run("blockdev", "--setro", made.devices[0])
    said = tool("mkfs.cowraid", "-f", *made.devices, check=False).stderr
    assert "write-protected" in said and "mount" not in said
    said = made.mount(check=False).stderr
    assert "write-protected" in said and "-o ro" in said
    run("blockdev", "--setrw", made.devices[0])
    run("chattr", "+i", images.images[0], check=False)
    said = tool("mkfs.cowraid", images.images[0], check=False).stderr
    run("chattr", "-i", images.images[0], check=False)
    assert "run as root" not in said
    said = as_user(images, "mkfs.cowraid", *made.devices, check=False).stderr
    assert "run as root" in said


def test_fusermount_speaks_for_itself(images):
    as_user(images, "mkfs.cowraid", "-q", *images.devices)
    os.chown(images.mount_point, 0, 0)
    images.mount_point.chmod(0o755)
    result = as_user(images, "mount.cowraid", *images.devices, images.mount_point, check=False)
    assert result.returncode == MOUNT_FAILED
    assert "fusermount3: " in result.stderr and "installed" not in result.stderr


def test_a_user_who_may_not_ask(made):
    made.mount()
    made.mount_point.chmod(0o755)
    result = as_user(made, "cowraid", "filesystem", "usage", made.mount_point, check=False)
    assert result.returncode == 1
    assert "not in a mounted" not in result.stderr and "root" in result.stderr


def test_words(images):
    tool("mkfs.cowraid", "-q", "-d", "RAID5", "-m", "Raid1", "-L", "Müll 東京", *images.devices)
    shown = tool("cowraid", "filesystem", "show", *images.devices).stdout
    assert "'Müll 東京'" in shown
    helped = tool("cowraid", "filesystem", "--help").stdout
    assert "filesystem show" in helped and "filesystem usage" in helped and "device stats" not in helped
    assert tool("cowraid", "dev", "-h").stdout.startswith("Usage: cowraid [--json] device COMMAND")


def options_of(path):
    """With those that the kernel does not know, which findmnt shows only when told so."""
    return run("findmnt", "--mtab", "-n", "-o", "OPTIONS", path).stdout.strip().split(",")


@pytest.mark.parametrize("options", ["degraded", "degraded,ro"])
def test_every_degraded_mount_says_so(made, system_log, options):
    made.hide([1])
    said = made.mount([made.devices[0]], options).stderr
    assert "warning: degraded: member 2 is absent; no further member may fail" in said
    assert "degraded" in options_of(made.mount_point)
    logged = system_log.wait_for("mounted at")
    assert len(logged) == 1 and logged[0].startswith(f"{LABEL}: ")
    assert "degraded: member 2 is absent" in logged[0] and str(made.mount_point) in logged[0]
    made.unmount()
    assert len(system_log.wait_for("unmounted")) == 1
    made.unhide([1])
    made.mount()
    assert "degraded" not in options_of(made.mount_point)


def test_the_life_of_a_mount_in_the_system_log(made, system_log):
    made.mount()
    for index in range(20):
        with open(made.mount_point / f"f{index}", "wb") as file:
            file.write(os.urandom(5000))
            os.fsync(file.fileno())
    made.kill()
    made.mount()
    made.unmount()
    system_log.wait_for("unmounted")
    lines = system_log.lines
    assert all(line.startswith(f"{LABEL}: ") for line in lines), lines
    mounted = [line for line in lines if "mounted at" in line and "unmounted" not in line]
    recovered = [line for line in lines if "recovered" in line]
    unmounted = [line for line in lines if "unmounted" in line]
    assert (len(mounted), len(recovered), len(unmounted)) == (2, 1, 1), lines
    assert re.search(r"recovered \d+ rows and [1-9]\d* records in \d+\.\d+ s", recovered[0])
    assert len(lines) == 4, lines


def test_bad_blocks_are_summed_up(make_volume, system_log):
    """Two members rot from end to end: thousands of blocks cannot be read, a few lines say so."""
    volume = make_volume(data="raid5", metadata="raid1c3", member_count=4, member_mib=128)
    volume.make("-L", LABEL)
    volume.mount(options="cache=1M")
    for name in ("a", "b"):
        (volume.mount_point / name).write_bytes(random_content(20 << 20))
    volume.unmount()
    for index in (1, 2):
        with open(volume.devices[index], "r+b") as file:
            for place in range(24 << 20, 128 << 20, 1 << 20):
                os.pwrite(file.fileno(), random_content(1 << 20), place)
            os.fsync(file.fileno())
    volume.mount(options="ro")
    lost = {}
    for name in ("a", "b"):
        with open(volume.mount_point / name, "rb", buffering=0) as file:
            bad = 0
            for place in range(0, 20 << 20, 4096):
                try:
                    os.pread(file.fileno(), 4096, place)
                except OSError:
                    bad += 1
        assert bad > 100, bad
        lost[name] = bad
    volume.unmount()
    system_log.wait_for("unmounted")
    for name in ("a", "b"):
        about = [line for line in system_log.lines if f"/{name}: blocks that cannot be read: " in line]
        blocks = sum(int(re.search(r"read: (\d+), bytes", line).group(1)) for line in about)
        assert 1 <= len(about) < 10 and blocks >= lost[name], (lost, system_log.lines)
    members = [line for line in system_log.lines if "with a wrong checksum: " in line]
    assert members and len(system_log.lines) < 60, system_log.lines


def test_no_empty_folders_of_killed_daemons(made, make_volume):
    other = make_volume(data="raid5", metadata="raid1", member_count=3, member_mib=128)
    other.make()
    made.mount()
    shown = json.loads(tool("cowraid", "filesystem", "show", "--json", made.mount_point).stdout)
    folder = Path("/run/cowraid") / shown["volumes"][0]["uuid"]
    assert folder.is_dir()
    made.kill()
    other.mount()
    assert not folder.exists()
    assert other.is_mounted() and tool("cowraid", "filesystem", "show", other.mount_point).stdout


def test_a_lazily_unmounted_volume_is_in_use(made):
    made.mount()
    with open(made.mount_point / "f", "w", encoding="ascii") as file:
        file.write("content")
        file.flush()
        daemon = made.daemon()
        started = time.monotonic()
        said = tool("umount.fuse.cowraid", "-l", "-v", made.mount_point).stderr
        assert "still in use elsewhere" in said and "are free" not in said
        assert time.monotonic() - started < 30  # not as long as each member is waited for
        assert not made.is_mounted()
        result = made.mount(check=False)
        assert result.returncode == MOUNT_FAILED
        assert "lazily unmounted" in result.stderr and f"pid {daemon}" in result.stderr
        assert f"pid {os.getpid()}" in result.stderr and f"volume '{LABEL}'" in result.stderr
        shown = tool("cowraid", "filesystem", "show", LABEL).stdout
        assert "Lazily unmounted from" in shown and "Mounted at" not in shown
        said = tool("cowraid", "check", LABEL, check=False).stderr
        assert "lazily unmounted from" in said and "; unmount it" not in said
    wait_for(lambda: made.mount(check=False).returncode == 0)
    assert (made.mount_point / "f").read_text() == "content"
    made.unmount()
    made.mount(options="ro")
    with open(made.mount_point / "f", encoding="ascii"):
        tool("umount.fuse.cowraid", "-l", made.mount_point)


def wait_for_own_namespace(process):
    own = os.readlink("/proc/self/ns/mnt")
    wait_for(lambda: os.readlink(f"/proc/{process.pid}/ns/mnt") != own, pause=0.01)


def test_unmounting_stores_what_was_written_though_another_namespace_holds_the_volume(made):
    made.mount(options="commit=300")
    holder = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sleep", str(5 * PATIENCE)])
    try:
        wait_for_own_namespace(holder)
        content = random_content(1 << 20)
        (made.mount_point / "f").write_bytes(content)
        daemon = made.daemon()
        tool("umount.fuse.cowraid", made.mount_point)
        os.kill(daemon, signal.SIGKILL)
    finally:
        holder.kill()
        holder.wait()
    made.mount()
    assert (made.mount_point / "f").read_bytes() == content


@pytest.mark.parametrize("left", ["first", "second"])
def test_unmounting_one_of_two_places_stores_what_was_written(made, left):
    made.mount(options="commit=300")
    second = made.folder / "second"
    second.mkdir()
    run("mount", "--bind", made.mount_point, second)
    taken = second if left == "first" else made.mount_point
    try:
        content = random_content(1 << 20)
        (taken / "f").write_bytes(content)
        said = tool("umount.fuse.cowraid", taken)
        os.kill(made.daemon(), signal.SIGKILL)
    finally:
        for place in (second, made.mount_point):
            run("umount", "-i", "-l", place, check=False)
    wait_for(lambda: not made.serving())
    made.mount()
    assert (made.mount_point / "f").read_bytes() == content
    assert said.stderr == f"umount.fuse.cowraid: {taken} is unmounted, the volume is still in use " \
        "elsewhere, and its members, too\n"


def test_unmounting_in_another_namespace_leaves_our_line(make_volume):
    volume, other = make_volume(loops=False), make_volume(loops=False)
    for made in (volume, other):
        made.make()
    os.unlink(volume.images[3])
    there = f"exec 2>&1; read line; {TOOLS}/mount.cowraid {other.images[0]} {other.mount_point} && " \
            f"{TOOLS}/umount.fuse.cowraid {other.mount_point}"
    namespace = subprocess.Popen(["unshare", "-m", "--propagation", "private", "sh", "-c", there],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    # The other namespace is there first, so that it does not have this mount.
    wait_for_own_namespace(namespace)
    volume.mount(volume.images[:1], "degraded")
    said, _ = namespace.communicate("go\n", timeout=PATIENCE)
    assert namespace.returncode == 0, said
    assert "degraded" in options_of(volume.mount_point)
    volume.unmount()
    assert str(volume.mount_point) not in Path("/run/mount/utab").read_text(encoding="utf-8")


def test_a_mount_in_another_namespace(made):
    inside = subprocess.Popen(["unshare", "-m", "--propagation", "private", "sleep", str(5 * PATIENCE)])
    try:
        wait_for_own_namespace(inside)
        run("nsenter", "-t", inside.pid, "-m", TOOLS / "mount.cowraid", *made.devices, made.mount_point)
        said = made.mount(check=False).stderr
        assert f"volume '{LABEL}' is already mounted at {made.mount_point} in another mount namespace" in said
        assert "lazily" not in said
        run("nsenter", "-t", inside.pid, "-m", TOOLS / "umount.fuse.cowraid", made.mount_point)
    finally:
        inside.kill()
        inside.wait()


def test_who_may_ask_about_the_mount_of_another(mounted_by_user, made):
    said = tool("cowraid", "filesystem", "show", mounted_by_user.mount_point, check=False).stderr
    assert f"user {SOMEBODY} mounted" in said and "security policy" not in said
    made.mount()
    made.mount_point.chmod(0o755)
    said = as_user(made, "umount.fuse.cowraid", made.mount_point, check=False).stderr
    assert "only root" in said and "in use" not in said
    said = as_user(made, "mount.cowraid", "x", made.mount_point, "-o", "remount,ro", check=False).stderr
    assert "only root may" in said and "does not answer" not in said
    said = tool("mount.cowraid", "x", mounted_by_user.mount_point, "-o", "remount,ro", check=False).stderr
    assert f"user {SOMEBODY} mounted; only that user may" in said and "does not answer" not in said
    made.unmount()


def test_root_of_a_user_namespace_is_not_root(made):
    made.mount()
    made.mount_point.chmod(0o755)
    may = "only root may ask its daemon"

    def inside(name, *arguments):
        return run("setpriv", f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", "--clear-groups",
                   "unshare", "-Ur", TOOLS / name, *arguments, check=False)

    assert f"cowraid: '{made.mount_point}': root mounted it; {may}\n" in inside("cowraid", "status").stderr
    for words in (["cowraid", "status", made.mount_point],
                  ["cowraid", "filesystem", "usage", made.mount_point],
                  ["mount.cowraid", "x", made.mount_point, "-o", "remount,ro"]):
        said = inside(*words)
        assert said.returncode != 0
        assert said.stderr == \
            f"{words[0]}: {made.mount_point} is in a cowraid volume that root mounted; {may}\n"


def test_a_label_on_disks_that_may_not_be_read(made):
    said = as_user(made, "cowraid", "filesystem", "show", LABEL, check=False).stderr
    assert f"no volume labelled '{LABEL}'" in said and "run as root" in said
    # Root of a container or under a security policy.
    device = made.devices[0]
    os.chmod(device, 0)
    os.chown(device, SOMEBODY, SOMEBODY)
    try:
        said = run("setpriv", "--bounding-set=-dac_override,-dac_read_search", TOOLS / "cowraid",
                   "filesystem", "show", "no-such-label", check=False).stderr
    finally:
        os.chown(device, 0, 0)
        os.chmod(device, 0o660)
    assert re.search(f"{device}\\b.* may not be read: a container, a security policy", said), said
    assert "run as root" not in said


FALSE_DAEMON = """
import json, os, socket, struct, sys, threading
directory, uuid, device, listener = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
os.umask(0o022)
os.makedirs(f"{directory}/{uuid}")
server = socket.socket(socket.AF_UNIX)
server.bind(f"{directory}/{uuid}/control")
os.chmod(f"{directory}/{uuid}/control", 0o777)
if os.getuid() != listener:
    os.setresuid(listener, listener, listener)
server.listen(16)
print("ready", flush=True)

def serve(client):
    while header := client.recv(4):
        request = json.loads(client.recv(struct.unpack("<I", header)[0]))
        print(request["command"], flush=True)
        if request["command"] == "mount":
            answer = {"uuid": uuid, "label": "", "mount_point": "/nowhere", "device": device, "pid": 1}
            body = json.dumps({"ok": True, "result": answer}).encode()
            client.sendall(struct.pack("<I", len(body)) + body)

while True:
    client, _ = server.accept()
    threading.Thread(target=serve, args=(client,), daemon=True).start()
"""


@pytest.fixture
def false_daemon():
    """Starts one that says it has mounted a volume, and answers nothing else. It makes the directory as
    `maker`, and listens as `listener`."""
    started = []

    def start(directory, uuid, maker, listener, device="0:0"):
        identity = ["setpriv", f"--reuid={maker}", f"--regid={maker}", "--clear-groups"] if maker else []
        arguments = [str(directory), uuid, device, str(listener)]
        process = subprocess.Popen([*identity, "/usr/bin/python3", "-c", FALSE_DAEMON, *arguments],
                                   stdout=subprocess.PIPE, text=True)
        started.append((process, directory))
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process, directory in started:
        process.kill()
        process.wait()
        process.stdout.close()
        shutil.rmtree(directory, ignore_errors=True)


def was_asked(process):
    """The commands that a false daemon got, which ends it."""
    process.kill()
    return process.stdout.read()


def uuid_of(volume):
    shown = json.loads(tool("cowraid", "filesystem", "show", "--json", volume.devices[0]).stdout)
    return shown["volumes"][0]["uuid"]


@pytest.fixture
def session_folder():
    """What a login makes for SOMEBODY, made when called."""
    folder = Path(f"/run/user/{SOMEBODY}")
    assert not folder.exists()

    def make():
        folder.mkdir(mode=0o700, parents=True)
        os.chown(folder, SOMEBODY, SOMEBODY)

    yield make
    shutil.rmtree(folder, ignore_errors=True)


def forget(control_directory):
    """Nothing is in it but the file that daemons lock."""
    (control_directory / "lock").unlink(missing_ok=True)
    control_directory.rmdir()


def test_a_stranger_has_made_the_control_directory(images, false_daemon, session_folder):
    """Looking, mounting and unmounting go on as if nothing was there."""
    as_user(images, "mkfs.cowraid", "-q", *images.devices)
    shared = Path(f"/tmp/cowraid-{SOMEBODY}")
    if shared.exists():
        forget(shared)  # what an earlier mount of that user left
    fake = false_daemon(shared, uuid_of(images), STRANGER, STRANGER)
    shown = as_user(images, "cowraid", "filesystem", "show", images.devices[0], places={}).stdout
    assert "Mounted" not in shown and "Cannot" not in shown and images.devices[2] in shown
    mount = ["mount.cowraid", *images.devices, images.mount_point]
    as_user(images, "cowraid", "check", images.devices[0], places={})
    for places in ({}, {"XDG_RUNTIME_DIR": str(images.folder)}, {}):
        if "XDG_RUNTIME_DIR" in places:
            session_folder()
        as_user(images, *mount, places=places)
        assert "Mounted at" in as_user(images, "cowraid", "filesystem", "show", images.devices[0],
                                       places=places).stdout
        as_user(images, "umount.fuse.cowraid", images.mount_point, places=places)
        assert not images.is_mounted()
    assert was_asked(fake) == ""
    for folder in Path("/tmp").glob(f"cowraid-{SOMEBODY}-*"):
        forget(folder)


def test_a_user_without_a_number_believes_no_control_directory(false_daemon):
    """Whom a user namespace does not map has the number of all others whom it does not map."""
    inside = ("setpriv", f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", "--clear-groups", "unshare", "-U")
    if run(*inside, "true", check=False).returncode != 0:
        pytest.skip("users may make no user namespaces")
    volume = "11111111-1111-4111-8111-222222222222"
    fake = false_daemon(Path("/tmp/cowraid-65534"), volume, STRANGER, STRANGER)
    run(*inside, TOOLS / "cowraid", "status", check=False)
    assert was_asked(fake) == ""


@pytest.mark.parametrize("kind", ["link", "open to all"])
def test_a_control_directory_that_is_not_ours_alone(images, false_daemon, kind):
    as_user(images, "mkfs.cowraid", "-q", *images.devices)
    place, real = images.folder / "run", images.folder / "real"
    fake = false_daemon(real if kind == "link" else place, uuid_of(images), SOMEBODY, SOMEBODY)
    if kind == "link":
        place.symlink_to(real)
        os.chown(place, SOMEBODY, SOMEBODY, follow_symlinks=False)
    else:
        place.chmod(0o777)
    shown = as_user(images, "cowraid", "filesystem", "show", images.devices[0]).stdout
    assert "Mounted" not in shown and images.devices[2] in shown
    said = as_user(images, "mount.cowraid", *images.devices, images.mount_point, check=False).stderr
    assert f"{place} is not a directory that only its owner may write to; remove it" in said
    assert was_asked(fake) == ""


def test_a_stranger_listens_in_our_control_directory(images, false_daemon):
    as_user(images, "mkfs.cowraid", "-q", *images.devices)
    place = images.folder / "run"
    fake = false_daemon(place, uuid_of(images), 0, STRANGER)
    run("chown", "-R", SOMEBODY, place)
    shown = as_user(images, "cowraid", "filesystem", "show", images.devices[0]).stdout
    assert "Mounted" not in shown and images.devices[2] in shown
    assert was_asked(fake) == ""


def test_a_daemon_that_does_not_answer(mounted_by_user, false_daemon):
    """One of ours: commands and unmounting end after some seconds."""
    images = mounted_by_user
    uuid = json.loads(as_user(images, "cowraid", "filesystem", "show", "--json",
                              images.mount_point).stdout)["volumes"][0]["uuid"]
    device = run("findmnt", "-n", "-o", "MAJ:MIN", images.mount_point).stdout.strip()
    other = images.folder / "other"
    places = {"COWRAID_RUN_DIR": str(other)}
    false_daemon(other, uuid, SOMEBODY, SOMEBODY, device)
    start = time.monotonic()
    said = as_user(images, "cowraid", "filesystem", "show", images.mount_point, check=False, places=places)
    assert said.returncode == 1 and "did not answer within 10 s; see the system log" in said.stderr
    assert time.monotonic() - start < PATIENCE
    said = as_user(images, "umount.fuse.cowraid", images.mount_point, check=False, places=places)
    assert said.returncode == MOUNT_FAILED and images.is_mounted()
    assert "the last commit cannot be waited for (" in said.stderr and "did not answer" in said.stderr
    assert time.monotonic() - start < 2 * PATIENCE
