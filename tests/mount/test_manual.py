# SPDX-License-Identifier: MIT
"""Manual pages and completion know what the programs know, and nothing else."""

import os
import re
import sys

import pytest

from conftest import ROOT, TOOLS, run, tool

sys.path.insert(0, str(ROOT / "scripts"))
from man_page import commands_of

PAGES = TOOLS.parent / "system"
COMPLETION = ROOT / "system" / "completion"
PROGRAMS = ("cowraid", "fsck.cowraid", "mkfs.cowraid", "mount.cowraid", "umount.fuse.cowraid")
# As the table of commands has them.
COMMAND_ROW = re.compile(r'^ +\{(nullptr, "[a-z]+"|"[a-z]+", "[a-z0-9-]*"),', re.MULTILINE)
COMMAND_TABLE = (ROOT / "tools" / "cowraid" / "cowraid_main.cc").read_text(encoding="utf-8")
COMMANDS = [" ".join(re.findall(r'"(.*?)"', row)).strip() for row in COMMAND_ROW.findall(COMMAND_TABLE)]
COMMANDS_MIN = 40
NAMED = re.compile(r"(?:^\.B |\\fB)cowraid ([a-z]+)(?: ([a-z]+))?", re.MULTILINE)
OPTION = re.compile(r"(?<![\w/-])(--[a-z][a-z-]*|-[A-Za-z])(?![\w-])")


def help_of(program, *words):
    environment = dict(os.environ, ARGP_HELP_FMT="rmargin=5000", LC_ALL="C")
    return tool(program, *words, "--help", env=environment).stdout


def options_in_help(program, *words):
    """All names of all options; found another way than the pages and the completion find them."""
    lines = [line.strip() for line in help_of(program, *words).splitlines() if re.match(r" {2,6}-", line)]
    return {name for line in lines for name in OPTION.findall(re.split("  +", line)[0])}


def rendered(page):
    """What a reader sees, without line breaks that the width makes."""
    text = run("mandoc", "-T", "ascii", "-O", "width=1000", PAGES / page).stdout
    return re.sub(".\b", "", text)


def sections_of(page):
    """Text by the titles of sections and subsections."""
    parts = re.split(r"^((?: {3})?\S.*)$", rendered(page), flags=re.MULTILINE)
    return {title.strip(): text for title, text in zip(parts[1::2], parts[2::2])}


@pytest.fixture(scope="module", autouse=True)
def pages():
    assert len(COMMANDS) >= COMMANDS_MIN
    if not (PAGES / "cowraid.8").exists():
        pytest.skip("the build folder has no manual pages; build all of it")
    return sorted(path.name for path in PAGES.glob("*.[58]"))


def test_pages_are_well_formed(pages):
    assert len(pages) == 6
    for page in pages:
        findings = run("mandoc", "-T", "lint", "-W", "warning", PAGES / page, check=False).stdout.splitlines()
        # A date would be that of a change nobody notes.
        assert [line for line in findings if "missing date" not in line] == []
        assert "@" not in re.sub(r"scrub@|\S+@\S+\.", "", rendered(page)), "a line with @ was left"


def test_every_command_and_option_is_in_the_manual():
    assert [name for name, _ in commands_of(TOOLS / "cowraid")] == COMMANDS
    sections = sections_of("cowraid.8")
    shared = OPTION.findall(sections["Options of all commands"])
    assert {"--json", "--raw", "-b", "--si", "--iec", "--help"} <= set(shared)
    assert "Exit codes: 0 done, 1 failed, 2 usage." in sections["Options of all commands"]
    may_find = {command for command in COMMANDS
                if "Exit code 3" in help_of("cowraid", *command.split())}
    assert {"scrub start", "balance start", "check", "device remove", "replace status"} <= may_find
    said = re.search(r"\n +3 +(.*?)\n\n", sections["EXIT STATUS"], re.DOTALL)[1]
    phrases = re.split(r", | and ", " ".join(said.rpartition(": of ")[2].rstrip(".").split()))
    for command in may_find - {"device delete"}:
        # By its own name, perhaps with an option, or by that of its group.
        assert command.split()[0] in phrases or any(f"{phrase} ".startswith(f"{command} ")
                                                    for phrase in phrases), command
    for command in COMMANDS:
        text = sections[f"cowraid {command}"]
        options = options_in_help("cowraid", *command.split())
        if not options:
            assert f"cowraid {command} start" in text
        else:
            help_text = help_of("cowraid", *command.split())
            assert "Exit codes: 0 done, 1 failed, 2 usage." in help_text, command
            for line in help_text.splitlines():
                assert not line.startswith("Exit code ") or line.split(":")[0] in text, (command, line)
        assert options <= set(OPTION.findall(text)) | set(shared), command
    for program in PROGRAMS[1:]:
        assert options_in_help(program) <= set(OPTION.findall(sections_of(f"{program}.8")["OPTIONS"]))


def test_the_manual_names_nothing_that_is_not_there(pages):
    known = {name for program in PROGRAMS for name in options_in_help(program)}
    known |= {name for command in COMMANDS for name in options_in_help("cowraid", *command.split())}
    known |= {"--now", "-p", "-s", "-b", "-t", "--json"}  # systemctl, systemd-escape, truncate, mount
    alone = {command for command in COMMANDS if " " not in command}
    named = 0
    for page in pages:
        text = rendered(page)
        assert set(OPTION.findall(text)) <= known, page
        source = (ROOT / "system" / "man" / f"{page}.in").read_text(encoding="utf-8")
        for group, command in NAMED.findall(source):
            assert group in alone or f"{group} {command}" in COMMANDS, f"{page}: cowraid {group} {command}"
            named += 1
        for other, section in re.findall(r"\b([\w.]*cowraid)\((\d)\)", text):
            assert f"{other}.{section}" in pages
    assert named > 6


def test_mount_options_are_in_the_manual():
    table = tool("mount.cowraid", "--options-table").stdout
    rows = re.findall(r"^\| `([^`]*)` \| (.*) \|$", table, re.MULTILINE)
    assert len(rows) > 20
    sections = sections_of("mount.cowraid.8")
    lines = [line.strip() for line in sections["MOUNT OPTIONS"].splitlines()]
    notes = " ".join(sections["NOTES"].split())
    assert "cowraid filesystem sync" in notes
    for name, text in rows:
        assert any(line == name or line.startswith(name + " ") for line in lines), name
        assert text not in notes, name


def test_all_events_are_in_the_manual():
    source = (ROOT / "control" / "events.cc").read_text(encoding="utf-8")
    names = set(re.findall(r'\b(?:add|tell)\("([A-Z]\w+)"', source))
    assert len(names) > 30, names
    page = sections_of("cowraid.8")["EVENTS"]
    document = (ROOT / "docs" / "EVENTS.md").read_text(encoding="utf-8")
    for text in (page, document):
        assert not [name for name in names if not re.search(rf"\b{name}\b", text)]
    assert re.search(r"RebuildFinished \*$", page, re.MULTILINE) and "names the files" in page


def ask_bash(*words, by_path=False):
    script = """
        source "$1"; shift
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
        complete -p "${1##*/}" >/dev/null || exit
        _cowraid "$1" "${@: -1}" "${@: -2:1}"
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    path = COMPLETION / "cowraid.bash"
    program = words[0] if by_path else TOOLS / words[0]
    result = run("bash", "--norc", "-c", script, "bash", path, program, *words[1:])
    assert result.stderr == ""
    return set(result.stdout.split("\n")) - {""}


def ask_zsh(*words, by_path=False):
    """The completion system is not there without a terminal; what it would be told is printed."""
    script = """
        compadd() { while [[ $1 != -- ]]; do shift; done; shift; print -rl -- "$@" }
        compset() { : }
        _files() { : }
        _describe() { [[ $1 == -o ]] && shift 2 || shift; print -rl -- "${(@P)1}" }
        path_of_completion=$1; shift
        words=("$@") CURRENT=$#
        source $path_of_completion
    """
    program = words[0] if by_path else TOOLS / words[0]
    result = run("zsh", "-f", "-c", script, "zsh", COMPLETION / "_cowraid", program, *words[1:])
    assert result.stderr == ""
    return {line.partition(":")[0] for line in result.stdout.splitlines()} - {""}


SHELLS = pytest.mark.parametrize("ask", [ask_bash, ask_zsh])


def names(options):
    return {option.rstrip("=") for option in options} - {"-?"}


@SHELLS
def test_commands_are_completed(ask):
    assert ask("cowraid", "") == {command.split()[0] for command in COMMANDS}
    for group in {command.split()[0] for command in COMMANDS}:
        inside = {command.split()[1] for command in COMMANDS if command.startswith(group + " ")}
        answers = {word for word in ask("cowraid", group, "") if not word.startswith("/")}
        assert inside <= answers, group
        assert not inside or answers <= inside | {"missing", "max"}, group


@SHELLS
def test_no_program_of_the_working_directory_runs(ask, tmp_path, monkeypatch):
    """A typed "cowraid" is found in PATH; what lies beside the user may be anybody's."""
    ran = tmp_path / "ran"
    for folder in (tmp_path, tmp_path / "cowraid"):
        folder.mkdir(exist_ok=True)
        planted = folder / "mkfs.cowraid"
        planted.write_text(f"#!/bin/sh\ntouch {ran}\n", encoding="ascii")
        planted.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{TOOLS}:{os.environ['PATH']}")
    profiles = ask("cowraid", "balance", "start", "--convert", "", by_path=True)
    assert not ran.exists()
    assert {"raid5", "raid6"} <= profiles


@SHELLS
def test_options_are_completed(ask):
    for command in COMMANDS:
        words = command.split()
        options = options_in_help("cowraid", *words) or options_in_help("cowraid", *words, "start")
        assert names(ask("cowraid", *words, "-")) == options, command
    for program in PROGRAMS[1:]:
        assert names(ask(program, "-")) == options_in_help(program)


@SHELLS
def test_values_are_completed(ask):
    profiles = set(re.search(r"profile of data: (.*)", help_of("mkfs.cowraid"))[1].split(", "))
    assert {"single", "raid1", "raid5", "raid6"} <= profiles
    assert ask("mkfs.cowraid", "-d", "") == profiles
    assert ask("cowraid", "balance", "start", "--convert", "") == profiles
    for words in (["scrub"], ["scrub", "start"]):
        assert ask("cowraid", *words, "--plan", "") == {"full", "10%", "new", "bad"}
    for option in ("-t", "--tree"):
        trees = ask("cowraid", "inspect", "dump-tree", option, "")
        assert trees == {"root", "checksum", "free-space", "remap", "file"}
    assert {"zstd", "none"} <= ask("cowraid", "property", "set", "X", "compression", "")
    table = tool("mount.cowraid", "--options-table").stdout
    options = {re.match(r"[^ =]+=?", name)[0] for name in re.findall(r"^\| `([^`]*)`", table, re.MULTILINE)}
    assert "compress-force=" in options
    assert ask("mount.cowraid", "-o", "") == options
    assert "max" in ask("cowraid", "filesystem", "resize", "")
    assert "missing" in ask("cowraid", "device", "remove", "")


def test_bash_takes_the_last_of_several_mount_options_and_what_follows_an_equals_sign():
    assert ask_bash("mount.cowraid", "-o", "ro,degr") == {"ro,degraded"}
    assert "raid5" in ask_bash("mkfs.cowraid", "--data", "=")
    assert ask_bash("mkfs.cowraid", "--data", "=", "raid1c") >= {"raid1c3"}
    assert ask_bash("cowraid", "scrub", "start", "--plan", "=", "n") == {"new"}
    assert ask_bash("cowraid", "st") == {"status"}


@SHELLS
def test_mounted_volumes_are_completed(ask, volume):
    for words in (("scrub", "start"), ("filesystem", "usage"), ("device", "stats")):
        assert str(volume.mount_point) in ask("cowraid", *words, "")
    assert str(volume.mount_point) in ask("cowraid", "balance", "start", "--plan", "")
    assert str(volume.mount_point) in ask("umount.fuse.cowraid", "")
    assert str(volume.mount_point) not in ask("mkfs.cowraid", "")


def test_bash_expands_nothing(make_volume):
    volume = make_volume()
    volume.mount_point = volume.folder / "$(touch${IFS}ran)"
    volume.mount_point.mkdir()
    volume.make()
    volume.mount()
    assert str(volume.mount_point) in ask_bash("umount.fuse.cowraid", "")
    assert not os.path.exists("ran")
