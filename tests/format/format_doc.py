#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Compares every table of docs/FORMAT.md with what the compiler makes of the headers, in both directions.

usage: format_doc.py LAYOUT_PROGRAM FORMAT.md
"""

import re
import subprocess
import sys
from collections import namedtuple

HEADING = re.compile(r"^#+ +(.*)$")
STRUCT_HEADING = re.compile(r"^`(Disk\w+)`, (\d+) bytes$")
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "PiB": 1 << 50}

Table = namedtuple("Table", "heading columns rows")


def number(text):
    """4096, 0x10, `64 KiB` or 2^20 - 1 as an integer; None when it is none of them."""
    text = text.strip("` ")
    match = re.fullmatch(r"2\^(\d+)(?: - (\d+))?", text)
    if match:
        return (1 << int(match.group(1))) - int(match.group(2) or 0)
    match = re.fullmatch(r"(0x[0-9a-fA-F]+|\d+)(?: (\w+))?", text)
    if not match or (match.group(2) and match.group(2) not in UNITS):
        return None
    return int(match.group(1), 0) * UNITS.get(match.group(2), 1)


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def read_tables(path):
    tables, heading = [], ""
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    for index, line in enumerate(lines):
        match = HEADING.match(line)
        if match:
            heading = match.group(1)
        is_rule = re.fullmatch(r"\|[-| :]+\|", line) is not None
        if is_rule and index > 0 and lines[index - 1].startswith("|"):
            rows = []
            for row in lines[index + 1:]:
                if not row.startswith("|"):
                    break
                rows.append(cells(row))
            tables.append(Table(heading, cells(lines[index - 1]), rows))
    return tables


def documented(tables):
    """The facts the document states, in the words of the layout program."""
    facts = []
    for table in tables:
        match = STRUCT_HEADING.match(table.heading)
        if table.columns[:3] == ["offset", "bytes", "field"]:
            if not match:
                sys.exit(f"table of fields under heading '{table.heading}', which names no structure")
            facts.append(f"struct {match.group(1)} {match.group(2)}")
            facts += [f"field {match.group(1)} {row[2].strip('`')} {number(row[0])} {number(row[1])}"
                      for row in table.rows]
        elif table.columns[:2] == ["constant", "value"]:
            facts += [f"constant {row[0].strip('`')} {number(row[1])}" for row in table.rows]
        elif table.columns[0] == "value" and table.columns[1].startswith("`"):
            facts += [f"enumerator {table.columns[1].strip('`')} {row[1].strip('`')} {number(row[0])}"
                      for row in table.rows]
        elif table.columns[:3] == ["feature", "class", "bit"]:
            facts += [f"feature {row[0].strip('`')}|{row[1]}|{row[2]}|{row[3]}" for row in table.rows]
        elif table.columns[:2] == ["version", "date"]:
            facts += ["version " + "|".join(row[:3]) for row in table.rows]
        elif table.columns[:2] == ["id", "profile"]:
            facts += ["profile " + "|".join(row[:7]) for row in table.rows]
        elif table.columns[0] == "member of at least":
            facts += ["plan " + "|".join(row) for row in table.rows]
    return facts


def check_rows_fit(tables):
    """Fields of a structure follow each other without a gap, in the order of the document."""
    findings = []
    for table in tables:
        if table.columns[:3] != ["offset", "bytes", "field"]:
            continue
        end = 0
        for row in table.rows:
            if number(row[0]) != end:
                findings.append(f"{table.heading}: {row[2]} at {row[0]}, the field before it ends at {end}")
            end = (number(row[0]) or 0) + (number(row[1]) or 0)
            if len(row) < 4 or not row[3]:
                findings.append(f"{table.heading}: {row[2]} has no meaning")
        if not table.heading.endswith(f", {end} bytes"):
            findings.append(f"{table.heading}: fields end at {end}")
    return findings


def main():
    program, document = sys.argv[1:]
    actual = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
    tables = read_tables(document)
    facts = documented(tables)
    findings = check_rows_fit(tables)
    findings += [f"stated twice: {fact}" for fact in sorted(set(f for f in facts if facts.count(f) > 1))]
    findings += [f"only in the document: {fact}" for fact in facts if fact not in set(actual)]
    findings += [f"only in the headers: {fact}" for fact in actual if fact not in set(facts)]
    for finding in findings:
        print(finding)
    print(f"{len(actual)} facts of the headers, {len(facts)} of the document, {len(findings)} findings")
    if len(actual) < 200:
        sys.exit("too few facts: the headers were not understood")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
