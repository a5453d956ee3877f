#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The table of mount options in README, as mount.cowraid prints it.
   scripts/options_table.py MOUNT.COWRAID README [--write]     without --write: says whether they agree"""

import re
import subprocess
import sys

TABLE = re.compile(r"\| option \| what it does \|\n(?:\|.*\n)+")


def main():
    program, readme = sys.argv[1:3]
    table = subprocess.run([program, "--options-table"], check=True, capture_output=True, text=True).stdout
    with open(readme, encoding="utf-8") as file:
        text = file.read()
    if len(TABLE.findall(text)) != 1:
        sys.exit(f"{readme} has not exactly one table of options")
    if "--write" in sys.argv[3:]:
        with open(readme, "w", encoding="utf-8") as file:
            file.write(TABLE.sub(lambda _: table, text))
    elif TABLE.findall(text)[0] != table:
        sys.exit(f"{readme} has another table of options than the program: run {sys.argv[0]} ... --write")
    print(f"{table.count(chr(10)) - 2} options")


main()
