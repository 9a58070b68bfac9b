#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each test that docs/faults.md names is in the tree. Usage: test-faults.py ROOT"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
rows = [line for line in (root / "docs/faults.md").read_text().splitlines() if line.startswith("| ")][1:]
tests = [path.read_text() for folder in ("src", "test") for path in (root / folder).rglob("*")
         if path.suffix in (".c", ".py") and re.search("test|conformance", path.name)]
# A C test is a function and is listed; a Python case is a string, maybe in two pieces.
code = re.sub(r'"\s*\n\s*"', "", "\n".join(tests))

passed = failed = 0
print(f"1..{len(rows)}")
for number, row in enumerate(rows, 1):
    names = re.findall(r"`([^`]+)`", row.rsplit("|", 2)[1])
    lost = [name for name in names if len(re.findall(rf"\b{re.escape(name)}\b", code)) < (2 if "_" in name and " " not in name else 1)]
    good = names and not lost
    print(f"{'ok' if good else 'not ok'} {number} - {row.split('|')[1].strip()}")
    for name in lost:
        print(f"# no test is called {name!r}")
    failed += not good
sys.exit(bool(failed))
