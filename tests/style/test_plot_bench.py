# SPDX-License-Identifier: MIT
"""The picture of a benchmark: every line, name and value is in it."""

import json
import subprocess
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[2] / "scripts" / "plot_bench.py"
OPTIONS = {"profile": "raid5", "members": 4, "pattern": "randwrite", "block_bytes": 4096, "writers": 2}


def plot(document):
    return subprocess.run([PROGRAM], input=json.dumps(document), capture_output=True, text=True, check=False)


def series(name, *rounds):
    return {"name": name, "options": OPTIONS, "rounds": [
        {"bytes_per_second": sum(ticks), "tick_ns": 10**8, "bytes_per_tick": ticks} for ticks in rounds]}


def test_lines_names_and_values():
    ticks = [1000000, 2000000, 4000000]
    picture = plot({"series": [series("plug=on", [1], ticks, [9000000]), series("a<b&c", [500000])]}).stdout
    assert picture.startswith("<svg ") and picture.endswith("</svg>\n")
    assert picture.count("<polyline") == 2
    assert "plug=on" in picture and "a&lt;b&amp;c" in picture
    assert ",95.0'" in picture  # 40 MB/s of 50: 40 + 275 * 0.2


def test_what_is_no_measurement_is_named():
    failed = plot({"error": {"message": "--size: too small"}})
    assert failed.returncode == 1 and failed.stderr == "--size: too small\n" and not failed.stdout
