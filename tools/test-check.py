#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What check.py counts: cases that truly ran, and nothing that was skipped, crashed or did not run."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import check  # noqa: E402

CASES = [  # (what, Meson's result, output, passed, failed, what a failure's line must say)
    ("a TAP program counts case by case", "OK", "1..2\nok 1 - a\nok 2 - b\n# ok - tests\n", 2, 0, ""),
    ("a failed case", "ERROR", "1..2\nok 1 - a\nnot ok 2 - b breaks\n# why\n", 1, 1, "b breaks"),
    ("a failed case says why", "ERROR", "1..2\nnot ok 1 - b\n# why\nok 2 - c\n# said of c\n", 1, 1, "b\n    # why"),
    ("a skipped case is a failure", "OK", "1..2\nok 1 - a\nok 2 - b # SKIP no model\n", 1, 1, "no model"),
    ("a crash fails all that did not run", "ERROR", "1..3\nok 1 - a\n", 1, 2, "2 of its cases did not run"),
    ("a crash after the last case", "ERROR", "1..1\nok 1 - a\n", 1, 1, "after its last case"),
    ("a time-out", "TIMEOUT", "1..2\nok 1 - a\n", 1, 1, "timeout"),
    ("two groups in one program", "OK", "1..1\nok 1 - a\n1..2\nok 1 - b\nok 2 - c\n", 3, 0, ""),
    ("a program without TAP counts once", "OK", "all is well\n", 1, 0, ""),
    ("and fails once", "FAIL", "oh no\n", 0, 1, "fail"),
    ("a skipped program is a failure", "SKIP", "", 0, 1, "skip"),
    ("a program that skips all", "SKIP", "1..0 # SKIP no network\n", 0, 1, "skip"),
    ("words in a log are no cases", "OK", "1..1\nok 1 - a\nokay\nnot okay\n", 1, 0, ""),
]

failed = 0
for what, result, output, passed, bad, said in CASES:
    got = check.cases_of("test", result, output)
    if got[0] != passed or len(got[1]) != bad or bad and not any(said in line for line in got[1]) \
            or any("said of c" in line for line in got[1]):
        failed += 1
        print(f"{what}: got {got}")
print(f"{len(CASES) - failed} passed, {failed} failed")
sys.exit(bool(failed))
