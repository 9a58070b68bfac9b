#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pools that cannot be had, that are too small, or that go away: said clearly, and answered rightly
all the same; and what `tarn pool` says of them. Over the engine double, whose pages may be of any
size."""
import os
import pathlib
import subprocess
import time

from lib.pool import Place, fake_answer
from lib.server import (FAKE, NEVER, PROGRAM, FakeServer, Server, nothing_is_held,
                        prompt_tokens_add_up, wait_for)
from lib.tap import Tap

tap = Tap()
MIB = 1 << 20
DEFAULT = f"/dev/shm/tarn-{os.getuid()}"


def text(length, name):
    return (f"{name} " + "abcdefghijklmnopqrstuvwxyz" * (length // 26 + 1))[:length]


def answers_rightly(server, prompt, token_count=8):
    """Ask; how many tokens of the prompt were not computed."""
    said, answer = server.complete(prompt, max_tokens=token_count)
    assert said == fake_answer(prompt, token_count), (said, server.log)
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def settled(server):
    wait_for(lambda: nothing_is_held(server.metrics()), 30, "its saves end")


def confined(*arguments, setup, page_bytes=0, load_until="", **named):
    """A server over the engine double in a mount namespace of its own, after the shell commands
    `setup`."""
    root = [] if os.getuid() == 0 else ["--map-root-user"]
    command = ["unshare", *root, "--mount", "sh", "-c", f"set -e; {setup}; exec \"$@\"", "sh",
               FAKE, "fake"]
    return Server(*arguments, command=command, env={"TARN_FAKE_PAGE_BYTES": str(page_bytes),
                                                      "TARN_FAKE_LOAD_UNTIL": load_until},
                  **named)


def refused(server, *parts):
    try:
        assert server.process.wait(60) == 1, server.log
    finally:
        server.kill()
    for part in parts:
        assert part in server.log, (part, server.log)


@tap.case("a directory that cannot be written: a named pool refuses the start and says why")
def _():
    with Place() as place:
        folder = place.folder / "read-only"
        folder.mkdir(mode=0o700)
        refused(confined("--pool", f"{folder}/p.pool,size=64MiB", wait=False, load_until=NEVER,
                         setup=f"mount -t tmpfs -o ro,mode=0700 tmpfs {folder}"),
                str(folder), "Read-only file system", "--pool none")


@tap.case("a default pool that cannot be had: the server runs without, says so once, and the gauge "
          "is set")
def _():
    for setup in ("mount -t tmpfs -o ro tmpfs /dev/shm", "mount -t tmpfs -o size=16m tmpfs /dev/shm"):
        with confined(setup=setup) as server:
            assert server.metrics()["tarn_pool_inert"] == 1
            assert server.log.count("nothing is shared") == 1, server.log
            answers_rightly(server, text(300, "alone"))
            assert server.get("/health").status == 200


@tap.case("random bytes where the default pool should be: the server runs without, and leaves them")
def _():
    setup = ("mount -t tmpfs tmpfs /dev/shm; umask 077; "
             f"mkdir {DEFAULT}; "
             f"head -c 100000 /dev/urandom > {DEFAULT}/default.v1.pool; "
             f"sha256sum {DEFAULT}/default.v1.pool > {DEFAULT}/sum")
    with confined(setup=setup) as server:
        assert server.metrics()["tarn_pool_inert"] == 1
        assert "default.v1.pool" in server.log and "nothing is shared" in server.log, server.log
        answers_rightly(server, text(300, "alone"))
        inside = pathlib.Path(f"/proc/{server.process.pid}/root{DEFAULT}")
        content = (inside / "default.v1.pool").read_bytes()
        assert len(content) == 100000 and not content.startswith(b"TARNPOOL")


@tap.case("a file that is no pool, or one of another version: a named pool refuses the start and "
          "leaves it as it was")
def _():
    with Place(size="64MiB") as place:
        with place.fake_server() as server:
            assert server.stop() == 0
        pool = bytearray(place.pool.read_bytes())
        pool[8] += 1  # the version stands behind the magic
        for content in (bytes(pool), os.urandom(1 << 20), b"", b"not a pool\n"):
            place.pool.write_bytes(content)
            refused(place.fake_server(wait=False, load_until=NEVER), str(place.pool), "--pool none")
            assert place.pool.read_bytes() == content
        refused(FakeServer(pool="/nowhere/at/all/p.pool", wait=False, load_until=NEVER),
                "/nowhere/at/all")
        place.pool.unlink()
        refused(FakeServer(pool=f"{place.pool},size=1024", wait=False, load_until=NEVER),
                "below the least size")


@tap.case("a file system too small for the least pool: a named pool refuses the start")
def _():
    with Place() as place:
        folder = place.folder / "small"
        folder.mkdir(mode=0o700)
        refused(confined("--pool", f"{folder}/p.pool,size=64MiB", wait=False, load_until=NEVER,
                         setup=f"mount -t tmpfs -o size=16m,mode=0700 tmpfs {folder}"),
                "16 MiB", "too little")


@tap.case("a file system that fills up before the pool: pages make room for each other, "
          "nothing falls")
def _():
    with Place() as place:
        folder = place.folder / "small"
        folder.mkdir(mode=0o700)
        with confined("--pool", f"{folder}/p.pool,size=256MiB", "--ctx", "512",
                      "--kv-size", "160MiB", page_bytes=2 * MIB,
                      setup=f"mount -t tmpfs -o size=80m,mode=0700 tmpfs {folder}") as server:
            for number in range(12):  # 11 pages each
                answers_rightly(server, text(32 * 11, f"prompt {number}"))
                settled(server)
            metrics = server.metrics()
            assert 0 < metrics["tarn_pool_used_bytes"] <= 80 * MIB, metrics
            assert metrics["tarn_pool_evicted_pages_total"] + \
                metrics['tarn_pool_save_failures_total{reason="full"}'] > 80, metrics
            assert "will not reach its size" in server.log, server.log
            assert server.get("/health").status == 200


@tap.case("a request larger than the whole pool is answered rightly, as often as it comes")
def _():
    room = ("--ctx", "2048", "--kv-size", "160MiB")
    with Place(size="64MiB") as place, \
            place.fake_server(*room, page_bytes=2 * MIB) as one, \
            place.fake_server(*room, page_bytes=2 * MIB) as two:
        prompt = text(32 * 50, "long")  # 50 pages; 31 fit the pool
        for _ in range(3):
            for server in (one, two):
                answers_rightly(server, prompt)
                answers_rightly(server, text(32 * 60, "another"))  # drives it from the device
                settled(server)
        for server in (one, two):
            metrics = server.metrics()
            assert metrics['tarn_requests_total{outcome="ok"}'] == 6
            assert metrics["tarn_pool_used_bytes"] <= 64 * MIB
        assert os.stat(place.pool).st_size <= 64 * MIB
        assert os.stat(place.pool).st_blocks * 512 <= 64 * MIB


@tap.case("a page larger than the pool takes is computed every time, and that is counted")
def _():
    with Place(size="64MiB") as place, \
            place.fake_server("--ctx", "128", "--kv-size", "256MiB", "--max-batch-size", "2",
                              page_bytes=32 * MIB) as one:
        for _ in range(2):
            answers_rightly(one, text(100, "large"))
        settled(one)
        metrics = one.metrics()
        assert metrics["tarn_pool_save_pages_total"] == 0, metrics
        assert metrics['tarn_pool_save_failures_total{reason="full"}'] > 0, metrics


@tap.case("many different prompts in a small pool: the old make way for the new, on all servers")
def _():
    room = ("--ctx", "512", "--kv-size", "70MiB")
    with Place(size="100MiB") as place, place.fake_server(*room, page_bytes=MIB) as one, \
            place.fake_server(*room, page_bytes=MIB) as two:
        for number in range(30):
            server, other = ((one, two), (two, one))[number % 2]
            prompt = text(32 * 12 + 5, f"prompt {number}")
            answers_rightly(server, prompt)
            settled(server)
            # What came last is there, however full the pool is.
            assert answers_rightly(other, prompt) == 32 * 12, number
        evicted = [server.metrics()["tarn_pool_evicted_pages_total"] for server in (one, two)]
        assert sum(evicted) > 200, evicted
        for server in (one, two):
            prompt_tokens_add_up(server.metrics())
        assert os.stat(place.pool).st_blocks * 512 <= 100 * MIB


@tap.case("a pool that is removed under its servers: they answer on, and meet again in a new one")
def _():
    with Place(size="64MiB") as place, place.fake_server() as one, place.fake_server() as two:
        prompt = text(500, "before")
        answers_rightly(one, prompt)
        settled(one)
        place.pool.unlink()
        tries = iter(range(10000))

        def has_met():
            prompt = text(500, f"try {next(tries)}")
            answers_rightly(one, prompt)
            settled(one)
            return place.pool.exists() and answers_rightly(two, prompt) > 0
        wait_for(has_met, 60, "they share a pool again")
        for server in (one, two):
            assert server.log.count("was removed") == 1, server.log


@tap.case("servers that nobody asks anything leave a pool that is removed")
def _():
    with Place(size="64MiB") as place, place.fake_server() as one, place.fake_server() as two:
        answers_rightly(one, text(500, "before"))
        settled(one)
        old = place.pool.stat().st_ino
        place.pool.unlink()
        wait_for(lambda: "was removed" in one.log and "was removed" in two.log, 30, "both notice")
        wait_for(lambda: place.pool.exists() and place.pool.stat().st_ino != old, 30, "a new pool")


@tap.case("a pool file that is cut short under its servers ends none of them")
def _():
    with Place(size="64MiB") as place, place.fake_server() as one, place.fake_server() as two:
        prompt = "cut " * 100
        answers_rightly(one, prompt)
        settled(one)
        assert answers_rightly(two, prompt) == 384
        os.truncate(place.pool, 0)
        for turn in range(5):
            for server in (one, two):
                answers_rightly(server, text(300, f"turn {turn}"))
                answers_rightly(server, prompt)
        for server in (one, two):
            wait_for(lambda s=server: answers_rightly(s, text(200, str(time.monotonic()))) >= 0 and
                     s.metrics()["tarn_pool_inert"] == 1, 30, "it leaves the pool")
            wait_for(lambda s=server: "cut short" in s.log, 10, "it says why")
            settled(server)
            assert server.stop() == 0


@tap.case("tarn pool stat and ls tell what servers have put, while they run and after a kill")
def _():
    def tarn_pool(what, *arguments):
        return subprocess.run([PROGRAM, "pool", what, place.pool, *arguments], capture_output=True,
                              text=True, timeout=60)
    with Place(size="64MiB") as place:
        result = tarn_pool("stat")
        assert result.returncode == 1 and f"there is no pool at {place.pool}" in result.stderr, \
            result
        with place.fake_server() as server:
            answers_rightly(server, text(250, "stat"))
            settled(server)
            result = tarn_pool("stat", "--verify")
            assert result.returncode == 0 and "verdict     valid" in result.stdout, result
            assert "processes   1 of 64: pid " in result.stdout, result
            assert "failed their checksum" in result.stdout
            server.process.kill()
            server.process.wait()
        result = tarn_pool("stat")
        assert result.returncode == 0 and "processes   0 of 64" in result.stdout, result
        result = tarn_pool("ls")
        assert result.returncode == 0 and result.stdout.count("tarn/") == 1, result
        assert tarn_pool("stat", "more").returncode == 2
        with open(place.pool, "r+b") as file:
            file.write(b"nonsense")
        result = tarn_pool("stat")
        assert result.returncode == 1 and "it is no Tarn pool" in result.stderr, result


tap.done()
