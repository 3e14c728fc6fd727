#!/usr/bin/env python3
"""Looks into the program that was built for what OVERTAKE_HARDEN asks for: hardening_test.py PROGRAM."""
import re
import subprocess
import sys
import unittest

PROGRAM = ""


def readelf(*options: str) -> str:
    return subprocess.run(["readelf", "--wide", *options, PROGRAM], check=True, capture_output=True, text=True).stdout


class Hardening(unittest.TestCase):
    def test_is_position_independent(self):
        self.assertRegex(readelf("--file-header"), r"Type:\s+DYN")
        self.assertRegex(readelf("--dynamic"), r"FLAGS_1.*\bPIE\b")

    def test_addresses_are_read_only_once_it_runs(self):
        self.assertIn("GNU_RELRO", readelf("--program-headers"))
        self.assertRegex(readelf("--dynamic"), r"FLAGS_1.*\bNOW\b")

    def test_stack_holds_no_code(self):
        stack = re.search(r"GNU_STACK\s.*", readelf("--program-headers")).group()
        self.assertIn(" RW ", stack)

    def test_checks_are_compiled_in(self):
        symbols = readelf("--dyn-syms")
        self.assertIn("__stack_chk_fail", symbols)
        self.assertRegex(symbols, r"__(memcpy|read|poll|recv)_chk")
        self.assertIn("__glibcxx_assert_fail", symbols)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop()
    unittest.main()
