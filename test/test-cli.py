#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program's face: help, version, manual, and what it says when it is called wrongly."""
import os
import pathlib
import subprocess

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
    for command in ("serve", "pool", "bench"):
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


@tap.case("wrong options are refused by name, with value and advice")
def _():
    refused(run("serve", "m.gguf", "--prot", "1"), "unknown option --prot", "did you mean --port?")
    refused(run("serve", "m.gguf", "--port", "x"), "--port", "'x'")
    refused(run("serve", "m.gguf", "--kv-size", "4GB"), "--kv-size", "write 4GiB")
    refused(run("serve", "m.gguf", TARN_POLL="perhaps"), "TARN_POLL", "'perhaps'", "on|off")
    refused(run("serve", "m.gguf", "--pool", "/x,sise=1GiB"), "--pool", "size=SIZE")
    refused(run("serve", "a", "b"), "unexpected argument 'b'")
    refused(run("serve"), "which model?")


@tap.case("a model that is not there and a pool that is not there are named")
def _():
    result = run("serve", "/nowhere/m.gguf", "--pool", "none", "--port", "0")
    assert result.returncode == 1 and "/nowhere/m.gguf" in result.stderr
    result = run("pool", "stat", "/nowhere/p.pool")
    assert result.returncode == 1 and "/nowhere/p.pool" in result.stderr


@tap.case("each command says what it takes")
def _():
    for command in ("serve", "pool", "bench"):
        result = run(command, "--help")
        assert result.returncode == 0 and result.stdout.startswith(f"usage: tarn {command} ")


tap.done()
