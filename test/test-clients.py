#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many clients at once on two servers that share a pool, a third of them hanging up midway:
afterwards nothing is held anywhere, and what was saved is there."""
import contextlib
import random
import threading
import time

import openai

from lib.pool import LONG, TINY, Place, fake_answer, image, pool_is_valid, prompt
from lib.server import SANITIZED, memory_did_not_grow, nothing_is_held, prompt_tokens_add_up, wait_for
from lib.tap import Tap

tap = Tap()
CLIENTS = 16
SECONDS, WARM_UP = (60, 10) if LONG else (6, 3)


class Crowd:
    """Clients, each in a thread, that run turn(number, dice) until time is up."""

    def __init__(self, turn, seconds):
        self.end = time.monotonic() + seconds
        self.failures = []
        self.threads = [threading.Thread(target=self._run, args=(turn, number))
                        for number in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def _run(self, turn, number):
        dice = random.Random(number)
        try:
            while time.monotonic() < self.end:
                turn(number, dice)
        except Exception as error:  # whatever it was, it is the test's to tell
            self.failures.append((number, error))

    def join(self):
        for thread in self.threads:
            thread.join(SECONDS + 120)
            assert not thread.is_alive(), "a client still waits"
        assert not self.failures, self.failures[:3]


def fill(server, prompts):
    """Have the pool hold these, so that the crowd finds them there."""
    for tokens in prompts:
        server.complete(tokens, max_tokens=1, seconds=120)
        wait_for(lambda: nothing_is_held(server.metrics()), 60, "its saves end")


def fill_whole_pool(*servers, token_count):
    """Fill the pool to its last page, and have each server read all of it, so that from here on
    whatever is mapped is resident: memory that grows later is not the pool's."""
    seeds = []
    while servers[0].metrics()["tarn_pool_evicted_pages_total"] == 0:
        seeds.append(f"fill {len(seeds)}")
        fill(servers[0], [prompt(token_count, seed=seeds[-1])])
    for server in servers:
        fill(server, [prompt(token_count, seed=seed) for seed in seeds])


def loaded_pages(*servers):
    return sum(server.metrics()["tarn_pool_load_pages_total"] for server in servers)


def nothing_is_left(place, *servers):
    for server in servers:
        wait_for(lambda: nothing_is_held(server.metrics()), 30, "nothing is held")
        metrics = server.metrics()
        prompt_tokens_add_up(metrics)
        assert metrics['tarn_requests_total{outcome="failed"}'] == 0, metrics
        assert metrics['tarn_requests_total{outcome="cancelled"}'] > 0, metrics
        assert metrics["tarn_pages_abandoned"] == 0, metrics
        assert metrics["tarn_pool_used_bytes"] > 0, metrics
        assert server.get("/health").status == 200
    counts = image(place.pool)
    assert counts["reserved"] == counts["evicting"] == counts["pinned"] == 0, counts
    assert counts["committed"] > 0 and counts["quarantined"] == 0, counts
    pool_is_valid(place.pool)


@tap.case("sixteen of OpenAI's clients on two servers, a third hanging up midway: nothing is held "
          "afterwards, committed pages remain, memory does not grow")
def _():
    room = ("--ctx", "1024", "--kv-size", "2MiB")  # little: much has to come from the pool
    with Place(TINY, size="64MiB") as place, place.server(*room) as one, place.server(*room) as two:
        apis = [openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0,
                              timeout=120) for server in (one, two)]
        counts = {"whole": 0, "streamed": 0, "hung up": 0}

        def turn(number, dice):
            api = apis[number % 2]
            fields = {"model": "model", "temperature": 0, "max_tokens": dice.randrange(1, 60),
                      "prompt": prompt(dice.randrange(400), seed=dice.randrange(8)) +
                      prompt(10, seed=dice.random())}
            if number % 3 == 0:
                stream = api.completions.create(**{**fields, "max_tokens": 400}, stream=True)
                for _ in range(dice.randrange(4)):
                    next(stream, None)
                stream.close()
                counts["hung up"] += 1
            elif dice.random() < 0.5:
                parts = list(api.completions.create(**fields, stream=True))
                assert parts[-1].choices[0].finish_reason in ("length", "stop"), parts[-1]
                counts["streamed"] += 1
            else:
                answer = api.completions.create(**fields)
                assert answer.usage.prompt_tokens == len(fields["prompt"])
                counts["whole"] += 1
        if not SANITIZED:  # slow there, and memory says nothing
            fill_whole_pool(one, two, token_count=1000)
        fill(one, [prompt(400, seed=seed) for seed in range(8)])
        crowd = Crowd(turn, SECONDS)
        time.sleep(WARM_UP)
        before = [server.resident_kib() for server in (one, two)]
        crowd.join()
        nothing_is_left(place, one, two)
        after = [server.resident_kib() for server in (one, two)]
        print(f"# {counts}; KiB: {before}, then {after}")
        assert min(counts.values()) > 0, counts
        assert loaded_pages(one, two) > 0
        for then, now in zip(before, after):
            assert memory_did_not_grow(then, now)
            assert SANITIZED or sum(now.values()) <= 1.05 * sum(then.values()), (then, now)


@tap.case("clients that hang up while their pages are loaded and saved leave nothing behind")
def _():
    page_bytes = 2 << 20  # moving one takes long enough to be hung up on
    room = ("--ctx", "512", "--kv-size", "140MiB")
    with Place(size="300MiB") as place, \
            place.fake_server(*room, page_bytes=page_bytes) as one, \
            place.fake_server(*room, page_bytes=page_bytes) as two:
        heads = ["".join(random.Random(n).choices("abcdefgh", k=12 * 32)) for n in range(8)]

        def turn(number, dice):
            server = (one, two)[number % 2]
            text = dice.choice(heads) + str(dice.random())
            if number % 3 == 0:
                connection = server.begin("/v1/completions", {"prompt": text, "max_tokens": 100})
                with contextlib.closing(connection):
                    time.sleep(dice.random() * 0.05)
            else:
                said, _ = server.complete(text, max_tokens=8, seconds=120)
                assert said == fake_answer(text, 8), (text, said)
        fill(one, heads)
        Crowd(turn, SECONDS).join()
        nothing_is_left(place, one, two)
        assert loaded_pages(one, two) > 0


@tap.case("a client that hangs up while its prompt is loaded from the pool frees its request within 1 s")
def _():
    room = ["--ctx", "1024", "--kv-size", "260MiB"]
    heads = [f"{number} " * 470 for number in range(4)]  # 29 pages of 2 MiB: a moment's load
    caught = 0

    def held_nothing(server):
        wait_for(lambda: nothing_is_held(server.metrics()), 30, "nothing is held")
    with Place(size="300MiB") as place, place.fake_server(*room, page_bytes=2 << 20) as first, \
            place.fake_server(*room, page_bytes=2 << 20, token_us=5000) as second:
        for head in heads:
            first.complete(head, max_tokens=1)
            held_nothing(first)
        for head in heads:
            before = second.metrics()
            connection = second.begin("/v1/completions", {"prompt": head + "x", "max_tokens": 50})
            wait_for(lambda: second.metrics()["tarn_pool_lookups_total"] >
                     before["tarn_pool_lookups_total"], 10, "it has asked the pool")
            connection.close()
            started = time.monotonic()
            held_nothing(second)
            bound_s = 10.0 if SANITIZED else 1.0
            assert time.monotonic() - started < bound_s + 0.5, "too late (and what asking takes)"
            metrics = second.metrics()
            assert metrics['tarn_requests_total{outcome="cancelled"}'] == \
                before['tarn_requests_total{outcome="cancelled"}'] + 1
            line = [line for line in second.lines if "request " in line][-1]
            caught += "computed 0, first token none" in line and "cancelled" in line
        assert caught > 0, second.log  # others were loaded already when the client went
        _, answer = second.complete(heads[0] + "x", max_tokens=1)
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 29 * 32, second.log
        held_nothing(second)
        assert image(place.pool)["pinned"] == 0


tap.done()
