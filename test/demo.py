#!/usr/bin/env python3
"""The main job on a real model: two servers, one pool; what one prefilled, the other replays.

Usage: demo.py TARN MODEL.gguf TEXT

Starts two servers on one pool of its own, sends a long prompt to the first, the same prefix with another
question to the second, restarts the first and asks again. Each answer is compared with that of a server
without a pool whose prefill is cut at the token where the replayed one began to compute. Prints one table;
exits 1 if a row's tokens or output are not what they must be. Speed is printed, not judged.
"""
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

PAGE_TOKENS = 32
PREFIX_TOKENS = 1984  # the least that the two chats must have in common
ANSWER_TOKENS = 32
QUESTION_TOKENS = 16  # at most
QUESTIONS = ["\n\nWho may use the work, and how?", "\n\nWhat does it say about patents?"]
START_SECONDS, STOP_SECONDS, ANSWER_SECONDS = 120, 30, 300


class Server:
    """One `tarn serve` on a port of its own."""

    def __init__(self, tarn, model, name, pool, folder, cut=0):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.name = name
        self.log_path = folder / f"{name}-{self.port}.log"
        command = [tarn, "serve", model, "--port", str(self.port), "--page-tokens", str(PAGE_TOKENS), "--ctx", "4096",
                   "--pool", pool]
        if cut:
            command += ["--prefill-cut", str(cut)]
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        while not self.is_healthy():
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"demo: server {name} did not start; its log:\n{self.log_path.read_text()}")
            time.sleep(0.05)
        self.model = json.loads(self.call("GET", "/v1/models")[1])["data"][0]["id"]

    def is_healthy(self):
        try:
            return self.call("GET", "/health")[0] == 200
        except OSError:
            return False

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS)
        try:
            connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def tokens_of(self, messages):
        status, text = self.call("POST", "/tokenize", {"messages": messages})
        if status != 200:
            sys.exit(f"demo: /tokenize answered {status}: {text}")
        return json.loads(text)["tokens"]

    def metric(self, name):
        text = self.call("GET", "/metrics")[1]
        match = re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)
        return int(float(match[1])) if match else 0

    def sources(self):
        return {source: self.metric(f'tarn_prompt_tokens_total{{source="{source}"}}')
                for source in ("device", "pool", "computed")}

    def wait_until_saved(self):
        deadline = time.monotonic() + START_SECONDS
        while self.metric("tarn_pages_pinned") or self.metric("tarn_requests_running"):
            if time.monotonic() > deadline:
                sys.exit(f"demo: server {self.name} did not finish saving")
            time.sleep(0.02)

    def ask(self, messages):
        """Return (answer, seconds to the first token, prompt tokens by source)."""
        before = self.sources()
        body = {"model": self.model, "messages": messages, "temperature": 0, "max_tokens": ANSWER_TOKENS, "stream": True}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS)
        start = time.monotonic()
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            sys.exit(f"demo: server {self.name} answered {answer.status}: {answer.read().decode()}")
        text, first = "", None
        for line in answer:
            line = line.decode().strip()
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            choices = json.loads(line[6:])["choices"]
            piece = choices[0]["delta"].get("content") if choices else None
            if piece:
                first = first or time.monotonic() - start
                text += piece
        connection.close()
        if first is None:
            sys.exit(f"demo: server {self.name} sent no token; its log:\n{self.log_path.read_text()}")
        self.wait_until_saved()
        after = self.sources()
        return text, first, {source: after[source] - before[source] for source in after}

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def common_prefix(left, right):
    count = 0
    while count < min(len(left), len(right)) and left[count] == right[count]:
        count += 1
    return count


def cut_text(server, text):
    """The shortest beginning of `text`, in whole lines, whose two chats share PREFIX_TOKENS tokens."""
    lines = text.splitlines(keepends=True)
    while len(lines) < 4096:  # a short text is repeated
        lines += lines
    low, high = 1, len(lines)
    while low < high:
        middle = (low + high) // 2
        chats = [server.tokens_of([{"role": "user", "content": "".join(lines[:middle]) + question}])
                 for question in QUESTIONS]
        if common_prefix(*chats) >= PREFIX_TOKENS:
            high = middle
        else:
            low = middle + 1
    return "".join(lines[:low])


class Row:
    def __init__(self, what, server, messages, expected_pool):
        self.what, self.name, self.messages = what, server.name, messages
        self.prompt_tokens = len(server.tokens_of(messages))
        self.expected_pool = expected_pool
        self.text, self.first, self.sources = server.ask(messages)

    def compare(self, tarn, model, folder):
        cold = Server(tarn, model, f"cold-{self.name}", "none", folder, cut=self.sources["pool"])
        self.cold_text, self.cold_first, sources = cold.ask(self.messages)
        cold.stop()
        self.identical = self.text == self.cold_text
        faults = []
        if sum(self.sources.values()) != self.prompt_tokens:
            faults.append(f"{self.what}: the sources {self.sources} do not add up to {self.prompt_tokens} tokens")
        if self.sources["device"] or self.sources["pool"] != self.expected_pool:
            faults.append(f"{self.what}: {self.sources} where {self.expected_pool} tokens from the pool were due")
        if sources["computed"] != self.prompt_tokens:
            faults.append(f"{self.what}: the server without a pool computed only {sources['computed']} tokens")
        if not self.identical:
            faults.append(f"{self.what}: output differs\n  got  {self.text!r}\n  cold {self.cold_text!r}")
        return faults

    def cells(self):
        speed_up = f"{self.cold_first / self.first:.1f}x" if self.sources["pool"] else "-"
        return [self.what, self.name, str(self.prompt_tokens), str(self.sources["device"]), str(self.sources["pool"]),
                str(self.sources["computed"]), f"{1000 * self.first:.0f} ms", f"{1000 * self.cold_first:.0f} ms",
                speed_up, "yes" if self.identical else "NO"]


def print_table(rows):
    head = ["request", "server", "prompt tokens", "from device", "from pool", "computed", "first token", "cold",
            "speed-up", "output identical"]
    table = [head] + [row.cells() for row in rows]
    widths = [max(len(line[i]) for line in table) for i in range(len(head))]
    for number, line in enumerate(table):
        print("  ".join(cell.ljust(width) if i < 2 else cell.rjust(width)
                        for i, (cell, width) in enumerate(zip(line, widths))))
        if number == 0:
            print("  ".join("-" * width for width in widths))


def run(tarn, model, text, folder, running):
    def start(name, pool):
        running.append(Server(tarn, model, name, pool, folder))
        return running[-1]

    pool = f"{folder}/demo.pool,size=512MiB"
    print("demo: starting servers A and B on one pool", flush=True)
    first, second = start("A", pool), start("B", pool)
    content = cut_text(first, text)
    chats = [[{"role": "user", "content": content + question}] for question in QUESTIONS]
    tokens = [first.tokens_of(chat) for chat in chats]
    common = common_prefix(*tokens)
    for question in QUESTIONS:
        count = len(json.loads(first.call("POST", "/tokenize", {"prompt": question})[1])["tokens"])
        if count > QUESTION_TOKENS:
            sys.exit(f"demo: the question {question!r} has {count} tokens, the limit is {QUESTION_TOKENS}")
    print(f"demo: the two chats share their first {common} tokens, {common // PAGE_TOKENS} full blocks of {PAGE_TOKENS}",
          flush=True)

    rows = [Row("first question", first, chats[0], 0)]
    rows.append(Row("other question", second, chats[1], common // PAGE_TOKENS * PAGE_TOKENS))
    first.stop()
    again = start("A again", pool)
    whole_blocks = (len(tokens[0]) - 1) // PAGE_TOKENS * PAGE_TOKENS
    rows.append(Row("first question again, after a restart", again, chats[0], whole_blocks))
    for server in (second, again):
        server.stop()
    print("demo: asking servers without a pool for comparison", flush=True)
    faults = [fault for row in rows for fault in row.compare(tarn, model, folder)]
    print()
    print_table(rows)
    busy = os.getloadavg()[0]
    if busy > os.cpu_count() + 0.5:
        print(f"\nOther programs kept the processors busy (load {busy:.1f} on {os.cpu_count()} cores): times are long and uneven.")
    print(f"\nmodel {pathlib.Path(model).name}, {os.cpu_count()} cores; \"cold\" is the first token of a server without a "
          f"pool for the same prompt; temperature 0, {ANSWER_TOKENS} new tokens")
    return faults


def main():
    tarn, model, text_path = sys.argv[1:4]
    # The pool belongs in memory; logs beside it are small.
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tarn-demo-", dir=base))
    running = []
    try:
        faults = run(tarn, model, pathlib.Path(text_path).read_text(), folder, running)
    finally:
        for server in running:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    for fault in faults:
        print(f"demo: WRONG: {fault}")
    print("demo: every row is right" if not faults else f"demo: {len(faults)} faults")
    sys.exit(bool(faults))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main()
