#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A pool over a network: hosts that are network namespaces, real masters, donors and servers on them."""
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys

from lib.cluster import Site, pool_stat, segments, wait_for
from lib.network import Network
from lib.pool import ask, full_blocks, prompt, settle
from lib.server import Server
from lib.tap import Tap

tap = Tap()
TESTS = pathlib.Path(__file__).resolve().parent
PROMPT = prompt(700)
# A test program of one case, and a host that a process lives on.
LONE_CASE = """
from lib import network
from lib.tap import Tap
tap = Tap()
@tap.case("lone")
def _():
    {prepare}
    with network.Network() as made, made.host().inside():
        {body}
tap.done()
"""


def lone_case(body="pass", prepare="pass", around=()):
    """It runs beside this file; `around`: what runs it."""
    return subprocess.Popen([*around, sys.executable, "-c", LONE_CASE.format(body=body, prepare=prepare)],
                            stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(TESTS)})


# ---- the network itself

def connects(address, seconds):
    try:
        socket.create_connection(address, seconds).close()
        return True
    except OSError:
        return False


@tap.case("hosts reach one another, not while a link is down, and again when it is up")
def _():
    with Network() as network:
        a, b, c = network.host(), network.host(), network.host()
        with a.inside():
            listener = socket.create_server((a.address, 0))
        with listener:
            address = listener.getsockname()
            for host in (b, c):
                with host.inside():
                    assert connects(address, 10)
                    assert not connects(("127.0.0.1", address[1]), 10), "a loopback is a host's own"
            b.link_down()
            with b.inside():
                assert not connects(address, 0.5)
            with c.inside():
                assert connects(address, 10)
            b.link_up()
            with b.inside():
                wait_for(lambda: connects(address, 1), 10, "the link is up")


def inhabitants(namespace):
    """Processes in a network namespace, by its number."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.stat(folder / "ns/net").st_ino == namespace:
                found.append(int(folder.name))
        except OSError:
            pass  # it ended, or is another user's
    return found


@tap.case("nothing is left of a network when its test is killed")
def _():
    links = pathlib.Path("/proc/net/dev").read_text().count("\n")
    child = lone_case("""
        import os, subprocess
        from lib.mooncake import die_with_parent
        program = subprocess.Popen(["sleep", "1000"], preexec_fn=die_with_parent)
        print(os.stat(network.NAMESPACE).st_ino, flush=True)
        program.wait()""")
    with child:
        assert child.stdout.readline() == "1..1\n"
        namespace = int(child.stdout.readline())
        assert len(inhabitants(namespace)) == 2, inhabitants(namespace)
        child.send_signal(signal.SIGKILL)
    wait_for(lambda: not inhabitants(namespace), 10, lambda: inhabitants(namespace))
    assert pathlib.Path("/proc/net/dev").read_text().count("\n") == links


WITHOUT_ROOT = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
WITHOUT_USER_NAMESPACES = ["unshare", "--user", "--map-root-user", "sh", "-c",
                           'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"', "sh"]
AS_A_USER = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]


def has_user_namespaces():
    return subprocess.run([*WITHOUT_USER_NAMESPACES, "true"], stderr=subprocess.DEVNULL).returncode == 0


def unable():
    """What runs a program without root, and without user namespaces."""
    return [*WITHOUT_USER_NAMESPACES, *WITHOUT_ROOT] if has_user_namespaces() else WITHOUT_ROOT


@tap.case("a machine without what a network needs fails the case with one sentence; user namespaces do without root")
def _():
    for child, part in ((lone_case(around=unable()), "need root with CAP_SYS_ADMIN, or else user namespaces"),
                        (lone_case(prepare="network.FOLDERS = '/nowhere'"), "install the package iproute2")):
        with child:
            lines = child.stdout.read().splitlines()
        assert child.returncode == 1 and lines[:2] == ["1..1", "not ok 1 - lone"], lines
        assert len(lines) == 3 and lines[2].startswith("# ") and part in lines[2], lines
    if has_user_namespaces():
        with lone_case(around=AS_A_USER) as child:
            assert child.stdout.read() == "1..1\nok 1 - lone\n"


# ---- a pool on it

@tap.case("a master that listens on one address is reached there alone")
def _():
    with Network() as network, Site() as site:
        one, two = network.host(), network.host()
        for listen, reached in (("127.0.0.1", [(one, "127.0.0.1")]), (one.address, [(one, one.address), (two, one.address)]),
                                (None, [(one, "127.0.0.1"), (one, one.address), (two, one.address)])):
            with site.run("master", *(["--listen", listen] if listen else []), "--address-file", site.path("address"), "--heartbeat", "100ms",
                          host=one) as master:
                master.wait_for("no host lends memory")  # its heartbeat has asked its HTTP port
                assert site.path("address").read_text() == f"{listen or one.address}:50051\n"
                for port in (50051, 9004):
                    for host, address in ((one, "127.0.0.1"), (one, one.address), (two, one.address)):
                        with host.inside():
                            assert connects((address, port), 5) == ((host, address) in reached), (listen, host.address, address)
                assert master.stop() == 0, master.log


@tap.case("a server's own master listens where it is told to")
def _():
    with Network() as network, Site() as site:
        one, two = network.host(), network.host()
        with Server(str(site.model), "--threads", "1", "--launch-master", "on", "--master-listen", "127.0.0.1",
                    *map(str, site.pool_options()), env=site.environment, host=one) as server:
            for port in (50051, 9004):
                with one.inside():
                    assert connects(("127.0.0.1", port), 5)
                with two.inside():
                    assert not connects((one.address, port), 5)
            assert ask(server, PROMPT).pool == 0
            assert server.stop() == 0, server.log

@tap.case("what a server has saved another host's server replays, and blocks land on every host that lends")
def _():
    with Network() as network, Site() as site:
        one, two, three, four = (network.host() for _ in range(4))
        with site.master(host=one) as master, site.donor(master, host=two) as donor:
            donor.wait_for("lending 67108864 bytes")
            options = [str(site.model), "--threads", "1", "--pool", f"mooncake://{master.address}",
                       *map(str, site.pool_options(master))]
            with Server(*options, env=site.environment, host=three) as first, \
                    Server(*options, env=site.environment, host=four) as second:
                assert ask(first, PROMPT).pool == 0
                settle(first)
                assert ask(second, PROMPT).pool == full_blocks(len(PROMPT))
                assert sorted(segments(master)) == [(host.address, 64 << 20) for host in (two, three, four)]
                for seed in range(20):  # more, until each has some
                    if "3 of 3 hosts hold blocks" in pool_stat(master):
                        break
                    ask(first, prompt(700, seed))
                    settle(first)
                assert first.stop() == 0, first.log
                assert "3 of 3 hosts hold blocks" in first.log, first.log


# ---- the demo

def demo(site, *arguments, around=()):
    return subprocess.run([*around, sys.executable, TESTS / "demo-cluster.py", os.environ["TARN_MODEL"],
                           TESTS.parent / "LICENSE", *arguments], capture_output=True, text=True,
                          env={**os.environ, **site.environment})


def processes_of(folder):
    """Those with it in their environment."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            if str(folder).encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            pass  # it ended, or is another user's
    return found


@tap.case("the demo across a network: every row is right, blocks lie on both hosts, and nothing is left")
def _():
    with Site() as site:
        result = demo(site, "--rounds", "1")
        assert result.returncode == 0, result
        assert re.search(r"^1: other question +B, 10\.77\.0\.4 +\d+ +0 +1984 +\d+ .* yes$", result.stdout, re.M), result.stdout
        assert "3 of 3 hosts hold blocks" in result.stdout and "demo-cluster: every row is right" in result.stdout
        site.is_clean()
        assert not processes_of(site.temporary), processes_of(site.temporary)


@tap.case("the demo on a machine that has no networks to give says so in one sentence")
def _():
    with Site() as site:
        result = demo(site, around=unable())
        assert result.returncode == 1 and result.stdout == "" and result.stderr.count("\n") == 1, result
        assert "demo-cluster: network namespaces need root" in result.stderr, result.stderr
        site.is_clean()


tap.done()
