#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tarn serve` over a double of Mooncake's library: faults that the real one cannot be made to show."""
import json
import os
import socket
import time

from lib.pool import BLOCKWISE, SANITIZED, Place, ask, full_blocks, make_model, prompt, settle
from lib.server import Server, nothing_is_held, wait_for
from lib.tap import Tap

tap = Tap()
FAKE = os.environ["TARN_FAKE_MOONCAKE"]
PAGES = 64  # of the server's own memory
PROMPT = 513  # 16 pages, a quarter of them: as many as may wait to be saved
MODEL = {"layers": 1, "heads": 2, "kv-heads": 2, "head-dim": 32, "ff-dim": 64, "vocab": 4096, "ctx": 1024}
PAGE_BYTES = 2 * 2 * 32 * 2 * 32  # keys and values of 2 heads, 32 numbers of 2 bytes, 32 tokens


class Provider(Place):
    """A server whose Mooncake is the double, told by `fault`; a master of its only accepts."""
    def __init__(self):
        super().__init__(MODEL)
        self.master = socket.create_server(("127.0.0.1", 0))

    def __exit__(self, *details):
        self.master.close()
        super().__exit__(*details)

    def over_double(self, *arguments, fault="", **named):
        file = self.folder / "mooncake.json"
        file.write_text(json.dumps({
            "master_server_address": f"127.0.0.1:{self.master.getsockname()[1]}", "local_hostname": "127.0.0.1",
            "library": FAKE, "global_segment_size": 1 << 20, "local_buffer_size": 1 << 20}))
        if not self.model.exists():
            make_model(self.model, **self.model_numbers)
        return Server(str(self.model), "--threads", "1", "--kv-size", str(PAGES * PAGE_BYTES), "--staging-buffer",
                      "8MiB", *BLOCKWISE, *arguments, env={**self.environment, "MOONCAKE_CONFIG_PATH": str(file),
                                                          "FAKE_MOONCAKE": fault}, **named)

    def alone(self):
        """What each prompt is answered with where there is no pool."""
        with self.server(*BLOCKWISE, pool="none") as server:
            return [ask(server, prompt(PROMPT, seed)).text for seed in range(10)]


def unaccounted(metrics):
    """Pages that are neither free nor anybody's: a transfer has them."""
    pages = {state: metrics[f'tarn_kv_pages{{state="{state}"}}'] for state in ("total", "free", "locked", "droppable")}
    return pages["total"] - pages["free"] - pages["locked"] - pages["droppable"]


def late_transfer(provider, answers, stage):
    """A prompt's load outlives its deadline while other prompts want every page there is. The call has a slot whatever is
    set, so that the pages are free at once, and what comes late goes nowhere."""
    held = provider.folder / "held"
    with provider.over_double("--stage-through-host", stage, "--load-deadline", "2s", fault=f"hold={held}") as server:
        assert server.metrics()['tarn_kv_pages{state="total"}'] == PAGES, server.metrics()
        for seed in range(6):  # the first ones make way for the last
            assert ask(server, prompt(PROMPT, seed)).text == answers[seed]
            settle(server)
        loaded = ask(server, prompt(PROMPT, 0))
        assert loaded.pool == full_blocks(PROMPT) and loaded.text == answers[0], vars(loaded)
        wait_for(lambda: nothing_is_held(server.metrics()), 60, "nothing is held")
        before = server.metrics()
        held.touch()
        late = ask(server, prompt(PROMPT, 1))
        assert late.pool == 0 and late.text == answers[1], vars(late)
        metrics = server.metrics()
        assert metrics['tarn_pool_load_failures_total{reason="deadline"}'] == full_blocks(PROMPT) // 32
        assert metrics["tarn_pages_abandoned"] == unaccounted(metrics) == 0, metrics
        for seed in range(6, 10):  # more pages than there are, each of them used again
            assert ask(server, prompt(PROMPT, seed)).text == answers[seed]
        held.unlink()
        wait_for(lambda: nothing_is_held(server.metrics()) and server.metrics()["tarn_pages_abandoned"] == 0, 60,
                 lambda: server.log)
        metrics = server.metrics()
        assert unaccounted(metrics) == 0, metrics
        assert metrics["tarn_pool_load_pages_total"] == before["tarn_pool_load_pages_total"]  # what came late is thrown away
        for seed in (9, 8, 1):
            assert ask(server, prompt(PROMPT, seed)).text == answers[seed]
        assert server.stop() == 0, server.log
        assert "used before it returned" not in server.log


@tap.case("a transfer that returns after its deadline: what it brings goes nowhere, and all answers are right")
def _():
    with Provider() as provider:
        answers = provider.alone()
        late_transfer(provider, answers, "off")
        late_transfer(provider, answers, "auto")


@tap.case("puts that fail as with a master of another version are found at start, and that is said")
def _():
    with Provider() as provider:
        started = time.monotonic()
        with provider.over_double(fault="put=-900", wait=False) as server:
            assert server.process.wait(60) == 1
            assert SANITIZED or time.monotonic() - started < 10
            for part in ("the step `put` failed: RPC failed (-900)", "different versions of Mooncake", "0.0-fake"):
                assert part in server.log, server.log


tap.done()
