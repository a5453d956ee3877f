# SPDX-License-Identifier: MIT
"""The rules that need a compiler or a formatter."""

import os
import re
import shutil
import subprocess
import tempfile
import zlib
from concurrent.futures import ThreadPoolExecutor

from style_rules import Finding

JOBS = 2
FORMATTERS = ["clang-format-14"]  # other versions lay out some lines differently
COMPILERS = ["clang++-14", "clang++", "g++"]
# Templates that a header uses are instantiated with it, and not again by each file that begins with it.
PRECOMPILED = ["-fpch-instantiate-templates"]
PACKAGES = ["fuse3", "liburing", "libzstd", "libxxhash", "libisal", "blkid", "mount", "uuid", "jansson",
            "doctest"]
# Errors count alone; warnings are the build's business.
COMPILE_FLAGS = ["-std=c++20", "-fno-exceptions", "-fno-rtti", "-w", "-D_FILE_OFFSET_BITS=64",
                 "-D_GNU_SOURCE", "-DFUSE_USE_VERSION=314",
                 "-DDOCTEST_CONFIG_NO_EXCEPTIONS_BUT_WITH_ALL_ASSERTS",
                 "-DDOCTEST_CONFIG_SUPER_FAST_ASSERTS",
                 '-DCOWRAID_VERSION="style"', "-I."]


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

    check_alone() shows it.
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


def included_headers(sources):
    """Path of each C++ file -> the headers of the tree that it includes, directly or through others."""
    direct = {s.path: [i.target for i in s.includes() if i.quoted] for s in sources if s.is_cpp}
    included = {}

    def visit(path):
        if path not in included:
            included[path] = set()  # ends circles; the rules on layers report them
            for target in direct[path]:
                if target in direct:
                    included[path] |= {target} | visit(target)
        return included[path]

    for path in direct:
        visit(path)
    return included


def headers_to_precompile(included, sizes, paths):
    """Header -> the files of `paths` that begin quicker with it precompiled than with the others chosen.

    One after the other, the header that saves most, while that is more than to read and write it takes.
    """
    header_size = {h: sizes[h] + sum(sizes[i] for i in included[h]) for h in included if h.endswith(".h")}
    best = dict.fromkeys(paths)

    def gain(header):
        saved = (header_size[header] - header_size.get(best[path], 0)
                 for path in paths if header in included[path])
        return sum(size for size in saved if size > 0) - 2 * header_size[header]

    while header_size:
        header = max(header_size, key=gain)
        if gain(header) <= 0:
            break
        for path in paths:
            if header in included[path] and header_size[header] > header_size.get(best[path], 0):
                best[path] = header
    return {header: [path for path in paths if best[path] == header]
            for header in set(best.values()) - {None}}


def share_of(root, paths, count):
    """One in `count` of the paths, others for another commit."""
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, cwd=root, check=False).stdout
    return [path for path in paths if zlib.crc32(path.encode() + head) % count == 0]


def check_alone(root, sources, paths):
    """Each file compiles as the only include of a program, which unity builds do not show.

    A header is compiled once for many files that include it: since it compiles alone, too, what they lack
    they lack all the same.
    """
    compiler = first_program(COMPILERS)
    if compiler is None or not paths:
        return []
    command = [compiler, *COMPILE_FLAGS, *package_flags()]
    begins_with = {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(JOBS) as pool:
        if compiler.startswith("clang"):
            included = included_headers(sources)
            chosen = headers_to_precompile(included, {s.path: len(s.text) for s in sources}, paths)
            for header, precompiled in zip(chosen, pool.map(
                    lambda header: precompile(root, command, header, folder), chosen)):
                begins_with.update((path, precompiled) for path in chosen[header])
        findings = pool.map(lambda path: compile_alone(root, path, command, begins_with.get(path)), paths)
        return [finding for finding in findings if finding]


def precompile(root, command, header, folder):
    """Options for programs that begin with `header`: none when it does not compile."""
    output = os.path.join(folder, header.replace("/", "_") + ".pch")
    made = subprocess.run([*command, *PRECOMPILED, "-x", "c++-header", header, "-o", output],
                          capture_output=True, cwd=root, check=False)
    return [*PRECOMPILED, "-include-pch", output] if made.returncode == 0 else []


def compile_alone(root, path, command, begin):
    run = subprocess.run([*command, *(begin or []), "-fsyntax-only", "-x", "c++", "-"],
                         input=f'#include "{path}"\n', capture_output=True, text=True, cwd=root, check=False)
    return None if run.returncode == 0 else compile_finding(path, run.stderr)


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
