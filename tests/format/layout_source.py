#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Writes a C++ program that prints what the compiler makes of the on-disk headers.

usage: layout_source.py OUTPUT.cc HEADER...

The fields, constants and enumerators are found in the headers themselves, so that none can be forgotten; the
numbers come from the compiler, so that none can be misread. tests/format/format_doc.py compares the output
with docs/FORMAT.md.
"""

import os
import re
import sys

STRUCT = re.compile(r"^struct (Disk\w+) \{\n(.*?)^\};", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"^\s*[\w:]+ (\w+)(?:\[[^\]]*\])?;")
MEMBER_LINE = re.compile(r"^\s*\S.*;")
CONSTANT = re.compile(r"^inline constexpr [\w:]+ (k\w+)(\[[^\]]*\])?\s*=", re.MULTILINE)
ENUM = re.compile(r"^enum class (\w+) : \w+ \{\n(.*?)^\};", re.MULTILINE | re.DOTALL)
ENUMERATOR = re.compile(r"^\s*(k\w+) = ")


def without_comment(line):
    return line.split("//")[0].rstrip()


def struct_prints(text):
    for name, body in STRUCT.findall(text):
        yield f'    std::printf("struct {name} %zu\\n", sizeof({name}));'
        for line in map(without_comment, body.splitlines()):
            match = FIELD.match(line)
            if match:
                field = match.group(1)
                yield (f'    std::printf("field {name} {field} %zu %zu\\n", offsetof({name}, {field}), '
                       f"sizeof({name}::{field}));")
            elif MEMBER_LINE.match(line):
                sys.exit(f"{name}: cannot read field '{line}'")


def constant_prints(text):
    for name, array in CONSTANT.findall(text):
        if array:
            yield f"    for (size_t i = 0; i < std::size({name}); ++i)"
            yield f'        std::printf("constant {name}[%zu] %" PRIu64 "\\n", i, uint64_t{{{name}[i]}});'
        else:
            yield f'    std::printf("constant {name} %" PRIu64 "\\n", uint64_t{{{name}}});'


def enum_prints(text):
    for name, body in ENUM.findall(text):
        for line in map(without_comment, body.splitlines()):
            match = ENUMERATOR.match(line)
            if match:
                value = f"static_cast<uint64_t>({name}::{match.group(1)})"
                yield f'    std::printf("enumerator {name} {match.group(1)} %" PRIu64 "\\n", {value});'


TABLES = """
    for (const Feature& feature : features())
        std::printf("feature %s|%s|%u|%s\\n", feature.name, feature_class_name(feature.feature_class),
                    feature.bit, feature.reason);
    for (const FormatVersion& version : format_versions())
        std::printf("version %u|%s|%s\\n", version.version, version.date, version.change);
    for (const Profile& profile : profiles())
        std::printf("profile %u|%s|%u|%u|%u|%u|%u\\n", static_cast<uint32_t>(profile.id), profile.name,
                    profile.copies, profile.parity, profile.min_members, profile.max_columns,
                    profile.tolerance);
    for (const uint64_t size : {uint64_t{64} << 20, uint64_t{1} << 30, uint64_t{64} << 30}) {
        const MemberRecord plan = *plan_member_layout(size);
        std::printf("plan %" PRIu64 "|%" PRIu64 "|%" PRIu64 " %" PRIu64 "|%" PRIu64 "|%" PRIu64 " %" PRIu64
                    "|%" PRIu64 " %" PRIu64 "\\n",
                    size >> 20, plan.slots_offset >> 20, plan.map_offset[0] >> 20, plan.map_offset[1] >> 20,
                    plan.map_bytes >> 20, plan.intent_log_offset >> 20, plan.intent_log_bytes >> 20,
                    plan.fsync_log_offset >> 20, plan.fsync_log_bytes >> 20);
    }
"""


def main():
    output, headers = sys.argv[1], sys.argv[2:]
    texts = []
    for header in headers:
        with open(header, encoding="utf-8") as file:
            texts.append(file.read())
    lines = ["// Made by tests/format/layout_source.py.", "#include <cinttypes>", "#include <cstddef>",
             "#include <cstdio>", "#include <iterator>", '#include "format/feature_table.h"',
             '#include "format/profile.h"', '#include "format/superblock_codec.h"']
    lines += [f'#include "format/{os.path.basename(header)}"' for header in headers]
    lines += ["using namespace cowraid;", "int main()", "{"]
    for text in texts:
        lines += [*struct_prints(text), *constant_prints(text), *enum_prints(text)]
    lines += [TABLES, "    return 0;", "}", ""]
    with open(output, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))


if __name__ == "__main__":
    main()
