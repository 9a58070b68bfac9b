# SPDX-License-Identifier: Apache-2.0
"""Masters, donors and servers of a distributed pool for a test, as `tarn` runs them: on loopback, or on hosts of lib.network.

    with Site() as site, site.master() as master, site.donor(master) as donor:
        donor.wait_for("lending")
"""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import urllib.request

import lib.server
from lib.log import Log
from lib.mooncake import die_with_parent, free_port
from lib.network import LOOPBACK

PROGRAM = lib.server.PROGRAM
MAKE_MODEL = os.environ.get("TARN_MAKE_MODEL", "build/make-model")
SLOW = 5 if os.environ.get("TARN_TEST_SANITIZED") == "1" else 1


def wait_for(condition, seconds, what):
    """As lib.server's, with more patience under sanitizers."""
    return lib.server.wait_for(condition, seconds * SLOW, what)


def children_of(pid):
    """Processes whose parent is `pid`, by pid."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if f"\nPPid:\t{pid}\n" in (folder / "status").read_text():
                found.append(int(folder.name))
        except OSError:
            pass  # it ended
    return found


def is_alive(pid):
    try:
        return "\nState:\tZ" not in pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


class Command:
    """A `tarn` command that runs on a host; its log is at hand."""
    def __init__(self, *arguments, env=None, host=LOOPBACK):
        self._log = Log()
        self.host = host
        with host.inside():
            self.process = subprocess.Popen(
                [PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=self._log.file, env=lib.server.environment(env), preexec_fn=die_with_parent)

    @property
    def lines(self):
        return self._log.lines

    @property
    def log(self):
        return "\n".join(self.lines)

    def wait_for(self, pattern, seconds=30):
        """Wait for a line that has the pattern; the match."""
        def look():
            has_ended = self.process.poll() is not None  # before its last words are read
            found = next((match for match in (re.search(pattern, line) for line in self.lines) if match), None)
            assert found or not has_ended, f"ended with {self.process.returncode} without '{pattern}': {self.log}"
            return found
        return wait_for(look, seconds, lambda: f"'{pattern}' in: {self.log}")

    def end(self, seconds=60):
        """Its exit status, once it ends by itself."""
        return self.process.wait(seconds * SLOW)

    def stop(self, seconds=60):
        self.process.send_signal(signal.SIGTERM)
        return self.end(seconds)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Site:
    """A folder with what a test makes, and commands that use it. TMPDIR is in it, so that what is
    left behind is seen."""
    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tarn-test-cluster-"))
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def path(self, name):
        return self.folder / name

    def write(self, name, text, mode=0o644):
        path = self.path(name)
        path.write_text(text)
        path.chmod(mode)
        return path

    def script(self, name, text):
        """A program of our own in a master's place."""
        return self.write(name, f"#!/bin/sh\n{text}\n", 0o755)

    @property
    def model(self):
        path = self.path("model.gguf")
        if not path.exists():
            subprocess.run([MAKE_MODEL, path, "layers=2", "heads=4", "kv-heads=2", "head-dim=32", "ff-dim=128",
                            "vocab=4096", "ctx=2048"], check=True, timeout=120)
        return path

    @property
    def environment(self):
        return {"TMPDIR": str(self.temporary)}

    def run(self, *arguments, env=None, host=LOOPBACK):
        return Command(*arguments, env={**self.environment, **(env or {})}, host=host)

    def refused(self, *arguments, status=1, env=None):
        """What a command says that fails at once; it leaves no temporary directory behind."""
        others = self.leftovers()
        with self.run(*arguments, env=env) as command:
            assert command.end() == status, (command.process.returncode, command.log)
            assert self.leftovers() == others, (self.leftovers(), others)
            return command.log

    def leftovers(self):
        return sorted(self.temporary.iterdir())

    def is_clean(self):
        """No temporary directory is left."""
        assert not self.leftovers(), self.leftovers()

    def master(self, *arguments, env=None, wait=True, host=LOOPBACK):
        """A `tarn master` that accepts, with .address and .metrics_port."""
        with host.inside():
            port, metrics_port = free_port(), free_port()
        command = self.run("master", "--rpc-port", port, "--metrics-port", metrics_port, "--local-hostname",
                           host.address, *arguments, env=env, host=host)
        command.address, command.metrics_port = f"{host.address}:{port}", metrics_port
        if wait:
            try:
                command.wait_for("published in")
            except BaseException:
                command.__exit__()
                raise
        return command

    def donor(self, master, *arguments, segment="64MiB", **named):
        return self.run("donor", "--master", master.address, "--segment-size", segment, "--metrics-port",
                        master.metrics_port, *arguments, **named)

    def serve(self, *arguments, **named):
        command = self.run("serve", self.model, "--threads", 1, "--port", 0, *arguments, **named)
        command.url = None
        return command

    def pool_options(self, master=None):
        """Of a small server: its part of a pool fits everywhere."""
        metrics = ["--master-metrics-port", master.metrics_port] if master else []
        return ["--global-segment-size", "64MiB", "--local-buffer-size", "64MiB", "--staging-buffer", "8MiB",
                *metrics]


def complete(server, tokens):
    """One completion of a server that listens."""
    port = int(server.wait_for(r"listening on http://127\.0\.0\.1:(\d+)", 120)[1])
    body = json.dumps({"prompt": tokens, "max_tokens": 4, "temperature": 0}).encode()
    with server.host.inside():
        connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    with connection:
        connection.sendall(b"POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\n"
                           b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, text = answer.partition(b"\r\n\r\n")
    assert b" 200 " in head.splitlines()[0], answer
    return json.loads(text)


def segments(master):
    """Host and size of each segment, as the master says."""
    url = f"http://127.0.0.1:{master.metrics_port}/get_segments_detail"
    with master.host.inside(), urllib.request.urlopen(url, timeout=20) as answer:
        return [(row["segment_name"].rsplit(":", 1)[0], row["size_bytes"]) for row in json.load(answer)["segments"]]


def pool_stat(master):
    """What `tarn pool stat` says of its pool."""
    with master.host.inside():
        result = subprocess.run([PROGRAM, "pool", "stat", f"mooncake://{master.address}", "--metrics-port",
                                 str(master.metrics_port)], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result
    return result.stdout
