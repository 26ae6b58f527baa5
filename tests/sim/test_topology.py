"""Topologies and their faults, drawn from seeds; and what the fuzzer asks of nodes on several networks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest
from bridged_totem import BRIDGED, Bridged

from ordercast.core.contract import Effect, Event, Multicast, Packet
from ordercast.core.identity import NodeId
from ordercast.sim import scenario
from ordercast.sim.coverage import coverage
from ordercast.sim.faults import At, Burst, Crash, Fault, Heal, OnNetwork, Partition, Send, named
from ordercast.sim.fuzz import Case, Cuts, plan, run
from ordercast.sim.network_coverage import (
    GATEWAY_CRASH,
    NETWORK_HITS,
    NETWORK_SPLIT,
    REDUNDANT_GATEWAY_LOST,
    SAFE_OVER_NETWORKS,
    SAME_MEMBERS,
)
from ordercast.sim.network_faults import draw_struck_in_traffic
from ordercast.sim.swarm import draw
from ordercast.sim.topology import attached, components, draw_networks, gateways, members

SIZES = (6, 14)


def topology(seed: int, nodes: int) -> dict[NodeId, tuple[int, ...]]:
    drawn = draw_networks(random.Random(seed), range(1, nodes + 1))
    found = attached({"networks": drawn}, range(1, nodes + 1))
    assert found is not None
    return found


def test_drawn_networks_are_small_and_connected_and_of_all_shapes() -> None:
    shapes: Counter[str] = Counter()
    for seed in range(400):
        networks = topology(seed, random.Random(f"{seed}/nodes").randint(*SIZES))
        numbers = sorted({number for on in networks.values() for number in on})
        assert numbers == list(range(1, len(numbers) + 1))
        assert 2 <= len(numbers) <= 4
        assert components(networks, networks) == [tuple(networks)]
        sizes = [len(members(networks, number)) for number in numbers]
        assert max(sizes) <= 5
        joints = gateways(networks)
        needed = [g for g in joints if len(components(networks, set(networks) - {g})) > 1]
        shapes["lone node on a network"] += 1 in sizes
        shapes["gateway of three"] += any(len(networks[gateway]) == 3 for gateway in joints)
        shapes["two gateways between two"] += len({frozenset(networks[each]) for each in joints}) < len(
            joints
        )
        shapes["no gateway is needed"] += not needed
        shapes["every gateway is needed"] += len(needed) == len(joints)
        shapes[f"{len(numbers)} networks"] += 1
    assert all(shapes[name] >= 20 for name in shapes), shapes


@pytest.mark.parametrize("nodes", range(1, 6))
def test_few_nodes_have_networks_too(nodes: int) -> None:
    for seed in range(50):
        networks = topology(seed, nodes)
        assert components(networks, networks) == [tuple(networks)]


def faults_of(seed: int) -> tuple[dict[NodeId, tuple[int, ...]], list[Fault]]:
    networks = topology(seed, 9)
    states = ("forming", "operational")
    return networks, draw(seed, tuple(networks), 500_000, states=states, networks=networks)


def test_faults_of_networks_are_drawn_of_nodes_that_are_attached_and_all_end() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(60):
        networks, faults = faults_of(seed)
        for fault in faults:
            action = fault.do
            if isinstance(action, OnNetwork) and action.network is not None:
                kinds[type(action).__name__] += 1
                assert all(action.network in networks[node] for node in named(action))
            if isinstance(action, Burst) and isinstance(fault, At):
                assert fault.at_us + action.duration_us <= 500_000
        ends = [fault.do for fault in faults if isinstance(fault, At) and fault.at_us == 500_000]
        parted = any(isinstance(fault.do, Partition) for fault in faults)
        assert (Heal() in ends) is parted
    assert {"Partition", "Heal", "Burst", "Cut", "Uncut", "Clog", "Unclog"} == set(kinds)
    assert min(kinds.values()) >= 10, kinds


def test_gateways_crash_more_often_than_others() -> None:
    crashes: Counter[bool] = Counter()
    nodes: Counter[bool] = Counter()
    for seed in range(60):
        networks, faults = faults_of(seed)
        joints = set(gateways(networks))
        nodes.update(node in joints for node in networks)
        crashes.update(fault.do.node in joints for fault in faults if isinstance(fault.do, Crash))
    assert crashes[True] / nodes[True] > 1.5 * crashes[False] / nodes[False]


def test_in_some_seeds_all_nodes_send_and_one_gateway_or_network_is_struck_meanwhile() -> None:
    struck: Counter[str] = Counter()
    for seed in range(60):
        networks = topology(seed, 9)
        faults = draw_struck_in_traffic(random.Random(seed), networks, 500_000)
        actions = [fault.do for fault in faults]
        senders = Counter(action.node for action in actions if isinstance(action, Send))
        assert not faults or len(senders) == 9
        struck.update({type(action).__name__ for action in actions})
        assert len([1 for each in actions if isinstance(each, Partition)]) == len(
            [1 for each in actions if isinstance(each, Heal)]
        )
    assert {"Send", "Crash", "Restart", "Cut", "Uncut", "Partition", "Heal", "Burst"} == set(struck)
    assert 15 < struck["Send"] < 45


def test_without_networks_faults_are_as_they_were() -> None:
    plain = draw(3, range(1, 10), 500_000, states=("forming",))
    also = draw(3, range(1, 10), 500_000, states=("forming",), networks=dict.fromkeys(range(1, 10), (1,)))
    assert plain == also


# --- the fuzzer ---------------------------------------------------------------------------------------

LINE = {"1": [1], "2": [1, 2], "3": [2], "4": [2, 3], "5": [3]}
"""Three networks; nodes 2 and 4 are the gateways."""


def line(*faults: Fault) -> Case:
    """A fuzzed run on three networks in a line, with these faults."""
    drawn = plan(BRIDGED, 0, (5, 5), Cuts(faults=(), duration_us=300_000))
    return msgspec.structs.replace(drawn, settings={**drawn.settings, "networks": LINE}, faults=faults)


@pytest.mark.parametrize("seed", [0, 4, 21])
def test_nodes_on_several_networks_become_one_configuration(seed: int) -> None:
    result, world = run(BRIDGED, plan(BRIDGED, seed, SIZES))
    assert result.failed is None, result.sentences
    assert len(world.networks) > 1
    assert result.coverage["safe message over networks"] or result.coverage["gateway crash"]


@pytest.mark.parametrize(("dead", "parts"), [(1, 1), (2, 2), (4, 2)])
def test_each_part_of_the_networks_becomes_one_configuration(dead: NodeId, parts: int) -> None:
    result, world = run(BRIDGED, line(At(300_000, Crash(dead))))
    assert result.failed is None, result.sentences
    assert len({host.configuration for host in world.hosts.values() if host.up}) == parts


class Deaf(Bridged):
    """Its gateways repeat nothing."""

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        effects = super().handle(now_us, event)
        if not isinstance(event, Packet):
            return effects
        return [each for each in effects if not (isinstance(each, Multicast) and each.data == event.data)]


def test_nodes_that_gateways_do_not_join_have_not_converged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridged_totem.Bridged", Deaf)
    monkeypatch.setattr("ordercast.sim.fuzz.BOUND_US", 1_000_000)
    assert run(BRIDGED, line())[0].failed == "live-membership"


def test_a_case_of_some_of_the_nodes_has_their_networks_alone() -> None:
    case = plan(BRIDGED, 0, (6, 6), Cuts(members=(1, 3, 4, 6), duration_us=200_000))
    assert case.settings["networks"] == plan(BRIDGED, 0, (6, 6)).settings["networks"]
    result, world = run(BRIDGED, case)
    assert result.failed is None, result.sentences
    assert set(world.networks.attached) == {1, 3, 4, 6}


def test_what_happens_to_networks_is_counted() -> None:
    story = """
        nodes p q g h
        attach p g h to 1
        attach q g h to 2
        at 300ms q sends a b safe
        at 500ms crash g
        at 1s partition h on 1
        at 1500ms heal on 1
        until 2500ms
        expect p q h ends in pqh
        expect p q h installs pqgh, (pqh), pqh
        expect q installs (qh), qh, (qh), pqh
    """
    report = scenario.run(scenario.parse(story), {"bridged": BRIDGED})
    assert report.ok, str(report)
    seen = coverage(report.world, NETWORK_HITS)
    assert {hit: seen[hit] for hit in NETWORK_HITS} == {
        GATEWAY_CRASH: 1,
        REDUNDANT_GATEWAY_LOST: 1,
        NETWORK_SPLIT: 2,
        SAME_MEMBERS: 0,
        SAFE_OVER_NETWORKS: 2,
        "remerge": 2,  # the first is that of the nodes as they start
    }
