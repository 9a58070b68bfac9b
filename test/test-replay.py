#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two servers on one pool: what one prefilled, the other replays, to the token; and what must not
be replayed is not."""
from string import ascii_lowercase

from lib.pool import (BLOCKWISE, PAGE_TOKENS, TINY, WORD_FIRST, Place, ask,
                      full_blocks, make_model, prompt, settle)
from lib.tap import Tap

tap = Tap()


def replayed(place, *arguments, **named):
    """What a fresh server of the place takes from the pool, of a prompt of 200 tokens that another
    one has saved."""
    with place.server(*BLOCKWISE) as writer:
        ask(writer, prompt(200))
        settle(writer)
    with place.server(*BLOCKWISE, *arguments, **named) as server:
        asked = ask(server, prompt(200))
    with place.server(*BLOCKWISE, *arguments, **{**named, "pool": "none"}) as cold:
        assert ask(cold, prompt(200)).text == asked.text
    return asked.pool


@tap.case("the second server takes every full block of a common prefix from the pool")
def _():
    with Place() as place, place.server() as one, place.server() as two:
        for common in (1, 31, 32, 33, 63, 64, 65, 500, 1000):
            head = prompt(common, seed=common)
            assert ask(one, head + prompt(60, seed=-1), 1).pool == 0
            settle(one)
            asked = ask(two, head + prompt(50, seed=-2), 1)
            assert asked.pool == full_blocks(common) and asked.device == 0, (common, vars(asked))
            # What it took, and what it computed itself, it has on the device now.
            again = ask(two, head + prompt(50, seed=-2), 1)
            assert again.device == full_blocks(common + 49) and again.pool == 0, vars(again)


@tap.case("the last token of a prompt is always computed")
def _():
    with Place(TINY) as place, place.server() as one, place.server() as two:
        for length in (32, 33, 64, 65, 320):
            tokens = prompt(length, seed=length)
            ask(one, tokens, 1)
            settle(one)
            asked = ask(two, tokens, 1)
            assert asked.pool == full_blocks(length - 1), (length, vars(asked))
            assert asked.computed >= 1


@tap.case("a replayed prompt is answered as by a server without a pool whose prefill is cut there")
def _():
    common, cut = 1010, full_blocks(1010)
    head = prompt(common)
    with Place() as place:
        with place.server("--prefill-cut", str(cut)) as one, place.server() as two, \
                place.server("--prefill-cut", str(cut), pool="none") as cold:
            ask(one, head + prompt(40, seed=1), 1)
            settle(one)
            texts = set()
            for seed in range(2, 10):
                tokens = head + prompt(13, seed=seed)
                asked = ask(two, tokens, 32)
                # From the second on, the prefix is on its device.
                assert asked.pool + asked.device == cut and (asked.pool == cut) == (seed == 2)
                known = ask(cold, tokens, 32)
                assert asked.text == known.text, (seed, asked.text, known.text)
                texts.add(asked.text)
            assert len(texts) > 4, "the answers tell prompts apart"


@tap.case("a replay that begins at any block is answered as without a pool")
def _():
    with Place() as place, place.server(*BLOCKWISE) as one, place.server(*BLOCKWISE) as two, \
            place.server(*BLOCKWISE, pool="none") as cold:
        for blocks in (1, 2, 3, 7, 20):
            head = prompt(blocks * PAGE_TOKENS + 5, seed=blocks)
            ask(one, head + prompt(60, seed=-1), 1)
            settle(one)
            tokens = head + prompt(70, seed=-2)
            asked = ask(two, tokens, 32)
            assert asked.pool == blocks * PAGE_TOKENS, vars(asked)
            assert asked.text == ask(cold, tokens, 32).text


@tap.case("a restarted server replays what it, or one that is gone, has saved")
def _():
    tokens = prompt(700)
    with Place() as place:
        with place.server(*BLOCKWISE) as server:
            first = ask(server, tokens)
            settle(server)
            assert server.stop() == 0
        with place.server(*BLOCKWISE) as server:
            asked = ask(server, tokens)
            assert asked.pool == full_blocks(699) and asked.text == first.text
            server.kill()
        with place.server(*BLOCKWISE) as server:
            asked = ask(server, tokens)
            assert asked.pool == full_blocks(699) and asked.text == first.text


@tap.case("what is still being saved when a server is told to stop is in the pool afterwards")
def _():
    tokens = prompt(2000)
    with Place() as place:
        with place.server() as server:
            ask(server, tokens, 1)
            assert server.stop() == 0
        with place.server() as server:
            assert ask(server, tokens, 1).pool == full_blocks(1999)


def words(model_vocabulary):
    """Token ids by text, of the words of two letters and more in a random model."""
    pairs = [a + b for a in ascii_lowercase for b in ascii_lowercase]
    triples = [a + pair for a in ascii_lowercase for pair in pairs]
    texts = [space + word for word in pairs + triples for space in ("", " ")]
    first = WORD_FIRST + 53  # behind the space and the single letters
    return dict(zip(texts, range(first, model_vocabulary)))


def answer_in_words(server, step_server, tokens_by_word, count):
    """A prompt, and the tokens of the answer that the server gives to it: found out one by one."""
    for seed in range(20):
        tokens = prompt(45, seed=seed)
        whole = server.complete(tokens, max_tokens=count)[0]
        answer, text = [], ""
        while len(answer) < count:
            piece = step_server.complete(tokens + answer, max_tokens=1)[0]
            if piece not in tokens_by_word:
                break
            answer.append(tokens_by_word[piece])
            text += piece
        if len(answer) == count and text == whole:
            return tokens, answer
    raise AssertionError("no prompt is answered in words alone")


@tap.case("the next turn of a chat finds the generated tokens of the turn before, on any server")
def _():
    arguments = (*BLOCKWISE, "--kv-type", "f32")
    vocabulary = 30000
    with Place({"vocab": vocabulary}) as place, place.server(*arguments) as one, place.server(*arguments) as two, \
            place.server(*arguments, pool="none") as cold:
        question, answer = answer_in_words(one, cold, words(vocabulary), 60)
        settle(one)
        tokens = question + answer + prompt(10, seed=-1)
        asked = ask(two, tokens)
        # The last token of an answer is never computed on.
        assert asked.pool == full_blocks(len(question) + len(answer) - 1) == 96, vars(asked)
        assert asked.text == ask(cold, tokens).text


@tap.case("with --save-generated off only prompts are saved")
def _():
    with Place(TINY) as place, place.server("--save-generated", "off") as one:
        ask(one, prompt(40), 100)
        settle(one)
        assert one.metrics()["tarn_pool_save_pages_total"] == 1


@tap.case("a cache salt separates tenants, and is the same on every server")
def _():
    with Place(TINY) as place, place.server() as one, place.server() as two:
        tokens = prompt(200)
        ask(one, tokens, 1, cache_salt="a tenant")
        settle(one)
        assert ask(two, tokens, 1).pool == 0
        assert ask(two, tokens, 1, cache_salt="another").pool == 0
        assert ask(two, tokens, 1, cache_salt="A tenant").pool == 0
        assert ask(two, tokens, 1, cache_salt="a tenant").pool == full_blocks(199)


@tap.case("an empty salt is no salt")
def _():
    with Place(TINY) as place, place.server() as one, place.server() as two:
        ask(one, prompt(200), 1, cache_salt="")
        settle(one)
        assert ask(two, prompt(200), 1).pool == full_blocks(199)


@tap.case("another model under the same file name never hits, and answers as it would alone")
def _():
    with Place(TINY) as place:
        other = make_model(place.folder / "other" / place.model.name, **TINY, seed=2)
        assert replayed(place, model=other) == 0


@tap.case("the same model in another folder hits")
def _():
    with Place(TINY) as place:
        same = make_model(place.folder / "other" / place.model.name, **TINY)
        assert replayed(place, model=same) == full_blocks(199)


@tap.case("pages of another length or number type are not taken for ours")
def _():
    for arguments in (["--page-tokens", "16"], ["--kv-type", "f32"],
                      ["--page-tokens", "16", "--kv-type", "f32"]):
        with Place(TINY) as place:
            assert replayed(place, *arguments) == 0, arguments


@tap.case("another cache prefix or model key forgets everything")
def _():
    for arguments in (["--cache-prefix", "other"], ["--model-key", "other"]):
        with Place(TINY) as place:
            assert replayed(place, *arguments) == 0, arguments


@tap.case("a consumer loads and never saves, a producer saves and never loads")
def _():
    with Place(TINY) as place, place.server("--role", "producer") as producer, \
            place.server("--role", "consumer") as consumer, place.server() as both:
        tokens = prompt(200)
        ask(consumer, tokens, 1)
        settle(consumer)
        assert ask(both, prompt(64), 1).pool == 0  # two blocks of the same prefix
        ask(producer, tokens, 1)
        settle(producer)
        declined = 'tarn_pool_declined_total{reason="role"}'
        assert producer.metrics()["tarn_pool_lookups_total"] == 0
        assert producer.metrics()[declined] == 1
        assert consumer.metrics()["tarn_pool_save_pages_total"] == 0
        assert ask(consumer, prompt(220), 1).device == full_blocks(199)
        asked = ask(both, prompt(220), 1)
        assert asked.device == 64 and asked.pool == full_blocks(199) - 64, vars(asked)


@tap.case("a fresh server has counted nothing: its warm-up is no request")
def _():
    with Place(TINY) as place, place.server() as server:
        counted = {name: value for name, value in server.metrics().items() if value and (
            name.startswith(("tarn_requests", "tarn_prompt", "tarn_generation", "tarn_pool_blocks",
                             "tarn_pool_lookups", "tarn_pool_declined", "tarn_pool_save",
                             "tarn_pool_load")))}
        assert not counted, counted


@tap.case("a prompt without a full block does not ask the pool, and that is counted")
def _():
    with Place(TINY) as place, place.server() as server:
        ask(server, prompt(20), 1)
        metrics = server.metrics()
        assert metrics["tarn_pool_lookups_total"] == 0
        assert metrics['tarn_pool_declined_total{reason="no_full_block"}'] == 1


tap.done()
