#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Servers on one pool, over the engine double, which fails a pass whose pages hold a wrong byte."""
import contextlib
import os
import shutil
import subprocess
import tempfile
import time

from lib.pool import image
from lib.server import (NEVER, PROGRAM, SANITIZED, FakeServer, nothing_is_held,
                        prompt_tokens_add_up, wait_for)
from lib.tap import Tap

tap = Tap()
T = 32  # tokens of a page
SOURCE = 'tarn_prompt_tokens_total{{source="{}"}}'


@contextlib.contextmanager
def pool(size="64MiB"):
    """The option that names a new pool, gone afterwards."""
    folder = tempfile.mkdtemp(prefix="tarn-test-", dir="/dev/shm")
    try:
        yield f"{folder}/p.pool,size={size}"
    finally:
        shutil.rmtree(folder)


def cached(server, prompt, **fields):
    """The answer's text and how many prompt tokens were not computed."""
    text, answer = server.complete(prompt, **{"max_tokens": 20, **fields})
    return text, answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def saves_retired(server):
    wait_for(lambda: nothing_is_held(server.metrics()), 10, "its saves retire")


@tap.case("what one server prefilled the other takes from the pool, all full blocks of it")
def _():
    with pool() as name, FakeServer(pool=name) as first, FakeServer(pool=name) as second:
        prefix = "".join(chr(97 + i * 7 % 26) for i in range(1999))
        text, count = cached(first, prefix + "1")
        assert count == 0
        saves_retired(first)
        text_second, count = cached(second, prefix + "2")
        assert count == 1999 // T * T, count
        assert cached(second, prefix + "1") == (text, 1984 // T * T)
        metrics = second.metrics()
        assert metrics[SOURCE.format("pool")] == 1984
        assert prompt_tokens_add_up(metrics) == 4000
        assert metrics['tarn_pool_blocks_total{result="hit"}'] == 62
        with FakeServer() as alone:
            assert alone.complete(prefix + "2", max_tokens=20)[0] == text_second


@tap.case("the whole prompt is never taken: a full last block is computed again")
def _():
    with pool() as name, FakeServer(pool=name) as first, FakeServer(pool=name) as second:
        cached(first, "x" * 4 * T)
        saves_retired(first)
        assert cached(second, "x" * 4 * T)[1] == 3 * T


@tap.case("a restarted server replays what it computed before")
def _():
    with pool() as name:
        with FakeServer(pool=name) as server:
            text, count = cached(server, "remember " * 30)
            assert count == 0 and server.stop() == 0  # its saves are written before it ends
        with FakeServer(pool=name) as server:
            assert cached(server, "remember " * 30) == (text, 270 // T * T)


@tap.case("the next turn of a chat finds the generated blocks, unless they are not saved")
def _():
    for setting, wanted in (("on", 160), ("off", 96)):
        with pool() as name, FakeServer("--save-generated", setting, pool=name) as first, \
                FakeServer(pool=name) as second:
            prompt = "q" * 100
            text, _ = cached(first, prompt, max_tokens=80)
            saves_retired(first)
            assert cached(second, prompt + text + "!")[1] == wanted


@tap.case("salt, prefix, model key and page size each keep pages apart")
def _():
    with pool() as name, FakeServer(pool=name) as first:
        prompt = "apart " * 40
        cached(first, prompt)
        saves_retired(first)
        for options in (["--cache-prefix", "other"], ["--model-key", "other"],
                        ["--page-tokens", "16"]):
            with FakeServer(*options, pool=name) as other:
                assert cached(other, prompt)[1] == 0, options
                assert prompt_tokens_add_up(other.metrics()) == 240
        with FakeServer(pool=name) as other:
            assert cached(other, prompt, cache_salt="tenant")[1] == 0
            assert cached(other, prompt)[1] == 240 // T * T


@tap.case("a producer never asks, a consumer never saves")
def _():
    with pool() as name, FakeServer("--role", "producer", pool=name) as producer, \
            FakeServer("--role", "consumer", pool=name) as consumer:
        cached(consumer, "role " * 50)
        assert consumer.metrics()["tarn_pool_save_pages_total"] == 0
        assert cached(producer, "role " * 50, max_tokens=1)[1] == 0
        saves_retired(producer)
        metrics = producer.metrics()
        assert metrics["tarn_pool_lookups_total"] == 0
        assert metrics['tarn_pool_declined_total{reason="role"}'] > 0
        assert metrics["tarn_pool_save_pages_total"] == 250 // T
        with FakeServer("--role", "consumer", pool=name) as other:
            assert cached(other, "role " * 50)[1] == 224


@tap.case("a client that hangs up while its prompt is loaded from the pool frees its request within 1 s")
def _():
    room = ["--ctx", "1024", "--kv-size", "260MiB"]
    heads = [f"{number} " * 470 for number in range(4)]  # 29 pages of 2 MiB: a moment's load
    caught = 0
    with pool("300MiB") as name, FakeServer(*room, pool=name, page_bytes=2 << 20) as first, \
            FakeServer(*room, pool=name, page_bytes=2 << 20, token_us=5000) as second:
        for head in heads:
            cached(first, head, max_tokens=1)
            saves_retired(first)
        for head in heads:
            before = second.metrics()
            connection = second.begin("/v1/completions", {"prompt": head + "x", "max_tokens": 50})
            wait_for(lambda: second.metrics()["tarn_pool_lookups_total"] >
                     before["tarn_pool_lookups_total"], 10, "it has asked the pool")
            connection.close()
            started = time.monotonic()
            wait_for(lambda: nothing_is_held(second.metrics()), 30, "nothing is held")
            bound_s = 10.0 if SANITIZED else 1.0
            assert time.monotonic() - started < bound_s + 0.5, "too late (and what asking takes)"
            metrics = second.metrics()
            assert metrics['tarn_requests_total{outcome="cancelled"}'] == \
                before['tarn_requests_total{outcome="cancelled"}'] + 1
            line = [line for line in second.lines if "request " in line][-1]
            caught += "computed 0, first token none" in line and "cancelled" in line
        assert caught > 0, second.log  # others were loaded already when the client went
        assert cached(second, heads[0] + "x", max_tokens=1)[1] == 29 * T, second.log
        saves_retired(second)
        assert image(name.split(",")[0])["pinned"] == 0


@tap.case("a corrupted byte in a pooled page is a miss, and the page is counted")
def _():
    with pool() as name:
        path = name.split(",")[0]
        with FakeServer(pool=name) as first:
            prompt = "".join(chr(97 + i * i % 26) for i in range(10 * T + 5))
            text, _ = cached(first, prompt)
            assert first.stop() == 0
        # Find the fifth block by its tokens, each beside the hash of its prefix.
        tokens = b"".join(ord(c).to_bytes(4, "little") for c in prompt[4 * T:5 * T])
        with open(path, "r+b") as file:
            data = file.read()
            at = next(i for i in range(0, len(data) - 8 * T, 8)
                      if data[i:i + 4] == tokens[:4] and
                      all(data[i + 8 * j:i + 8 * j + 4] == tokens[4 * j:4 * j + 4]
                          for j in range(T)))
            file.seek(at + 13)
            file.write(bytes([data[at + 13] ^ 1]))
        with FakeServer(pool=name) as second:
            assert cached(second, prompt) == (text, 4 * T)
            metrics = second.metrics()
            assert metrics["tarn_pool_quarantined_pages_total"] == 1
            assert metrics['tarn_pool_load_failures_total{reason="corrupt"}'] == 1
            assert prompt_tokens_add_up(metrics) == len(prompt)


@tap.case("tarn pool stat and ls tell what servers have put, while they run and after a kill")
def _():
    def tarn_pool(*arguments):
        return subprocess.run([PROGRAM, "pool", *arguments], capture_output=True, text=True,
                              timeout=60)
    with pool() as name:
        path = name.split(",")[0]
        result = tarn_pool("stat", path)
        assert result.returncode == 1 and f"there is no pool at {path}" in result.stderr, result
        with FakeServer(pool=name) as server:
            cached(server, "stat " * 50)
            saves_retired(server)
            result = tarn_pool("stat", path, "--verify")
            assert result.returncode == 0 and "verdict     valid" in result.stdout, result
            assert "processes   1 of 64: pid " in result.stdout, result
            assert "failed their checksum" in result.stdout
            server.process.kill()
            server.process.wait()
        result = tarn_pool("stat", path)
        assert result.returncode == 0 and "processes   0 of 64" in result.stdout, result
        result = tarn_pool("ls", path)
        assert result.returncode == 0 and result.stdout.count("tarn/") == 1, result
        assert tarn_pool("stat", path, "more").returncode == 2
        with open(path, "r+b") as file:
            file.write(b"nonsense")
        result = tarn_pool("stat", path)
        assert result.returncode == 1 and "it is no Tarn pool" in result.stderr, result


@tap.case("a pool smaller than the traffic evicts and stays right")
def _():
    small = ["--ctx", "1024", "--kv-size", "48MiB"]  # pages of 1 MiB: some 50 fit the pool
    with pool() as name, FakeServer(*small, pool=name, page_bytes=1 << 20) as first, \
            FakeServer(*small, pool=name, page_bytes=1 << 20) as second, FakeServer() as alone:
        for turn in range(12):
            for server in (first, second):
                prompt = f"{turn} " * 200
                assert cached(server, prompt)[0] == alone.complete(prompt, max_tokens=20)[0]
            saves_retired(first)
        for server in (first, second):
            saves_retired(server)
            prompt_tokens_add_up(server.metrics())
        evicted = [server.metrics()["tarn_pool_evicted_pages_total"] for server in (first, second)]
        assert sum(evicted) > 50, evicted
        assert second.metrics()[SOURCE.format("pool")] > 1000


@tap.case("a pool file that is cut short under its servers ends none of them")
def _():
    with pool() as name, FakeServer(pool=name) as first, FakeServer(pool=name) as second:
        prompt = "cut " * 100
        text, _ = cached(first, prompt)
        saves_retired(first)
        assert cached(second, prompt) == (text, 384)
        os.truncate(name.split(",")[0], 0)
        for turn in range(5):
            for server in (first, second):
                assert cached(server, "head " * 60 + f"echo:{turn}|")[0] == str(turn)
                assert cached(server, prompt)[0] == text
        for server in (first, second):
            wait_for(lambda s=server: cached(s, f"{time.monotonic()} " * 10) and
                     s.metrics()["tarn_pool_inert"] == 1, 10, "it leaves the pool")
            wait_for(lambda s=server: "cut short" in s.log, 10, "it says why")
            saves_retired(server)
            assert server.stop() == 0


def refused_start(arguments, *parts, **named):
    """It ends with 1 and says all parts, before the model is loaded."""
    server = FakeServer(*arguments, wait=False, load_until=NEVER, **named)
    try:
        assert server.process.wait(30) == 1, server.log
    finally:
        server.kill()
    for part in parts:
        assert part in server.log, (part, server.log)


@tap.case("a named pool that cannot be used refuses the start and is left as it was")
def _():
    with pool() as name:
        path = name.split(",")[0]
        for content in (os.urandom(1 << 20), b"", b"not a pool\n"):
            with open(path, "wb") as file:
                file.write(content)
            refused_start([], path, pool=name)
            with open(path, "rb") as file:
                assert file.read() == content
        os.unlink(path)
        refused_start([], "/nowhere/at/all", pool="/nowhere/at/all/p.pool")
        refused_start([], "below the least size", pool=f"{path},size=1024")


@tap.case("a pool file of another version is refused")
def _():
    with pool() as name:
        path = name.split(",")[0]
        with FakeServer(pool=name) as server:
            server.stop()
        with open(path, "r+b") as file:
            head = file.read(64)
            for at in range(8, 16):  # the version stands behind the magic
                if head[at]:
                    file.seek(at)
                    file.write(bytes([head[at] + 1]))
                    break
        refused_start([], path, pool=name)


@tap.case("with /dev/shm too small the default pool is done without, and the gauge says so")
def _():
    shell = ("mount -t tmpfs -o size=16m tmpfs /dev/shm && "
             f"exec {os.environ.get('TARN_FAKE_SERVER', 'build/fake-server')} \"$@\"")
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", shell, "sh", "fake"]
    from lib.server import Server
    with Server(command=command) as server:
        assert server.metrics()["tarn_pool_inert"] == 1
        assert server.log.count("cannot be used") == 1
        assert server.complete("echo:alone|", max_tokens=20)[0] == "alone"


tap.done()
