#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Somebody writes into the pool file: no answer is wrong, no server falls, and what was found bad
is counted, put away and saved anew."""
import random

from lib.pool import (BLOCKWISE, TINY, Place, ask, full_blocks, image, pool_is_valid, pool_stat,
                      prompt, settle)
from lib.server import wait_for
from lib.tap import Tap

tap = Tap()
LENGTH = 500


def flip(path, offset):
    with open(path, "r+b", buffering=0) as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1 << offset % 8]))


def load_failures(server, reason):
    return server.metrics()[f'tarn_pool_load_failures_total{{reason="{reason}"}}']


@tap.case("a flipped bit in a page: the answer is right, the page is quarantined and saved again")
def _():
    dice = random.Random(3)
    blocks = full_blocks(LENGTH - 1) // 32
    for depth in (0, 7, blocks - 1):
        with Place(TINY) as place:
            with place.server(*BLOCKWISE, pool="none") as cold:
                right = ask(cold, prompt(LENGTH)).text
            with place.server(*BLOCKWISE) as writer, place.server(*BLOCKWISE) as reader:
                assert ask(writer, prompt(LENGTH)).text == right
                settle(writer)
                committed = image(place.pool)["committed"]
                _, offset, length, _ = next(page for page in image(place.pool, "pages")
                                            if page[3] == depth)
                pool_is_valid(place.pool)
                flip(place.pool, offset + dice.randrange(length))
                assert not pool_stat(place.pool)[0]
                asked = ask(reader, prompt(LENGTH))
                assert asked.text == right
                assert asked.pool == depth * 32, (depth, vars(asked))  # what stands before it
                assert reader.metrics()["tarn_pool_quarantined_pages_total"] == 1
                assert load_failures(reader, "corrupt") == 1
                settle(reader)
                counts = image(place.pool)
                assert counts["committed"] == committed, (committed, counts)
                pool_is_valid(place.pool)
            with place.server(*BLOCKWISE) as third:
                asked = ask(third, prompt(LENGTH))
                assert asked.pool == full_blocks(LENGTH - 1) and asked.text == right


@tap.case("a page that was exchanged for another valid one of the same length is not taken")
def _():
    with Place(TINY) as place, place.server(*BLOCKWISE) as writer, \
            place.server(*BLOCKWISE) as reader:
        right = ask(writer, prompt(LENGTH)).text
        settle(writer)
        pages = {depth: (offset, length) for _, offset, length, depth in image(place.pool, "pages")}
        with open(place.pool, "r+b", buffering=0) as file:
            bodies = []
            for depth in (2, 5):
                file.seek(pages[depth][0])
                bodies.append(file.read(pages[depth][1]))
            for depth, body in zip((5, 2), bodies):
                file.seek(pages[depth][0])
                file.write(body)
        asked = ask(reader, prompt(LENGTH))
        assert asked.text == right and asked.pool == 2 * 32, vars(asked)


@tap.case("random bytes all over the pool's bookkeeping, while servers use it: right answers, no "
          "server falls")
def _():
    dice = random.Random(4)
    with Place(TINY, size="64MiB") as place:
        prompts = [prompt(LENGTH, seed=seed) for seed in range(6)]
        with place.server(*BLOCKWISE, pool="none") as cold:
            right = [ask(cold, tokens).text for tokens in prompts]
        small = ("--ctx", "1024", "--kv-size", "256KiB")  # room for one: what is not there is loaded
        with place.server(*BLOCKWISE, *small) as one, place.server(*BLOCKWISE, *small) as two:
            for tokens, text in zip(prompts, right):
                assert ask(one, tokens).text == text
            settle(one)
            data = min(page[1] for page in image(place.pool, "pages"))
            # Processes, frames and states of names lie in front; headers and index at the end.
            places = ((4096, 4096 + 128), (4096, 16 << 10), (16 << 10, 48 << 10),
                      (2 << 20, data))
            for turn in range(60):
                with open(place.pool, "r+b", buffering=0) as file:
                    for _ in range(1 << dice.randrange(12)):
                        file.seek(dice.randrange(*dice.choice(places)))
                        file.write(dice.randbytes(dice.choice((1, 4, 8, 64))))
                n = dice.randrange(len(prompts))
                server = (one, two)[turn % 2]
                assert ask(server, prompts[n]).text == right[n], turn
            for server in (one, two):
                wait_for(lambda: server.get("/health").status == 200, 10, "it is well")
                assert server.stop() == 0, server.log


tap.done()
