"""Several networks: who hears whom, and what goes wrong on one of them alone."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from bridged_totem import BRIDGED

from ordercast.core.contract import Effect, Event, Multicast, Packet, Start, Unicast
from ordercast.core.identity import NodeId
from ordercast.sim.faults import (
    Actions,
    At,
    Burst,
    Clog,
    Cut,
    Fault,
    Heal,
    Lose,
    Partition,
    Unclog,
    Uncut,
    apply,
)
from ordercast.sim.network import Ethernet, Lan, NetworkConfig
from ordercast.sim.scenario import ScenarioError, parse, run
from ordercast.sim.topology import components
from ordercast.sim.world import World

ATTACHED = {1: (1,), 2: (1, 2), 3: (2,), 4: (2,)}
"""Node 2 is a gateway."""
QUICK = Lan(base_us=100, tail_us=0)


class Recording:
    """A machine that keeps the packets it gets, and sends what it is told to when it starts."""

    room = 0
    role = ""

    def __init__(self, sends: Sequence[Effect]) -> None:
        self._sends = sends
        self.got: list[Packet] = []

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        if isinstance(event, Packet):
            self.got.append(event)
        return self._sends if isinstance(event, Start) else ()


class Networked:
    """A world of recording machines on two networks, of which one sends something."""

    def __init__(
        self, source: NodeId, *sends: Effect, faults: Sequence[Actions] = (), network: NetworkConfig = QUICK
    ) -> None:
        machines = {node: Recording(sends if node == source else ()) for node in ATTACHED}
        self.world = World(
            machines.__getitem__,  # type: ignore[arg-type]
            tuple(ATTACHED),
            network,
            7,
            kind_of=lambda data: data.decode(),
            networks=ATTACHED,
        )
        for fault in faults:
            apply(self.world, fault)
        self.world.start()
        self.world.run_until(100_000)
        self.heard = {node: machine.got for node, machine in machines.items() if machine.got}


@pytest.mark.parametrize("network", [QUICK, Ethernet()], ids=["lan", "ethernet"])
def test_a_packet_reaches_the_nodes_of_its_network_alone_and_says_where_it_came_in(
    network: NetworkConfig,
) -> None:
    group = Networked(
        2, Multicast(b"one", 1), Multicast(b"two", 2), Unicast(4, b"four", network=2), network=network
    )
    one, two, four = Packet(b"one", 2, network=1), Packet(b"two", 2, network=2), Packet(b"four", 2, network=2)
    assert group.heard == {1: [one], 3: [two], 4: [two, four]}


def test_a_packet_to_oneself_says_where_it_went_out() -> None:
    assert Networked(2, Unicast(2, b"me", network=2)).heard == {2: [Packet(b"me", 2, network=2)]}


def test_a_network_that_the_node_is_not_attached_to_is_a_defect_of_the_machine() -> None:
    with pytest.raises(KeyError):
        Networked(1, Multicast(b"m", 2))


def test_each_network_has_its_own_chance() -> None:
    def arrivals(network: int) -> list[bytes]:
        sends = [Multicast(b"%d" % number, network) for number in range(64)]
        heard = Networked(2, *sends, network=Lan(loss=0.5)).heard
        return [packet.data for packet in heard[1 if network == 1 else 3]]

    assert arrivals(1) != arrivals(2)
    assert arrivals(1) == arrivals(1)


BOTH = (Multicast(b"one", 1), Multicast(b"two", 2))


@pytest.mark.parametrize(
    ("fault", "heard"),
    [
        (Partition(((2,),)), set()),
        (Partition(((2,),), network=1), {3, 4}),
        (Partition(((2,),), network=2), {1}),
        (Partition(((1, 2, 3), (4,))), {1, 3}),
        (Cut(2, 3), {1, 4}),
        (Cut(2, 3, network=2), {1, 4}),
        (Cut(2, 3, network=1), {1, 3, 4}),
        (Clog(2, 1), {3, 4}),
        (Clog(2, 1, network=2), {1, 3, 4}),
        (Lose(2, 4, "two"), {1, 3}),
        (Burst(1.0, 50_000), set()),
        (Burst(1.0, 50_000, network=2), {1}),
    ],
    ids=str,
)
def test_what_is_wrong_is_wrong_on_all_networks_or_on_one(fault: Actions, heard: set[NodeId]) -> None:
    assert set(Networked(2, *BOTH, faults=[fault]).heard) == heard


@pytest.mark.parametrize(
    ("begun", "ended"),
    [
        (Partition(((2,),), network=1), Heal(network=1)),
        (Partition(((2,),)), Heal()),
        (Cut(2, 1, network=1), Uncut(2, 1)),
        (Clog(2, 1), Unclog(2, 1, network=1)),
    ],
    ids=str,
)
def test_it_ends_where_it_began(begun: Actions, ended: Actions) -> None:
    group = Networked(2, *BOTH, faults=[begun, ended])
    assert set(group.heard) == {1, 3, 4}
    assert all(network.links.calm for network in group.world.networks.values())


def test_healing_one_network_leaves_the_other_apart() -> None:
    faults: list[Actions] = [Partition(((2,),)), Heal(network=1)]
    assert set(Networked(2, *BOTH, faults=faults).heard) == {1}


def test_a_network_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="no network 3; there are 1, 2"):
        Networked(2, faults=[Heal(network=3)])


def test_components_are_joined_by_gateways_that_are_up() -> None:
    assert components(ATTACHED, [1, 2, 3, 4]) == [(1, 2, 3, 4)]
    assert components(ATTACHED, [1, 3, 4]) == [(1,), (3, 4)]
    assert components(ATTACHED, []) == []
    joined_late = {1: (1,), 2: (2,), 3: (3,), 4: (1, 3), 5: (2, 3)}
    assert components(joined_late, joined_late) == [(1, 2, 3, 4, 5)]


@pytest.mark.parametrize(
    "action",
    [
        Partition(((1, 2),), network=1),
        Heal(network=2),
        Cut(2, 3, network=2),
        Uncut(2, 3, network=2),
        Clog(2, 1, network=1),
        Clog(2, 1, 5_000, network=1),
        Unclog(2, 1, network=1),
        Lose(2, 1, "ack", network=1),
        Lose(2, 1, "ack", 2, network=1),
        Burst(0.3, 20_000, network=2),
    ],
    ids=str,
)
def test_a_fault_of_one_network_is_read_back_from_its_text(action: Actions) -> None:
    fault = At(1_000, action)
    text = f"nodes 1 2 3 4\nattach 1 2 to 1\nattach 2 3 4 to 2\n{fault}\nuntil 1s"
    assert parse(text).faults == [fault]
    assert msgspec.json.decode(msgspec.json.encode(fault), type=Fault) == fault


# --- scenarios ----------------------------------------------------------------------------------------

GATEWAY = """
    nodes p q g r s
    attach p q g to 1
    attach g r s to 2
    at 400ms p sends a
"""


def told(text: str) -> None:
    report = run(parse(GATEWAY + text), {"bridged": BRIDGED})
    assert report.ok, str(report)


def test_a_scenario_with_a_gateway_whose_link_dies_and_comes_back() -> None:
    told("""
        at 500ms partition g on 2
        at 1500ms p sends b
        at 1500ms r sends c
        at 2s heal on 2
        at 3s s sends d
        until 4s
        expect p q g installs pqgrs, (pqg), pqg, (pqg), pqgrs
        expect r s installs pqgrs, (rs), rs, (rs), pqgrs
        expect p q g r s delivers a d
        expect p q g delivers a b d
        expect r s delivers a c d
        expect p q g never delivers c
        expect clean
    """)


def test_a_scenario_with_a_gateway_that_crashes() -> None:
    told("""
        at 500ms crash g
        until 2s
        expect p q ends in pq
        expect r s ends in rs
        expect clean
    """)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("attach p q to 3rd", "like: attach p q r to 1"),
        ("attach p to 0", "like: attach p q r to 1"),
        ("at 1s partition p on 2", "p is not attached to network 2"),
        ("at 1s heal on 3", "nobody is attached to network 3"),
        ("at 1s crash g on 2", "leave out 'on 2'"),
        ("at 1s burst 0.3 for 3ms on two", "to be written like 'burst 0.3 for 20ms'"),
    ],
)
def test_a_scenario_that_names_wrong_networks_is_refused(line: str, complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        parse(f"{GATEWAY}{line}\nuntil 2s")


def test_a_scenario_leaves_no_node_without_a_network() -> None:
    with pytest.raises(ScenarioError, match="q is attached to no network: attach q to 1"):
        parse("nodes p q\nattach p to 1\nuntil 1s")
