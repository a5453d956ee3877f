# SPDX-License-Identifier: MIT
"""git on a volume: repositories that are cloned, checked, changed and built there."""

import hashlib
import json
import os
import random
import shutil

import pytest

from conftest import ROOT, run

LONG = os.environ.get("COWRAID_LONG") == "1"
SEED = int(os.environ.get("COWRAID_SEED", "1"))
MODULES, FOLDERS, FILES, COMMITS = (100, 200, 20_000, 3000) if LONG else (8, 10, 500, 150)
IDENTITY = ["-c", "user.name=Name", "-c", "user.email=name@example.org", "-c", "safe.directory=*"]
RULES = """rule cc
  command = cc -O1 -MD -MF $out.d -c $in -o $out
  depfile = $out.d
rule link
  command = cc $in -o $out
"""

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="no git")


def git(repository, *arguments):
    return run("git", *IDENTITY, "-C", repository, *arguments).stdout.strip()


def module(number, value):
    return f'#include "value.h"\nlong module_{number}(void) {{ return VALUE * {value}L; }}\n'


def program(values):
    """A C program of many files that prints what follows from all of them."""
    names = range(len(values))
    main = "#include <stdio.h>\n" + "".join(f"long module_{number}(void);\n" for number in names)
    main += 'int main(void) { printf("%ld\\n", ' + " + ".join(f"module_{number}()" for number in names)
    rules = RULES + "".join(f"build o/{number}.o: cc src/{number}.c\n" for number in names)
    rules += "build o/main.o: cc main.c\nbuild program: link o/main.o " + " ".join(f"o/{n}.o" for n in names)
    return {"main.c": main + "); return 0; }\n", "build.ninja": rules + "\n",
            ".gitignore": "o/\nprogram\n.ninja*\n"}


def make_repository(path, generator):
    """With a deep history of many files; returns what the last commit holds."""
    files = {f"folder {n % FOLDERS}/deep/{n}.txt": generator.randbytes(generator.randrange(3000)).hex()
             for n in range(FILES)}
    values = [generator.randrange(1000) for _ in range(MODULES)]
    files |= {f"src/{number}.c": module(number, value) for number, value in enumerate(values)}
    files |= program(values) | {"src/value.h": "#define VALUE 3\n"}
    stream = []

    def commit(number, changed):
        stream.append(f"commit refs/heads/main\ncommitter N <n@example.org> {1_600_000_000 + number} +0000\n"
                      f"data {len(str(number))}\n{number}\n")
        for name in changed:
            stream.append(f"M 100644 inline {name}\ndata {len(files[name].encode())}\n{files[name]}\n")

    commit(0, files)
    names = sorted(name for name in files if name.endswith(".txt"))
    for number in range(1, COMMITS):
        changed = generator.sample(names, 5)
        for name in changed:
            files[name] = files[name][:2000] + f"changed by {number}\n"
        commit(number, changed)
    run("git", "init", "-q", "-b", "main", "--bare", path)
    run("git", "-C", path, "fast-import", "--quiet", input="".join(stream))
    return files, 3 * sum(values)


def assert_holds(repository, files):
    """Read anew, not as git's index remembers it."""
    for name, content in files.items():
        assert (repository / name).read_text() == content, name
    (repository / ".git" / "index").unlink()
    git(repository, "reset", "-q")
    assert git(repository, "status", "--porcelain") == ""


def remount(volume):
    volume.unmount()
    volume.check()
    volume.mount()


@pytest.mark.parametrize("data, metadata", [("raid5", "raid1"), ("raid6", "raid1c3")])
def test_history(make_volume, tmp_path, data, metadata):
    generator = random.Random(SEED)
    source = tmp_path / "source"
    files, result = make_repository(source, generator)
    volume = make_volume(data=data, metadata=metadata, member_mib=2048 if LONG else 512)
    volume.make()
    volume.mount()
    repository = volume.mount_point / "repository"
    run("git", *IDENTITY, "clone", "-q", "--no-hardlinks", source, repository)
    git(repository, "fsck", "--full", "--strict")
    assert git(repository, "rev-list", "--count", "HEAD") == str(COMMITS)
    assert git(repository, "rev-parse", "HEAD") == git(source, "rev-parse", "main")
    assert_holds(repository, files)

    run("ninja", "-j2", cwd=repository)
    assert run("./program", cwd=repository).stdout == f"{result}\n"
    elsewhere = tmp_path / "elsewhere"
    run("git", *IDENTITY, "clone", "-q", repository, elsewhere)
    run("ninja", "-j2", cwd=elsewhere)
    built = ["program", *(f"o/{number}.o" for number in range(MODULES))]
    for name in built:
        assert (repository / name).read_bytes() == (elsewhere / name).read_bytes(), name
    remount(volume)
    assert "no work to do" in run("ninja", cwd=repository).stdout
    (repository / "src" / "value.h").write_text("#define VALUE 5\n")
    run("ninja", "-j2", cwd=repository)
    assert run("./program", cwd=repository).stdout == f"{result // 3 * 5}\n"
    assert git(repository, "status", "--porcelain") == "M src/value.h"

    git(repository, "commit", "-q", "-a", "-m", "changed")
    git(repository, "checkout", "-q", f"HEAD~{COMMITS // 2}")
    git(repository, "checkout", "-q", "-b", "side")
    (repository / "side").write_text("side")
    git(repository, "add", "side")
    git(repository, "commit", "-q", "-m", "side")
    git(repository, "merge", "-q", "-m", "merged", "main")
    git(repository, "worktree", "add", "-q", volume.mount_point / "second", "main")
    git(repository, "repack", "-q", "-a", "-d", "-f", "--depth=50")
    git(repository, "gc", "-q", "--prune=now")
    remount(volume)
    git(repository, "fsck", "--full", "--strict")
    assert git(repository, "rev-list", "--count", "HEAD") == str(COMMITS + 3)
    files["src/value.h"] = "#define VALUE 5\n"
    assert git(volume.mount_point / "second", "status", "--porcelain") == ""
    assert_holds(repository, files | {"side": "side"})


def test_of_cowraid(volume):
    repository = volume.mount_point / "repository"
    run("git", *IDENTITY, "clone", "-q", "--no-hardlinks", ROOT, repository)
    git(repository, "gc", "-q")
    git(repository, "fsck", "--full")
    remount(volume)
    assert git(repository, "status", "--porcelain") == ""
    git(repository, "fsck", "--full")


@pytest.mark.skipif(not LONG, reason="long: COWRAID_LONG=1 runs it")
@pytest.mark.parametrize("data, metadata", [("raid5", "raid1"), ("raid6", "raid1c3")])
def test_build_of_cowraid(make_volume, data, metadata):
    """Its programs, built on a volume with two jobs, make a volume and check it."""
    volume = make_volume(data=data, metadata=metadata, member_mib=2048)
    volume.make()
    volume.mount()
    repository = volume.mount_point / "repository"
    run("git", *IDENTITY, "clone", "-q", "--no-hardlinks", ROOT, repository)
    build = repository / "build"
    run("meson", "setup", build, "-Dbuildtype=debug", "-Dunity=on", "-Dunity_size=25", "-Db_pch=false",
        cwd=repository)
    targets = ["tools/mkfs.cowraid", "tools/cowraid"]
    run("ninja", "-j2", "-C", build, *targets, timeout=7200)
    digests = {name: hashlib.sha256((build / name).read_bytes()).digest() for name in targets}
    remount(volume)
    assert "no work to do" in run("ninja", "-C", build, *targets).stdout
    assert {name: hashlib.sha256((build / name).read_bytes()).digest() for name in targets} == digests
    images = [volume.mount_point / f"image{number}" for number in range(4)]
    for image in images:
        with open(image, "wb") as file:
            file.truncate(256 << 20)
    run(build / "tools" / "mkfs.cowraid", "-q", *images)
    checked = json.loads(run(build / "tools" / "cowraid", "check", "--json", *images).stdout)
    assert checked["result"] == "clean" and checked["directories"] == 1
