#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A part of a pool over many hosts goes away while requests run, again and again: its master, a donor, a server that lends,
the network between them. Every answer is compared with that of a server without a pool, each comes in time, the logs and
counters of those that stayed say what happened, and they use the pool again once it is back."""
import contextlib
import random
import signal
import threading
import time

from lib.cluster import SLOW, Site, wait_for
from lib.mooncake import free_port
from lib.network import Loopback, Network
from lib.pool import LONG, MODEL, make_model, prompt
from lib.server import Server, nothing_is_held
from lib.tap import Tap

tap = Tap()
ROUNDS = 20 if LONG else 2
ANSWER = 8  # tokens
CLIENTS = 2  # of each server
SHARED, OWN = 8, 4  # prompts that all ask for again and again; and some that are new in each round
FRESH = 1 / 16  # of the questions are asked but once: their pages are put wherever there is room, while a host is away too
PAGE_TOKENS = 64
SERVE = ("--threads", "1", "--kv-type", "f32", "--page-tokens", str(PAGE_TOKENS), "--ctx", "1024")
ROOM = ("--kv-size", "3MiB")  # 24 pages: what is asked again has to come from the pool
LOOKUP, LOAD = 1, 2  # seconds, of the deadlines
# What a request may take, in seconds: one lookup for itself and for each request beside it, and a whole load, which has four
# load deadlines; the rest is for computing, on a machine that has other things to do.
BOUND = CLIENTS * LOOKUP + 4 * LOAD + 20 * SLOW
# How long the pool may stay unused once all is back: the longest pause between two canaries, one canary, and what Mooncake's
# clients take to mount their memory again. A connection that fell silent is given up after 60 s.
BACK, SILENT = 30 + 4 * LOAD + 20, 60


def shared(n):
    return prompt(400 + 17 * n, seed=f"shared {n}")


def own(name, n):
    """Begins as one of the shared ones, and goes on as no other."""
    return shared(n % SHARED)[:4 * PAGE_TOKENS] + prompt(150, seed=f"own {name} {n}")


class Oracle:
    """What is right: a server without a pool says it, once for each prompt."""
    def __init__(self, model):
        self.server = Server(str(model), *SERVE, "--pool", "none")
        self.known = {}

    def right(self, tokens):
        key = tuple(tokens)
        if key not in self.known:
            self.known[key] = self.server.complete(tokens, max_tokens=ANSWER)[0]
        return self.known[key]


class Traffic:
    """Threads that ask a server without a pause, until they are told to stop, or it is gone."""
    def __init__(self, server, questions, seed):
        self.server, self.questions = server, questions
        self.is_doomed = False  # the server is about to be killed
        self.answers, self.faults = [], []
        self.slowest = 0
        self.ended = threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(f"{seed} {n}",)) for n in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def _run(self, seed):
        dice, fresh = random.Random(seed), 0
        while not self.ended.is_set():
            if dice.random() < FRESH:
                tokens, fresh = own(f"fresh {seed}", fresh), fresh + 1
            else:
                tokens = dice.choice(self.questions)
            began = time.monotonic()
            try:
                text, _ = self.server.complete(tokens, seconds=3 * BOUND, max_tokens=ANSWER)
            except Exception as error:  # whatever it is: end() tells it
                if not self.is_doomed:
                    self.faults.append((repr(error), time.monotonic() - began))
                return
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.answers.append((tokens, text))

    def end(self, oracle):
        """All is over, right, and came in time."""
        self.ended.set()
        for thread in self.threads:
            thread.join(4 * BOUND)
            assert not thread.is_alive(), f"a client still waits for its answer: {self.server.log[-4000:]}"
        wrong = [(tokens[-4:], text) for tokens, text in self.answers if text != oracle.right(tokens)]
        assert not wrong and not self.faults, (wrong[:3], self.faults[:3], self.server.log[-4000:])
        assert self.slowest <= BOUND, (self.slowest, self.server.log[-4000:])


class Fleet:
    """A master, a donor and two servers, each on a host of its own, and each started again as it was."""
    def __init__(self, stack, hosts):
        self.stack, self.hosts = stack, hosts
        self.site = stack.enter_context(Site())
        self.model = make_model(self.site.path("model.gguf"), **{**MODEL, "layers": 2})
        self.oracle = Oracle(self.model)
        stack.enter_context(self.oracle.server)
        with hosts["master"].inside():
            self.port, self.metrics_port = free_port(), free_port()
        self.servers = {}
        self.start_master()
        self.start_donor()
        self.start_server("one")
        self.start_server("other")

    def run(self, name, *arguments):
        """A command on the host of its name."""
        host = self.hosts[name]
        return self.stack.enter_context(
            self.site.run(*arguments, "--metrics-port", self.metrics_port, "--local-hostname", host.address, host=host))

    def start_master(self):
        self.master = self.run("master", "master", "--rpc-port", self.port)
        self.master.wait_for("published in")

    def start_donor(self):
        self.donor = self.run("donor", "donor", "--master", f"{self.hosts['master'].address}:{self.port}", "--segment-size",
                              "64MiB")
        self.donor.wait_for("lending 67108864 bytes")

    def start_server(self, name):
        host, port = self.hosts[name], self.servers[name].port if name in self.servers else 0
        self.servers[name] = self.stack.enter_context(Server(
            str(self.model), *SERVE, *ROOM, "--pool", f"mooncake://{self.hosts['master'].address}:{self.port}",
            "--local-hostname", host.address, "--lookup-deadline", f"{LOOKUP}s", "--load-deadline", f"{LOAD}s",
            "--global-segment-size", "32MiB", "--local-buffer-size", "64MiB", "--staging-buffer", "8MiB",
            "--master-metrics-port", str(self.metrics_port), port=port, host=host, env={"TMPDIR": str(self.site.temporary)}))

    def kill(self, command):
        command.process.send_signal(signal.SIGKILL)
        command.end()


def passes_on(oracle, giver, taker, name):
    """Whether the one loads what the other saves now: a prompt that nobody has asked yet."""
    tokens = prompt(3 * PAGE_TOKENS + 10, seed=f"passed on {name}")
    right = oracle.right(tokens)
    assert giver.complete(tokens, max_tokens=ANSWER)[0] == right
    time.sleep(0.1)  # for the save; if it takes longer, another prompt is tried
    text, answer = taker.complete(tokens, max_tokens=ANSWER)
    assert text == right, (text, right)
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def is_used_again(fleet, name, seconds):
    """Wait until each passes pages on to the other; how long that took."""
    one, other = fleet.servers["one"], fleet.servers["other"]
    began = time.monotonic()
    tries = iter(range(10**6))
    for giver, taker in ((one, other), (other, one)):
        wait_for(lambda: passes_on(fleet.oracle, giver, taker, f"{name} {next(tries)}"), seconds,
                 lambda: f"the pool is used again; the giver: {giver.log[-6000:]}\nthe taker: {taker.log[-6000:]}")
    return time.monotonic() - began


class Seen:
    """What a server has counted and said since."""
    def __init__(self, server):
        self.server, self.before, self.line = server, server.metrics(), len(server.lines)

    def grown(self, name, *reasons):
        after = self.server.metrics()
        names = [f'{name}{{reason="{reason}"}}' for reason in reasons] if reasons else [name]
        return sum(after[each] - self.before[each] for each in names)

    @property
    def log(self):
        return "\n".join(self.server.lines[self.line:])

    def says(self, *texts):
        log = self.log
        for text in texts:
            assert text in log, f"'{text}' is not in: {log[-8000:]}"

    def others_failed(self):
        """Hosts that hold pages, or should have taken some, did not answer."""
        return self.grown("tarn_store_get_failures_total", "transfer") + \
            self.grown("tarn_store_put_failures_total", "transfer")

    def is_down(self):
        """The store is known to be away, and requests have gone on without it."""
        return self.grown("tarn_pool_store_outages_total") > 0 and self.grown("tarn_pool_declined_total", "store_down") > 0

    def was_down_and_is_up(self):
        assert self.is_down(), self.log[-8000:]
        self.says("the pool is left alone for 1 s: ", "the pool works again, after ")


class Outage:
    """What goes away, and how. One of its kind is used for all rounds."""
    doomed = ()  # servers that are killed
    back = BACK

    def begin(self, fleet, turn, dice):
        """It happens. How long it is to last."""
        raise NotImplementedError

    def is_noticed(self, seen):
        return True

    def end(self, fleet):
        raise NotImplementedError

    def judge(self, seen):
        """What those that stayed must have counted and said, by name."""

    def over(self, fleet):
        """What must have been said after the last round, by lines that are not repeated within 5 s."""


def outages(name, outage, hosts):
    """Rounds of: requests run; something goes away; requests go on; it comes back; the pool is used again."""
    dice = random.Random(name)
    longest_back, slowest, answers = 0, 0, 0
    with contextlib.ExitStack() as stack:
        fleet = Fleet(stack, hosts)
        is_used_again(fleet, "at first", BACK)
        for turn in range(ROUNDS):
            questions = [shared(n) for n in range(SHARED)] + [own(f"{name} {turn}", n) for n in range(OWN)]
            traffic = {who: Traffic(server, questions, f"{name} {turn} {who}") for who, server in fleet.servers.items()}
            seen = {who: Seen(server) for who, server in fleet.servers.items() if who not in outage.doomed}
            try:
                time.sleep(dice.uniform(0.3, 1.5))
                for who in outage.doomed:
                    traffic[who].is_doomed = True
                seconds = outage.begin(fleet, turn, dice)
                answered = {who: len(traffic[who].answers) for who in seen}
                time.sleep(seconds)
                wait_for(lambda: outage.is_noticed(seen), 30, lambda: f"it is noticed: {[s.log[-4000:] for s in seen.values()]}")
                for who in seen:
                    wait_for(lambda: len(traffic[who].answers) > answered[who], BOUND, "requests go on")
                outage.end(fleet)
                longest_back = max(longest_back, is_used_again(fleet, f"{name} {turn}", outage.back))
            finally:
                for each in traffic.values():
                    each.ended.set()
            for each in traffic.values():
                each.end(fleet.oracle)
                answers += len(each.answers)
                slowest = max(slowest, each.slowest)
            outage.judge(seen)
        outage.over(fleet)
        for server in fleet.servers.values():
            wait_for(lambda: is_at_rest(server), 30 + SILENT, lambda: f"{server.metrics()} {server.log[-3000:]}")
            assert server.stop() == 0, server.log[-4000:]
    print(f"# {ROUNDS} times: {answers} right answers, the slowest after {slowest:.1f} of {BOUND} s; the pool was used again "
          f"after at most {longest_back:.1f} of {outage.back} s", flush=True)


def is_at_rest(server):
    metrics = server.metrics()
    gauges = ("tarn_pages_abandoned", "tarn_pool_store_down", "tarn_pool_inert")
    return nothing_is_held(metrics) and all(metrics[gauge] == 0 for gauge in gauges)


def on_loopback():
    """Addresses of one host, in the part of hosts."""
    hosts = {}
    for number, name in enumerate(("master", "donor", "one", "other"), 1):
        hosts[name] = Loopback()
        hosts[name].address = f"127.0.0.{number}"
    return hosts


class MasterDies(Outage):
    def begin(self, fleet, turn, dice):
        fleet.kill(fleet.master)
        return dice.uniform(1, 8 if LONG else 3)

    def is_noticed(self, seen):
        return all(each.is_down() for each in seen.values())

    def end(self, fleet):
        fleet.start_master()

    def judge(self, seen):
        for each in seen.values():
            each.was_down_and_is_up()

    def over(self, fleet):
        logs = [server.log for server in fleet.servers.values()]  # of two, one may have noticed by its loads alone
        assert any("mooncake: the pool does not say what is there: RPC " in log for log in logs), logs


class DonorDies(Outage):
    name, lent_bytes = "donor", 64 << 20

    def begin(self, fleet, turn, dice):
        fleet.kill(fleet.donor)
        return dice.uniform(1, 14 if LONG else 3)

    def is_noticed(self, seen):
        return any(each.others_failed() for each in seen.values())

    def end(self, fleet):
        fleet.start_donor()

    def over(self, fleet):
        """The master notices some 10 s later, and may count it with the next time."""
        logs = [server.log for who, server in fleet.servers.items() if who not in self.doomed]
        assert any("transfer failed (-800)" in log for log in logs), logs
        host = fleet.hosts[self.name].address
        for change in ("more", "less") if LONG or self.name == "donor" else ("more",):
            fleet.master.wait_for(rf"master: {host} lends ({self.lent_bytes}|{2 * self.lent_bytes}) bytes {change}")


class ServerDies(DonorDies):
    name, lent_bytes = "other", 32 << 20
    doomed = ("other",)

    def begin(self, fleet, turn, dice):
        fleet.servers["other"].kill()
        return dice.uniform(1, 14 if LONG else 3)

    def end(self, fleet):
        fleet.start_server("other")


class LinkFalls(Outage):
    """A host's link, at the switch (what is sent is lost without a word) or its own end (it knows that it has no network);
    for less than a deadline, for several, and, in the long form, for longer than Mooncake waits for a connection."""
    back = BACK + SILENT
    rounds = (("other", True, 4), ("master", False, 0.5))

    def begin(self, fleet, turn, dice):
        drawn = (dice.choice(list(fleet.hosts)), dice.random() < 0.6, 70 if turn % 10 == 9 else
                 dice.uniform(3, 14) if dice.random() < 0.6 else dice.uniform(0.1, 0.9))
        self.name, self.is_silent, self.seconds = drawn if LONG else self.rounds[turn]
        self.host = fleet.hosts[self.name]
        print(f"# the link of {self.name} {'' if self.is_silent else 'and what it knows of it '}for {self.seconds:.1f} s", flush=True)
        if self.is_silent:
            self.host.link_down()
        else:
            self.host.own_link_down()
        return self.seconds

    def cut_off(self, seen):
        """Those that do not reach the master for longer than a few calls take."""
        return [each for who, each in seen.items() if self.seconds > 2 and self.name in (who, "master")]

    def is_noticed(self, seen):
        return all(each.is_down() for each in self.cut_off(seen))

    def end(self, fleet):
        if self.is_silent:
            self.host.link_up()
        else:
            self.host.own_link_up()

    def judge(self, seen):
        for each in self.cut_off(seen):
            each.was_down_and_is_up()


@tap.case("kill -9 of the master while requests run: all are answered rightly and in time, and the pool comes back")
def _():
    outages("master", MasterDies(), on_loopback())


@tap.case("kill -9 of a donor while requests run: all are answered rightly and in time, and the pool goes on")
def _():
    outages("donor", DonorDies(), on_loopback())


@tap.case("kill -9 of a server that lends while requests run: the other one answers rightly and in time, and the pool goes on")
def _():
    outages("server", ServerDies(), on_loopback())


@tap.case("links fall while requests run: all are answered rightly and in time, and the pool comes back")
def _():
    with Network() as network:
        outages("link", LinkFalls(), {name: network.host() for name in ("master", "donor", "one", "other")})


@tap.case("servers that are told to end while a host is silent do so, with status 0")
def _():
    with Network() as network, contextlib.ExitStack() as stack:
        fleet = Fleet(stack, {name: network.host() for name in ("master", "donor", "one", "other")})
        questions = [shared(n) for n in range(SHARED)]
        traffic = [Traffic(server, questions, f"end {who}") for who, server in fleet.servers.items()]
        wait_for(lambda: all(len(each.answers) > 2 * SHARED for each in traffic), 60, "pages are passed on")
        fleet.hosts["donor"].link_down()
        for server in fleet.servers.values():
            wait_for(lambda: "the pool is left alone for 1 s: " in server.log, BOUND, lambda: server.log)
        time.sleep(2 * LOAD)  # those that had a connection have lost it, and wait for another
        for each in traffic:
            each.end(fleet.oracle)
        statuses = [server.stop() for server in fleet.servers.values()]
        assert statuses == [0, 0], (statuses, [server.log[-3000:] for server in fleet.servers.values()])


tap.done()
