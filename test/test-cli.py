#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program's face: help, version, manual, and what it says when it is called wrongly."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile

from lib.server import wait_for
from lib.tap import Tap

PROGRAM = os.environ["TARN_PROGRAM"]
ROOT = pathlib.Path(os.environ["TARN_SOURCE_ROOT"])


def run(*arguments, **variables):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL, env={**os.environ, **variables})


def refused(result, *parts):
    """Exit status 2, one line on standard error that says all `parts`, nothing on the output."""
    assert result.returncode == 2, result
    assert result.stdout == "" and result.stderr.startswith("tarn: error: "), result
    assert result.stderr.count("\n") == 1, result
    for part in parts:
        assert part in result.stderr, (part, result.stderr)


tap = Tap()


@tap.case("tarn --help lists the commands")
def _():
    result = run("--help")
    assert result.returncode == 0 and result.stderr == ""
    for command in ("serve", "master", "donor", "pool", "doctor", "bench"):
        assert f"\n  {command} " in result.stdout
    assert run("help").stdout == result.stdout == run("-h").stdout


@tap.case("tarn --version says the version of the build file")
def _():
    version = (ROOT / "meson.build").read_text().split("version: '")[1].split("'")[0]
    assert run("--version").stdout == f"tarn {version}\n"


@tap.case("the manual page in the tree is the one the program prints")
def _():
    assert run("--man").stdout == (ROOT / "docs/man/tarn.1").read_text(), \
        "run: build/tarn --man > docs/man/tarn.1"


@tap.case("no command, an unknown command and a near miss are refused with advice")
def _():
    refused(run(), "tarn --help")
    refused(run("frobnicate"), "unknown command 'frobnicate'", "tarn --help")
    refused(run("sevre"), "did you mean serve?")


@tap.case("tarn serve --help shows every option with its default")
def _():
    result = run("serve", "--help")
    assert result.returncode == 0
    for part in ("--host ADDRESS", "[127.0.0.1]", "--max-batch-tokens TOKENS", "[512]",
                 "[the user's default pool on this host]"):
        assert part in result.stdout, part


@tap.case("tarn serve --print-config shows flag, environment and default")
def _():
    result = run("serve", "m.gguf", "--print-config", "--ctx=64", TARN_PORT="81")
    rows = {line.split()[0]: line.split() for line in result.stdout.splitlines()}
    assert rows["ctx"] == ["ctx", "64", "flag"]
    assert rows["port"] == ["port", "81", "TARN_PORT"]
    assert rows["host"] == ["host", "127.0.0.1", "default"]
    assert rows["MODEL"] == ["MODEL", "m.gguf", "argument"]


@tap.case("tarn serve --print-config shows the file and line that a value came from")
def _():
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "t.yaml"
        file.write_text("model: m.gguf\nserver:\n  port: 82\n  max_waiting: 9\n")
        result = run("serve", "--config", str(file), "--print-config", TARN_MAX_WAITING="10")
        rows = {line.split()[0]: line.split() for line in result.stdout.splitlines()}
        assert rows["MODEL"] == ["MODEL", "m.gguf", f"{file}:1"]
        assert rows["port"] == ["port", "82", f"{file}:3"]
        assert rows["max-waiting"] == ["max-waiting", "10", "TARN_MAX_WAITING"]
        assert rows["config"] == ["config", str(file), "flag"]
        file.write_text("server:\n  prot: 82\n")
        refused(run("serve", "--config", str(file)), f"{file}:2: ", "'prot'", "did you mean port?")
        refused(run("serve", TARN_CONFIG=folder), folder, "Is a directory")


@tap.case("each example of a configuration is read whole")
def _():
    files = sorted((ROOT / "examples").rglob("*.yaml"))
    assert len(files) == 5
    for file in files:
        result = run("serve", "--config", str(file), "--print-config")
        assert result.returncode == 0 and result.stderr == "", (file, result.stderr)
        keys = [line for line in file.read_text().splitlines() if line.startswith("  ")]
        shown = [line for line in result.stdout.splitlines() if f" {file}:" in line]
        assert len(shown) == len(keys) > 3, (file, keys, shown)


@tap.case("wrong options are refused by name, with value and advice")
def _():
    refused(run("serve", "m.gguf", "--prot", "1"), "unknown option --prot", "did you mean --port?")
    refused(run("serve", "m.gguf", "--port", "x"), "--port", "'x'")
    refused(run("serve", "m.gguf", "--kv-size", "4GB"), "--kv-size", "write 4GiB")
    refused(run("serve", "m.gguf", TARN_POLL="perhaps"), "TARN_POLL", "'perhaps'", "on|off")
    refused(run("serve", "m.gguf", "--pool", "/x,sise=1GiB"), "--pool", "size=SIZE")
    refused(run("serve", "a", "b"), "unexpected argument 'b'")
    refused(run("serve"), "which model?")


@tap.case("every subcommand names the option or word that it does not know")
def _():
    for command in (["master"], ["donor"]):
        refused(run(*command, "--bogus"), "unknown option --bogus", f"tarn {command[0]} --help")
        refused(run(*command, "word"), "unexpected argument 'word'")
    for command in (["pool", "stat"], ["bench", "pool"], ["bench", "engine"], ["bench", "mooncake"]):
        refused(run(*command, "--bogus"), "unknown option --bogus", "--help")
        refused(run(*command, "-x"), "unknown option -x")
        refused(run(*command, "one", "two"), "unexpected argument")
    refused(run("pool", "stat", "--verfy"), "did you mean --verify?")
    refused(run("pool", "frob"), "'frob'", "stat or ls")
    refused(run("pool"), "stat|ls")
    refused(run("bench"), "engine, mooncake or pool")
    refused(run("bench", "frob"), "'frob'", "engine, mooncake or pool")
    refused(run("bench", "engine", TARN_MODEL=""), "which model?")
    refused(run("bench", "pool", "--runs", "x"), "--runs", "'x'")
    refused(run("bench", "pool", "--runs=4"), "--runs", "4 is even")
    refused(run("bench", "pool", "--runs", "1000"), "--runs", "1 to 101")
    refused(run("bench", "mooncake", "--runs=2"), "--runs", "2 is even")
    refused(run("bench", "pool", "--runs"), "--runs needs a value")
    refused(run("bench", "pool", "--check=yes"), "--check takes no value")
    refused(run("bench", "engine", "--kv-type", "f64"), "--kv-type", "'f64'", "f16|f32")


@tap.case("a file that is no pool is looked at, and nobody is told to remove it")
def _():
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"precious" * 1000)
        file.flush()
        for what in ("stat", "ls"):
            result = run("pool", what, file.name)
            assert result.returncode == 1 and file.name in result.stderr, result
            assert "no Tarn pool" in result.stderr and "remove" not in result.stderr, result


class PoolBench:
    """A bench of the pool, in a process group of its own with its children."""

    def __enter__(self):
        self.process = subprocess.Popen([PROGRAM, "bench", "pool", "--runs", "1"], text=True,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                        start_new_session=True)
        return self

    def __exit__(self, *_):
        if self.is_alive():
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)
        self.process.stderr.close()

    def proc(self, name):
        return pathlib.Path(f"/proc/{self.process.pid}/{name}").read_text()

    def folder(self):
        found = wait_for(lambda: re.search(r"/dev/shm/tarn-bench-\w+", self.proc("maps")), 60,
                         "its folder is there")
        return pathlib.Path(found[0])

    def wait_for_children(self):
        wait_for(lambda: self.proc(f"task/{self.process.pid}/children"), 120, "it has children")

    def is_alive(self):
        try:
            os.killpg(self.process.pid, 0)
            return True
        except ProcessLookupError:
            return False


@tap.case("a bench of the pool that is interrupted leaves nothing in shared memory")
def _():
    for number, has_children in ((signal.SIGINT, False), (signal.SIGTERM, False),
                                 (signal.SIGINT, True)):
        with PoolBench() as bench:
            place = bench.folder()
            wait_for((place / "p.pool").exists, 60, "its pool is there")
            if has_children:
                bench.wait_for_children()
            os.killpg(bench.process.pid, number)  # as a terminal does
            assert bench.process.wait(60) == -number and not place.exists()
            assert "interrupted" in bench.process.stderr.read()
            assert not bench.is_alive()


@tap.case("a bench of the pool that is killed takes its children along")
def _():
    with PoolBench() as bench:
        place = bench.folder()
        bench.wait_for_children()
        try:
            bench.process.kill()
            bench.process.wait(30)
            wait_for(lambda: not bench.is_alive(), 30, "its children are gone")
        finally:
            shutil.rmtree(place)


@tap.case("every value of a metric's label is explained in docs/operations.md")
def _():
    source = (ROOT / "src/obs/metric-list.h").read_text().replace("\\\n", "")
    rows = re.findall(r'X\(\w+, \w+, "(\w+)",\s*"\w+=\\"(\w+)\\""', source)
    assert len(rows) > 30, rows
    explained, name = set(), None
    for line in (ROOT / "docs/operations.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 3:
            name = cells[0].strip("`") or name
            explained |= {(name, value) for value in re.findall(r"`(\w+)`", cells[1])}
    assert not set(rows) - explained, set(rows) - explained
    known = {name for name, _ in rows}
    assert not {row for row in explained if row[0] in known} - set(rows)


@tap.case("a model that is not there and a pool that is not there are named")
def _():
    result = run("serve", "/nowhere/m.gguf", "--pool", "none", "--port", "0")
    assert result.returncode == 1 and "/nowhere/m.gguf" in result.stderr
    result = run("pool", "stat", "/nowhere/p.pool")
    assert result.returncode == 1 and "/nowhere/p.pool" in result.stderr


@tap.case("each command says what it takes")
def _():
    for command in ("serve", "master", "donor", "pool", "doctor", "bench"):
        result = run(command, "--help")
        assert result.returncode == 0 and result.stdout.startswith(f"usage: tarn {command} ")


tap.done()
