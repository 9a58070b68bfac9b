#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The main job across a network: a master, a donor and two servers, each on a host of its own.

Usage: demo-cluster.py MODEL.gguf TEXT [--rounds N] [--check]

The hosts are network namespaces on one switch, and what runs on them is what docs/operations.md says for a fleet. The
first server is sent a long prompt, the second the same prefix with another question, N times (3), each time under another
cache salt, so that nothing is there from before. Each answer is compared with that of a server without a pool whose
prefill is cut at the token where the replayed one began to compute. Prints one table and where the blocks landed; exits 1
if a row's tokens or output are not what they must be, or if blocks did not land on the host of a server and on the
donor's. Speed is printed, and judged with --check: the medians of the rounds.
"""
import argparse
import pathlib
import re
import statistics

from lib.cluster import Site, pool_stat
from lib.demo import PAGE_TOKENS, DemoServer, Row, Talk, compare, print_table, show
from lib.network import Network

SECONDS = 1800  # on a slow machine, too
SPEED_UP = 20
# Small enough for any machine that the model fits; the prompt's blocks take 46 MiB.
LENT = "256MiB"


def say(text):
    print(f"demo-cluster: {text}", flush=True)


def landed(report):
    """Bytes of blocks by host, of a landing report."""
    return {host: int(used) for host, used in re.findall(r"^blocks on (\S+): (\d+) bytes", report, re.M)}


def rows_of(servers, text, rounds):
    first, second = servers
    talk = Talk(first, text)
    say(f"the two chats share their first {talk.common_tokens} tokens, {talk.common_blocks} full blocks of {PAGE_TOKENS}")
    rows = []
    for number in range(1, rounds + 1):
        salt = f"round {number}"
        rows.append(Row(f"{number}: first question", first, talk.chats[0], 0, salt))
        rows.append(Row(f"{number}: other question", second, talk.chats[1], talk.common_blocks * PAGE_TOKENS, salt))
    return rows


def pool_run(site, hosts, model, text, rounds):
    """Its rows, where the blocks landed, and on which of the hosts some must have."""
    address_file = site.path("master.addr")
    master_url = f"file://{address_file}"
    with site.run("master", "--address-file", address_file, host=hosts[0]) as master:
        master.wait_for("published in")
        master.address, master.metrics_port = address_file.read_text().strip(), 9004
        with site.run("donor", "--master", master_url, "--segment-size", LENT, host=hosts[1]) as donor:
            donor.wait_for("lending")
            options = ("--global-segment-size", LENT, "--local-buffer-size", "256MiB")
            servers = [DemoServer(f"{name}, {host.address}", model, f"mooncake://{master_url}", *options,
                                  env=site.environment, host=host) for name, host in zip("AB", hosts[2:])]
            with servers[0], servers[1]:
                say(f"master on {hosts[0].address}, donor on {hosts[1].address}, servers on {hosts[2].address} and "
                    f"{hosts[3].address}")
                rows = rows_of(servers, text, rounds)
                report = pool_stat(master)
                for command in (*servers, donor, master):
                    assert command.stop() == 0, command.log
    site.is_clean()
    return rows, report


def judge_speed(rows):
    """Of the replays, by the medians of the rounds."""
    replays = rows[1::2]
    first, cold = (statistics.median(times) for times in zip(*((row.first, row.cold_first) for row in replays)))
    print(f"the first token of a replay came {cold / first:.1f} times sooner (medians of {len(replays)}: "
          f"{1000 * first:.0f} ms, {1000 * cold:.0f} ms; at least {SPEED_UP} times is wanted)", flush=True)
    return [] if cold >= SPEED_UP * first else [f"a replay is less than {SPEED_UP} times as fast as computing"]


def run(model, text, rounds, judges_speed):
    with Network() as network, Site() as site:
        hosts = [network.host() for _ in range(4)]
        rows, report = pool_run(site, hosts, model, text, rounds)
    say("asking servers without a pool for comparison")
    faults = compare(rows, model)
    used = landed(report)
    for host, who in ((hosts[1], "donor"), (hosts[2], "first server")):
        if not used.get(host.address):
            faults.append(f"no blocks landed on the host of the {who}, {host.address}")
    print_table(rows, model)
    print(f"\n{report}")
    too_slow = judge_speed(rows)
    return faults + (too_slow if judges_speed else [])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3, choices=range(1, 100), metavar="N")
    parser.add_argument("--check", action="store_true", help="exit 1 also if a replay is too slow")
    arguments = parser.parse_args()
    show("demo-cluster", lambda: run(arguments.model, arguments.text.read_text(), arguments.rounds, arguments.check), SECONDS)


if __name__ == "__main__":
    main()
