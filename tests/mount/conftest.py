# SPDX-License-Identifier: MIT
"""A volume on loop devices (or plain images), mounted by the built programs, cleaned up whatever happens."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from member_file import MemberFile

TOOLS = Path(os.environ.get("COWRAID_BUILD_DIR", ROOT / "build-test")) / "tools"
SCRATCH = "/dev/shm" if os.path.isdir("/dev/shm") else None
# Seconds until what comes at once has come, on a slow machine that does other things, too. What takes long
# anywhere gets some times as many.
PATIENCE = float(os.environ.get("COWRAID_PATIENCE", "60"))


def run(*arguments, check=True, timeout=15 * PATIENCE, **options):
    """Runs a command; its output is part of the failure message."""
    command = [str(argument) for argument in arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=timeout, **options)
    if check and result.returncode != 0:
        raise AssertionError(f"{arguments} returned {result.returncode}\n{result.stdout}{result.stderr}")
    return result


def tool(name, *arguments, **options):
    return run(TOOLS / name, *arguments, **options)


POOL = os.urandom(16 << 20)
PIECE = 64 << 10


def random_content(size):
    """As os.urandom, in a tenth of the time: pieces of POOL from anywhere. Hardly a block comes twice."""
    starts = (random.randrange(len(POOL) - PIECE) for _ in range(0, size, PIECE))
    return b"".join(POOL[at:at + PIECE] for at in starts)[:size]


READER = """
import mmap, os, sys
buffer, file = mmap.mmap(-1, 65536), os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
while True:
    for at in range(0, os.fstat(file).st_size, 65536):
        os.preadv(file, [buffer], at)
        if at == 0:
            print("read", flush=True)
"""


@contextlib.contextmanager
def a_reader(file):
    """Somebody who reads all the time: what goes on in the background takes long."""
    with subprocess.Popen([sys.executable, "-c", READER, file], stdout=subprocess.PIPE) as reader:
        assert reader.stdout.readline() == b"read\n"
        try:
            yield
        finally:
            reader.kill()


def wait_for(condition, seconds=PATIENCE, pause=0.05, otherwise=lambda: "waited in vain"):
    """Until it is true; returns what it was then. `otherwise` says what is wrong when that does not come."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, otherwise()
        time.sleep(pause)
    return found


def pytest_configure(config):
    """Who is told to end cleans up what it mounted, as after ^C. A thread that fails fails its test."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    config.addinivalue_line("filterwarnings", "error::pytest.PytestUnhandledThreadExceptionWarning")


def runs(process):
    """Not one that has ended, whether or not somebody has waited for it."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Volume:
    """Members as loop devices over sparse files, a mount point, and the life cycle between them. Writes to
    the members `may_fail` can be made to fail, or, with DetachableFile, all requests."""

    def __init__(self, member_count=4, member_mib=256, data="raid6", metadata="raid1c3", loops=True,
                 scratch=SCRATCH, may_fail=(), member_file=MemberFile):
        self.folder = Path(tempfile.mkdtemp(prefix="cowraid-test-", dir=scratch))
        self.folder.chmod(0o755)
        self.mount_point = self.folder / "mnt"
        self.mount_point.mkdir()
        self.images, self.loops = [], []
        self.hidden = set()  # of loops: their numbers may be somebody else's by now
        self.member_files = {index: member_file(member_mib << 20) for index in may_fail}
        for index in range(member_count):
            if index in may_fail:
                image = self.member_files[index].path
            else:
                image = self.folder / f"member{index + 1}.img"
                with open(image, "wb") as file:
                    file.truncate(member_mib << 20)
            self.images.append(image)
            if loops:
                self.loops.append(self.attach(image))
        self.data, self.metadata = data, metadata

    @staticmethod
    def attach(image):
        return run("losetup", "-f", "--show", "--direct-io=on", image).stdout.strip()

    def another(self, mebibytes):
        """One more device, which is no member yet."""
        image = self.folder / f"member{len(self.images) + 1}.img"
        with open(image, "wb") as file:
            file.truncate(mebibytes << 20)
        self.images.append(image)
        self.loops.append(self.attach(image))
        return self.loops[-1]

    @property
    def devices(self):
        return self.loops or [str(image) for image in self.images]

    def make(self, *options):
        return tool("mkfs.cowraid", "-q", "-d", self.data, "-m", self.metadata, *options, *self.devices)

    def mount(self, devices=None, options=None, check=True):
        """Does not wait for members that are not there, unless the options say so."""
        sources = devices or self.devices
        arguments = [*sources, self.mount_point]
        if len(sources) == 1 and "missing_dev_timeout" not in (options or ""):
            options = f"{options},missing_dev_timeout=0" if options else "missing_dev_timeout=0"
        if options:
            arguments += ["-o", options]
        return tool("mount.cowraid", *arguments, check=check)

    def unmount(self):
        return tool("umount.fuse.cowraid", self.mount_point)

    def mount_count(self):
        """How many mounts lie on the mount point, one upon the other."""
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            return sum(f" {self.mount_point} " in line for line in file)

    def is_mounted(self):
        return self.mount_count() > 0

    def serving(self):
        """Process ids of all programs that mount or serve the mount point."""
        place, found = str(self.mount_point).encode(), []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes().split(b"\0")
                if place in command and b"mount.cowraid" in command[0] and runs(entry.name):
                    found.append(int(entry.name))
        return found

    def daemon(self):
        """Process id of the daemon that serves the mount."""
        serving = self.serving()
        assert serving, "no daemon found"
        return serving[0]

    def kill(self):
        process = self.daemon()
        os.kill(process, 9)
        wait_for(lambda: not self.answers() and not runs(process), pause=0.02,
                 otherwise=lambda: "the daemon is still there")

    def answers(self):
        try:
            os.statvfs(self.mount_point)
        except OSError:
            return False
        return True

    def check(self, expect=0, *options):
        result = tool("cowraid", "check", "--json", *options, self.devices[0], check=False)
        assert result.returncode == expect, result.stdout + result.stderr
        return json.loads(result.stdout)

    def counters(self):
        stats = json.loads(tool("cowraid", "device", "stats", "--json", self.mount_point).stdout)
        return stats

    def wait_caught_up(self):
        """Until no member lacks a write."""
        wait_for(lambda: not any(line["stale_groups"] for line in self.counters()["device-stats"]),
                 5 * PATIENCE)

    def hide(self, indexes):
        """Takes members away: no program can find them until unhide()."""
        for index in indexes:
            run("losetup", "-d", self.loops[index])
            self.hidden.add(index)

    def unhide(self, indexes):
        for index in indexes:
            self.loops[index] = self.attach(self.images[index])
            self.hidden.discard(index)

    def fail_writes(self):
        """From now on, of all members that may fail; MemberFile says what fails."""
        for file in self.member_files.values():
            file.fail_writes()

    def mend_writes(self):
        """They can be written again. Not while they are mounted."""
        self.hide(self.member_files)
        for index, file in self.member_files.items():
            self.member_files[index] = file.copy()
            self.images[index] = self.member_files[index].path
            file.close()
        self.unhide(self.member_files)

    def drop_caches(self):
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3\n", encoding="ascii")

    def take_down(self):
        """One try; whether nothing is left that could mount, and no mount."""
        serving = self.serving()
        for process in serving:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        mounts = self.mount_count()
        for _ in range(mounts):
            run("umount", "-i", "-l", self.mount_point, check=False)
        return not serving and mounts == 0

    def destroy(self):
        try:
            wait_for(self.take_down, pause=0.01,
                     otherwise=lambda: f"left: {self.serving()}, {self.mount_count()} mounts")
        finally:
            for index, device in enumerate(self.loops):
                if index not in self.hidden:
                    run("losetup", "-d", device, check=False)
            for file in self.member_files.values():
                file.close()
            shutil.rmtree(self.folder, ignore_errors=True)
        if self.mount_count() > 0:
            warnings.warn(f"{self.mount_point} was mounted after it had been unmounted")


def sanitized():
    """Whether the programs were built with the address sanitizer."""
    about = TOOLS.parent / "meson-info" / "intro-buildoptions.json"
    options = json.loads(about.read_text(encoding="ascii")) if about.exists() else []
    return any(option["name"] == "b_sanitize" and "address" in option["value"] for option in options)


@pytest.fixture(autouse=True)
def reports(tmp_path, monkeypatch):
    """Takes what sanitizers said of programs that the test started. What is left of it fails the test."""
    if not sanitized():
        yield lambda: ""
        return
    for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS"):
        given = [os.environ[name]] if name in os.environ else []
        monkeypatch.setenv(name, ":".join([*given, "print_stacktrace=1", f"log_path={tmp_path}/report"]))

    def take():
        files = list(tmp_path.glob("report.*"))
        text = "".join(path.read_text(encoding="utf-8") for path in files)
        for path in files:
            path.unlink()
        return text

    yield take
    assert take() == ""


@pytest.fixture
def make_volume():
    made = []

    def make(**options):
        volume = Volume(**options)
        made.append(volume)
        return volume

    yield make
    with contextlib.ExitStack() as stack:  # all of them, whatever happens
        for volume in reversed(made):
            stack.callback(volume.destroy)


@pytest.fixture
def volume(make_volume):
    made = make_volume()
    made.make()
    made.mount()
    return made
