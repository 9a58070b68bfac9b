#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Connectors by preset and by module: what is resolved counts, and what will not do is named."""
import os
import pathlib
import subprocess
import tempfile

from lib.server import PROGRAM, FakeServer, nothing_is_held, wait_for
from lib.tap import Tap

MODULE = os.environ["TARN_WRAP_MODULE"]
WRAPPED = ("--connector-module", MODULE, "--connector-symbol", "wrap_entry")
T = 32  # tokens of a page

tap = Tap()


def run(*arguments, config=None):
    """`tarn serve` of a model that is not there: a connector that will do comes to that."""
    with tempfile.TemporaryDirectory() as folder:
        if config:
            file = pathlib.Path(folder) / "t.yaml"
            file.write_text(config)
            arguments = (*arguments, "--config", str(file))
        result = subprocess.run([PROGRAM, "serve", "/nowhere/m.gguf", "--port", "0", *arguments],
                                capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        assert result.returncode == 1, result
        return result.stderr.replace(folder, "")


def refused(log, *parts):
    for part in parts:
        assert part in log, (part, log)
    assert log.count("tarn: error: ") == 1 and "/nowhere/m.gguf" not in log, log


@tap.case("a module that wraps Tarn's connector shares pages with servers that use the preset")
def _():
    with tempfile.TemporaryDirectory(prefix="tarn-test-", dir="/dev/shm") as folder:
        pool = f"{folder}/p.pool,size=64MiB"
        with FakeServer(pool=pool) as preset, FakeServer(*WRAPPED, pool=pool) as module:
            assert f"connector: tarn, wrap_entry() of module {MODULE}, which is Tarn's own" in module.log
            assert "wrap: open for tarn serve" in module.log and "connector:" not in preset.log
            text, _ = preset.complete("p" * 300, max_tokens=4)
            wait_for(lambda: nothing_is_held(preset.metrics()), 10, "its saves retire")
            again, answer = module.complete("p" * 300, max_tokens=4)
            assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 300 // T * T
            assert text == again and f"wrap: offer of {300 // T * T} tokens" in module.log
            # the module works on this program's state, not on a copy: its counters are ours
            assert module.metrics()['tarn_pool_blocks_total{result="hit"}'] == 300 // T


@tap.case("a preset fills in only what was not set")
def _():
    # the symbol is the preset's, the module is ours (which links the library that has it)
    log = run("--connector", "tarn", "--connector-module", MODULE)
    assert f"tarn_connector_ops() of module {MODULE}, which is Tarn's own" in log, log
    assert "/nowhere/m.gguf" in log
    assert "/nowhere/m.gguf" in run("--connector", "tarn")
    assert "/nowhere/m.gguf" in run("--connector-symbol", "tarn_connector_ops")
    refused(run("--connector-symbol", "wrap_entry"), "no connector wrap_entry", "--connector-module")
    refused(run("--connector-module", MODULE), f"which function of module {MODULE}?",
            "--connector-symbol")


@tap.case("the configuration file names preset and module alike")
def _():
    log = run(config=f"pool:\n  connector: {{module: {MODULE}, symbol: wrap_entry}}\n")
    assert "connector: tarn, wrap_entry()" in log and "/nowhere/m.gguf" in log, log
    assert "/nowhere/m.gguf" in run(config="pool:\n  connector: tarn\n")
    refused(run(config="pool:\n  connector: trn\n"), "/t.yaml:2: pool.connector: 'trn' is no preset",
            "there are: tarn")


@tap.case("an unknown preset lists the known ones")
def _():
    refused(run("--connector", "lm"), "--connector: 'lm' is no preset; there are: tarn",
            "--connector-module")


@tap.case("a module, symbol or table that will not do is refused with its file, symbol and version")
def _():
    symbol = ("--connector-module", MODULE, "--connector-symbol")
    refused(run("--connector-module", "/nowhere/x.so", "--connector-symbol", "f"),
            "module /nowhere/x.so cannot be loaded", "No such file")
    refused(run("--connector-module", "/etc/passwd", "--connector-symbol", "f"),
            "module /etc/passwd cannot be loaded")
    refused(run(*symbol, "florb"), f"module {MODULE} has no symbol florb")
    refused(run(*symbol, "wrap_nothing"), "wrap_nothing()", MODULE, "does not speak version 1")
    refused(run(*symbol, "wrap_short"), "wrap_short()", MODULE, "are needed for version 1")
    refused(run(*symbol, "wrap_old"), "wrap_old()", MODULE, "is of version 99", "speaks version 1")
    refused(run(*symbol, "wrap_without_open"), "wrap_without_open()", MODULE, "lacks open()")


@tap.case("where Tarn's pool is, is refused for another connector, by what it resolved to")
def _():
    other = ("--connector-module", MODULE, "--connector-symbol", "wrap_other")
    refused(run(*other, "--pool", "/dev/shm/p"),
            "--pool: '/dev/shm/p' is for Tarn's own connector, and this one is 'other'")
    refused(run(*other, config="pool:\n  role: both\n  path: /dev/shm/p\n"),
            "/t.yaml:3: pool.path: '/dev/shm/p' is for Tarn's own connector")
    # named as a module, but Tarn's own all the same; and what every connector takes
    assert "/nowhere/m.gguf" in run(*WRAPPED, "--pool", "/dev/shm/p")
    assert "/nowhere/m.gguf" in run(*other, "--role", "producer", "--load-deadline", "1s")


@tap.case("without a pool no connector is loaded")
def _():
    log = run("--pool", "none", "--connector-module", "/nowhere/x.so", "--connector-symbol", "f")
    assert "x.so" not in log and "/nowhere/m.gguf" in log, log


tap.done()
