#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tarn serve` on a small random model, as strangers see it: OpenAI's Python client and
prometheus_client, both unmodified; and models and options that are wrong."""
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import threading
import time

import openai
from prometheus_client.parser import text_string_to_metric_families

from lib.server import (Server, memory_did_not_grow, nothing_is_held, prompt_tokens_add_up,
                        wait_for)
from lib.tap import Tap

tap = Tap()
LONG = os.environ.get("TARN_TEST_LONG") == "1"
folder = tempfile.mkdtemp(prefix="tarn-test-", dir="/dev/shm")


def make_model(name="m", **numbers):
    path = f"{folder}/{name}.gguf"
    subprocess.run([os.environ.get("TARN_MAKE_MODEL", "build/make-model"), path,
                    *(f"{key.replace('_', '-')}={value}" for key, value in numbers.items())],
                   check=True)
    return path


MODEL = make_model()


def serve(*options, **named):
    return Server(MODEL, "--threads", "1", "--ctx", "2048", *options, **named)


def client_of(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60)


@tap.case("OpenAI's client completes a chat and a text")
def _():
    with serve("--pool", "none") as server:
        client = client_of(server)
        assert [model.id for model in client.models.list()] == ["m"]
        assert client.models.retrieve("m").id == "m"
        chat = client.chat.completions.create(
            model="m", messages=[{"role": "system", "content": "Be brief."},
                                 {"role": "user", "content": "Hello"}],
            temperature=0, max_tokens=8)
        assert chat.choices[0].message.role == "assistant"
        assert chat.choices[0].finish_reason in ("stop", "length")
        assert chat.usage.prompt_tokens > 0 and chat.usage.completion_tokens <= 8
        assert chat.usage.prompt_tokens_details.cached_tokens == 0
        text = client.completions.create(model="m", prompt="Hello", temperature=0, max_tokens=8)
        again = client.completions.create(model="m", prompt="Hello", temperature=0, max_tokens=8)
        assert text.choices[0].text == again.choices[0].text
        seeded = [client.completions.create(model="m", prompt="Hello", seed=5, max_tokens=20,
                                            temperature=1.5, top_p=0.9, extra_body={"top_k": 50}
                                            ).choices[0].text for _ in range(2)]
        assert seeded[0] == seeded[1]


@tap.case("OpenAI's client streams, and the stream is the same text")
def _():
    with serve("--pool", "none") as server:
        client = client_of(server)
        fields = {"model": "m", "messages": [{"role": "user", "content": "Tell me"}],
                  "temperature": 0, "max_tokens": 40}
        whole = client.chat.completions.create(**fields)
        parts = list(client.chat.completions.create(**fields, stream=True,
                                                    stream_options={"include_usage": True}))
        assert parts[0].choices[0].delta.role == "assistant"
        assert parts[-1].usage.completion_tokens == whole.usage.completion_tokens
        assert parts[-2].choices[0].finish_reason == whole.choices[0].finish_reason
        text = "".join(part.choices[0].delta.content or "" for part in parts[:-1])
        assert text == whole.choices[0].message.content


@tap.case("OpenAI's client gets errors as its own exceptions")
def _():
    with serve("--pool", "none") as server:
        client = client_of(server)

        def refused(kind, **fields):
            try:
                client.completions.create(**{"model": "m", "prompt": "x", **fields})
            except kind as error:
                return error
            raise AssertionError(f"{fields} was not refused")
        error = refused(openai.BadRequestError, n=2)
        assert error.param == "n" and error.type == "invalid_request_error"
        error = refused(openai.BadRequestError, prompt=[1] * 3000)
        assert error.code == "context_length_exceeded" and "3000 tokens" in error.message
        error = refused(openai.NotFoundError, model="gpt")
        assert error.code == "model_not_found"
        refused(openai.BadRequestError, temperature=9)


@tap.case("prometheus_client reads /metrics, and the sources add up")
def _():
    with serve("--pool", f"{folder}/metrics.pool,size=64MiB") as server:
        for number in range(5):
            server.complete("the same beginning " * 20 + str(number), max_tokens=5)
        text = server.get("/metrics").body.decode()
        families = {family.name: family for family in text_string_to_metric_families(text)}
        assert families["tarn_requests"].type == "counter"
        assert families["tarn_kv_pages"].type == "gauge"
        first = families["tarn_time_to_first_token_seconds"]
        assert first.type == "histogram"
        assert [s.value for s in first.samples if s.name.endswith("_count")] == [5]
        sources = {sample.labels["source"]: sample.value
                   for sample in families["tarn_prompt_tokens"].samples}
        assert sum(sources.values()) == \
            families["tarn_prompt_tokens_requested"].samples[0].value
        assert sources["device"] > 0 and sources["pool"] == 0
        assert all(family.documentation for family in families.values())


@tap.case("prompts that share a prefix and run together give the text that they give alone")
def _():
    prompts = [f"{'shared ' * (30 * (number % 3))}question {number}" for number in range(12)]
    with serve("--pool", "none") as alone, \
            serve("--pool", f"{folder}/together.pool,size=64MiB") as server:
        wanted = [alone.complete(prompt, max_tokens=24)[0] for prompt in prompts]
        given = [None] * len(prompts)

        def ask(number):
            given[number] = server.complete(prompts[number], max_tokens=24)[0]
        threads = [threading.Thread(target=ask, args=(n,)) for n in range(len(prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        different = sum(a != b for a, b in zip(wanted, given))
        # Other batches sum in another order: a text may part where the two likeliest tokens are
        # as good as equal. How often that is allowed is the engine tests' to judge.
        assert different <= 2, (different, wanted, given)
        prompt_tokens_add_up(server.metrics())


@tap.case("sixteen clients, a third hanging up midway: nothing is held, memory does not grow")
def _():
    seconds, warm_up = (60, 10) if LONG else (6, 3)
    with serve("--pool", f"{folder}/soak.pool,size=64MiB") as server:
        end = time.monotonic() + seconds
        failures, counts = [], [0, 0]

        def client(number):
            draw = random.Random(number)
            while time.monotonic() < end:
                prompt = f"{draw.randrange(8)} common " * draw.randrange(60) + str(draw.random())
                fields = {"prompt": prompt, "max_tokens": draw.randrange(1, 60),
                          "stream": draw.random() < 0.5}
                try:
                    if number % 3 == 0:
                        connection = server.begin("/v1/completions", {**fields, "max_tokens": 400})
                        time.sleep(draw.random() * 0.05)
                        connection.close()
                        counts[0] += 1
                    elif server.post("/v1/completions", fields).status == 200:
                        counts[1] += 1
                    else:
                        failures.append(fields)
                except OSError as error:
                    failures.append(error)
        threads = [threading.Thread(target=client, args=(n,)) for n in range(16)]
        for thread in threads:
            thread.start()
        time.sleep(warm_up)
        before = server.resident_kib()
        for thread in threads:
            thread.join()
        wait_for(lambda: nothing_is_held(server.metrics()), 10, "nothing is held")
        after = server.resident_kib()
        print(f"# {counts[1]} answered, {counts[0]} hung up; KiB: {before}, then {after}")
        assert not failures and min(counts) > 0, (failures[:3], counts)
        assert memory_did_not_grow(before, after)
        assert after["shmem"] <= 2 * (64 << 10)  # the pool, mapped to read and to write in place
        metrics = server.metrics()
        prompt_tokens_add_up(metrics)
        assert metrics['tarn_requests_total{outcome="failed"}'] == 0
        assert metrics['tarn_requests_total{outcome="cancelled"}'] > 0
        assert server.get("/health").status == 200
        assert server.stop() == 0


def refused_start(arguments, *parts):
    server = Server(*arguments, wait=False)
    try:
        status = server.process.wait(60)
    finally:
        server.kill()
    assert status in (1, 2), (status, server.log)
    assert "tarn: error: " in server.log, server.log
    for part in parts:
        assert part in server.log, (part, server.log)


@tap.case("a model that is missing, damaged or cut short is refused by name")
def _():
    refused_start(["/nowhere/m.gguf"], "/nowhere/m.gguf")
    refused_start([folder], folder)
    whole = pathlib.Path(MODEL).read_bytes()
    for name, content in (("empty", b""), ("text", b"hello\n" * 100), ("cut", whole[:-1000]),
                          ("header-only", whole[:100]), ("magic", b"XXXX" + whole[4:]),
                          ("noise", whole[:40] + random.Random(1).randbytes(4000) + whole[4040:])):
        path = f"{folder}/{name}.gguf"
        pathlib.Path(path).write_bytes(content)
        refused_start([path, "--pool", "none"], f"{name}.gguf")


@tap.case("a model that is not supported is refused with the reason")
def _():
    for flaw, part in (("architecture", "architecture"), ("sliding-window", "window"),
                       ("rope-scaling", "scaling"), ("rope-freqs", "rope"),
                       ("missing-tensor", "tensor"), ("wrong-shape", "shape")):
        refused_start([make_model(flaw, flaw=flaw), "--pool", "none"], part)


@tap.case("options that cannot work are refused with the arithmetic")
def _():
    refused_start([MODEL, "--pool", "none", "--ctx", "2048", "--kv-size", "64KiB"], "2048")
    refused_start([MODEL, "--pool", "none", "--backend-dir", "/nowhere"], "/nowhere")
    refused_start([MODEL, "--pool", "/nowhere/p.pool"], "/nowhere/p.pool")


try:
    tap.done()
finally:
    shutil.rmtree(folder)
