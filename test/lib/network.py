# SPDX-License-Identifier: Apache-2.0
"""Hosts on a network of their own, for a test: network namespaces on one switch, where the test itself is.

    with Network() as network:
        a, b = network.host(), network.host()
        with a.inside():  # what this thread starts, and sockets that it makes, are on host a
            ...
        b.link_down()

The namespaces have no names and no keeper: this process has them open, and the processes that run in them do. So nothing
is left of them however it ends, and nothing is to be swept up. The first network moves this thread into a namespace of its
own for good: the main thread, before it starts others. That needs root, or else user namespaces.
"""
import contextlib
import ctypes
import os
import shutil
import subprocess

from lib.tap import Lacking

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SYSTEM = ctypes.CDLL(None, use_errno=True)
SUBNET, HOSTS_MAX = "10.77.0", 253
SWITCH, SWITCH_ADDRESS = "switch", f"{SUBNET}.254"
NAMESPACE = "/proc/thread-self/ns/net"
FOLDERS = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"  # not everybody's PATH has the latter


class Loopback:
    """This host in the part of one of many: where no network is needed."""
    address = "127.0.0.1"

    def inside(self):
        return contextlib.nullcontext()


LOOPBACK = Loopback()


class Host:
    """One host: its address, which others reach, and the link to the switch."""
    def __init__(self, number):
        self.address = f"{SUBNET}.{number}"
        self._port = f"port{number}"  # of the switch
        self._namespace = _namespace()
        _ip(f"link add {self._port} type veth peer name eth0 netns /proc/self/fd/{self._namespace}",
            f"link set {self._port} master {SWITCH}", fds=[self._namespace])
        self.link_up()
        with self.inside():
            _ip("link set lo up", "link set eth0 up", f"address add {self.address}/24 dev eth0",
                f"route add default via {SWITCH_ADDRESS}")

    @contextlib.contextmanager
    def inside(self):
        """Have this thread, and what it starts, on this host."""
        outside = os.open(NAMESPACE, os.O_RDONLY)
        try:
            _must(SYSTEM.setns(self._namespace, CLONE_NEWNET))
            try:
                yield
            finally:
                _must(SYSTEM.setns(outside, CLONE_NEWNET))
        finally:
            os.close(outside)

    def link_down(self):
        """Pull the cable: the host keeps its address and routes, and what is sent is lost without a word."""
        _ip(f"link set {self._port} down")

    def link_up(self):
        _ip(f"link set {self._port} up")

    def own_link_down(self):
        """Take its own end down: the host knows that it has no network."""
        with self.inside():
            _ip("link set eth0 down")

    def own_link_up(self):
        with self.inside():
            _ip("link set eth0 up", f"route replace default via {SWITCH_ADDRESS}")

    def remove(self):
        _ip(f"link delete {self._port}")
        os.close(self._namespace)


class Network:
    """The switch and its hosts; one at a time."""
    def __init__(self):
        self.hosts = []

    def host(self):
        assert len(self.hosts) < HOSTS_MAX
        self.hosts.append(Host(len(self.hosts) + 1))
        return self.hosts[-1]

    def __enter__(self):
        _isolate()
        _ip(f"link add {SWITCH} type bridge", f"address add {SWITCH_ADDRESS}/24 dev {SWITCH}", f"link set {SWITCH} up")
        return self

    def __exit__(self, *_):
        for host in self.hosts:
            host.remove()
        _ip(f"link delete {SWITCH}")


def _must(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _namespace():
    """Make a network namespace; a descriptor that keeps it."""
    outside = os.open(NAMESPACE, os.O_RDONLY)
    try:
        _must(SYSTEM.unshare(CLONE_NEWNET))
        made = os.open(NAMESPACE, os.O_RDONLY)
        _must(SYSTEM.setns(outside, CLONE_NEWNET))
        return made
    finally:
        os.close(outside)


def _isolate():
    """Leave the machine's network, once."""
    if _isolate.is_done:
        return
    _program()
    try:
        _unshare()
    except OSError as error:
        raise Lacking("network namespaces need root with CAP_SYS_ADMIN, or else user namespaces (the sysctls "
                      "user.max_user_namespaces and kernel.unprivileged_userns_clone, and what a container allows), and "
                      f"this process has neither: {error.strerror}") from None
    _isolate.is_done = True
    _ip("link set lo up")


_isolate.is_done = False


def _unshare():
    if SYSTEM.unshare(CLONE_NEWNET) == 0:
        return
    user, group = os.getuid(), os.getgid()
    _must(SYSTEM.unshare(CLONE_NEWUSER | CLONE_NEWNET))
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _program():
    """Of iproute2."""
    program = shutil.which("ip", path=FOLDERS)
    if not program:
        raise Lacking("the program ip is missing: install the package iproute2, which tools/setup packages does")
    return program


def _ip(*commands, fds=()):
    """Run commands of ip's on this thread's host."""
    result = subprocess.run([_program(), "-batch", "-"], input="".join(f"{command}\n" for command in commands),
                            capture_output=True, text=True, pass_fds=fds, timeout=60)
    assert result.returncode == 0, (commands, result.stderr)
