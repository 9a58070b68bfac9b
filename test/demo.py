#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Show what Tarn does today: the program, and the model that the tests run on. Exits 1 if anything is wrong."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(*command):
    return subprocess.run(command, check=True, text=True, capture_output=True, timeout=600).stdout


def main():
    print(run(ROOT / "build/tarn", "--help"))
    model = pathlib.Path(run(ROOT / "tools/setup", "--print", "model").strip())
    with model.open("rb") as file:
        magic = file.read(4)
    print(f"model: {model.name}, {model.stat().st_size / 1e6:.0f} MB")
    return 0 if magic == b"GGUF" else 1


if __name__ == "__main__":
    sys.exit(main())
