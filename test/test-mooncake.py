#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The store over the wheel and a real mooncake_master on loopback."""
import json
import os
import re
import signal
import subprocess
import tempfile
import time

from lib.mooncake import Master, Owner, die_with_parent, free_port
from lib.tap import Tap

tap = Tap()
LONG = "TARN_TEST_LONG" in os.environ
CLIENT = os.environ["TARN_MOONCAKE_CLIENT"]
CONFORMANCE = os.environ["TARN_MOONCAKE_CONFORMANCE"]
RANKS = os.environ["TARN_MOONCAKE_RANKS"]
PATIENT = {"MC_RPC_TIMEOUT_MS": "10000", "MC_RPC_CONNECT_TIMEOUT_MS": "10000"}  # many processes begin at once
IDENTITY = os.environ["TARN_IDENTITY"]


class Client:
    """A process of test/mooncake-client.c."""
    def __init__(self, pool, seconds=0, seed=1, mib=64, keys=1500, env=None, wait=True):
        self.log = tempfile.TemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen(
            [CLIENT, pool, str(seconds), str(seed), str(mib), str(keys)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self.log, text=True, errors="replace",
            env={**os.environ, **(env or {})}, preexec_fn=die_with_parent)
        if wait:
            self.expect_ready()

    def expect_ready(self):
        line = self.process.stdout.readline()
        assert line == "ready\n", (line, self.text())

    def text(self):
        self.log.seek(0)
        return self.log.read()[-4000:]

    def counts(self):
        line = self.process.stdout.readline()
        assert line, self.text()
        return {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", line)}

    def order(self, word, pages):
        self.process.stdin.write(f"{word} {pages}\n")
        self.process.stdin.flush()
        return self.counts()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def run(command, **env):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                          env={**os.environ, **env}, timeout=250, preexec_fn=die_with_parent)


def run_suite(command, cases_min, **env):
    """A program of cases that print TAP; its remarks."""
    result = run(command, **env)
    cases = re.findall(r"^ok \d+ - ", result.stdout, re.M)
    assert result.returncode == 0 and len(cases) >= cases_min, result.stdout + result.stderr[-4000:]
    return re.findall(r"^# (.*)$", result.stdout, re.M)


@tap.case("the suite that all stores pass, with the wheel and a real master")
def _():
    with Master() as master:
        run_suite([CONFORMANCE], 13, TARN_MOONCAKE_POOL=master.pool)


@tap.case("four ranks save, four others load: pages lost, changed, late, staged, compared; a rank dead")
def _():
    with Master() as master, Client(master.pool, mib=64):
        run_suite([RANKS], 8, TARN_MOONCAKE_POOL=master.pool, **PATIENT)


@tap.case("the same suite, and four ranks, over a mooncake_client that lends in their place")
def _():
    with Master() as master, Owner(master, mib=512) as owner:
        run_suite([CONFORMANCE], 13, TARN_MOONCAKE_POOL=owner.pool)
        run_suite([RANKS] if LONG else [RANKS, "what_four_*"], 8 if LONG else 1, TARN_MOONCAKE_POOL=owner.pool, **PATIENT)


@tap.case("what lies with a mooncake_client outlives who put it; one that dies is lost, and used again when it is back")
def _():
    with Master() as master, Owner(master) as owner, Client(owner.pool) as second:
        with Client(owner.pool) as first:
            assert first.order("put", 100)["put"] == 100
        got = second.order("get", 100)
        assert got["got"] == 100 and got["wrong"] == 0, got
        owner.stop()
        got = second.order("get", 8)
        assert got["failed"] == 8 and got["missed"] == got["wrong"] == 0, got
        assert second.order("put", 8)["put_failed"] == 8
        owner.start()
        deadline, counts = time.monotonic() + 60, {"got": 0}
        while counts["got"] != 100:
            second.order("put", 100)
            counts = second.order("get", 100)
            assert counts["wrong"] == counts["corrupt"] == 0 and time.monotonic() < deadline, counts


if LONG:  # it takes that process 10 s to forget
    @tap.case("a process that was stopped until the mooncake_client forgot it goes on with new memory")
    def _():
        with Master() as master, Owner(master) as owner, Client(owner.pool) as client, Client(owner.pool) as other:
            assert client.order("put", 50)["put"] == 50
            client.process.send_signal(signal.SIGSTOP)
            deadline = time.monotonic() + 60
            while "client_expired" not in owner.text():
                assert time.monotonic() < deadline, owner.text()
                time.sleep(0.1)
            client.process.send_signal(signal.SIGCONT)
            got = client.order("get", 50)
            assert got["got"] == 50 and got["wrong"] == 0, (got, client.text())
            assert "has forgotten this process's memory" in client.text()
            assert client.order("put", 60)["put"] == 10
            assert other.order("get", 60)["got"] == 60


@tap.case("each field that changes what page bytes mean, flipped: a miss, through the connector and the real store")
def _():
    with Master() as master, tempfile.TemporaryDirectory() as folder:
        def pool(mib):
            path = os.path.join(folder, f"{mib}.json")
            with open(path, "w") as file:
                json.dump({"master_server_address": master.address, "local_hostname": "127.0.0.1",
                           "global_segment_size": mib << 20, "local_buffer_size": 16 << 20}, file)
            return f"mooncake:{path}"
        shares, lends, lends_nothing = 8, pool(64), pool(0)

        log = tempfile.TemporaryFile("w+", errors="replace")

        def start(*arguments):
            return subprocess.Popen([IDENTITY, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                    stderr=log, text=True, preexec_fn=die_with_parent)
        processes = [start(lends)]
        try:
            assert processes[0].stdout.readline() == "# saved\n"
            processes += [start(lends_nothing, share, shares) for share in range(shares)]  # what they read is A's
            output = "".join(process.communicate(timeout=250)[0] for process in reversed(processes))
        finally:
            for process in processes:
                process.kill()
        log.seek(0)
        assert not any(process.returncode for process in processes), (output, re.findall("error: .*", log.read()))
        assert len(re.findall(r"^ok \d+ - ", output, re.M)) >= 95 and "not ok" not in output, output


@tap.case("what one process puts another gets, every byte")
def _():
    with Master() as master, Client(master.pool) as first, Client(master.pool) as second:
        assert first.order("put", 100)["put"] == 100
        got = second.order("get", 100)
        assert got["got"] == 100 and got["wrong"] == 0, got
        assert second.order("put", 100)["present"] == 100


@tap.case("a restarted master is an empty pool that fills again")
def _():
    with Master() as master, Client(master.pool) as client:
        assert client.order("put", 50)["put"] == 50
        assert client.order("get", 50)["got"] == 50
        master.restart()
        got, put, filled = client.order("get", 50), {"present": 0}, 0
        assert got["got"] == 0 and got["wrong"] == 0, got
        deadline = time.monotonic() + 60
        while put["present"] < 50:  # the client lends its memory again by itself, some seconds later
            put = client.order("put", 50)
            filled += put["put"]
            assert time.monotonic() < deadline, put
        assert filled >= 50, filled
        got = client.order("get", 50)
        assert got["got"] == 50 and got["wrong"] == 0, got


@tap.case("a master that is away is told from an empty pool, and used again when it is back")
def _():
    with Master() as master, Client(master.pool, env={"MC_RPC_TIMEOUT_MS": "1000", "MC_RPC_CONNECT_TIMEOUT_MS": "1000"}) as client:
        assert client.order("put", 8)["put"] == 8
        master.pause()
        started = time.monotonic()
        got = client.order("get", 8)
        assert got["failed"] == 8 and got["missed"] == 0, got
        assert time.monotonic() - started < 10
        master.pause(False)
        deadline = time.monotonic() + 60
        while client.order("get", 8)["got"] != 8:
            assert time.monotonic() < deadline


@tap.case("a pool whose master does not listen is refused with its address")
def _():
    port = free_port()
    result = run([CLIENT, f"mooncake://127.0.0.1:{port}", "1", "1", "16"],
                 MC_RPC_TIMEOUT_MS="200", MC_RPC_CONNECT_TIMEOUT_MS="200", MC_STORE_CLIENT_SETUP_RETRIES="1")
    assert result.returncode == 2 and f"127.0.0.1:{port}" in result.stderr, result.stderr
    assert "setup of the client failed" in result.stderr, result.stderr


@tap.case("a wheel that is not there is named, with what to install")
def _():
    result = run([CLIENT, "mooncake://127.0.0.1:1", "1", "1", "16"], TARN_MOONCAKE_BRIDGE="/nowhere/bridge.so")
    assert result.returncode == 2 and "/nowhere/bridge.so" in result.stderr, result.stderr
    result = run([CLIENT, "mooncake://127.0.0.1:1", "1", "1", "16"], PYTHONPATH=os.path.join(os.path.dirname(__file__), "lib/no-wheel"))
    assert result.returncode == 2 and "libibverbs1" in result.stderr, result.stderr


@tap.case("clients in eight processes under a pool too small: every byte compared, none wrong")
def _():
    seconds = 600 if LONG else 8
    with Master("--default_kv_lease_ttl=500") as master:
        clients = [Client(master.pool, seconds, seed, mib=24, env=PATIENT, wait=False) for seed in range(1, 9)]
        total = {}
        try:
            for client in clients:
                client.expect_ready()
            for client in clients:
                for name, value in client.counts().items():
                    total[name] = total.get(name, 0) + value
                client.process.wait(30)
        finally:
            for client in clients:
                client.__exit__()
        print(f"# {seconds} s: " + " ".join(f"{name}={value}" for name, value in total.items()), flush=True)
        assert total["wrong"] == 0 and total["corrupt"] == 0, total
        assert total["got"] > 100 and total["put"] > 100 and total["missed"] > 0, total
        assert total["full"] > 0, "the pool was never full"


tap.done()
