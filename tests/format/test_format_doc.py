# SPDX-License-Identifier: MIT
"""The checker of docs/FORMAT.md itself: it must notice what it is there for."""

import os
import subprocess
import sys

import pytest

import format_doc

HERE = os.path.dirname(os.path.abspath(__file__))
GOOD = """### `DiskPair`, 12 bytes

| offset | bytes | field | meaning |
|---|---|---|---|
| 0 | 4 | `left` | one |
| 4 | 8 | `right` | other |
"""
LAYOUT = ["struct DiskPair 12", "field DiskPair left 0 4", "field DiskPair right 4 8"]


def run_checker(tmp_path, text, layout):
    layout = layout + [f"field DiskFiller f{index} 0 1" for index in range(200)]
    rows = "".join(f"| {index} | 1 | `g{index}` | x |\n" for index in range(200))
    layout += ["struct DiskFill 200"] + [f"field DiskFill g{index} {index} 1" for index in range(200)]
    layout = [line for line in layout if "DiskFiller" not in line]
    text += "\n### `DiskFill`, 200 bytes\n\n| offset | bytes | field | meaning |\n|---|---|---|---|\n" + rows
    document = tmp_path / "FORMAT.md"
    document.write_text(text)
    program = tmp_path / "layout"
    program.write_text("#!/bin/sh\ncat <<END\n" + "\n".join(layout) + "\nEND\n")
    program.chmod(0o755)
    done = subprocess.run([sys.executable, os.path.join(HERE, "format_doc.py"), str(program), str(document)],
                          capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_good_document_passes(tmp_path):
    status, output = run_checker(tmp_path, GOOD, LAYOUT)
    assert status == 0, output


@pytest.mark.parametrize("old, new, said", [
    ("| 4 | 8 | `right`", "| 4 | 4 | `right`", "only in the document: field DiskPair right 4 4"),
    ("`right`", "`write`", "only in the headers: field DiskPair right 4 8"),
    ("12 bytes", "16 bytes", "only in the document: struct DiskPair 16"),
    ("| 4 | 8 | `right` | other |\n", "", "only in the headers: field DiskPair right 4 8"),
    ("| other |", "| |", "has no meaning"),
])
def test_drift_is_noticed(tmp_path, old, new, said):
    assert old in GOOD
    status, output = run_checker(tmp_path, GOOD.replace(old, new), LAYOUT)
    assert status == 1
    assert said in output


def test_numbers():
    assert format_doc.number("4096") == 4096
    assert format_doc.number("`64 KiB`") == 65536
    assert format_doc.number("0x10") == 16
    assert format_doc.number("2^42 - 1") == 2**42 - 1
    assert format_doc.number("many") is None
    assert format_doc.number("4 EiB") is None


def test_unreadable_field_is_an_error(tmp_path):
    header = tmp_path / "odd.h"
    header.write_text("struct DiskOdd {\n    std::array<uint8_t, 4> bytes;\n};\n")
    done = subprocess.run([sys.executable, os.path.join(HERE, "layout_source.py"), str(tmp_path / "out.cc"),
                           str(header)], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "DiskOdd" in done.stderr
