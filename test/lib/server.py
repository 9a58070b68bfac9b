# SPDX-License-Identifier: Apache-2.0
"""Run `tarn serve`, or a program like it, for a test: on a free port, with its log at hand.

    with Server(MODEL, "--pool", "none") as server:
        server.post("/v1/completions", {"prompt": "Hi"})
        server.metrics()["tarn_requests_running"]
"""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time

from lib.log import Log
from lib.mooncake import die_with_parent
from lib.network import LOOPBACK

PROGRAM = os.environ.get("TARN_PROGRAM", "build/tarn")
FAKE = os.environ.get("TARN_FAKE_SERVER", "build/fake-server")
NEVER = "/nowhere/at/all"
SANITIZED = os.environ.get("TARN_TEST_SANITIZED") == "1"
# What would change the outcome if the user's environment had it.
FOREIGN = ("MOONCAKE_CONFIG_PATH", "TARN_RUN_DIR", "TARN_MOONCAKE_MASTER", "GLOG_v", "GLOG_logtostderr")
# A busy machine must not turn the pool's hits into misses where a test counts them.
PATIENT = {"TARN_LOOKUP_DEADLINE": "20s", "TARN_LOAD_DEADLINE": "60s"}


def environment(more):
    """This process's, without what is foreign, and some more."""
    return {**{name: value for name, value in os.environ.items() if name not in FOREIGN}, **(more or {})}


def wait_for(condition, seconds, what):
    """Wait until condition() is true; its last value. Fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(0.01)


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        """The error object, checked for OpenAI's shape."""
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}, error
        assert self.headers["Content-Type"] == "application/json"
        return error


class Server:
    def __init__(self, *arguments, command=None, env=None, port=0, start_seconds=120,
                 wait=True, host=LOOPBACK):
        self.command = command or [PROGRAM, "serve"]
        self._log = Log()
        self.host = host
        with host.inside():
            self.process = subprocess.Popen(
                [*self.command, *arguments, "--port", str(port)], stdin=subprocess.DEVNULL,
                stderr=self._log.file, env=environment({**PATIENT, **(env or {})}), preexec_fn=die_with_parent)
        self.port = None
        if wait:
            wait_for(self._listens, start_seconds, "the server listens")

    def _listens(self):
        for line in self.lines:
            found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found[1])
                return True
        if self.process.poll() is not None:
            raise AssertionError(f"the server ended with {self.process.returncode}: {self.log}")
        return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    @property
    def lines(self):
        return self._log.lines

    @property
    def log(self):
        return "\n".join(self.lines)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def connect(self, seconds=60):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        with self.host.inside():
            connection.connect()
        return connection

    def request(self, method, path, body=None, seconds=60):
        connection = self.connect(seconds)
        try:
            if body is not None and not isinstance(body, (bytes, str)):
                body = json.dumps(body)
            connection.request(method, path, body, {"Content-Type": "application/json"})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, path):
        return self.request("GET", path)

    def post(self, path, body, seconds=60):
        return self.request("POST", path, body, seconds)

    def complete(self, prompt, seconds=60, **fields):
        """The text and the whole answer of a completion at temperature 0."""
        answer = self.post("/v1/completions", {"prompt": prompt, "temperature": 0, **fields},
                           seconds)
        assert answer.status == 200, answer.body
        return answer.json["choices"][0]["text"], answer.json

    def begin(self, path, body):
        """Send a request and return the socket without reading the answer."""
        body = json.dumps(body).encode()
        with self.host.inside():
            connection = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: {len(body)}\r\n\r\n"
                           .encode() + body)
        return connection

    def metrics(self):
        """Values by "name" or 'name{label="x"}'."""
        text = self.get("/metrics").body.decode()
        rows = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in rows}

    def resident_kib(self):
        """Resident memory by kind: anon, file, shmem (the pool's mapping)."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            return {kind.lower(): int(kib)
                    for kind, kib in re.findall(r"Rss(Anon|File|Shmem):\s+(\d+)", status.read())}

    def signal(self, number):
        self.process.send_signal(number)

    def stop(self, seconds=60):
        """Stop it as an operator does; its exit status."""
        self.signal(signal.SIGTERM)
        self.process.wait(seconds)
        return self.process.returncode

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(30)


class FakeServer(Server):
    """The server over the engine double of test/lib/fake-engine.c. `load_until`: its model is loaded
    when there is a file of this name; NEVER: it never is."""

    def __init__(self, *arguments, pool="none", token_us=0, page_bytes=0, load_until="", **named):
        super().__init__("fake", "--pool", pool, *arguments, command=[FAKE],
                         env={"TARN_FAKE_TOKEN_US": str(token_us),
                              "TARN_FAKE_PAGE_BYTES": str(page_bytes),
                              "TARN_FAKE_LOAD_UNTIL": str(load_until)}, **named)


def prompt_tokens_add_up(metrics):
    """requested = device + tier + pool + computed."""
    name = "tarn_prompt_tokens_total"
    sources = sum(metrics[f'{name}{{source="{source}"}}']
                  for source in ("device", "tier", "pool", "computed"))
    assert sources == metrics["tarn_prompt_tokens_requested_total"], metrics
    return sources


def memory_did_not_grow(before, after):
    """Two resident_kib() of one server: at most 5 % more of the process's own, and 2 MiB for what a
    small server took at its start and touches bit by bit. The pool is everybody's. Sanitizers keep
    what is freed, so there it says nothing."""
    return SANITIZED or after["anon"] + after["file"] <= 1.05 * (before["anon"] + before["file"]) + 2048


def nothing_is_held(metrics):
    """True when no request, page, lease or pin is left."""
    gauges = ("tarn_requests_running", "tarn_requests_waiting", 'tarn_kv_pages{state="locked"}',
              "tarn_pages_pinned", "tarn_pool_leases", "tarn_pool_save_queue_pages")
    return all(metrics[gauge] == 0 for gauge in gauges)
