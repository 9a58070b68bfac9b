#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Donors, donations and where blocks land: real masters, real memory, real servers."""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time

from lib.cluster import PROGRAM, Site, children_of, complete, free_port, is_alive, pool_stat, segments, wait_for
from lib.mooncake import Master, Owner
from lib.pool import BLOCKWISE, Place, ask, prompt, settle
from lib.tap import Tap

tap = Tap()
OLD_MASTER = os.environ["TARN_OLD_MASTER"]
PROMPT = list(range(300, 1000))
BLOCKS = len(PROMPT) // 32


@tap.case("a donor lends, says so in its ready file, says it is alive, and leaves cleanly")
def _():
    with Site() as site, site.master() as master:
        ready = site.path("ready")
        with site.donor(master, "--ready-file", ready, "--heartbeat", "200ms") as donor:
            donor.wait_for("lending 67108864 bytes")
            wait_for(ready.exists, 10, "the ready file")
            assert ready.read_text() == f"127.0.0.1 {64 << 20}\n"
            assert segments(master) == [("127.0.0.1", 64 << 20)]
            donor.wait_for(r"donor: alive for \d+ s, lends 67108864 bytes as 127\.0\.0\.1:\d+; blocks take 0 B")
            assert donor.stop() == 0, donor.log
            assert "blocks of 0 bytes (0 B) that lived here are lost to the pool" in donor.log
        assert not ready.exists()
        assert segments(master) == []


@tap.case("a donor takes its master, size and host from a Mooncake configuration, and flags win")
def _():
    with Site() as site, site.master() as master:
        config = site.write("mooncake.json", json.dumps({
            "master_server_address": master.address, "local_hostname": "127.0.0.3",
            "metadata_server": "P2PHANDSHAKE", "global_segment_size": 32 << 20}))
        with site.run("donor", env={"MOONCAKE_CONFIG_PATH": str(config)}) as donor:
            donor.wait_for("lending 33554432 bytes")
            assert segments(master) == [("127.0.0.3", 32 << 20)]
            assert donor.stop() == 0
        with site.run("donor", "--config", config, "--segment-size", "48MiB", "--local-hostname",
                      "127.0.0.4") as donor:
            donor.wait_for("lending 50331648 bytes")
            assert segments(master) == [("127.0.0.4", 48 << 20)]
            assert donor.stop() == 0


@tap.case("a segment that cannot be mounted is told with status and seconds, and no memory was lent")
def _():
    with Site() as site, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))  # accepts, and is no master
        listener.listen(64)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        log = site.refused("donor", "--master", address, "--segment-size", "64MiB", "--ready-file",
                           site.path("ready"), "--master-timeout", "5s")
        assert re.search(r"lending 67108864 bytes .* failed with status -?\d+ \(.*\) after [\d.]+ s: no memory was lent",
                         log), log
        assert not site.path("ready").exists()


@tap.case("a server launches a master, lends, saves and replays, and says where blocks landed")
def _():
    with Site() as site:
        port, metrics_port, run_dir = free_port(), free_port(), site.path("run")
        with site.serve("--launch-master", "on", "--master-port", port, "--local-hostname", "127.0.0.1",
                        "--master-metrics-port", metrics_port, "--run-dir", run_dir, "--master-address-file",
                        site.path("addr"), *site.pool_options()) as server:
            complete(server, PROMPT)
            assert site.path("addr").read_text() == f"127.0.0.1:{port}\n"
            [child] = children_of(server.process.pid)
            assert b"minloglevel" not in pathlib.Path(f"/proc/{child}/environ").read_bytes()
            server.wait_for(r"pool capacity: 67108864 bytes / \(1 x 16448 bytes a block\) x 32 tokens = 130560 tokens")
            with site.serve("--pool", f"mooncake://file://{site.path('addr')}", "--master-metrics-port", metrics_port,
                            *site.pool_options()) as second:
                complete(second, PROMPT)
                second.wait_for(rf"prompt {len(PROMPT)} = device 0 \+ pool {32 * BLOCKS} \+ computed")
                second.wait_for(r"others 67108864 = 134217728 bytes")
                assert second.stop() == 0, second.log
            assert server.stop() == 0, server.log
            server.wait_for(r"blocks on 127\.0\.0\.1: \d+ bytes")
            server.wait_for("one host alone, 127.0.0.1, lends memory: donors are absent")
            assert not is_alive(child)
        assert not site.path("addr").exists()
        assert [path.name for path in run_dir.iterdir()] == ["mooncake_master.log"]
        site.is_clean()


@tap.case("blocks land on the server's and on the donor's host, and both are said")
def _():
    with Site() as site, site.master() as master, site.donor(master, "--local-hostname", "127.0.0.2") as donor:
        donor.wait_for("lending 67108864 bytes")
        with site.serve("--pool", f"mooncake://{master.address}", "--local-hostname", "127.0.0.1",
                        *site.pool_options(master)) as server:
            for first in range(300, 900, 100):
                complete(server, list(range(first, first + 700)))
            wait_for(lambda: "2 of 2 hosts hold blocks" in pool_stat(master), 30, lambda: pool_stat(master))
            assert server.stop() == 0, server.log
            for host in ("127.0.0.1", "127.0.0.2"):
                server.wait_for(rf"blocks on {re.escape(host)}: [1-9]\d* bytes")
        assert donor.stop() == 0
        donor.wait_for(r"blocks of [1-9]\d* bytes .* that lived here are lost to the pool")


@tap.case("what an inherited configuration says of the connector counts, unless a flag says otherwise")
def _():
    with Site() as site, site.master() as master:
        config = site.write("mooncake.json", json.dumps({
            "master_server_address": master.address, "local_hostname": "127.0.0.1", "global_segment_size": 64 << 20,
            "local_buffer_size": 64 << 20, "role": "consumer", "model_key": "theirs", "staging_buffer_bytes": 8 << 20}))
        env = {"MOONCAKE_CONFIG_PATH": str(config)}
        with site.serve("--master-metrics-port", master.metrics_port, env=env) as server:
            complete(server, PROMPT)
            server.wait_for(r"model key: theirs \(from the environment\)")
            assert server.stop() == 0, server.log
            server.wait_for("pool: 0 bytes (0 B) used".replace("(", r"\(").replace(")", r"\)"))
        with site.serve("--role", "both", "--model-key", "ours", "--master-metrics-port", master.metrics_port,
                        env=env) as server:
            complete(server, PROMPT)
            server.wait_for(r"model key: ours \(by flag\)")
            assert server.stop() == 0, server.log
            server.wait_for(rf"pool: [1-9]\d* bytes .* used .*, {BLOCKS + 1} objects")


@tap.case("a mooncake_client lends in a server's place: pages outlive the server; its death costs the pool, until it is back")
def _():
    with Site() as site, site.master() as master, Owner(master) as owner:
        options = ["--pool", f"mooncake://{master.address}", "--client-address", f"127.0.0.1:{owner.port}", "--local-hostname",
                   "127.0.0.1", "--local-buffer-size", "64MiB", "--staging-buffer", "8MiB", "--master-metrics-port",
                   master.metrics_port]
        with site.serve(*options) as server:
            complete(server, PROMPT)
            server.wait_for("this process lends nothing")
            server.wait_for(r"1 x segment 0 \+ donation 0 \+ others 268435456")
            assert server.stop() == 0, server.log
        assert [size for _, size in segments(master)] == [256 << 20]
        with site.serve(*options) as second:
            complete(second, PROMPT)
            second.wait_for(rf"prompt {len(PROMPT)} = device 0 \+ pool {32 * BLOCKS} \+ computed")
            owner.stop()
            first = 1000
            while "the pool is left alone" not in second.log:
                complete(second, list(range(first, first + 100)))
                first += 1
            owner.start()
            second.wait_for("the pool works again", 90)
            wait_for(lambda: len(segments(master)) == 1, 60, "the master notices that the first one's memory is gone")
            complete(second, list(range(2000, 2700)))
            assert second.stop() == 0, second.log
        with site.serve(*options) as third:
            complete(third, list(range(2000, 2700)))
            third.wait_for(rf"prompt 700 = device 0 \+ pool {32 * BLOCKS} \+ computed")
            assert third.stop() == 0, third.log


@tap.case("a donation alone attaches no pool, is mounted once the server is ready, and leaves with it")
def _():
    with Site() as site, site.master() as master:
        with site.serve("--donation-master-server-address", master.address, "--donation-segment-size",
                        "64MiB") as server:
            complete(server, PROMPT)
            assert segments(master) == [("127.0.0.1", 64 << 20)]
            server.wait_for("a donation alone attaches no pool")
            ready = next(i for i, line in enumerate(server.lines) if "tarn: listening on" in line)
            lent = next(i for i, line in enumerate(server.lines) if "lending 67108864 bytes" in line)
            assert lent < ready
            assert server.stop() == 0, server.log
        assert segments(master) == []
        assert len(site.leftovers()) == 1  # the master's own


@tap.case("a donation beside a pool enters after it and leaves before it")
def _():
    with Site() as site, site.master() as master:
        with site.serve("--pool", f"mooncake://{master.address}", "--donation-segment-size", "32MiB",
                        *site.pool_options(master)) as server:
            complete(server, PROMPT)
            assert sorted(size for _, size in segments(master)) == [32 << 20, 64 << 20]
            server.wait_for(r"1 x segment 67108864 \+ donation 33554432 \+ others 0 = 100663296 bytes")
            assert server.stop() == 0, server.log
            order = [next(i for i, line in enumerate(server.lines) if part in line) for part in (
                "tarn: pool: mooncake:", "tarn: lending 33554432 bytes", "tarn: listening on", "tarn: the donation ends",
                "tarn: stopped")]
            assert order == sorted(order), server.log
        assert segments(master) == []


@tap.case("a donation that cannot be mounted ends the start")
def _():
    with Site() as site, site.serve("--donation-master-server-address", "127.0.0.1:1", "--donation-segment-size",
                                    "64MiB", "--master-timeout", "200ms") as server:
        assert server.end() == 1
        server.wait_for("the master at 127.0.0.1:1 does not accept connections")
        assert "tarn: listening on" not in server.log
        site.is_clean()


@tap.case("a server told to end while it waits for its master leaves nothing")
def _():
    with Site() as site:
        program = site.script("sleeps", f"echo $$ > {site.path('pid')}; exec sleep 1000")
        with site.serve("--launch-master", "on", "--mooncake-master", program, "--master-port", free_port(),
                        "--master-metrics-port", free_port(), *site.pool_options()) as server:
            wait_for(lambda: site.path("pid").exists() and site.path("pid").read_text().endswith("\n"), 30,
                     lambda: server.log)
            assert server.stop() == 0, server.log
            assert not is_alive(int(site.path("pid").read_text()))
        site.is_clean()


@tap.case("a server told to end while its pool has no memory yet does not wait for it")
def _():
    with Site() as site, site.master() as master:
        with site.serve("--pool", f"mooncake://{master.address}", *site.pool_options(master), "--global-segment-size", 0) as server:
            server.wait_for("the pool has no space yet", 120)
            started = time.monotonic()
            assert server.stop() == 0, server.log
            assert time.monotonic() - started < 20, server.log
            server.wait_for("told to before the start was complete")
        assert len(site.leftovers()) == 1  # the master's own


@tap.case("a server says so when the master it launched dies, and goes on computing")
def _():
    with Site() as site, site.serve("--launch-master", "on", "--master-port", free_port(), "--master-metrics-port",
                                    free_port(), "--local-hostname", "127.0.0.1", *site.pool_options()) as server:
        complete(server, PROMPT)
        [child] = children_of(server.process.pid)
        os.kill(child, signal.SIGKILL)
        server.wait_for("ended with signal 9")
        server.wait_for("the pool is lost with its master")
        complete(server, [7 + token for token in PROMPT])
        assert server.stop() == 0, server.log
        server.wait_for("where blocks landed is not known")
        site.is_clean()


@tap.case("a master of another version is found at start within 10 s, by servers that save and that only load")
def _():
    with Site() as site, site.master("--mooncake-master", OLD_MASTER) as master:
        for role, step in (("both", "put"), ("consumer", "get")):
            started = time.monotonic()
            log = site.refused("serve", site.model, "--port", 0, "--pool", f"mooncake://{master.address}", "--role", role,
                               *site.pool_options(master))
            assert time.monotonic() - started < 10, log
            assert "tarn: listening on" not in log
            assert re.search(rf"error: mooncake: the master answers questions, and the step `{step}` failed: RPC failed "
                             r"\(-900\)\. Client and master are most likely of different versions of Mooncake, .* "
                             r"\(here: Mooncake 0\.3\.13", log), log
        result = subprocess.run([PROGRAM, "doctor", "--pool", f"mooncake://{master.address}"], capture_output=True,
                                text=True, timeout=60)
        assert result.returncode == 1 and "different versions of Mooncake" in result.stdout, result


@tap.case("a real master restarted in the middle: the pool is empty and refills, and the hit rate in /metrics shows it")
def _():
    with Master() as master, Place() as place:
        options = ("--global-segment-size", "64MiB", "--local-buffer-size", "64MiB", "--staging-buffer", "8MiB",
                   "--master-metrics-port", str(master.metrics_port), *BLOCKWISE)

        def rate(server, tokens):
            """What the pool gave of a prompt, and of the blocks asked of it, how many it had."""
            def counts():
                metrics = server.metrics()
                return [metrics[f'tarn_pool_blocks_total{{result="{result}"}}'] for result in ("hit", "miss")]
            before = counts()
            asked = ask(server, tokens)
            hit, miss = (now - then for now, then in zip(counts(), before))
            assert asked.text == ask(one, tokens).text
            return asked.pool, hit / (hit + miss) if hit + miss else None

        with place.server(*options, pool=master.pool) as one, place.server(*options, pool=master.pool) as two:
            for seed in range(2):
                ask(one, prompt(641, seed))
            settle(one)
            assert rate(two, prompt(641, 0)) == (640, 1)
            master.restart()
            pool, right_after = rate(two, prompt(641, 1))  # it was in the pool before
            assert pool == 0 and not right_after, (pool, right_after)
            seed, refilled = 2, (0, 0)
            deadline = time.monotonic() + 90
            while refilled != (640, 1):  # both lend their memory again by themselves, some seconds later
                assert time.monotonic() < deadline, (seed, refilled)
                ask(one, prompt(641, seed))
                settle(one)
                refilled = rate(two, prompt(641, seed))
                seed += 1
            assert one.stop() == 0 and two.stop() == 0, one.log + two.log


tap.done()
