#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Writes the table of all on-disk fields for the field fuzzer.

usage: field_source.py OUTPUT.cc HEADER...

Structures and fields are found in the headers themselves, so that a new one is fuzzed without anybody
thinking of it; offsets and sizes come from the compiler, which also checks that the fields cover their
structure.
"""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "format"))
import layout_source  # noqa: E402  pylint: disable=wrong-import-position

TYPED_FIELD = re.compile(r"^\s*([\w:]+) (\w+)(\[[^\]]*\])?;")


def fields_of(name, body):
    for line in map(layout_source.without_comment, body.splitlines()):
        match = TYPED_FIELD.match(line)
        if match:
            yield match.group(1), match.group(2)
        elif layout_source.MEMBER_LINE.match(line):
            sys.exit(f"{name}: cannot read field '{line}'")


def main():
    output, headers = sys.argv[1], sys.argv[2:]
    texts = []
    for header in headers:
        with open(header, encoding="utf-8") as file:
            texts.append(file.read())
    rows, checks = [], []
    for name, body in (found for text in texts for found in layout_source.STRUCT.findall(text)):
        sizes = []
        for kind, field in fields_of(name, body):
            rows.append(f'    {{"{name}", sizeof({name}), "{field}", "{kind}", offsetof({name}, {field}), '
                        f"sizeof({name}::{field}), sizeof({kind})}},")
            sizes.append(f"sizeof({name}::{field})")
        checks.append(f"static_assert(sizeof({name}) == {' + '.join(sizes)});")
    lines = ["// Made by tests/fuzz/field_source.py.", "#include <cstddef>",
             '#include "tests/fuzz/field_table.h"']
    lines += [f'#include "format/{os.path.basename(header)}"' for header in headers]
    lines += ["namespace cowraid::test {", *checks, "namespace {", "constexpr FieldRow kRows[] = {", *rows,
              "};", "}", "std::span<const FieldRow> field_rows()", "{", "    return kRows;", "}", "}", ""]
    with open(output, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))


if __name__ == "__main__":
    main()
