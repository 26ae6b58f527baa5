"""Process groups over Totem and over the sequencer family, in simulated networks: golden scenarios.

001, "The Totem Process Group Interface".
"""

from __future__ import annotations

import pytest

from ordercast.audit.properties import Expectation, audit
from ordercast.catalogue import fuzzed_protocol
from ordercast.core.identity import MessageId
from ordercast.core.protocol import GROUPS
from ordercast.sim.network import Lan
from ordercast.sim.process_groups import GroupLoad, SimulatedProcesses
from ordercast.trace.columns import EVENT, GROUP, MEMBERS, NODE, NUMBER, PACKET, TIME_US, message_of

EACH = pytest.mark.parametrize("name", ["totem", "total", "rbp"])
BOUND_US = 5_000_000
STEP_US = 500


class Run:
    """Nodes with one process each."""

    def __init__(self, name: str, nodes: int, network: Lan, seed: int = 1) -> None:
        self.protocol = fuzzed_protocol(name + GROUPS)
        members = tuple(range(1, nodes + 1))
        self.world = self.protocol.world({}, members, network, seed)
        self.groups = SimulatedProcesses(self.world, GroupLoad(groups=2, processes=0, rate=0.0))
        self.world.start()
        self.process = {node: self.groups.begin_process(node) for node in members}

    def until(self, *views: str, at: tuple[int, ...], group: str = "G1") -> None:
        """Let time pass until the last view of the group is one of these members at each of these nodes."""
        end_us = self.world.now + BOUND_US
        while {self.last_view(node, group) for node in at} != set(views):
            assert self.world.now < end_us, [self.views(node, group) for node in at]
            self.world.run_until(self.world.now + STEP_US)

    def views(self, node: int, group: str = "G1") -> list[str]:
        """Nodes with members in each view that the node's process was told of, and why."""
        return [
            f"{' '.join(map(str, (row[MEMBERS] or ())[::3]))}: {row[PACKET]}"
            for row in self.world.rows
            if row[EVENT] == "group_view" and row[NODE] == node and row[GROUP] == group
        ]

    def last_view(self, node: int, group: str) -> str:
        views = self.views(node, group)
        return views[-1].partition(":")[0] if views else ""

    def received(self, node: int) -> list[MessageId]:
        return [
            MessageId(*message_of(row))  # type: ignore[arg-type]
            for row in self.world.rows
            if row[EVENT] == "group_deliver" and row[NODE] == node
        ]

    def join(self, *nodes: int, group: str = "G1") -> None:
        for node in nodes:
            self.groups.join(node, self.process[node], group)

    def send(self, node: int, *groups: str) -> None:
        assert self.groups.send(node, self.process[node], list(groups))

    def check(self, *up: int) -> None:
        """All that was ever promised was kept, and all that these nodes' processes wanted has come about."""
        self.world.run_until(self.world.now + 200_000)
        expectation = Expectation(components=(frozenset(up),))
        report = audit(self.world.rows, expectation, self.protocol.checks, one_clock=True)
        assert report.clean, report.violations[:3]
        assert not report.unchecked
        assert "group-synchrony" in report.properties


@EACH
@pytest.mark.parametrize("seed", range(4))
def test_p_q_and_r_in_two_groups(name: str, seed: int) -> None:
    """p multicasts m1 to G; on receiving it q multicasts m2 to H; r, in both, never has m2 before m1."""
    run = Run(name, 3, Lan(loss=0.05, reorder=0.3, reorder_us=3_000), seed)
    for group in ("G1", "G2"):
        run.join(1, 2, 3, group=group)
        run.until("1 2 3", at=(1, 2, 3), group=group)
    run.send(1, "G1")
    while not run.received(2):
        run.world.run_until(run.world.now + STEP_US)
    run.send(2, "G2")
    while len(run.received(3)) < 2:
        run.world.run_until(run.world.now + STEP_US)
        assert run.world.now < BOUND_US
    assert [message.origin for message in run.received(3)] == [1, 2]
    run.check(1, 2, 3)
    assert run.received(1) == run.received(2) == run.received(3)


def test_a_join_during_recovery_takes_effect_once_the_new_ring_has_put_memberships_together() -> None:
    run = Run("totem", 4, Lan())
    run.join(1, 3)
    run.until("1 3", at=(1, 3))
    asked: list[int] = []

    def joins(node: int, state: str) -> None:
        if node == 2 and state == "recovery" and not asked:
            asked.append(run.world.now)
            run.world.at(run.world.now, lambda: run.join(2))

    run.world.watch(joins)
    run.world.crash(3)
    run.until("1 2", at=(1, 2))
    assert asked
    installs = [
        row[TIME_US]
        for row in run.world.rows
        if row[EVENT] == "install" and row[NODE] == 2 and row[TIME_US] > 0
    ]
    assert asked[0] <= installs[-1], "it was asked before the new ring was installed"
    assert run.views(1)[-3:] == ["1: node lost", "1: node lost", "1 2: joined"]
    assert run.views(2) == ["1 2: joined"]
    run.check(1, 2, 4)


def test_a_remerge_with_changed_groups() -> None:
    """Apart, each side changes its groups; together again, all are told the same at one place."""
    run = Run("totem", 4, Lan())
    run.join(1, 2, 3)
    run.until("1 2 3", at=(1, 2, 3))
    run.world.network.links.partition(((1, 2), (3, 4)))
    run.until("1 2", at=(1, 2))
    run.until("3", at=(3,))
    run.groups.leave(2, run.process[2], "G1")
    run.join(4)
    run.join(2, group="G2")
    run.until("1", at=(1,))
    run.until("3 4", at=(3, 4))
    for node in (1, 2, 3):
        run.send(node, "G1")
    run.world.network.links.heal()
    run.until("1 3 4", at=(1, 3, 4))
    assert {run.views(node)[-1] for node in (1, 3, 4)} == {"1 3 4: merged"}
    assert run.views(2, "G2") == ["2: joined"], "nothing has changed for it"
    numbers = {row[NUMBER] for row in run.world.rows if row[EVENT] == "group_left" and row[NODE] == 2}
    assert numbers == {run.process[2]}
    run.check(1, 2, 3, 4)


@EACH
def test_a_node_that_lives_again_serves_other_processes(name: str) -> None:
    run = Run(name, 3, Lan())
    run.join(1, 2, 3)
    run.until("1 2 3", at=(1, 2, 3))
    run.world.crash(3)
    run.world.run_until(run.world.now + 10_000)
    run.world.restart(3)
    run.until("1 2", at=(1, 2))
    run.process[3] = run.groups.begin_process(3)
    run.join(3)
    run.until("1 2 3", at=(1, 2, 3))
    run.check(1, 2, 3)
