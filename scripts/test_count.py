#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Counts test cases in Meson's testlog.json and in JUnit files: prints "PASSED FAILED".

usage: test_count.py FILE...
       test_count.py --slowest COUNT TESTLOG     prints the tests that took longest, and their seconds
"""

import json
import re
import sys
import xml.etree.ElementTree

DOCTEST_SUMMARY = re.compile(r"test cases:\s*\d+\s*\|\s*(\d+) passed\s*\|\s*(\d+) failed")


def count_program(result):
    """One test program: its doctest cases where it prints a summary, else itself."""
    summaries = DOCTEST_SUMMARY.findall(result.get("stdout") or "")
    passed = sum(int(summary[0]) for summary in summaries)
    failed = sum(int(summary[1]) for summary in summaries)
    if result["result"] in ("OK", "EXPECTEDFAIL"):
        return (passed if summaries else 1), failed
    if result["result"] == "SKIP":
        return 0, 0
    return passed, max(failed, 1)


def count_meson(path):
    with open(path, encoding="utf-8") as file:
        return [count_program(json.loads(line)) for line in file if line.strip()]


def count_junit(path):
    counts = []
    for suite in xml.etree.ElementTree.parse(path).getroot().iter("testsuite"):
        number = {name: int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")}
        failed = number["failures"] + number["errors"]
        counts.append((number["tests"] - number["skipped"] - failed, failed))
    return counts


def print_slowest(count, path):
    with open(path, encoding="utf-8") as file:
        results = [json.loads(line) for line in file if line.strip()]
    results.sort(key=lambda result: -result["duration"])
    print("slowest:", ", ".join(f"{result['name'].split(' / ')[-1]} {result['duration']:.0f} s"
                                for result in results[:count]))


def main():
    if sys.argv[1] == "--slowest":
        print_slowest(int(sys.argv[2]), sys.argv[3])
        return
    passed = failed = 0
    for path in sys.argv[1:]:
        for more_passed, more_failed in count_junit(path) if path.endswith(".xml") else count_meson(path):
            passed += more_passed
            failed += more_failed
    print(passed, failed)


if __name__ == "__main__":
    main()
