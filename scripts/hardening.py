#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints which protections programs were built with. Exit 1 if one lacks any that the machine has.

  scripts/hardening.py PROGRAM...
"""
import os
import platform
import re
import subprocess
import sys


def readelf(option, program):
    command = ["readelf", "-W", option, program]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def segment_flags(headers, name):
    found = re.search(rf"^\s*{name}\s+(?:0x\w+\s+){{5}}(\S[ RWE]*?)\s+0x", headers, re.MULTILINE)
    return found.group(1) if found else ""


def protections(program):
    headers, dynamic = readelf("--program-headers", program), readelf("--dynamic", program)
    symbols = readelf("--dyn-syms", program)
    found = {
        "PIE": re.search(r"Type:\s+DYN", readelf("--file-header", program)) is not None,
        "RELRO": "GNU_RELRO" in headers,
        "BIND_NOW": re.search(r"FLAGS.*\bNOW\b", dynamic) is not None,
        "NX": "GNU_STACK" in headers and "E" not in segment_flags(headers, "GNU_STACK"),
        "canary": "__stack_chk_fail" in symbols,
        "FORTIFY": re.search(r"\b__\w+_chk(@|\b)", symbols.replace("__stack_chk_fail", "")) is not None,
    }
    if platform.machine() == "x86_64":
        # The instruction, not the mark in the header: where the distribution's startup files have no mark,
        # as in Debian 12, the linker leaves it out.
        with open(program, "rb") as file:
            found["ENDBR64"] = file.read().count(b"\xf3\x0f\x1e\xfa") > 10
    return found


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__.strip())
    lacking = False
    for index, program in enumerate(sys.argv[1:]):
        found = protections(program)
        if index == 0:
            print(f"{'program':24}" + "".join(f"{name:>9}" for name in found))
        words = "".join(f"{'yes' if has else 'no':>9}" for has in found.values())
        print(f"{os.path.basename(program):24}" + words)
        lacking = lacking or not all(found.values())
    sys.exit(1 if lacking else 0)


main()
