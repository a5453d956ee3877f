#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Of targets as `meson introspect --targets` lists them, the files that are installed and those of targets
named, as Ninja calls them: installed_targets.py BUILD [TARGET...]"""

import json
import os
import sys

build, named = os.path.realpath(sys.argv[1]), sys.argv[2:]
for target in json.load(sys.stdin):
    if target["installed"] or target["name"] in named:
        print(*(os.path.relpath(file, build) for file in target["filename"]))
