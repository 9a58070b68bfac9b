#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tarn's keys in a screen of Python, written from docs/key-scheme.md and nothing else.

Usage: key_scheme.py docs/key-scheme.md: recompute the golden vectors and compare; exits 1 on any difference.
"""
import hashlib
import json
import re
import struct
import sys


def digest(data):
    return hashlib.blake2b(data, digest_size=16).digest()


def seed(salt="", adapter=b"", scale=0.0, media=()):
    fields = [(1, struct.pack("<I", 1))]
    fields += [(2, salt.encode())] if salt else []
    fields += [(3, adapter), (4, struct.pack("<d", scale))] if adapter else []
    fields += [(5, medium) for medium in media]
    return digest(b"".join(struct.pack("<BI", tag, len(data)) + data for tag, data in fields))


def chain(parent, tokens, tokens_per_block):
    blocks = []
    for first in range(0, len(tokens) - tokens_per_block + 1, tokens_per_block):
        parent = digest(parent + struct.pack(f"<{tokens_per_block}q", *tokens[first:first + tokens_per_block]))
        blocks.append(parent)
    return blocks


def field(text):
    return re.sub(rb"[\x00-\x1f\x7f/%]", lambda byte: b"%%%02X" % ord(byte[0]), text.encode()).decode()


def namespace(prefix, model, world, rank, group, tokens_per_block, page_bytes, layout):
    return f"{field(prefix)}/{field(model)}/w{world}r{rank}/lg{group}/t{tokens_per_block}b{page_bytes}-{layout:016x}"


def vector_lines(case):
    scope = case["scope"]
    parent = seed(scope.get("salt", ""), bytes.fromhex(scope.get("adapter", "")), scope.get("scale", 0.0),
                  [bytes.fromhex(medium) for medium in scope.get("media", [])])
    tokens = [(case["first"] + i * case["step"]) for i in range(case["count"])]
    blocks = chain(parent, tokens, case["tokens_per_block"])
    return {"seed": parent.hex(), "blocks": [block.hex() for block in blocks]}


def check(path):
    failed = 0
    vectors = re.findall(r"```json\n(.*?)```", open(path, encoding="utf-8").read(), re.S)
    cases = [json.loads(line) for text in vectors for line in text.splitlines()]
    for case in cases:
        if "namespace" in case:
            good = namespace(**case["namespace"]) == case["text"]
        else:
            good = vector_lines(case) == {"seed": case["seed"], "blocks": case["blocks"]}
        if not good:
            failed += 1
            print("differs:", case)
    print(f"{len(cases) - failed} passed, {failed} failed")
    return failed or not cases


if __name__ == "__main__":
    sys.exit(bool(check(sys.argv[1])))
