# SPDX-License-Identifier: MIT
"""scripts/long_run.py: its shards are what was asked for, by names that the programs know."""

import argparse
import os
import re
import sys
import unittest
from pathlib import Path

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
import long_run


def source(name):
    return Path(ROOT, name).read_text(encoding="utf-8")


class LongRun(unittest.TestCase):
    def test_pairs_come_in_shards_with_seeds_of_their_own(self):
        shards = list(long_run.pair_shards(Path("bin"), argparse.Namespace(rounds=12)))
        self.assertEqual([shard.environment for shard in shards],
                         [{"COWRAID_PAIR_ROUNDS": str(rounds), "COWRAID_SEED": str(seed)}
                          for seed, rounds in ((1, 5), (2, 5), (3, 2))])
        self.assertEqual(len({shard.name for shard in shards}), 3)
        self.assertEqual(shards[0].command, [Path("bin/volume_test"), "-tc=pairs*"])
        tests = source("tests/filesystem/pairs_test.cc")
        self.assertIn('TEST_CASE("pairs', tests)
        self.assertIn("COWRAID_PAIR_ROUNDS", tests)
        line = "[doctest] test cases: {} | {} passed | 0 failed | 46 skipped"
        self.assertTrue(re.findall(shards[0].pattern, line.format(" 1", "1"), re.MULTILINE))
        self.assertFalse(re.findall(shards[0].pattern, line.format(" 0", "0"), re.MULTILINE))

    def test_crash_replay_knows_every_mode(self):
        modes = {mode.replace("-", "_"): mode == "change-members" for mode in long_run.MODES_OF_CRASH}
        arguments = argparse.Namespace(profile="raid6", members=5, log_blocks=None, states=20000, **modes)
        shards = list(long_run.crash_shards(Path("bin"), arguments))
        self.assertEqual(len(shards), 2)
        self.assertTrue(all("--change-members" in shard.command for shard in shards))
        program = source("tests/crash/crash_main.cc")
        for mode in long_run.MODES_OF_CRASH:
            self.assertIn(f'{{"{mode}", k', program)


if __name__ == "__main__":
    unittest.main()
