# SPDX-License-Identifier: MIT
"""The rules that need a compiler or a formatter."""

import os
import re
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor

from style_rules import Finding

JOBS = 2
FORMATTERS = ["clang-format-14"]  # other versions lay out some lines differently
COMPILERS = ["g++", "clang++-14", "clang++"]
PACKAGES = ["fuse3", "liburing", "libzstd", "libxxhash", "libisal", "blkid", "mount", "uuid", "jansson",
            "doctest"]
# Errors count alone; warnings are the build's business.
COMPILE_FLAGS = ["-std=c++20", "-fno-exceptions", "-fno-rtti", "-w", "-D_FILE_OFFSET_BITS=64",
                 "-D_GNU_SOURCE", "-DFUSE_USE_VERSION=314",
                 "-DDOCTEST_CONFIG_NO_EXCEPTIONS_BUT_WITH_ALL_ASSERTS",
                 '-DCOWRAID_VERSION="style"', "-I."]
PRECOMPILERS = ["clang++-14", "clang++"]
PRECOMPILED_HEADER = "base/std_pch.hh"


def first_program(names):
    return next((name for name in names if shutil.which(name)), None)


def package_flags():
    flags = []
    for package in PACKAGES:
        command = ["pkg-config", "--cflags", package]
        try:
            flags += subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        except (OSError, subprocess.CalledProcessError):
            continue  # a header that needs it then fails to compile, by name
    return flags


def headers_shown_by_build(sources):
    """Headers that need no other one because a compiled file begins with them, or with one that begins so.

    check_sources_alone() shows it.
    """
    programs = "".join(s.text for s in sources if s.path.endswith("meson.build"))
    first = {s.path: next(s.includes(), None) for s in sources if s.is_cpp}
    shown = set()
    for path in first:
        if not path.endswith(".cc") or f"{path.partition('/')[2]}'" not in programs:
            continue
        include = first[path]
        while include is not None and include.quoted and include.target not in shown:
            shown.add(include.target)
            include = first.get(include.target)
    return shown


def check_headers_alone(root, headers):
    """Each header compiles as the only include of a file."""
    compiler = first_program(COMPILERS)
    if compiler is None or not headers:
        return []
    return compile_alone(root, headers, [compiler, *COMPILE_FLAGS, *package_flags()],
                         lambda header: f'#include "{header}"\n')


def check_sources_alone(root, paths):
    """Each file compiles by itself. Builds that compile several files as one (unity) do not show it."""
    compiler = first_program(PRECOMPILERS)
    if compiler is None or not paths:
        return []
    command = [compiler, *COMPILE_FLAGS, *package_flags()]
    with tempfile.TemporaryDirectory() as folder:
        precompiled = os.path.join(folder, "std.pch")
        made = subprocess.run([*command, "-x", "c++-header", PRECOMPILED_HEADER, "-o", precompiled],
                              capture_output=True, cwd=root, check=False)
        if made.returncode == 0:
            command += ["-include-pch", precompiled]
        return compile_alone(root, paths, command, lambda path: f'#include "{path}"\n')


def compile_alone(root, paths, command, program_of):
    """A finding for each path whose program has an error."""
    def compile_one(path):
        run = subprocess.run([*command, "-fsyntax-only", "-x", "c++", "-"], input=program_of(path),
                             capture_output=True, text=True, cwd=root, check=False)
        return None if run.returncode == 0 else compile_finding(path, run.stderr)

    with ThreadPoolExecutor(JOBS) as pool:
        return [finding for finding in pool.map(compile_one, paths) if finding]


def compile_finding(compiled, errors):
    match = re.search(r"^(\S+?):(\d+):(?:\d+:)? (?:fatal )?error: (.*)$", errors, re.MULTILINE)
    if match is None:
        return Finding(compiled, 1, "does not compile on its own")
    path, line = os.path.normpath(match.group(1)), int(match.group(2))
    where = f"{path}:{line}: " if path != compiled else ""
    return Finding(compiled, line if path == compiled else 1,
                   f"does not compile on its own: {where}{match.group(3)}")


def check_format(root, paths):
    """One finding per file that clang-format would change."""
    formatter = first_program(FORMATTERS)
    if formatter is None or not paths:
        return []
    batches = [paths[start::JOBS] for start in range(JOBS) if paths[start::JOBS]]
    with ThreadPoolExecutor(JOBS) as pool:
        results = pool.map(lambda batch: format_batch(root, formatter, batch), batches)
        return [finding for found in results for finding in found]


def format_batch(root, formatter, paths):
    run = subprocess.run([formatter, "--dry-run", "-Werror", *paths], capture_output=True, text=True,
                         cwd=root, check=False)
    first = {}
    for path, line in re.findall(r"^(\S+?):(\d+):\d+: error:", run.stderr, re.MULTILINE):
        first.setdefault(path, int(line))
    return [Finding(path, line, "not formatted: clang-format-14 -i") for path, line in first.items()]
