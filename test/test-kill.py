#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One server is killed or stopped in the middle of saving and loading, again and again; another on
the same pool goes on serving from it, and every answer is checked."""
import http.client
import random
import signal
import threading
import time

from lib.pool import (BLOCKWISE, LONG, MODEL, SANITIZED, Place, fake_answer, image, pool_is_valid,
                      prompt)
from lib.server import nothing_is_held, prompt_tokens_add_up, wait_for
from lib.tap import Tap

tap = Tap()
ROUNDS = 200 if LONG else 6 if SANITIZED else 20
ANSWER = 8  # tokens
SHARED = 6  # prefixes that all servers ask for
PREFIX = 12 * 32
PAGE_BYTES = 2 << 20  # writing one takes long enough to be killed in it
# Room for two requests: what is asked again has to come from the pool.
ROOM = ("--ctx", "512", "--kv-size", "70MiB")


class Clients:
    """Threads that ask a server without a pause and check what it answers, until they are told to
    stop or it is gone. question(dice) gives a prompt and the right answer, None if not known."""

    def __init__(self, server, count, question, seed=0):
        self.server, self.question = server, question
        self.is_doomed = False  # the server is about to be killed
        self.right = 0
        self.wrong = []
        self.ended = threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(random.Random(f"{seed} {n}"),))
                        for n in range(count)]
        for thread in self.threads:
            thread.start()

    def _run(self, dice):
        while not self.ended.is_set():
            asked, right = self.question(dice)
            try:
                answer = self.server.post("/v1/completions", {
                    "prompt": asked, "max_tokens": ANSWER, "temperature": 0}, seconds=60)
                said = answer.json["choices"][0]["text"] if answer.status == 200 else answer.body
            except (OSError, http.client.HTTPException) as error:
                if not self.is_doomed:
                    self.wrong.append((asked[-20:], error))
                return
            if answer.status != 200 or right not in (said, None):
                self.wrong.append((asked[-20:], said))
            self.right += right == said

    def end(self):
        self.ended.set()
        for thread in self.threads:
            thread.join(90)
            assert not thread.is_alive(), "a client is still waiting for its answer"
        assert not self.wrong, self.wrong[:3]


def fake_question(own_share):
    """Questions to the engine double: of `own_share` of them nobody else asks the prefix."""
    def question(dice):
        name = f"own {dice.random()}" if dice.random() < own_share else dice.randrange(SHARED)
        text = "".join(random.Random(name).choices("abcdefghijklmnop", k=PREFIX))
        text += str(dice.random())
        return text, fake_answer(text, ANSWER)
    return question


def owned_by_others(counts, process="owned-0"):
    """Page slots that another process than the survivor, which came first, is writing or evicting."""
    return sum(number for name, number in counts.items()
               if name.startswith("owned-") and name != process)


def start(place):
    return place.fake_server(*ROOM, page_bytes=PAGE_BYTES)


def nothing_is_left(place, *servers):
    """With all quiet: no slot is reserved or pinned by anybody, and no server holds a page."""
    for server in servers:
        wait_for(lambda: nothing_is_held(server.metrics()), 30, "nothing is held")
        prompt_tokens_add_up(server.metrics())
    counts = image(place.pool)
    assert counts["reserved"] == counts["evicting"] == counts["pinned"] == 0, counts
    assert counts["quarantined"] == 0 and counts["committed"] > 0, counts
    assert counts["bytes"] < 400 << 20, counts
    pool_is_valid(place.pool)


def kill_again_and_again(place, rounds, new_server, survivor_question, victim_question):
    """How many of the victims were killed inside a write."""
    dice = random.Random(1)
    caught_writing = 0
    with new_server() as survivor:
        clients = Clients(survivor, 2, survivor_question)
        try:
            for turn in range(rounds):
                with new_server() as victim:
                    storm = Clients(victim, 3, victim_question, turn)
                    time.sleep(dice.uniform(0.01, 0.4))
                    storm.is_doomed = True
                    victim.kill()
                    caught_writing += owned_by_others(image(place.pool)) > 0
                    storm.end()
                assert survivor.process.poll() is None, survivor.log
                pool_is_valid(place.pool)
                seen = clients.right
                wait_for(lambda: clients.right > seen or clients.wrong, 60, "the other one serves")
            wait_for(lambda: survivor.metrics()["tarn_pool_load_pages_total"] > rounds, 120,
                     "it has served from the pool")
        finally:
            clients.end()
        assert survivor.metrics()["tarn_pool_quarantined_pages_total"] == 0
        with new_server() as last:
            nothing_is_left(place, survivor, last)
    print(f"# {rounds} kills, {caught_writing} of them inside a write; the survivor gave "
          f"{clients.right} right answers")
    return caught_writing


@tap.case("kill -9 in the middle of saving and loading: the other server never answers wrongly, "
          "and what the dead held comes back")
def _():
    with Place(size="400MiB") as place:
        caught_writing = kill_again_and_again(place, ROUNDS, lambda: start(place),
                                              fake_question(0.1), fake_question(0.6))
        assert caught_writing >= ROUNDS // 10, caught_writing


@tap.case("kill -9 of a server that computes a model: the other one never answers wrongly")
def _():
    arguments = ("--kv-type", "f32", "--page-tokens", "64", "--ctx", "1024", "--kv-size", "3MiB")
    model = {**MODEL, "layers": 2}  # pages of 128 KiB, 24 of them on a device
    with Place(model, size="400MiB") as place:
        prompts = [prompt(400 + 7 * n, seed=n) for n in range(8)]
        with place.server(*arguments, pool="none") as cold, \
                place.server(*BLOCKWISE, *arguments, "--max-batch-tokens", "80",
                             pool="none") as other:
            right = [cold.complete(tokens, max_tokens=ANSWER)[0] for tokens in prompts]
            # These must be right wherever chunks begin.
            assert right == [other.complete(tokens, max_tokens=ANSWER)[0] for tokens in prompts]
            assert len(set(right)) == len(prompts)

        def known(dice):
            n = dice.randrange(len(prompts))
            return prompts[n], right[n]

        def known_or_not(dice):
            return known(dice) if dice.random() < 0.3 else \
                (prompt(700, seed=f"own {dice.random()}"), None)

        kill_again_and_again(place, ROUNDS // 3, lambda: place.server(*arguments), known,
                             known_or_not)


@tap.case("SIGSTOP in the middle of saving and loading: the other server goes on, and the stopped "
          "one answers rightly when it wakes")
def _():
    dice = random.Random(2)
    stops = [5.0, 12.0, 5.0, 5.0, 12.0] if LONG else [5.0]
    with Place(size="400MiB") as place, start(place) as survivor, start(place) as sleeper:
        clients = Clients(survivor, 2, fake_question(0.5))
        storm = Clients(sleeper, 3, fake_question(0.6), "sleeper")
        try:
            for seconds in stops:
                time.sleep(dice.uniform(0.2, 0.6))
                sleeper.signal(signal.SIGSTOP)
                seen = clients.right
                time.sleep(seconds)  # what is tested: how long it stands still
                served = clients.right - seen
                sleeper.signal(signal.SIGCONT)
                assert served > 5, served
                pool_is_valid(place.pool)
        finally:
            sleeper.signal(signal.SIGCONT)
            clients.end()
            storm.end()
        nothing_is_left(place, survivor, sleeper)


tap.done()
