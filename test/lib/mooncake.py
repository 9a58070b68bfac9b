# SPDX-License-Identifier: Apache-2.0
"""A real mooncake_master on loopback, for a test.

    with Master() as master:
        master.pool      # mooncake://127.0.0.1:PORT
        master.restart() # the same address, and everything forgotten

And a real mooncake_client, which lends memory in the place of the engines of its host:

    with Owner(master) as owner:
        owner.pool       # mooncake:FILE
"""
import ctypes
import json
import os
import signal
import socket
import subprocess
import tempfile
import time

WHEEL = os.environ.get("TARN_MOONCAKE_WHEEL", "")
PR_SET_PDEATHSIG = 1
SYSTEM = ctypes.CDLL(None)


def die_with_parent():
    """Run in a child before its program: nothing outlives the test."""
    SYSTEM.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Daemon:
    """A program of the wheel that listens; its log is at hand."""
    def __init__(self):
        self.process, self.log = None, tempfile.TemporaryFile()

    def run(self, program, *flags):
        self.process = subprocess.Popen([f"{WHEEL}/mooncake/{program}", *flags], stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log, preexec_fn=die_with_parent)

    def listens(self, port):
        deadline = time.monotonic() + 30
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return True
            except OSError:
                time.sleep(0.02)
        return False

    def stop(self):
        self.process.kill()
        self.process.wait()

    def restart(self):
        self.stop()
        self.start()

    def text(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")[-4000:]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class Master(Daemon):
    def __init__(self, *flags):
        super().__init__()
        self.flags, self.port = flags, None
        self.start()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    @property
    def pool(self):
        return f"mooncake://{self.address}"

    def start(self):
        """Ports that were free may be taken by the time the master asks for them: then other ones, unless it had one."""
        for _ in range(20):
            port, metrics_port = self.port or free_port(), free_port()
            self.run("mooncake_master", f"--rpc_port={port}", f"--metrics_port={metrics_port}", "--rpc_address=127.0.0.1",
                     "--metrics_host=127.0.0.1", "--enable_http_metadata_server=false", *self.flags)
            if self.listens(port) and self.listens(metrics_port):
                self.port, self.metrics_port = port, metrics_port
                return
            self.stop()
        raise AssertionError(f"no master would start: {self.text()}")

    def pause(self, paused=True):
        self.process.send_signal(signal.SIGSTOP if paused else signal.SIGCONT)
        while paused and set(self._states()) != {"T"}:
            time.sleep(0.001)

    def _states(self):
        """Of all its threads: a signal takes its time to reach each."""
        states = []
        for thread in os.listdir(f"/proc/{self.process.pid}/task"):
            with open(f"/proc/{self.process.pid}/task/{thread}/stat") as file:
                states.append(file.read().rpartition(")")[2].split()[0])
        return states


class Owner(Daemon):
    def __init__(self, master, mib=256, **keys):
        super().__init__()
        self.master, self.mib, self.port = master, mib, None
        self.start()
        self.file = tempfile.NamedTemporaryFile("w", suffix=".json")
        json.dump({"master_server_address": master.address, "client": "standalone", "local_hostname": "127.0.0.1",
                   "client_address": f"127.0.0.1:{self.port}", **keys}, self.file)
        self.file.flush()

    @property
    def pool(self):
        return f"mooncake:{self.file.name}"

    def start(self):
        for _ in range(20):
            port = self.port or free_port()
            self.run("mooncake_client", f"--master_server_address={self.master.address}", "--metadata_server=P2PHANDSHAKE",
                     "--host=127.0.0.1", f"--port={port}", f"--global_segment_size={self.mib}MB", "--logtostderr=1")
            if self.listens(port):
                self.port = port
                return
            self.stop()
        raise AssertionError(f"no mooncake_client would start: {self.text()}")
