#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The server's HTTP side, over the engine double: answers, streams, errors, hang-ups, stopping."""
import json
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

from lib.server import NEVER, PROGRAM, FakeServer, nothing_is_held, prompt_tokens_add_up, wait_for
from lib.tap import Tap

tap = Tap()
chat = "/v1/chat/completions"
completions = "/v1/completions"


def user(text, **fields):
    return {"messages": [{"role": "user", "content": text}], "temperature": 0, **fields}


def events(body):
    """The objects of an event stream, which must end as OpenAI's do."""
    parts = body.decode().split("\n\n")
    assert parts[-2:] == ["data: [DONE]", ""], parts[-3:]
    assert all(part.startswith("data: ") for part in parts[:-1])
    return [json.loads(part[6:]) for part in parts[:-2]]


@tap.case("a chat is answered whole, with usage")
def _():
    with FakeServer() as server:
        answer = server.post(chat, user("echo:Hello, you|"))
        assert answer.status == 200 and answer.headers["Content-Type"] == "application/json"
        choice = answer.json["choices"][0]
        assert choice["message"] == {"role": "assistant", "content": "Hello, you"}
        assert choice["finish_reason"] == "stop"
        usage = answer.json["usage"]
        assert usage["completion_tokens"] == len("Hello, you")
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert usage["prompt_tokens_details"] == {"cached_tokens": 0}


@tap.case("a chat is streamed: role, text, finish, usage, end")
def _():
    with FakeServer() as server:
        answer = server.post(chat, user("echo:Héllo 😀|", stream=True,
                                        stream_options={"include_usage": True}))
        assert answer.status == 200 and answer.headers["Content-Type"] == "text/event-stream"
        parts = events(answer.body)
        assert parts[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        texts = [part["choices"][0]["delta"]["content"] for part in parts[1:-2]]
        assert "".join(texts) == "Héllo 😀"
        assert parts[-2]["choices"][0]["finish_reason"] == "stop"
        assert parts[-1]["choices"] == [] and parts[-1]["usage"]["completion_tokens"] == 11
        assert len({part["id"] for part in parts}) == 1


@tap.case("tokens arrive one by one, not at the end")
def _():
    with FakeServer(token_us=50000) as server:
        connection = server.begin(completions, {"prompt": "echo:" + "x" * 40 + "|", "stream": True,
                                                "max_tokens": 40})
        started = time.monotonic()
        first = connection.recv(1000)
        while b"data: {" not in first:
            first += connection.recv(1000)
        rest = b""
        while b"[DONE]" not in rest:
            rest += connection.recv(10000)
        assert rest.count(b"data: {") > 20, rest
        assert time.monotonic() > started  # the order is what counts, not the time
        connection.close()


@tap.case("a stop string across tokens ends a text before it, also in a stream")
def _():
    with FakeServer() as server:
        text, answer = server.complete("echo:one STOP two|", stop=["STOP"], max_tokens=50)
        assert text == "one " and answer["choices"][0]["finish_reason"] == "stop"
        answer = server.post(completions, {"prompt": "echo:one STOP two|", "stop": "STOP",
                                           "temperature": 0, "max_tokens": 50, "stream": True})
        parts = events(answer.body)
        assert "".join(part["choices"][0]["text"] for part in parts) == "one "
        text, answer = server.complete("echo:ab STO|", stop=["STOP"], max_tokens=50)
        assert text == "ab STO"


@tap.case("max_tokens ends a text with finish_reason length")
def _():
    with FakeServer() as server:
        text, answer = server.complete("echo:abcdef|", max_tokens=3)
        assert text == "abc" and answer["choices"][0]["finish_reason"] == "length"
        assert answer["usage"]["completion_tokens"] == 3
        text, answer = server.complete("no end", n=1)
        assert len(text) == 16  # the default of completions


@tap.case("a prompt of token ids is taken as it is")
def _():
    with FakeServer() as server:
        ids = [ord(c) for c in "echo:xyz|"]
        assert server.complete(ids)[0] == "xyz"
        assert server.complete([ids])[0] == "xyz"


@tap.case("the same seed gives the same text, another one another")
def _():
    with FakeServer() as server:
        def sample(seed):
            return server.complete("letters", temperature=1, seed=seed, max_tokens=30)[0]
        assert sample(1) == sample(1) != sample(2)


@tap.case("no two answers have one id, from whichever server and after whichever restart")
def _():
    ids = set()
    for _ in range(2):
        with FakeServer() as server:
            made = [server.post(chat, user("x", max_tokens=1)).json["id"] for _ in range(3)]
            assert all(re.fullmatch(r"chatcmpl-[0-9a-f]{32}-\d+", id) for id in made), made
            made.append(server.complete("x", max_tokens=1)[1]["id"])
            assert re.fullmatch(r"cmpl-[0-9a-f]{32}-\d+", made[-1]), made
            number = made[-1].rsplit("-", 1)[1]
            wait_for(lambda: f"request {number}: " in server.log, 10, "its line in the log")
            parts = events(server.post(chat, user("x", max_tokens=3, stream=True)).body)
            assert len({part["id"] for part in parts}) == 1
            ids.update(made, [parts[0]["id"]])
    assert len(ids) == 10, ids


@tap.case("tokenize and detokenize are each other's inverse, for texts and chats")
def _():
    with FakeServer() as server:
        answer = server.post("/tokenize", {"prompt": "Hi <|im_end|> é"}).json
        assert answer["count"] == len(answer["tokens"]) == 7 and answer["max_model_len"] == 8192
        assert server.post("/detokenize", {"tokens": answer["tokens"]}).json == \
            {"prompt": "Hi <|im_end|> é"}
        tokens = server.post("/tokenize", user("Hi")).json["tokens"]
        assert server.post("/detokenize", {"tokens": tokens}).json["prompt"] == \
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        usage = server.post(chat, user("Hi", max_tokens=1)).json["usage"]
        assert usage["prompt_tokens"] == len(tokens)
        error = server.post("/detokenize", {"tokens": [260]})
        assert error.status == 400 and "vocabulary of 260" in error.error["message"]


@tap.case("the server tells its model, version and health")
def _():
    with FakeServer() as server:
        models = server.get("/v1/models").json
        assert [model["id"] for model in models["data"]] == ["fake"]
        assert models["data"][0]["max_model_len"] == 8192
        assert server.get("/version").json["version"].count(".") == 2
        health = server.get("/health")
        assert health.status == 200 and health.json == {"status": "ok"}


@tap.case("the warm-up is counted apart: nothing else has moved when the server listens")
def _():
    with FakeServer() as server:
        assert "warm-up: 8 tokens" in server.log
        metrics = server.metrics()
        assert metrics["tarn_warmup_requests_total"] == 1
        moved = {name for name, value in metrics.items() if value != 0}
        gauges = {'tarn_kv_pages{state="total"}', 'tarn_kv_pages{state="free"}'}
        assert moved == gauges | {"tarn_warmup_requests_total"}, moved
        assert server.complete("echo:first|")[0] == "first"
        assert server.metrics()["tarn_warmup_requests_total"] == 1


@tap.case("bad requests get errors in OpenAI's shape, with the right status")
def _():
    with FakeServer("--ctx", "256") as server:
        def refused(path, body, status, *parts):
            answer = server.post(path, body)
            assert answer.status == status, (body, answer.status, answer.body)
            for part in parts:
                assert part in answer.error["message"], answer.body
            return answer.error
        assert refused(completions, "{", 400, "not JSON")["type"] == "invalid_request_error"
        assert refused(completions, {"prompt": 5}, 400, "not an integer")["param"] == "prompt"
        assert refused(chat, user("x", n=2), 400, "must be 1")["param"] == "n"
        refused(completions, {"prompt": ""}, 400, "no tokens")
        refused(completions, {"prompt": [999]}, 400, "token 999", "vocabulary of 260")
        error = refused(completions, {"prompt": "x" * 300}, 400, "300 tokens", "256 tokens")
        assert error["code"] == "context_length_exceeded"
        refused(completions, {"prompt": "x" * 200, "max_tokens": 57}, 400, "200", "57", "256")
        assert refused(chat, user("x", model="gpt-9"), 404, "'gpt-9'", "'fake'")["code"] == \
            "model_not_found"
        assert refused("/nowhere", {}, 404, "/nowhere")["code"] == "not_found"
        assert server.get(chat).status == 405
        assert server.get(chat).headers["Allow"] == "POST"
        for path in ("/health", "/v1/models", "/v1/models/fake"):
            answer = server.post(path, {})
            assert answer.status == 405 and answer.headers["Allow"] == "GET, HEAD", path
        assert server.get("/nowhere").headers["Allow"] is None
        assert server.get(chat).error["code"] == "method_not_allowed"
        assert server.complete("x" * 200, max_tokens=56)[1]["usage"]["total_tokens"] == 256
        metrics = server.metrics()
        assert metrics['tarn_requests_total{outcome="refused"}'] == 8
        assert nothing_is_held(metrics)


@tap.case("a body that is too large is refused, whether its length is said or not")
def _():
    with FakeServer() as server:
        answer = server.post(completions, b" " * (1 << 20) + b"x")
        assert answer.status == 413 and "1048576 bytes" in answer.error["message"]
        connection = server.connect()
        connection.request("POST", completions, iter([b" " * 65536] * 40), encode_chunked=True,
                           headers={"Transfer-Encoding": "chunked"})
        assert connection.getresponse().status == 413
        connection.close()
        connection = server.connect()  # far too large: answered before it is sent
        connection.putrequest("POST", completions)
        connection.putheader("Content-Length", str(1 << 40))
        connection.endheaders()
        assert connection.getresponse().status == 413
        connection.close()
        assert server.get("/health").status == 200


@tap.case("nonsense instead of HTTP does no harm")
def _():
    with FakeServer() as server:
        for junk in (b"\0" * 100, b"GET\r\n\r\n", b"POST / HTTP/9.9\r\n\r\n", b"x" * 100000,
                     b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20000 + b"\r\n"):
            with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
                try:
                    connection.sendall(junk)
                    connection.shutdown(socket.SHUT_WR)
                    connection.recv(1000)
                except OSError:
                    pass  # it hung up on us: its right
        assert server.get("/health").status == 200


@tap.case("one connection serves many requests")
def _():
    with FakeServer() as server:
        connection = server.connect()
        for text in ("one", "two", "three"):
            connection.request("POST", completions, json.dumps({"prompt": f"echo:{text}|",
                                                                "temperature": 0}))
            assert json.load(connection.getresponse())["choices"][0]["text"] == text
        connection.close()


def gone_within_a_second(server, gauge, before):
    """After a hang-up: the gauge falls and nothing is held, within 1 s."""
    started = time.monotonic()
    wait_for(lambda: server.metrics()[gauge] == before and nothing_is_held(server.metrics()), 30,
             f"{gauge} falls to {before}")
    assert time.monotonic() - started < 1.0 + 0.5, "more than 1 s (and what asking takes)"


@tap.case("a client that hangs up while its prompt is computed frees its request")
def _():
    with FakeServer("--max-batch-tokens", "64", token_us=2000) as server:
        connection = server.begin(completions, {"prompt": "x" * 8000, "max_tokens": 5})
        wait_for(lambda: server.metrics()["tarn_requests_running"] == 1, 10, "it runs")
        connection.close()
        gone_within_a_second(server, "tarn_requests_running", 0)
        assert server.metrics()['tarn_requests_total{outcome="cancelled"}'] == 1


@tap.case("a client that hangs up in the middle of a long forward pass frees its request")
def _():
    with FakeServer("--max-batch-tokens", "4096", token_us=2000) as server:
        connection = server.begin(completions, {"prompt": "x" * 8000, "max_tokens": 5})
        wait_for(lambda: server.metrics()["tarn_requests_running"] == 1, 10, "it runs")
        connection.close()  # this pass alone takes more than 8 s
        gone_within_a_second(server, "tarn_requests_running", 0)
        assert server.metrics()['tarn_requests_total{outcome="cancelled"}'] == 1
        assert server.post(completions, {"prompt": "y", "max_tokens": 3}).status == 200


@tap.case("a client that hangs up while it is answered whole frees its request")
def _():
    with FakeServer(token_us=10000) as server:
        connection = server.begin(completions, {"prompt": "x", "max_tokens": 5000})
        wait_for(lambda: server.metrics()["tarn_generation_tokens_total"] > 3, 10, "it generates")
        connection.close()
        gone_within_a_second(server, "tarn_requests_running", 0)


@tap.case("a client that hangs up in the middle of a stream frees its request")
def _():
    with FakeServer(token_us=10000) as server:
        connection = server.begin(completions, {"prompt": "x", "max_tokens": 5000, "stream": True})
        received = b""
        while b"data: " not in received:
            received += connection.recv(4000)
        connection.close()
        gone_within_a_second(server, "tarn_requests_running", 0)


@tap.case("a client that hangs up while it waits for room frees its request")
def _():
    # Room for one request of the whole context: the second has to wait.
    with FakeServer("--ctx", "1024", "--kv-size", str(1024 * 8), token_us=10000) as server:
        first = server.begin(completions, {"prompt": "x", "max_tokens": 1000})
        wait_for(lambda: server.metrics()["tarn_requests_running"] == 1, 10, "the first runs")
        second = server.begin(completions, {"prompt": "y", "max_tokens": 1000})
        wait_for(lambda: server.metrics()["tarn_requests_waiting"] == 1, 10, "the second waits")
        second.close()
        started = time.monotonic()
        wait_for(lambda: server.metrics()["tarn_requests_waiting"] == 0, 30, "it is dropped")
        assert time.monotonic() - started < 1.5
        assert server.metrics()["tarn_requests_running"] == 1
        first.close()
        gone_within_a_second(server, "tarn_requests_running", 0)


@tap.case("a client that does not read does not hold up the others")
def _():
    with FakeServer() as server:
        lazy = server.begin(completions, {"prompt": "x", "max_tokens": 8000, "stream": True})
        for _ in range(5):
            assert server.complete("echo:quick|")[0] == "quick"
        wait_for(lambda: server.metrics()["tarn_requests_running"] == 0, 30, "it is all computed")
        lazy.close()


@tap.case("more requests than may be alive are answered with 503 and Retry-After")
def _():
    with FakeServer("--max-waiting", "2", token_us=10000) as server:
        held = [server.begin(completions, {"prompt": "x", "max_tokens": 1000}) for _ in range(2)]
        wait_for(lambda: server.metrics()["tarn_requests_running"] == 2, 10, "both run")
        answer = server.post(completions, {"prompt": "y"})
        assert answer.status == 503 and answer.headers["Retry-After"] == "1"
        assert answer.error["type"] == "server_error" and answer.error["code"] == "overloaded"
        for connection in held:
            connection.close()
        wait_for(lambda: server.metrics()["tarn_requests_running"] == 0, 10, "they are dropped")
        assert server.complete("echo:room|")[0] == "room"


@tap.case("connections beyond --max-connections are answered with 503 and closed, and counted")
def _():
    with FakeServer("--max-connections", "3") as server:
        held = [server.connect() for _ in range(3)]
        for connection in held:  # an answer: it was accepted, and in this order
            connection.request("GET", "/version")
            connection.getresponse().read()
        for path in (completions, chat, "/tokenize"):
            answer = server.post(path, user("x", prompt="x" * 100000))
            assert answer.status == 503 and answer.headers["Retry-After"] == "1", answer.body
            assert answer.headers["Connection"].lower() == "close"
            assert answer.error["code"] == "overloaded" and "(--max-connections)" in \
                answer.error["message"]
        assert server.get("/health").status == 200  # it can be looked at all the same
        assert server.metrics()["tarn_connections_refused_total"] == 3
        assert server.log.count("3 connections are open") == 1, server.log
        # Who says nothing on a spare connection does not keep it: one more than there are.
        silent = [server.connect() for _ in range(40)]
        assert server.post(completions, {"prompt": "x"}).status == 503
        held[0].request("POST", completions, json.dumps({"prompt": "echo:mine|", "temperature": 0}))
        assert json.load(held[0].getresponse())["choices"][0]["text"] == "mine"
        for connection in held + silent:
            connection.close()
        wait_for(lambda: server.post(completions, {"prompt": "x"}).status == 200, 20, "room again")


@tap.case("a forward pass that fails ends its requests with 500 and the server goes on")
def _():
    with FakeServer() as server:
        answer = server.post(completions, {"prompt": "fail-forward"})
        assert answer.status == 500 and answer.error["type"] == "server_error"
        assert server.complete("echo:alive|")[0] == "alive"
        metrics = server.metrics()
        assert metrics['tarn_requests_total{outcome="failed"}'] == 1 and nothing_is_held(metrics)


@tap.case("a prefix is computed once: the second request takes it from the device")
def _():
    with FakeServer() as server:
        prompt = "p" * 100
        first = server.complete(prompt, max_tokens=4)[1]["usage"]
        assert first["prompt_tokens_details"]["cached_tokens"] == 0
        second = server.complete(prompt, max_tokens=4)[1]["usage"]
        assert second["prompt_tokens_details"]["cached_tokens"] == 96  # whole pages of 32
        salted = server.complete(prompt, max_tokens=4, cache_salt="other")[1]["usage"]
        assert salted["prompt_tokens_details"]["cached_tokens"] == 0
        assert prompt_tokens_add_up(server.metrics()) == 300


@tap.case("sixteen clients at once, a third hanging up: nothing is held afterwards")
def _():
    with FakeServer("--ctx", "512", "--kv-size", "256KiB", token_us=50) as server:
        def client(number):
            for turn in range(20):
                prompt = f"{number % 4} prefix " * 10 + f"echo:{number}-{turn}|"
                if (number + turn) % 3 == 0:
                    connection = server.begin(completions, {"prompt": prompt + "x",
                                                            "max_tokens": 100, "stream": True})
                    connection.recv(10)
                    connection.close()
                else:
                    text = server.complete(prompt, max_tokens=100)[0]
                    if text != f"{number}-{turn}":
                        failures.append((number, turn, text))
        failures = []
        threads = [threading.Thread(target=client, args=(n,)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures[:3]
        wait_for(lambda: nothing_is_held(server.metrics()), 5, "nothing is held")
        prompt_tokens_add_up(server.metrics())


@tap.case("SIGTERM lets running requests finish, refuses new ones, and ends with 0")
def _():
    with FakeServer(token_us=20000) as server:
        answers = []
        thread = threading.Thread(
            target=lambda: answers.append(server.complete("echo:" + "z" * 60 + "|", max_tokens=60)))
        thread.start()
        wait_for(lambda: server.metrics()["tarn_requests_running"] == 1, 10, "it runs")
        server.signal(signal.SIGTERM)
        wait_for(lambda: "stopping" in server.log, 10, "it says so")
        refused = server.post(completions, {"prompt": "late"})
        assert refused.status == 503 and "about to stop" in refused.error["message"]
        assert server.get("/health").status == 503
        thread.join()
        assert answers[0][0] == "z" * 60
        server.process.wait(10)
        assert server.process.returncode == 0


@tap.case("--drain-deadline bounds the wait; who is cut off gets an error")
def _():
    with FakeServer("--drain-deadline", "100ms", token_us=20000) as server:
        statuses = []
        thread = threading.Thread(target=lambda: statuses.append(
            server.post(completions, {"prompt": "x", "max_tokens": 5000}).status))
        thread.start()
        wait_for(lambda: server.metrics()["tarn_requests_running"] == 1, 10, "it runs")
        assert server.stop() == 0
        thread.join()
        assert statuses == [503] and "did not finish" in server.log


@tap.case("a second signal ends the server at once")
def _():
    with FakeServer(token_us=20000) as server:
        connection = server.begin(completions, {"prompt": "x", "max_tokens": 5000})
        wait_for(lambda: server.metrics()["tarn_requests_running"] == 1, 10, "it runs")
        server.signal(signal.SIGINT)
        wait_for(lambda: "stopping" in server.log, 10, "it says so")
        server.signal(signal.SIGINT)
        server.process.wait(10)
        assert server.process.returncode == 0
        connection.close()


def refused_start(*arguments, port=0, load_until=NEVER):
    """The log of a server that ends with 1."""
    server = FakeServer(*arguments, port=port, wait=False, load_until=load_until)
    try:
        assert server.process.wait(20) == 1, (arguments, server.log)
    finally:
        server.kill()
    return server.log


@tap.case("a port that is taken and options that do not fit together are refused at start, if it can "
          "be known before the model is loaded")
def _():
    for arguments, load_until, parts in (
            (["--host", "no such host"], NEVER, ["--host"]),
            (["--host", "192.0.2.1"], NEVER, ["192.0.2.1", "assign requested address"]),
            (["--max-batch-tokens", "40"], NEVER, ["--max-batch-tokens 40", "16 + 32 = 48"]),
            (["--kv-size", "512"], "", ["--kv-size"]),
            (["--kv-size", "8KiB"], "", ["page"])):
        log = refused_start(*arguments, load_until=load_until)
        for part in parts:
            assert part in log, (arguments, log)
    with FakeServer() as server:
        log = refused_start(port=server.port)
        assert f"cannot have port {server.port}" in log and "--port" in log


@tap.case("a port that is lost to another while the model is loaded is named")
def _():
    with tempfile.TemporaryDirectory() as folder, socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))  # does not listen yet: both may have the port so far
        port = other.getsockname()[1]
        gate = pathlib.Path(folder, "loaded")
        server = FakeServer(port=port, wait=False, load_until=gate)
        try:
            wait_for(lambda: "pool: none" in server.log, 20, "it has bound the port")
            other.listen()
            gate.touch()
            assert server.process.wait(20) == 1
            assert f"cannot have port {port} on 127.0.0.1: Address" in server.log, server.log
            assert "--port" in server.log, server.log
        finally:
            server.kill()


@tap.case("a signal while the model is loaded ends the start at once, with status 0")
def _():
    for number in (signal.SIGTERM, signal.SIGINT):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            server = FakeServer(pool=f"{folder}/p.pool,size=64MiB", wait=False, load_until=NEVER)
            try:
                wait_for(pathlib.Path(folder, "p.pool").exists, 20, "it opens its pool")
                started = time.monotonic()
                server.signal(number)
                assert server.process.wait(20) == 0, server.log
                assert time.monotonic() - started < 5, "seconds for a moment's work"
                assert "told to" in server.log and "stopped" in server.log, server.log
            finally:
                server.kill()
            # Its place in the pool is free again, and the pool as good as new.
            stat = subprocess.run([PROGRAM, "pool", "stat", f"{folder}/p.pool"], timeout=60,
                                  capture_output=True, text=True)
            assert stat.returncode == 0 and re.search(r"processes +0 of", stat.stdout), stat


tap.done()
