# SPDX-License-Identifier: Apache-2.0
"""What the demos show, on a real model: a prompt that one server has prefilled, replayed by another that is asked
something else about it, beside a server without a pool whose prefill is cut at the token where the replay began to compute."""
import json
import os
import pathlib
import signal
import sys
import time

from lib.server import Server, nothing_is_held, wait_for
from lib.tap import Lacking

PAGE_TOKENS = 32
PREFIX_TOKENS = 1984  # the least that the two chats have in common
ANSWER_TOKENS = 32
QUESTION_TOKENS = 16  # at most
QUESTIONS = ["\n\nWho may use the work, and how?", "\n\nWhat does it say about patents?"]
SAVE_SECONDS, ANSWER_SECONDS = 120, 300
HEAD = ["request", "server", "prompt tokens", "from device", "from pool", "computed", "first token", "cold", "speed-up",
        "output identical"]


class DemoServer(Server):
    """One `tarn serve`; `cut`: where its prefill is cut."""
    def __init__(self, name, model, pool, *arguments, cut=0, **named):
        self.name = name
        super().__init__(model, "--page-tokens", str(PAGE_TOKENS), "--ctx", "4096", "--pool", pool,
                         *(("--prefill-cut", str(cut)) if cut else ()), *arguments, **named)
        self.model = self.get("/v1/models").json["data"][0]["id"]

    def tokens_of(self, **fields):
        """Of a text (prompt=) or a chat (messages=)."""
        answer = self.post("/tokenize", fields)
        assert answer.status == 200, answer.body
        return answer.json["tokens"]

    def sources(self):
        metrics = self.metrics()
        return {source: round(metrics[f'tarn_prompt_tokens_total{{source="{source}"}}'])
                for source in ("device", "pool", "computed")}

    def ask(self, messages, salt):
        """(answer, seconds to its first token, prompt tokens by source), once all that was computed is saved."""
        before = self.sources()
        body = {"model": self.model, "messages": messages, "temperature": 0, "max_tokens": ANSWER_TOKENS, "stream": True,
                "cache_salt": salt}
        text, first = "", None
        connection = self.connect(ANSWER_SECONDS)
        start = time.monotonic()
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200, (answer.status, answer.read())
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
        assert first is not None, f"server {self.name} sent no token: {self.log}"
        wait_for(lambda: nothing_is_held(self.metrics()), SAVE_SECONDS, f"server {self.name} has saved all")
        after = self.sources()
        return text, first, {source: after[source] - before[source] for source in after}


def common_prefix(left, right):
    count = 0
    while count < min(len(left), len(right)) and left[count] == right[count]:
        count += 1
    return count


class Talk:
    """Two chats about one text that share PREFIX_TOKENS tokens and a few more, as a server cuts it into tokens."""
    def __init__(self, server, text):
        for question in QUESTIONS:
            count = len(server.tokens_of(prompt=question))
            assert count <= QUESTION_TOKENS, f"the question {question!r} has {count} tokens"
        lines = text.splitlines(keepends=True)
        while len(lines) < 4096:  # a short text is repeated
            lines += lines
        low, high = 1, len(lines)
        while low < high:
            middle = (low + high) // 2
            self._say("".join(lines[:middle]), server)
            if self.common_tokens >= PREFIX_TOKENS:
                high = middle
            else:
                low = middle + 1
        self._say("".join(lines[:low]), server)
        self.common_blocks = self.common_tokens // PAGE_TOKENS

    def _say(self, text, server):
        self.chats = [[{"role": "user", "content": text + question}] for question in QUESTIONS]
        self.tokens = [server.tokens_of(messages=chat) for chat in self.chats]
        self.common_tokens = common_prefix(*self.tokens)


class Row:
    """One request, and what a server without a pool says to it."""
    def __init__(self, what, server, messages, due_tokens, salt=""):
        """`due_tokens`: what must come from the pool."""
        self.what, self.name, self.messages, self.due_tokens = what, server.name, messages, due_tokens
        self.prompt_tokens = len(server.tokens_of(messages=messages))
        self.text, self.first, self.sources = server.ask(messages, salt)

    def compare(self, cold, salt):
        """What is wrong with it, in words. Under a salt of its own, so that the cold server has computed none of it."""
        self.cold_text, self.cold_first, sources = cold.ask(self.messages, salt)
        faults = []
        if sum(self.sources.values()) != self.prompt_tokens:
            faults.append(f"{self.what}: the sources {self.sources} do not add up to {self.prompt_tokens} tokens")
        if self.sources["device"] or self.sources["pool"] != self.due_tokens:
            faults.append(f"{self.what}: {self.sources} where {self.due_tokens} tokens from the pool were due")
        if sources["computed"] != self.prompt_tokens:
            faults.append(f"{self.what}: the server without a pool computed only {sources['computed']} tokens")
        if self.text != self.cold_text:
            faults.append(f"{self.what}: output differs\n  got  {self.text!r}\n  cold {self.cold_text!r}")
        return faults

    def cells(self):
        speed_up = f"{self.cold_first / self.first:.1f}x" if self.sources["pool"] else "-"
        return [self.what, self.name, str(self.prompt_tokens), str(self.sources["device"]), str(self.sources["pool"]),
                str(self.sources["computed"]), f"{1000 * self.first:.0f} ms", f"{1000 * self.cold_first:.0f} ms",
                speed_up, "yes" if self.text == self.cold_text else "NO"]


def compare(rows, model):
    """Ask servers without a pool; what is wrong, in words."""
    faults = []
    for cut in sorted({row.sources["pool"] for row in rows}):
        with DemoServer(f"cold, cut at {cut}", model, "none", cut=cut) as cold:
            for number, row in enumerate(rows):
                if row.sources["pool"] == cut:
                    faults += row.compare(cold, f"row {number}")
    return faults


def print_table(rows, model):
    table = [HEAD] + [row.cells() for row in rows]
    widths = [max(len(line[i]) for line in table) for i in range(len(HEAD))]
    print()
    for number, line in enumerate(table):
        print("  ".join(cell.ljust(width) if i < 2 else cell.rjust(width)
                        for i, (cell, width) in enumerate(zip(line, widths))))
        if number == 0:
            print("  ".join("-" * width for width in widths))
    busy = os.getloadavg()[0]
    if busy > os.cpu_count() + 0.5:
        print(f"\nOther programs kept the processors busy (load {busy:.1f} on {os.cpu_count()} cores): times are long and uneven.")
    print(f"\nmodel {pathlib.Path(model).name}, {os.cpu_count()} cores; \"cold\" is the first token of a server without a "
          f"pool for the same prompt; temperature 0, {ANSWER_TOKENS} new tokens", flush=True)


def show(name, run, seconds):
    """Run a demo, which returns what is wrong; the process's exit status says whether all was right."""
    def over(*_):
        raise AssertionError(f"it took more than {seconds} s")
    signal.signal(signal.SIGALRM, over)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    signal.alarm(seconds)
    try:
        faults = run()
    except (AssertionError, Lacking) as error:
        sys.exit(f"{name}: {error}")
    for fault in faults:
        print(f"{name}: WRONG: {fault}")
    print(f"{name}: every row is right" if not faults else f"{name}: {len(faults)} faults")
    sys.exit(bool(faults))
