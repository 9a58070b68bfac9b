# SPDX-License-Identifier: Apache-2.0
"""Servers on one pool: random models, prompts, and what the counters say of a request.

    with Place() as place:
        with place.server() as one, place.server() as two:
            ask(one, prompt(1000)); settle(one)
            assert ask(two, prompt(1000)).pool == 992
"""
import os
import pathlib
import random
import shutil
import subprocess
import tempfile

from lib.server import PROGRAM, SANITIZED, FakeServer, Server, wait_for

MAKE_MODEL = os.environ.get("TARN_MAKE_MODEL", "build/make-model")
POOL_IMAGE = os.environ.get("TARN_POOL_IMAGE", "build/pool-image")
PAGE_TOKENS = 32
WORD_FIRST, WORD_LAST = 261, 4095  # tokens that are words, in a random model of VOCABULARY
# A prompt of 1 000 tokens takes some tenths of a second: long enough to be interrupted.
MODEL = {"layers": 4, "heads": 8, "kv-heads": 4, "head-dim": 32, "ff-dim": 512,
         "vocab": WORD_LAST + 1, "ctx": 4096}
TINY = {"vocab": WORD_LAST + 1}
# Prefill one block at a time: chunk boundaries, and so results, are the same to the bit wherever a
# replay begins.
BLOCKWISE = ("--max-batch-size", "8", "--max-batch-tokens", "40")
SOURCES = ("device", "tier", "pool", "computed")
LONG = os.environ.get("TARN_TEST_LONG") == "1"


def make_model(path, **numbers):
    path.parent.mkdir(parents=True, exist_ok=True)
    arguments = [f"{name.replace('_', '-')}={value}" for name, value in numbers.items()]
    subprocess.run([MAKE_MODEL, path, *arguments], check=True, timeout=120)
    return path


def prompt(token_count, seed=0):
    """Token ids. A longer prompt of the same seed begins with a shorter one."""
    return random.Random(seed).choices(range(WORD_FIRST, WORD_LAST + 1), k=token_count)


class Place:
    """A folder in shared memory with a model in it, and servers on a pool there."""

    def __init__(self, model=None, size="256MiB"):
        """`model`: what to tell make-model, if not MODEL (TINY where sanitizers slow it down)."""
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tarn-test-", dir="/dev/shm"))
        self.pool = self.folder / "test.pool"
        self.size = size
        self.model = self.folder / "model.gguf"
        self.model_numbers = model or (TINY if SANITIZED else MODEL)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    @property
    def environment(self):
        return {"XDG_CACHE_HOME": str(self.folder / "cache")}

    def server(self, *arguments, model=None, pool=None, wait=True):
        """A server on the pool of this place, or on `pool` ("none")."""
        if not model and not self.model.exists():
            make_model(self.model, **self.model_numbers)
        pool = pool or f"{self.pool},size={self.size}"
        return Server(str(model or self.model), "--threads", "1", "--pool", pool, *arguments,
                      env=self.environment, wait=wait)

    def fake_server(self, *arguments, **named):
        """A server over the engine double, on the pool of this place."""
        return FakeServer(*arguments, pool=f"{self.pool},size={self.size}", **named)


class Asked:
    """One request's answer, and where the counters say its prompt came from."""

    def __init__(self, text, answer, before, after):
        def grown(name):
            return round(after[name] - before[name])
        self.text = text
        self.usage = answer["usage"]
        for source in SOURCES:
            setattr(self, source, grown(f'tarn_prompt_tokens_total{{source="{source}"}}'))
        self.requested = grown("tarn_prompt_tokens_requested_total")


def ask(server, tokens, max_tokens=16, **fields):
    """A completion at temperature 0 of a server that has nothing else to do; its sources are
    checked: they add up to the prompt, and the answer says the same."""
    before = server.metrics()
    text, answer = server.complete(tokens, max_tokens=max_tokens, seconds=120, **fields)
    asked = Asked(text, answer, before, server.metrics())
    assert asked.requested == len(tokens) == asked.usage["prompt_tokens"], vars(asked)
    assert asked.device + asked.tier + asked.pool + asked.computed == len(tokens), vars(asked)
    assert asked.usage["prompt_tokens_details"]["cached_tokens"] == \
        asked.device + asked.tier + asked.pool, vars(asked)
    return asked


def saved_pages(server):
    return round(server.metrics()["tarn_pool_save_pages_total"])


def settle(server, seconds=60):
    """Wait until all that the server computed is in the pool."""
    def is_still():
        metrics = server.metrics()
        return metrics["tarn_pool_save_queue_pages"] == 0 and metrics["tarn_pages_pinned"] == 0
    wait_for(is_still, seconds, "the saves end")


def full_blocks(token_count, page_tokens=PAGE_TOKENS):
    """Tokens in the full blocks of so many."""
    return token_count // page_tokens * page_tokens


def image(path, what="count"):
    """Of a pool file, from outside: counts by name, or ("pages") committed pages as tuples of
    slot, offset, length, depth."""
    result = subprocess.run([POOL_IMAGE, path, what], check=True, capture_output=True, text=True,
                            timeout=60)
    rows = [line.split() for line in result.stdout.splitlines()]
    if what == "pages":
        return [tuple(map(int, row)) for row in rows]
    return {name: int(number) for name, number in rows}


def pool_stat(path):
    """The program's own check of every page: whether it found the pool valid, and what it said."""
    result = subprocess.run([PROGRAM, "pool", "stat", path, "--verify"], capture_output=True,
                            text=True, timeout=120)
    return result.returncode == 0, result.stdout + result.stderr


def pool_is_valid(path):
    is_valid, output = pool_stat(path)
    assert is_valid, output


def fake_answer(prompt_text, token_count):
    """What the engine double answers to a text: letters that depend on every byte before."""
    def step(value, byte):
        return ((value ^ byte) * 2654435761 + 12345) & 0xffffffff
    value, answer = 0, ""
    for byte in prompt_text.encode():
        value = step(value, byte)
    for _ in range(token_count):
        answer += chr(ord("a") + (value >> 8) % 26)
        value = step(value, ord(answer[-1]))
    return answer
