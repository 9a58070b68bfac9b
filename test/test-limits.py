#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pools that cannot be had, that are too small, or that go away: said clearly, and answered rightly
all the same. Over the engine double, whose pages may be of any size."""
import os
import pathlib

from lib.pool import Place, fake_answer
from lib.server import FAKE, NEVER, Server, nothing_is_held, wait_for
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


@tap.case("a directory that cannot be written: without the default pool the server runs, and says "
          "so once")
def _():
    with confined(setup="mount -t tmpfs -o ro tmpfs /dev/shm") as server:
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
                wait_for(lambda: nothing_is_held(server.metrics()), 30, "its saves end")
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
                wait_for(lambda: nothing_is_held(server.metrics()), 30, "its saves end")
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
        wait_for(lambda: nothing_is_held(one.metrics()), 30, "its saves end")
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
            wait_for(lambda: nothing_is_held(server.metrics()), 30, "its saves end")
            # What came last is there, however full the pool is.
            assert answers_rightly(other, prompt) == 32 * 12, number
        evicted = [server.metrics()["tarn_pool_evicted_pages_total"] for server in (one, two)]
        assert sum(evicted) > 200, evicted
        assert os.stat(place.pool).st_blocks * 512 <= 100 * MIB


@tap.case("a pool that is removed under its servers: they answer on, and meet again in a new one")
def _():
    with Place(size="64MiB") as place, place.fake_server() as one, place.fake_server() as two:
        prompt = text(500, "before")
        answers_rightly(one, prompt)
        wait_for(lambda: nothing_is_held(one.metrics()), 30, "its saves end")
        place.pool.unlink()
        tries = iter(range(10000))

        def has_met():
            prompt = text(500, f"try {next(tries)}")
            answers_rightly(one, prompt)
            wait_for(lambda: nothing_is_held(one.metrics()), 30, "its saves end")
            return place.pool.exists() and answers_rightly(two, prompt) > 0
        wait_for(has_met, 60, "they share a pool again")
        for server in (one, two):
            assert server.log.count("was removed") == 1, server.log


@tap.case("servers that nobody asks anything leave a pool that is removed")
def _():
    with Place(size="64MiB") as place, place.fake_server() as one, place.fake_server() as two:
        answers_rightly(one, text(500, "before"))
        wait_for(lambda: nothing_is_held(one.metrics()), 30, "its saves end")
        old = place.pool.stat().st_ino
        place.pool.unlink()
        wait_for(lambda: "was removed" in one.log and "was removed" in two.log, 30, "both notice")
        wait_for(lambda: place.pool.exists() and place.pool.stat().st_ino != old, 30, "a new pool")


tap.done()
