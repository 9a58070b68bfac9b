# SPDX-License-Identifier: Apache-2.0
"""Test cases that print TAP, one line a case, in the order in which they stand in the file."""
import sys
import traceback


class Lacking(Exception):
    """What this machine does not have and a case needs: it fails, and its sentence says all."""


class Tap:
    def __init__(self):
        self.cases = []

    def case(self, name):
        """Decorator: a case passes unless it raises."""
        def add(function):
            self.cases.append((name, function))
            return function
        return add

    def done(self):
        """Run the cases named on the command line, or all; exit 1 if any failed."""
        wanted = sys.argv[1:]
        cases = [case for case in self.cases if not wanted or any(w in case[0] for w in wanted)]
        print(f"1..{len(cases)}", flush=True)
        failed = 0
        for number, (name, function) in enumerate(cases, 1):
            try:
                function()
                print(f"ok {number} - {name}", flush=True)
            except Exception as error:  # a failed case must not hide the others
                failed += 1
                print(f"not ok {number} - {name}", flush=True)
                for line in str(error).splitlines() if isinstance(error, Lacking) else traceback.format_exc().splitlines():
                    print(f"# {line}", flush=True)
        sys.exit(bool(failed))
