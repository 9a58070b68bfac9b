#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Build and test every flavour, and count. Usage: check.py [--long] [plain|asan|tsan|fuzz|tidy…]

Run after tools/setup. Without names: all but tidy, and tidy too with --long. The last line is
`N passed, N failed`, of test cases that truly ran: a case of a TAP program each, else a program each.
Whatever was skipped, did not run or crashed counts as failed.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIMES_TIMEOUT = {"plain": 3, "asan": 6, "tsan": 10}  # flavour -> how many times its time-out a test may take
FUZZ_SECONDS, FUZZ_SECONDS_LONG = 5, 60
CASE = re.compile(r"^(ok|not ok)\b[\s\d-]*(.*)")
FAILURES_TOLD, LINES_TOLD, CHARACTERS_TOLD = 8, 24, 1500  # at the end: failures told whole; lines of each; of a line


class Tally:
    def __init__(self):
        self.passed, self.failures = 0, []

    def add(self, passed, failures):
        self.passed += passed
        self.failures += failures

    def summary(self):
        return f"{self.passed} passed, {len(self.failures)} failed"


def cases_of(name, result, output):
    """How many cases of one program passed, and what is to be said of the others; what they said themselves, indented."""
    plans = re.findall(r"^1\.\.(\d+)", output, re.M)
    if not plans:
        return (1, []) if result == "OK" else (0, [f"{name}: {result.lower()}"])
    passed, failures, seen, is_told = 0, [], 0, False
    for line in output.splitlines():
        case = CASE.match(line)
        if not case:
            if failures and is_told:
                failures[-1] += f"\n    {line}"
        else:
            seen += 1
            is_told = case[1] == "not ok"
            skipped = re.search(r"#\s*skip\b(.*)", case[2], re.I)
            if case[1] == "ok" and not skipped:
                passed += 1
            else:
                failures.append(f"{name}: {case[2]}" + (" (skipped)" if skipped else ""))
    missing = sum(map(int, plans)) - seen
    if missing > 0:
        failures.append(f"{name}: {missing} of its cases did not run ({result.lower()})")
        failures += [f"{name}: a case that did not run"] * (missing - 1)
    if result != "OK" and not failures:
        failures.append(f"{name}: {result.lower()} after its last case")
    return passed, failures


def build(flavour):
    return subprocess.run([ROOT / "tools/build", flavour]).returncode == 0


def run_flavour(name, long):
    if not build(name):
        return 0, [f"{name}: the build failed"]
    folder = ROOT / ("build" if name == "plain" else f"build-{name}")
    log = folder / "meson-logs/testlog.json"
    log.unlink(missing_ok=True)
    long = long and name == "plain"  # the long forms would take sanitizer builds many hours
    multiplier = TIMES_TIMEOUT[name] * (20 if long else 1)
    command = ["meson", "test", "-C", folder, "--no-rebuild", "--print-errorlogs", "-t", str(multiplier)]
    subprocess.run(without_randomness(name) + command, env=environment(long))
    if not log.exists():
        return 0, [f"{name}: no test ran"]
    passed, failures = 0, []
    for line in log.read_text().splitlines():
        test = json.loads(line)
        good, bad = cases_of(f"{name}: {test['name'].split(' / ')[-1]}", test["result"], test.get("stdout", ""))
        passed += good
        failures += bad
    return passed, failures


def environment(long):
    """TARN_TEST_LONG is set or it is not: tests read no value of it."""
    rest = {name: value for name, value in os.environ.items() if name != "TARN_TEST_LONG"}
    return {**rest, "TARN_TEST_LONG": "1"} if long else rest


def without_randomness(flavour):
    """The ThreadSanitizer of GCC 12 cannot map its shadow where a kernel randomises addresses widely."""
    bits = pathlib.Path("/proc/sys/vm/mmap_rnd_bits")
    wide = flavour == "tsan" and bits.exists() and int(bits.read_text()) > 28
    return ["setarch", "--addr-no-randomize"] if wide else []


def run_fuzz(long):
    if not build("fuzz"):
        return 0, ["fuzz: the build failed"]
    seconds = FUZZ_SECONDS_LONG if long else FUZZ_SECONDS
    targets = [program for program in sorted((ROOT / "build-fuzz/fuzz").glob("fuzz-*"))
               if program.is_file() and os.access(program, os.X_OK)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
        good = list(threads.map(lambda program: run_fuzz_target(program, seconds), targets))
    failures = [f"{program.name}: see above" for program, is_good in zip(targets, good) if not is_good]
    return (sum(good), failures) if targets else (0, ["fuzz: there are no targets"])


def run_fuzz_target(program, seconds):
    name = program.name.removeprefix("fuzz-")
    found = program.parent / f"corpus-{name}"  # grows from run to run; seeds are never written to
    found.mkdir(exist_ok=True)
    seeds = ROOT / "fuzz/corpus" / name
    command = [program, f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=2048", "-max_len=65536",
               f"-artifact_prefix={program.parent}/failed-{name}-", found, *([seeds] if seeds.is_dir() else [])]
    result = subprocess.run(command, text=True, errors="replace", stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, timeout=seconds + 120)
    done = re.findall(r"Done (\d+) runs", result.stdout)
    if result.returncode != 0 or not done:
        print(result.stdout[-6000:])
        return False
    print(f"fuzz-{name}: {done[-1]} runs in {seconds} s")
    return True


def run_tidy():
    if not build("plain"):
        return 0, ["tidy: the build failed"]
    good = subprocess.run([ROOT / "tools/clang-tidy"]).returncode == 0
    return (1, []) if good else (0, ["tidy: see above"])


def run_part(name, long):
    """One flavour's cases; whatever goes wrong with running them is a failed case, too."""
    try:
        if name == "fuzz":
            return run_fuzz(long)
        return run_tidy() if name == "tidy" else run_flavour(name, long)
    except Exception:
        traceback.print_exc(file=sys.stdout)
        return 0, [f"{name}: see above"]


def shortened(failure):
    """Its first line, and as much of its last ones as the end of a log has room for."""
    first, *lines = failure.splitlines()
    half = CHARACTERS_TOLD // 2
    return "\n".join([first, *(line if len(line) <= 2 * half else f"{line[:half]} ... {line[-half:]}" for line in lines[-LINES_TOLD:])])


def main(arguments):
    long = "--long" in arguments
    names = [name for name in arguments if name != "--long"]
    if set(names) - {*TIMES_TIMEOUT, "fuzz", "tidy"}:
        sys.exit(__doc__)
    tally = Tally()
    for name in names or [*TIMES_TIMEOUT, "fuzz", *(["tidy"] if long else [])]:
        print(f"check: {name}", flush=True)
        started = time.monotonic()
        part = Tally()
        part.add(*run_part(name, long))
        tally.add(part.passed, part.failures)
        print(f"check: {name}: {part.summary()}, {time.monotonic() - started:.0f} s", flush=True)
    for number, failure in enumerate(tally.failures):
        print(f"failed: {shortened(failure) if number < FAILURES_TOLD else failure.splitlines()[0]}")
    print(tally.summary())
    return 1 if tally.failures or not tally.passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
