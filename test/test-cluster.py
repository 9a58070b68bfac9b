#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bringing a distributed pool up and down: real masters, and programs of ours where a fault is needed."""
import json
import os
import pathlib
import signal
import socket
import threading
import time

from lib.cluster import SLOW, Site, children_of, free_port, is_alive, wait_for
from lib.tap import Tap

tap = Tap()


def one_line(text, *parts):
    assert all(part in text for part in parts), (parts, text)


# ---- tarn master

@tap.case("a master publishes its address, and everything goes at its end but the log")
def _():
    with Site() as site:
        run_dir, address_file = site.path("run"), site.path("shared.addr")
        with site.master("--run-dir", run_dir, "--address-file", address_file) as master:
            assert address_file.read_text() == f"{master.address}\n"
            assert (run_dir / "master.addr").read_text() == f"{master.address}\n"
            [child] = children_of(master.process.pid)
            environment = pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
            assert b"GLOG_logtostderr=1" in environment and b"GLOG_v=1" in environment
            assert b"GLOG" not in pathlib.Path(f"/proc/{master.process.pid}/environ").read_bytes()
            flags = pathlib.Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[1:-1]
            port = master.address.split(":")[1]
            assert flags == [f"--rpc_port={port}".encode(), f"--metrics_port={master.metrics_port}".encode(),
                             b"--eviction_ratio=0.050000"], flags
            assert master.stop() == 0
            assert not is_alive(child)
        assert not address_file.exists()
        assert [path.name for path in run_dir.iterdir()] == ["mooncake_master.log"]
        assert "Master service started" in (run_dir / "mooncake_master.log").read_text(errors="replace")
        site.is_clean()


@tap.case("a master's environment that is set is left alone, and a temporary directory goes")
def _():
    with Site() as site, site.master("--eviction-ratio", "0.25", env={"GLOG_v": "0"}) as master:
        [child] = children_of(master.process.pid)
        assert b"GLOG_v=0" in pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        assert b"--eviction_ratio=0.250000" in pathlib.Path(f"/proc/{child}/cmdline").read_bytes()
        assert len(list(site.temporary.iterdir())) == 1
        assert master.stop() == 0
        site.is_clean()


@tap.case("a master dies with the process that runs it, however that ends")
def _():
    with Site() as site, site.master() as master:
        [child] = children_of(master.process.pid)
        master.process.kill()
        wait_for(lambda: not is_alive(child), 10, "the master is gone")


@tap.case("a master that is killed is reported with its last words")
def _():
    with Site() as site, site.master() as master:
        [child] = children_of(master.process.pid)
        os.kill(child, signal.SIGKILL)
        assert master.end() == 1
        one_line(master.log, "ended with signal 9 (Killed) by itself", "  master: ")
        site.is_clean()


@tap.case("a master that dies with status 3 is an error with its last 20 lines")
def _():
    with Site() as site:
        program = site.script("dies", "for i in $(seq 1 30); do echo line $i; done; exit 3")
        log = site.refused("master", "--mooncake-master", program, "--rpc-port", free_port(),
                           "--metrics-port", free_port())
        one_line(log, "ended with exit status 3 before it accepted connections")
        words = [line.split("master: ")[1] for line in log.splitlines() if "  master: " in line]
        assert words == [f"line {i}" for i in range(11, 31)], words


@tap.case("a master that never listens is a time-out, and is not left behind")
def _():
    with Site() as site:
        program = site.script("sleeps", f"echo $$ > {site.path('pid')}; echo up; exec sleep 1000")
        started = time.monotonic()
        log = site.refused("master", "--mooncake-master", program, "--rpc-port", free_port(),
                           "--metrics-port", free_port(), "--master-timeout", "1s")
        one_line(log, "time-out", "does not listen on port", "  master: up")
        assert time.monotonic() - started < 30 * SLOW
        assert not is_alive(int(site.path("pid").read_text()))


@tap.case("waiting for a master is said every 5 s, and ends when told to")
def _():
    with Site() as site:
        program = site.script("sleeps", f"echo $$ > {site.path('pid')}; exec sleep 1000")
        with site.run("master", "--mooncake-master", program, "--rpc-port", free_port(), "--metrics-port",
                      free_port()) as master:
            master.wait_for(r"waiting for the master to accept connections: .* \(5 s of 60 s\)")
            assert master.stop() == 0, master.log
            assert not is_alive(int(site.path("pid").read_text()))
        site.is_clean()


@tap.case("a master's program that is missing is named with what to do")
def _():
    with Site() as site:
        one_line(site.refused("master", "--mooncake-master", "/nowhere/master"), "--mooncake-master /nowhere/master",
                 "no such program")
        one_line(site.refused("master", env={"TARN_MOONCAKE_MASTER": "/nowhere/master"}),
                 "TARN_MOONCAKE_MASTER /nowhere/master")
        plain = site.write("plain", "not a program")
        one_line(site.refused("master", "--mooncake-master", plain), "not executable")
        broken = site.script("broken", "exit 0")
        broken.write_text("#!/nowhere/interpreter\n")
        one_line(site.refused("master", "--mooncake-master", broken, "--rpc-port", free_port(), "--metrics-port",
                              free_port()), "cannot start", "No such file")


@tap.case("a master's program is found: option, TARN_MOONCAKE_MASTER, PATH")
def _():
    with Site() as site:
        def says(name, **named):
            return site.refused("master", *named.pop("arguments", []), "--rpc-port", free_port(), "--metrics-port",
                                free_port(), env=named)
        first = site.script("first", "echo I am first; exit 1")
        second = site.script("second", "echo I am second; exit 1")
        folder = site.path("bin")
        folder.mkdir()
        (folder / "mooncake_master").write_text("#!/bin/sh\necho I am on the path\nexit 1\n")
        (folder / "mooncake_master").chmod(0o755)
        path = f"{folder}:{os.environ['PATH']}"
        one_line(says("option", arguments=["--mooncake-master", first], TARN_MOONCAKE_MASTER=str(second), PATH=path),
                 "I am first")
        one_line(says("variable", TARN_MOONCAKE_MASTER=str(second), PATH=path), "I am second")
        one_line(says("path", PATH=path), "I am on the path")


@tap.case("a run directory that another live process uses is refused, and is free again after it")
def _():
    with Site() as site, site.master("--run-dir", site.path("run")) as master:
        log = site.refused("master", "--run-dir", site.path("run"), "--rpc-port", free_port(), "--metrics-port",
                           free_port())
        one_line(log, f"--run-dir {site.path('run')}", "another live process uses it")
        assert (site.path("run") / "master.addr").read_text() == f"{master.address}\n"
        master.process.kill()
        master.end()
        with site.master("--run-dir", site.path("run")) as again:
            assert again.stop() == 0


@tap.case("a port that is taken is named before a master is started")
def _():
    with Site() as site, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        one_line(site.refused("master", "--rpc-port", port, "--metrics-port", free_port()), f"port {port}", "--rpc-port")
        one_line(site.refused("master", "--rpc-port", free_port(), "--metrics-port", port), f"port {port}",
                 "--metrics-port")
        one_line(site.refused("master", "--rpc-port", port, "--metrics-port", port), "both")


@tap.case("another master's address in the file is not withdrawn")
def _():
    with Site() as site, site.master("--address-file", site.path("addr")) as master:
        site.path("addr").write_text("10.0.0.9:50051\n")
        assert master.stop() == 0
        assert site.path("addr").read_text() == "10.0.0.9:50051\n"


@tap.case("a master's heartbeat says that it lives and where blocks lie")
def _():
    with Site() as site, site.master("--heartbeat", "100ms") as master:
        master.wait_for("is alive, for")
        master.wait_for("no host lends memory: nothing can be saved")
        assert master.stop() == 0


# ---- joining: addresses

@tap.case("an external master is probed before the model is loaded")
def _():
    with Site() as site:
        for address in (f"127.0.0.1:{free_port()}", f"[::1]:{free_port()}"):
            log = site.refused("serve", "/nowhere/model.gguf", "--pool", f"mooncake://{address}", "--master-timeout",
                               "200ms", *site.pool_options())
            one_line(log, f"the master at {address} does not accept connections")
            assert "model.gguf" not in log


@tap.case("text that is no host:port passes with a warning")
def _():
    with Site() as site:
        for text in ("unix:", "no-port"):
            log = site.refused("serve", "/nowhere/model.gguf", "--port", 0, "--pool", f"mooncake://{text}",
                               *site.pool_options())
            one_line(log, f"warning: the master's address '{text}' is no HOST:PORT", "/nowhere/model.gguf")


@tap.case("file:// waits until the file is there")
def _():
    with Site() as site, site.master("--address-file", site.path("late.addr")) as master:
        address = site.path("late.addr").read_text()
        site.path("late.addr").unlink()
        timer = threading.Timer(0.5, lambda: site.path("late.addr").write_text(address))
        with site.run("serve", "/nowhere/model.gguf", "--port", 0, "--pool",
                      f"mooncake://file://{site.path('late.addr')}", *site.pool_options(master)) as server:
            timer.start()
            server.wait_for(f"master: {master.address}, from ")
            assert server.end() == 1  # there is no such model
            one_line(server.log, "/nowhere/model.gguf")
        timer.join()


@tap.case("file:// of a file that stays empty, never appears, or holds no address says so")
def _():
    with Site() as site:
        empty, words, absent = site.write("empty", "\n"), site.write("words", "not yet\n"), site.path("absent")
        for path, part in ((empty, "it is empty"), (words, "'not yet', which is no HOST:PORT"),
                           (absent, "it is not there")):
            log = site.refused("serve", "/nowhere/model.gguf", "--pool", f"mooncake://file://{path}",
                               "--master-timeout", "200ms", *site.pool_options())
            one_line(log, f"no master's address in {path}", part)
            assert "model.gguf" not in log


@tap.case("waiting for an address file is said every 5 s, and ends when told to")
def _():
    with Site() as site, site.serve("--pool", f"mooncake://file://{site.path('absent')}",
                                    *site.pool_options()) as server:
        server.wait_for(r"waiting for a master's address in .*: it is not there \(5 s of 60 s\)")
        assert server.stop() == 0, server.log
        site.is_clean()


# ---- refusals

@tap.case("options that contradict themselves are refused in words")
def _():
    with Site() as site:
        def says(*arguments, **env):
            return site.refused("serve", "/nowhere/model.gguf", *arguments, env=env)
        one_line(says("--launch-master", "on", "--pool", "mooncake://h:1"), "not both")
        one_line(says("--pool", "mooncake"), "needs a master")
        one_line(says("--pool", "mooncake://h:1", "--master-address-file", "/a"), "none is launched")
        one_line(says("--donation-segment-size", "1GiB"), "No master to join")
        one_line(says("--pool", "mooncake://h:1", "--global-segment-size", "900TiB"), "segments plus staging need",
                 "a reserve", "--global-segment-size")


# ---- a master of the server's own

@tap.case("a server launches a master, writes mooncake.json, and takes everything away after a failure")
def _():
    with Site() as site:
        port = free_port()
        run_dir = site.path("run")
        with site.run("serve", "/nowhere/model.gguf", "--port", 0, "--launch-master", "on", "--master-port", port,
                      "--master-metrics-port", free_port(), "--local-hostname", "127.0.0.1", "--run-dir", run_dir,
                      "--master-address-file", site.path("addr"), "--cache-prefix", "epoch2",
                      *site.pool_options()) as server:
            assert server.end() == 1
            one_line(server.log, "/nowhere/model.gguf", f"master: 127.0.0.1:{port}, published in",
                     "master: stopped")
        assert not site.path("addr").exists()
        assert [path.name for path in run_dir.iterdir()] == ["mooncake_master.log"]
        site.is_clean()


@tap.case("mooncake.json leaves unset keys out, and its role is both")
def _():
    with Site() as site:
        run_dir = site.path("run")
        # The pool is refused before the model is there, so the file is looked at while a fifo is read.
        model = site.path("model.fifo")
        os.mkfifo(model)
        port = free_port()
        with site.run("serve", model, "--port", 0, "--launch-master", "on", "--master-port", port,
                      "--master-metrics-port", free_port(), "--local-hostname", "127.0.0.1", "--run-dir", run_dir,
                      "--role", "consumer", *site.pool_options()) as server:
            server.wait_for("pool: segment 67108864 bytes")
            seen = json.loads((run_dir / "mooncake.json").read_text())
            assert (run_dir / "master.addr").read_text() == f"127.0.0.1:{port}\n"
        assert seen == {"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE",
                        "master_server_address": f"127.0.0.1:{port}", "protocol": "tcp",
                        "global_segment_size": 67108864, "local_buffer_size": 67108864, "master_timeout": 60000,
                        "staging_buffer_bytes": 8388608, "role": "both"}, seen


# ---- an inherited configuration

def inherited(site, address):
    return str(site.write("inherited.json", json.dumps({
        "master_server_address": address, "local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE",
        "global_segment_size": 64 << 20, "local_buffer_size": 64 << 20})))


@tap.case("an inherited configuration alone is used as it is")
def _():
    with Site() as site, site.master() as master:
        path = inherited(site, master.address)
        log = site.refused("serve", "/nowhere/model.gguf", "--port", 0, "--staging-buffer", "8MiB",
                           env={"MOONCAKE_CONFIG_PATH": path})
        one_line(log, f"master: {master.address} accepts", f"in mooncake:{path}", "/nowhere/model.gguf")


@tap.case("an inherited configuration beside a flag is refused unless they agree")
def _():
    with Site() as site, site.master() as master:
        env = {"MOONCAKE_CONFIG_PATH": inherited(site, master.address)}
        one_line(site.refused("serve", "/nowhere/model.gguf", "--pool", "mooncake://127.0.0.1:1", env=env),
                 "name different pools", env["MOONCAKE_CONFIG_PATH"], master.address)
        one_line(site.refused("serve", "/nowhere/model.gguf", "--launch-master", "on", env=env), "different pools")
        one_line(site.refused("serve", "/nowhere/model.gguf", "--port", 0, "--staging-buffer", "8MiB", "--pool",
                              f"mooncake://{master.address}", env=env), "agrees with --pool", "/nowhere/model.gguf")


@tap.case("an inherited configuration beside a section of the configuration file wins, and the log says so")
def _():
    with Site() as site, site.master() as master:
        env = {"MOONCAKE_CONFIG_PATH": inherited(site, master.address)}
        file = site.write("tarn.yaml", "pool:\n  path: mooncake://127.0.0.1:1\n  global_segment_size: 1GiB\n"
                                       "  staging_buffer: 8MiB\n")
        log = site.refused("serve", "/nowhere/model.gguf", "--port", 0, "--config", file, env=env)
        one_line(log, "wins over the pool section of the configuration file", f"master: {master.address} accepts",
                 "/nowhere/model.gguf")


# ---- a donor's refusals

@tap.case("a donor without master, size or memory says so")
def _():
    with Site() as site:
        one_line(site.refused("donor", "--segment-size", "1GiB", status=2), "No master to join")
        one_line(site.refused("donor", "--master", "127.0.0.1:1", status=2), "--segment-size")
        one_line(site.refused("donor", "--master", "127.0.0.1:1", "--segment-size", "900TiB"), "no memory was lent")
        one_line(site.refused("donor", "--master", "127.0.0.1:1", "--segment-size", "64MiB", "--master-timeout",
                              "200ms", "--ready-file", site.path("ready")),
                 "the master at 127.0.0.1:1 does not accept connections")
        assert not site.path("ready").exists()


@tap.case("a donor that waits for a master ends when told to")
def _():
    with Site() as site, site.run("donor", "--master", f"file://{site.path('absent')}", "--segment-size",
                                  "64MiB") as donor:
        donor.wait_for(r"waiting for a master's address in")
        assert donor.stop() == 0, donor.log


@tap.case("where blocks are is asked of the master that is named, and what is wrong is said")
def _():
    with Site() as site, site.master() as master:
        one_line(site.refused("pool", "stat", f"mooncake://{master.address}", "--metrics-port", free_port()),
                 "does not say where blocks are", "--metrics-port")
        one_line(site.refused("pool", "ls", f"mooncake://{master.address}"), "tarn pool stat mooncake://HOST:PORT")
        one_line(site.refused("pool", "stat", "mooncake:/x.json"), "tarn pool stat mooncake://HOST:PORT")


tap.done()
