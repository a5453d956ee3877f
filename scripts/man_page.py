#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A manual page from its text and from what the programs say with --help.
   scripts/man_page.py TEXT OUTPUT (PROGRAM|FILE)...

Lines of TEXT that begin with @ stand for what a program says, or a file has:
   @usage PROGRAM           its command lines
   @description PROGRAM     what it does
   @options PROGRAM         its options
   @notes PROGRAM           what follows its options, before those of mounts
   @mount-options PROGRAM   the table that --options-table prints
   @commands PROGRAM        a section for each command, and one for the options that all commands share
   @events FILE             the table of docs/EVENTS.md
"""

import os
import re
import subprocess
import sys
from collections import namedtuple
from itertools import takewhile
from pathlib import Path

Option = namedtuple("Option", "term text")
Help = namedtuple("Help", "usages description options notes")

OPTION = re.compile(r" {2,6}(-\S.*?)(?:  +| *$)(.*)")
COMMAND = re.compile(r"  (\w[\w -]*?)  +(.*)")
# What argp adds, and nobody needs to be told twice.
SHORT_OPTIONS_TOO = "Mandatory or optional arguments to long options"


def ask(program, *arguments):
    """The output of a program, each paragraph and each option on one line."""
    environment = dict(os.environ, LC_ALL="C", ARGP_HELP_FMT="rmargin=5000")
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True,
                          env=environment).stdout


def read_help(program, *command):
    usages, description, options, notes = [], [], [], []
    for line in ask(program, *command, "--help").splitlines():
        usage = re.match(r"(?:Usage:|  or:) +(.*)", line)
        option = OPTION.fullmatch(line)
        if usage:
            usages.append(usage[1])
        elif option:
            options.append(Option(*option.groups()))
        elif line.startswith(SHORT_OPTIONS_TOO) or re.fullmatch(r" *", line) and not options:
            continue
        else:
            (notes if options else description).append(line)
    return Help(usages, description, options, notes)


def notes_of(program):
    return takewhile(lambda line: line != "Mount options:", read_help(program).notes)


def commands_of(program):
    """Pairs of a command and its summary."""
    return [match.groups() for line in ask(program, "--help").splitlines()
            if (match := COMMAND.fullmatch(line))]


def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = re.sub(r"`([^`]*)`", r"\\fB\1\\fP", text)
    return "\\&" + text if text.startswith((".", "'")) else text


def paragraphs(lines):
    for line in lines:
        yield escape(line) if line.strip() else ".PP"


def print_options(options):
    for option in options:
        yield ".TP"
        # Option and the name of its value, which is not part of it.
        yield re.sub(r"(\\-[\w?\\-]+)", r"\\fB\1\\fP", escape(option.term))
        yield escape(option.text)


def print_usages(usages):
    for index, usage in enumerate(usages):
        yield from ([".br"] if index else [])
        program, _, rest = usage.partition(" ")
        yield f"\\fB{escape(program)}\\fP {escape(rest)}"


def print_commands(program):
    helps = {name: read_help(program, *name.split()) for name, _ in commands_of(program)}
    # "balance --help" speaks of the whole group; the word alone takes what "balance start" does.
    shared = set.intersection(*(set(entry.options) for entry in helps.values() if entry.options))
    notes = set.intersection(*(set(entry.notes) for entry in helps.values() if entry.options)) - {""}
    for name, summary in commands_of(program):
        entry = helps[name]
        yield f'.SS "{Path(program).name} {name}"'
        if not entry.options:
            start = f"{Path(program).name} {name} start"
            yield f"{escape(summary[0].upper() + summary[1:])}. Options as of \\fB{start}\\fP."
            continue
        yield from print_usages(entry.usages)
        yield ".PP"
        yield from paragraphs(entry.description)
        yield from print_options([option for option in entry.options if option not in shared])
        own = [line for line in entry.notes if line.strip() and line not in notes]
        yield from ([".PP", *paragraphs(own)] if own else [])
    yield '.SS "Options of all commands"'
    yield from print_options([option for option in entry.options if option in shared])
    yield from (".PP", *paragraphs(sorted(notes)))


def print_mount_options(program):
    for line in ask(program, "--options-table").splitlines()[2:]:
        name, text = re.fullmatch(r"\| `(.*?)` \| (.*) \|", line).groups()
        yield from (".TP", f"\\fB{escape(name)}\\fP", escape(text))


def print_events(file):
    for line in Path(file).read_text(encoding="utf-8").splitlines():
        if row := re.fullmatch(r"\| ([A-Z]\w+.*?) \| (.*) \| (yes)? ?\|", line):
            yield from (".TP", f"\\fB{escape(row[1])}\\fP{' *' if row[3] else ''}", escape(row[2]))


PRINTERS = {
    "usage": lambda program: print_usages(read_help(program).usages),
    "description": lambda program: paragraphs(read_help(program).description),
    "options": lambda program: print_options(read_help(program).options),
    "notes": lambda program: paragraphs(filter(str.strip, notes_of(program))),
    "mount-options": print_mount_options,
    "commands": print_commands,
    "events": print_events,
}


def main():
    text, output, *programs = sys.argv[1:]
    paths = {Path(program).name: program for program in programs}
    lines = []
    for line in Path(text).read_text(encoding="utf-8").splitlines():
        directive = re.fullmatch(r"@([\w-]+) ([\w.]+)", line)
        lines += PRINTERS[directive[1]](paths[directive[2]]) if directive else [line]
    Path(output).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
