#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The main job on a real model: two servers, one pool; what one prefilled, the other replays.

Usage: demo.py MODEL.gguf TEXT

Starts two servers on one pool of its own, sends a long prompt to the first, the same prefix with another
question to the second, restarts the first and asks again. Each answer is compared with that of a server
without a pool whose prefill is cut at the token where the replayed one began to compute. Prints one table;
exits 1 if a row's tokens or output are not what they must be. Speed is printed, not judged.
"""
import os
import pathlib
import sys
import tempfile

from lib.demo import PAGE_TOKENS, DemoServer, Row, Talk, compare, print_table, show

SECONDS = 1800  # on a slow machine, too


def run(model, text):
    # The pool belongs in memory.
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="tarn-demo-", dir=base) as folder:
        pool = f"{folder}/demo.pool,size=512MiB"
        print("demo: starting servers A and B on one pool", flush=True)
        with DemoServer("A", model, pool) as first, DemoServer("B", model, pool) as second:
            talk = Talk(first, text)
            print(f"demo: the two chats share their first {talk.common_tokens} tokens, {talk.common_blocks} full blocks of "
                  f"{PAGE_TOKENS}", flush=True)
            rows = [Row("first question", first, talk.chats[0], 0),
                    Row("other question", second, talk.chats[1], talk.common_blocks * PAGE_TOKENS)]
            first.stop()
            with DemoServer("A again", model, pool) as again:
                whole_blocks = (len(talk.tokens[0]) - 1) // PAGE_TOKENS
                rows.append(Row("first question again, after a restart", again, talk.chats[0], whole_blocks * PAGE_TOKENS))
                again.stop()
            second.stop()
    print("demo: asking servers without a pool for comparison", flush=True)
    faults = compare(rows, model)
    print_table(rows, model)
    return faults


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    show("demo", lambda: run(sys.argv[1], pathlib.Path(sys.argv[2]).read_text()), SECONDS)
