# SPDX-License-Identifier: MIT
"""The rules of docs/STYLE.md that a machine can check on text. Each yields findings."""

import os
import re
from collections import namedtuple

Finding = namedtuple("Finding", "path line message")

FILE_LINES_MAX = 800
FOLDER_README_LINES_MAX = 60
FUNCTION_LINES_MAX = 70
FUNCTION_LINES_COUNTED = 5  # shorter functions do not enter the share
FUNCTION_LINES_HARD_MAX = 120
LONG_SHARE_MAX = 0.02
LINE_COLUMNS_MAX = 110
MARKDOWN_COLUMNS_MAX = 160
SPDX = "SPDX-License-Identifier: MIT"

# Lowest first: a layer sees itself and what stands before it, save for the exceptions below. Files that stand
# in a folder with layers are the highest of these.
LAYERS = ["base", "format", "device", "sim", "journal", "raid56", "alloc", "btree",
          "fs/volume", "fs/txn", "fs/files", "fs/names", "fs/maintain", "fs/commit", "fs/check", "fs",
          "control", "fuse", "tools/common", "tools/mkfs", "tools/mount", "tools/cowraid", "bench", "tests"]
FOLDERS = {layer.split("/")[0] for layer in LAYERS}
ONLY_FOLDERS = {"fuse": {"base", "fs"}, "control": {"base", "format", "fs"}}
ONLY_FILES = {("alloc", "raid56"): {"raid56/geometry.h"}}
# The product ships nothing that is simulated.
FOR_TESTS = {"sim": {"sim", "bench", "tests"}, "tests": {"bench", "tests"}}

BANNED_HEADERS = {
    "functional": "write a template parameter or a seam class",
    "iostream": "use base/log.h or base/print.h",
    "sstream": "use snprintf", "fstream": "use a UniqueFd", "iomanip": "use snprintf",
    "regex": "parse by hand", "ranges": "write the loop", "format": "GCC 12 lacks it",
    "mutex": "use base/mutex.h", "shared_mutex": "use base/mutex.h",
    "condition_variable": "use CondVar of base/mutex.h", "future": "use CondVar of base/mutex.h",
    "coroutine": "not in the dialect", "any": "not in the dialect", "typeinfo": "no RTTI",
    "exception": "no exceptions", "stdexcept": "no exceptions",
    "cassert": "use CW_ASSERT", "assert.h": "use CW_ASSERT",
}

BANNED_CODE = [(re.compile(pattern), message) for pattern, message in [
    (r"\bassert\s*\(", "assert: use CW_ASSERT, which stays on in release builds"),
    (r"\bstd::function\b", "std::function: use a template parameter or a seam class"),
    (r"\bstd::(?:shared_ptr|make_shared|weak_ptr)\b", "shared_ptr: use Ref<T> of base/ref.h"),
    (r"\bstd::(?:recursive_|timed_|shared_)?mutex\b", "std::mutex: use Mutex of base/mutex.h"),
    (r"\bstd::(?:lock_guard|unique_lock|scoped_lock|shared_lock)\b", "use MutexLock of base/mutex.h"),
    (r"\bstd::condition_variable", "use CondVar of base/mutex.h"),
    (r"\bstd::c(?:out|err|in|log)\b", "no iostream: use base/log.h or base/print.h"),
    (r"\b(?:dynamic_cast|typeid)\b", "no RTTI"),
    (r"\b(?:throw|try|catch)\b", "no exceptions: return a Status or Result"),
    (r"\bgoto\b", "goto: let destructors clean up"),
    (r"\bco_(?:await|yield|return)\b", "no coroutines"),
    (r"\b(?:strcpy|strcat|sprintf|vsprintf|gets|alloca|strtok)\s*\(", "unbounded or unsafe call"),
    (r"(?<![\w.>])s?rand\s*\(", "rand: use Prng or random_bytes of base/random.h"),
]]
STDOUT = re.compile(r"\bstdout\b")
PRINT = re.compile(r"(?<![\w.>])(?:v?f?printf|f?puts|putchar|f?putc)\s*\(")
DISK_STRUCT = re.compile(r"(?<!sizeof\()\bDisk[A-Z]\w*")
PRINTERS = re.compile(r"base/print\.cc|tools/common/report_error\.cc|bench/\w+\.cc")
# Spelled in two parts, so that this file passes its own check.
UNFINISHED = re.compile("|".join([r"\bTO" r"DO\b", r"\bFIX" r"ME\b", r"\bXX" r"X\b", r"\?\?" r"\?"]))


def layer_of(path):
    """The layer that a file ("folder/file.h", "folder/layer/file.h") belongs to; "" when it is in none."""
    parts = path.split("/")[:-1]
    for depth in (2, 1):
        layer = "/".join(parts[:depth])
        if layer in LAYERS and (depth == 2 or len(parts) == 1 or layer == "tests"):
            return layer
    return ""


def is_product(source):
    """Whether it is neither a test nor for tests and benchmarks alone."""
    return source.is_cpp and not source.is_test and source.folder not in ("sim", "bench", "tests")


def may_include(source, target):
    """Whether `source` may include `target`, a file of the tree. Unit tests see what the product must not."""
    here, there = layer_of(source.path), layer_of(target)
    folder, to = here.split("/")[0], there.split("/")[0]
    if to in FOR_TESTS:
        return source.is_test or folder in FOR_TESTS[to]
    if here == there or source.is_test:
        return True
    if folder != to and folder in ONLY_FOLDERS:
        return to in ONLY_FOLDERS[folder]
    if (folder, to) in ONLY_FILES:
        return target in ONLY_FILES[(folder, to)]
    return LAYERS.index(there) < LAYERS.index(here)


def check_layers(source, root):
    for include in source.includes():
        in_tree = layer_of(include.target) != "" and os.path.exists(os.path.join(root, include.target))
        if include.quoted and not in_tree:
            yield Finding(source.path, include.line, f'include "{include.target}": not a file of the tree')
        elif in_tree and not include.quoted:
            yield Finding(source.path, include.line, f"include <{include.target}>: own files are quoted")
        elif in_tree and layer_of(source.path) and not may_include(source, include.target):
            yield Finding(source.path, include.line,
                          f"layer: {layer_of(source.path)}/ may not include {include.target}")


def check_folder(source):
    if source.is_cpp and not layer_of(source.path):
        yield Finding(source.path, 1, "C++ outside the folders of docs/STYLE.md")


def check_headers_used(source):
    for include in source.includes():
        if not include.quoted and include.target in BANNED_HEADERS:
            yield Finding(source.path, include.line,
                          f"include <{include.target}>: {BANNED_HEADERS[include.target]}")


def check_code(source):
    tests = source.folder == "tests" or source.is_test
    may_print = tests or PRINTERS.fullmatch(source.path) is not None
    has_stdout = may_print or source.folder in ("tools", "bench")
    for number, line in enumerate(source.code.split("\n"), 1):
        for pattern, message in BANNED_CODE:
            if pattern.search(line):
                yield Finding(source.path, number, message)
        if not may_print and PRINT.search(line):
            yield Finding(source.path, number, "print with print_line of base/print.h, or base/log.h")
        elif not has_stdout and STDOUT.search(line):
            yield Finding(source.path, number, "standard output belongs to tools/")


def check_disk_structs(source):
    """fs/ takes no structure of the disk apart and puts none together: format/ has a codec for each."""
    if source.folder != "fs" or source.is_test:
        return
    for number, line in enumerate(source.code.split("\n"), 1):
        for match in DISK_STRUCT.finditer(line):
            yield Finding(source.path, number, f"{match.group()}: use a codec of format/; here only its size")


def check_pragma_once(source):
    if source.path.endswith(".h") and not re.search(r"^#pragma once$", source.code, re.MULTILINE):
        yield Finding(source.path, 1, "header without #pragma once")


def check_text(source):
    """What holds for every kind of text file."""
    markdown = source.path.endswith(".md")
    limit = MARKDOWN_COLUMNS_MAX if markdown else LINE_COLUMNS_MAX
    for number, line in enumerate(source.lines, 1):
        if len(line) > limit and not (markdown and line.startswith("|")):  # a table row cannot be broken
            yield Finding(source.path, number, f"line of {len(line)} columns, at most {limit}")
        if line != line.rstrip():
            yield Finding(source.path, number, "space at the end of the line")
        if UNFINISHED.search(line):
            yield Finding(source.path, number, "unfinished work: finish it, or open an issue")
    if source.text and not source.text.endswith("\n"):
        yield Finding(source.path, len(source.lines), "no newline at the end of the file")


DOCUMENT_PATH = re.compile(r"`((?:" + "|".join(sorted(FOLDERS)) + r"|scripts|docs)/[\w./-]+)`")


def check_paths_in_document(source, root):
    """Files that a document names exist: "folder/file.h", "folder/", or "folder/name" without the suffix."""
    for number, line in enumerate(source.lines, 1):
        for match in DOCUMENT_PATH.finditer(line):
            path = match.group(1)
            if not any(os.path.exists(os.path.join(root, path + end)) for end in ("", ".h", ".cc", ".py")):
                yield Finding(source.path, number, f"{path}: no such file")


def check_licence(source):
    head = source.lines[:2] if source.text.startswith("#!") else source.lines[:1]
    if not any(SPDX in line for line in head):
        yield Finding(source.path, 1, f"first line must be '{SPDX}' in a comment")


def check_file_length(source):
    if len(source.lines) > FILE_LINES_MAX:
        yield Finding(source.path, 1, f"file of {len(source.lines)} lines, at most {FILE_LINES_MAX}")


def check_folder_readme(source):
    """What a reader meets first in a folder is short; details belong to docs/."""
    if source.path.endswith("/README.md") and len(source.lines) > FOLDER_README_LINES_MAX:
        yield Finding(source.path, 1,
                      f"README of a folder: {len(source.lines)} lines, at most {FOLDER_README_LINES_MAX}")


def long_share(functions):
    """Share of functions over the limit among those long enough to count; 0 when there are none."""
    counted = [f for f in functions if f.lines >= FUNCTION_LINES_COUNTED]
    return sum(f.lines > FUNCTION_LINES_MAX for f in counted) / len(counted) if counted else 0.0


def check_functions(functions):
    """`functions` of all files of one kind: a few may be long, none very long."""
    share = long_share(functions)
    for function in functions:
        text = f"function {function.name} has {function.lines} lines"
        if function.lines > FUNCTION_LINES_HARD_MAX:
            yield Finding(function.path, function.line, f"{text}, never more than {FUNCTION_LINES_HARD_MAX}")
        elif function.lines > FUNCTION_LINES_MAX and share > LONG_SHARE_MAX:
            yield Finding(function.path, function.line, f"{text}, {share:.1%} exceed {FUNCTION_LINES_MAX}")


def check_lock_table(root):
    """docs/LOCKING.md lists every rank of base/lock_rank.h, in its order, and no other."""
    header, table = os.path.join(root, "base/lock_rank.h"), os.path.join(root, "docs/LOCKING.md")
    if not os.path.exists(header):
        return
    with open(header, encoding="utf-8") as file:
        ranks = [rank for rank in re.findall(r"^\s+(k[A-Z]\w*)", file.read(), re.MULTILINE) if rank != "kEnd"]
    listed = []
    if os.path.exists(table):
        with open(table, encoding="utf-8") as file:
            listed = re.findall(r"^\| *`(k[A-Z]\w*)` *\|", file.read(), re.MULTILINE)
    for rank in ranks:
        if rank not in listed:
            yield Finding("docs/LOCKING.md", 1, f"lock rank {rank} of base/lock_rank.h is not in the table")
    for rank in listed:
        if rank not in ranks:
            yield Finding("docs/LOCKING.md", 1, f"lock rank {rank} is not in base/lock_rank.h")
    if sorted(ranks) == sorted(listed) and ranks != listed:
        yield Finding("docs/LOCKING.md", 1, "lock ranks are not in the order of base/lock_rank.h")


def words_not_used(root):
    """{word: instead} of the table at the end of docs/GLOSSARY.md."""
    path = os.path.join(root, "docs/GLOSSARY.md")
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        table = file.read().partition("\n## Not used\n")[2]
    rows = re.findall(r"^\| ([^|]+?) \| ([^|]+?) \|$", table, re.MULTILINE)
    return {word: instead for words, instead in rows for word in words.split(", ") if word != "word"}


def check_words(sources, root):
    """The words that docs/GLOSSARY.md does not use stand nowhere else: in code, its comments, documents."""
    words = words_not_used(root)
    if not words:
        return
    # "judge" also in judged and judge_rows, not inside of another word.
    pattern = re.compile(rf"(?<![a-z])(?:{'|'.join(map(re.escape, words))})", re.IGNORECASE)
    for source in sources:
        is_text = source.is_cpp or source.path.endswith(".md")
        if not is_text or source.path == "docs/GLOSSARY.md" or source.path.startswith("docs/decisions/"):
            continue
        for number, line in enumerate(source.text.split("\n"), 1):
            for match in pattern.finditer(line):
                word = match.group().lower()
                yield Finding(source.path, number, f"{word}: say {words[word]} (docs/GLOSSARY.md)")


TYPE_DEFINITION = re.compile(r"^(?:namespace\s*(?P<space>[\w:]*)\s*\{|(?P<end>\})"
                             r"|(?:struct|class|union)\s+(?:[A-Z_]+\([^)]*\)\s*)?(?P<type>\w+)"
                             r"(?:\s+final)?\s*(?::[^:;][^;]*)?\{)", re.MULTILINE)


def named_types(source):
    """(qualified name, line) of every type defined in column one outside an anonymous namespace."""
    spaces = []
    for match in TYPE_DEFINITION.finditer(source.code):
        if match.group("type"):
            if "" not in spaces:
                yield "::".join([*spaces, match.group("type")]), source.code.count("\n", 0, match.start()) + 1
        elif match.group("end"):
            # Also ends a function or a type in column one; those never outnumber what they opened.
            closes_space = source.text.startswith("}  // namespace", match.start())
            spaces = spaces[:-1] if closes_space else spaces
        else:
            spaces.append(match.group("space"))


def check_type_names(sources):
    """One definition per name: of two, the linker keeps one and the other's users get it in silence."""
    seen = {}
    for source in sources:
        for name, line in named_types(source) if source.is_cpp else []:
            if name in seen:
                yield Finding(source.path, line, f"type {name} is also defined in {seen[name]}")
            seen.setdefault(name, f"{source.path}:{line}")


def is_script(source):
    name = os.path.basename(source.path)
    return (source.path.endswith((".py", ".sh")) or source.text.startswith("#!")
            or name in ("meson.build", "meson_options.txt", ".clang-format"))


def check_source(source, root):
    """Every rule that looks at one file."""
    if source.path.endswith(".md"):
        return [*check_text(source), *check_folder_readme(source), *check_paths_in_document(source, root)]
    if not source.is_cpp and not is_script(source):
        return []
    findings = [*check_text(source), *check_licence(source), *check_file_length(source)]
    if source.is_cpp:
        findings += [*check_layers(source, root), *check_folder(source), *check_headers_used(source),
                     *check_code(source), *check_disk_structs(source), *check_pragma_once(source)]
    return findings
