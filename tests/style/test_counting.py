# SPDX-License-Identifier: MIT
"""scripts/test_count.py: a test that failed is never counted as passed, however it failed."""

import json
import os
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SUMMARY = "[doctest] test cases: {} | {} passed | {} failed | 0 skipped\n"


def count(name, text):
    with tempfile.TemporaryDirectory(prefix="cw-count-") as folder:
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        run = subprocess.run([os.path.join(ROOT, "scripts/test_count.py"), path], capture_output=True,
                             text=True, check=True)
    return run.stdout.split()


def count_meson(*results):
    lines = [json.dumps({"name": "t", "result": result, "stdout": stdout}) for result, stdout in results]
    return count("testlog.json", "\n".join(lines) + "\n")


class Counting(unittest.TestCase):
    def test_doctest_cases_are_counted(self):
        good = [("OK", SUMMARY.format(5, 5, 0)), ("OK", SUMMARY.format(2, 2, 0))]
        self.assertEqual(count_meson(*good), ["7", "0"])
        self.assertEqual(count_meson(("FAIL", SUMMARY.format(5, 3, 2))), ["3", "2"])

    def test_a_program_without_summary_is_one_test(self):
        self.assertEqual(count_meson(("OK", "done\n"), ("OK", "")), ["2", "0"])

    def test_crash_and_timeout_are_failures(self):
        self.assertEqual(count_meson(("FAIL", ""), ("TIMEOUT", ""), ("ERROR", "")), ["0", "3"])
        self.assertEqual(count_meson(("FAIL", SUMMARY.format(5, 5, 0))), ["5", "1"])

    def test_skipped_is_neither(self):
        self.assertEqual(count_meson(("SKIP", "")), ["0", "0"])

    def test_junit(self):
        suite = '<testsuite tests="9" failures="2" errors="1" skipped="3"></testsuite>'
        text = f"<testsuites>{suite}</testsuites>"
        self.assertEqual(count("pytest.xml", text), ["3", "3"])


if __name__ == "__main__":
    unittest.main()
