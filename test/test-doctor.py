#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tarn doctor: what it says of a host that will do, and of each thing that will not."""
import contextlib
import json
import os
import pathlib
import resource
import shutil
import socket
import subprocess
import tempfile

from lib.cluster import Site
from lib.mooncake import free_port
from lib.server import PROGRAM, SANITIZED, FakeServer
from lib.tap import Tap

tap = Tap()
# The bridge to Mooncake's Python package embeds CPython; builds with sanitizers go without it.
with_bridge = (lambda name: lambda function: function) if SANITIZED else tap.case


@contextlib.contextmanager
def place():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tarn-test-", dir="/dev/shm"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def doctor(*arguments, port=0, limit=None):
    """Exit status, and findings by check; a check's worst finding counts. `limit` is set first, in its process."""
    result = subprocess.run([PROGRAM, "doctor", "--json", "--port", str(port), *arguments], preexec_fn=limit,
                            capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert "tarn: " not in result.stderr, result.stderr  # Mooncake's library has its own to say
    answer = json.loads(result.stdout)
    assert answer["ok"] == (result.returncode == 0), result
    order = ("ok", "note", "warning", "failed")
    checks = {}
    for finding in answer["checks"]:
        assert set(finding) <= {"check", "result", "text", "advice"} and finding["text"], finding
        before = checks.get(finding["check"])
        if not before or order.index(finding["result"]) > order.index(before["result"]):
            checks[finding["check"]] = finding
    assert answer["ok"] == all(f["result"] != "failed" for f in checks.values())
    return result.returncode, checks


def failed(answer, check, *parts):
    """The check failed, and it alone; its text has all parts."""
    status, checks = answer
    assert status == 1
    assert [c for c in checks if checks[c]["result"] == "failed"] == [check], checks
    for part in parts:
        assert part in checks[check]["text"], (part, checks[check])


@tap.case("a host that will do: every check is there, pages went through, and nothing is left")
def _():
    with place() as folder:
        status, checks = doctor("--pool", f"{folder}/p,size=64MiB")
        assert status == 0
        assert set(checks) == {"memory", "shared memory", "memlock", "huge pages", "clock", "model",
                               "port", "connector", "pool", "write and read"}, checks.keys()
        assert "is not there yet" in checks["pool"]["text"]
        assert "equal byte for byte" in checks["write and read"]["text"]
        assert list(folder.iterdir()) == []
        assert "model" in doctor("--pool", "none")[1] and doctor("--pool", "none")[0] == 0


@tap.case("for people it is a line a check, and a sentence")
def _():
    with place() as folder:
        result = subprocess.run([PROGRAM, "doctor", "--port", "0", "--pool", f"{folder}/p,size=64MiB"],
                                capture_output=True, text=True, timeout=120)
        assert result.returncode == 0 and result.stderr == ""
        assert result.stdout.endswith("A server with these options would work.\n")
        assert "\nok       write and read  8 blocks" in result.stdout, result.stdout
        help_text = subprocess.run([PROGRAM, "doctor", "--help"], capture_output=True, text=True,
                                   timeout=60)
        assert help_text.returncode == 0 and help_text.stdout.startswith("usage: tarn doctor ")


@tap.case("a pool that servers use is probed as it is, and they go on")
def _():
    with place() as folder:
        pool = f"{folder}/p,size=64MiB"
        with FakeServer(pool=pool) as server:
            text, _ = server.complete("x" * 100, max_tokens=4)
            for _ in range(2):
                status, checks = doctor("--pool", pool)
                assert status == 0 and "is there" in checks["pool"]["text"], checks
                assert "through it" in checks["write and read"]["text"]
            assert server.complete("x" * 100, max_tokens=4)[0] == text


@tap.case("a port that is taken is named")
def _():
    with place() as folder, socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failed(doctor("--pool", f"{folder}/p,size=64MiB", port=port), "port", str(port))


@tap.case("a model that is not there is named")
def _():
    with place() as folder:
        failed(doctor("/nowhere/m.gguf", "--pool", f"{folder}/p,size=64MiB"), "model",
               "/nowhere/m.gguf: No such file")


@tap.case("a pool's file that is none is named, with the store's own words")
def _():
    with place() as folder:
        (folder / "p").write_bytes(os.urandom(1 << 20))
        failed(doctor("--pool", f"{folder}/p"), "write and read", "opening it", f"{folder}/p")


@tap.case("a directory that is not there is named")
def _():
    status, checks = doctor("--pool", "/nowhere/p,size=64MiB")
    assert status == 1 and "/nowhere: No such file" in checks["shared memory"]["text"]
    assert checks["pool"]["result"] == "failed"


@tap.case("a pool larger than the file system has room is a warning with the numbers")
def _():
    with place() as folder:
        _, checks = doctor("--pool", f"{folder}/p,size=1000TiB")
        assert checks["shared memory"]["result"] == "warning"
        assert "too little for a new pool" in checks["shared memory"]["text"]


@tap.case("memory for keys and values that is not there is named")
def _():
    failed(doctor("--pool", "none", "--kv-size", "900TiB"), "memory", "--kv-size is 900TiB")


@tap.case("a connector that will not do is named")
def _():
    failed(doctor("--connector-module", "/nowhere/x.so", "--connector-symbol", "f"), "connector",
           "/nowhere/x.so")


@with_bridge("a distributed pool: library, device, and a master that is not there are named")
def _():
    port = free_port()
    status, checks = doctor("--pool", f"mooncake://127.0.0.1:{port}")
    assert status == 1 and checks["master"]["result"] == "failed", checks
    assert f"127.0.0.1:{port} does not accept connections" in checks["master"]["text"]
    assert checks["Mooncake"]["result"] == checks["libraries"]["result"] == "ok", checks
    assert checks["device"]["text"] == "tcp" and "write and read" not in checks
    # the same from a file, whose address file nobody has written
    with place() as folder:
        file = folder / "t.yaml"
        file.write_text(f"pool:\n  master_server_address: file://{folder}/master.addr\n"
                        "  protocol: rdma\n  device_name: none0\n")
        status, checks = doctor("--config", str(file))
        assert status == 1 and f"{folder}/master.addr" in checks["master"]["text"], checks
        assert "rdma over none0" in checks["device"]["text"], checks


@tap.case("RDMA with little memory to lock: the doctor names both sizes and what to set")
def _():
    def limit():
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (64 << 10, 64 << 10))
    pool = ("--pool", f"mooncake://127.0.0.1:{free_port()}", "--global-segment-size", "1GiB", "--local-buffer-size", "1GiB")
    status, checks = doctor(*pool, "--protocol", "rdma", limit=limit)
    assert status == 1 and checks["memlock"]["result"] == "failed", checks
    assert checks["memlock"]["text"] == "RDMA registers 2 GiB, but only 64 KiB may be locked", checks
    assert "LimitMEMLOCK=infinity" in checks["memlock"]["advice"], checks
    assert doctor(*pool, limit=limit)[1]["memlock"]["result"] == "note"


@with_bridge("a master that the server would start: its program and its ports are looked at")
def _():
    rpc, metrics = free_port(), free_port()
    ports = ("--launch-master", "on", "--master-port", str(rpc), "--master-metrics-port", str(metrics))
    status, checks = doctor(*ports)
    assert status == 0 and checks["master"]["result"] == "ok", checks
    assert checks["write and read"]["result"] == "note"
    with socket.create_server(("0.0.0.0", rpc)):
        failed(doctor(*ports), "master", f"--master-port: port {rpc} is taken")
    failed(doctor(*ports, "--mooncake-master", "/nowhere/mm"), "master", "/nowhere/mm")
    failed(doctor(*ports, "--master-server-address", "127.0.0.1:1"), "pool", "not both")


@with_bridge("a real master: without memory a warning, with a donor pages go there and back")
def _():
    with Site() as site, site.master() as master:
        pool = ("--pool", f"mooncake://{master.address}")
        status, checks = doctor(*pool)
        assert status == 0 and checks["master"]["result"] == "ok", checks
        assert checks["local host"]["result"] == "note", checks
        assert checks["write and read"]["result"] == "warning", checks
        assert "there is no room" in checks["write and read"]["text"]
        with site.donor(master) as donor:
            donor.wait_for("lending")
            status, checks = doctor(*pool)
            assert status == 0, checks
            assert "equal byte for byte" in checks["write and read"]["text"], checks


@tap.case("options come from flags, environment and file, and are refused as the server's")
def _():
    with place() as folder:
        file = folder / "t.yaml"
        file.write_text("model: /nowhere/m.gguf\npool: none\n")
        failed(doctor("--config", str(file)), "model", "/nowhere/m.gguf")
        file.write_text("model: /nowhere/m.gguf\npol: none\n")
        result = subprocess.run([PROGRAM, "doctor", "--config", str(file)], capture_output=True,
                                text=True, timeout=60)
        assert result.returncode == 2 and f"{file}:2: unknown section 'pol'" in result.stderr


tap.done()
