#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tarn bench mooncake` in its short form: what it prints and writes, what it refuses, what it leaves. Not the ratios."""
import json
import re
import signal
import subprocess
import sys

from lib.cluster import PROGRAM, Site, children_of, is_alive
from lib.mooncake import die_with_parent
from lib.server import environment
from lib.tap import Tap

tap = Tap()
PYTHON = ["--python", sys.executable]  # the one that the wheel is for
SIZES = ("64 x 512 KiB", "16 x 3 MiB")
JUDGED = {f"{what}, {size}" for what in ("put", "get") for size in SIZES}
OTHER = {f"{what}, {size}" for what in ("put, header apart", "put unchecked", "get unchecked") for size in SIZES}


def bench(site, *arguments):
    """With the name by which a shell calls a program that it found on the PATH."""
    return subprocess.run(["tarn", "bench", "mooncake", "--runs", "1", *PYTHON, *map(str, arguments)], executable=PROGRAM,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=250,
                          env=environment({"TMPDIR": str(site.temporary), "MOONCAKE_CONFIG_PATH": "/nowhere"}), preexec_fn=die_with_parent)


def is_whole(result, path):
    """The table and the file say the same, of all rows."""
    assert result.returncode == 0, (result.stdout, result.stderr[-4000:])
    written = json.loads(path.read_text())
    rows = {row["row"]: row for row in written["rows"]}
    assert set(rows) == JUDGED | OTHER | {"exists, 64 keys"} and len(rows) == len(written["rows"]), rows
    for name, row in rows.items():
        assert row["tarn"] > 0 and row["other"] > 0 and abs(row["value"] - row["tarn"] / row["other"]) < 1e-6, row
        assert row.get("bar") == (1.2 if name.startswith("exists") else 0.9 if name in JUDGED else None), row
        line = next(line for line in result.stdout.splitlines() if line.startswith(name + "  "))
        assert f"{row['tarn']:.2f}" in line and f"{row['value']:.2f}" in line, line
        assert line.endswith("misses") == row.get("misses", False), line
    assert written["bench"] == "mooncake" and written["runs"] == 1 and written["cpu"] and written["wheel"], written
    assert "the bridge" in written["tarn_calls"] and written["master"] in result.stdout, written
    return written


@tap.case("without a master the bench has a pool of its own, and leaves nothing of it")
def _():
    with Site() as site:
        result = bench(site, "--json", site.path("out.json"))
        written = is_whole(result, site.path("out.json"))
        assert written["own_pool"] and re.match(r"127\.0\.0\.1:\d+$", written["master"]), written
        assert "a donor of 512 MiB" in result.stdout
        site.is_clean()


@tap.case("a master that is there is joined, with the memory that others lend")
def _():
    with Site() as site, site.master() as master, site.donor(master, segment="256MiB") as donor:
        donor.wait_for("lending")
        result = bench(site, "--master", master.address, "--json", site.path("out.json"))
        written = is_whole(result, site.path("out.json"))
        assert not written["own_pool"] and written["master"] == master.address, written
        assert donor.stop() == 0 and "blocks of 4160 bytes" in donor.log, donor.log  # the canary's alone


@tap.case("a bench that is told to end stops what it started and removes what it made")
def _():
    with Site() as site, site.run("bench", "mooncake", *PYTHON) as command:
        command.wait_for("bench mooncake: 64 x 512 KiB")
        children = children_of(command.process.pid)
        assert len(children) == 3, children  # master, donor, Python
        command.process.send_signal(signal.SIGTERM)
        assert command.end() == 1 and "interrupted" in command.log, command.log
        assert not any(map(is_alive, children)), children
        site.is_clean()


@tap.case("a Python that is not there, or has no package, is named")
def _():
    with Site() as site:
        log = site.refused("bench", "mooncake", "--python", "/nowhere/python")
        assert "/nowhere/python" in log and "--python" in log, log
        without = site.script("python", f'exec {sys.executable} -c "raise SystemExit(\'no package here\')"')
        log = site.refused("bench", "mooncake", "--python", without)
        assert "the Python process ended; its last line: no package here" in log, log


tap.done()
