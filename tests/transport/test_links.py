"""Nodes find each other by greeting: links are proven, unique, bounded, and survive what strangers send."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.errors import DuplicateNode, OrdercastError, OtherProtocol
from ordercast.keys import Keyring, generate
from ordercast.transport import links as links_module
from ordercast.transport.address import address_text
from ordercast.transport.greetings import CHALLENGE, GREETING, GREETING_MAGIC, HEADER, Greeting
from ordercast.transport.links import (
    ALIVE_S,
    AT_ONCE,
    FORGET_S,
    GREETINGS_PER_S,
    MOST_ADDRESSES,
    MOST_ALIASES,
    MOST_TOLD,
    OWN_S,
    SILENT_S,
    Links,
)
from ordercast.transport.peers import Peer
from ordercast.transport.seal import Port, Refused, Seal
from ordercast.transport.udp_socket import Address

RING = Keyring((generate(),))
SEALED = pytest.mark.parametrize("sealed", [False, True], ids=["open", "sealed"])


class Net:
    """Addresses, a clock, and what is on the way between the nodes there are."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.flying: deque[tuple[bytes, Address, Address]] = deque()
        self.hosts: dict[Address, Host] = {}
        self.seen: list[tuple[bytes, Address, Address]] = []
        self._sessions = 0

    def session(self) -> bytes:
        self._sessions += 1
        return self._sessions.to_bytes(8, "big") + bytes(8)

    def run(self) -> None:
        """Until nothing is on the way any more."""
        for _ in range(100_000):
            if not self.flying:
                return
            data, source, to = self.flying.popleft()
            self.seen.append((data, source, to))
            host = self.hosts.get(to)
            if host is not None:
                host.links.on_greeting(data, source)
        raise AssertionError("they greet each other without end")

    def pass_time(self, seconds: float) -> None:
        """Greeting twice a second, as drivers do."""
        for _ in range(int(seconds * 2)):
            self.now += 0.5
            for host in list(self.hosts.values()):
                host.links.greet()
            self.run()


class Host:
    """A node as far as links are concerned; also the `LinkListener` of its links."""

    def __init__(
        self,
        net: Net,
        node: int,
        port: int,
        knows: Sequence[int] = (),
        *,
        sealed: bool = False,
        closed: bool = False,
        session: bytes | None = None,
        incarnation: int = 0,
        settings: str = "the same",
        protocol: str = "totem",
    ) -> None:
        self.net = net
        self.address = at(port)
        self.drops: Counter[str] = Counter()
        self.made: list[int] = []
        self.fell_silent: list[int] = []
        self.refusals: list[str] = []
        self.outlived_by: list[int] = []
        self.errors: list[type] = []
        self.warnings: list[str] = []
        session = session or net.session()
        self.links = Links(
            node=node,
            incarnation=incarnation,
            session=session,
            data_port=port + 1,
            protocol=protocol,
            settings=settings,
            listener=self,
            seal=Seal(RING, session=session) if sealed else None,
            closed=closed,
            clock=lambda: net.now,
        )
        self.links.know(map(at, knows))
        net.hosts[self.address] = self
        self.links.greet()

    def send_greeting(self, packet: bytes, to: Address) -> None:
        self.net.flying.append((packet, self.address, to))

    def linked(self, peer: Peer) -> None:
        self.made.append(peer.node)

    def silent(self, peer: Peer) -> None:
        self.fell_silent.append(peer.node)

    def refused(self, reason: OrdercastError) -> None:
        self.refusals.append(str(reason))
        self.errors.append(type(reason))

    def outlived(self, life: int) -> None:
        self.outlived_by.append(life)
        self.links.incarnation = life + 1  # as a node does

    def drop(self, reason: str) -> None:
        self.drops[reason] += 1

    def warn(self, sentence: str) -> None:
        self.warnings.append(sentence)

    @property
    def targets(self) -> list[int]:
        return [peer.node for peer in self.links.targets]

    def die(self) -> None:
        del self.net.hosts[self.address]


def linked(sealed: bool = False) -> tuple[Net, Host, Host]:
    """A network with nodes 1 and 2 at the ports 100 and 200, which are linked."""
    net = Net()
    one = Host(net, 1, 100, sealed=sealed)
    two = Host(net, 2, 200, [100], sealed=sealed)
    net.run()
    return net, one, two


def at(port: int) -> Address:
    return ("10.0.0.1", port)


def challenge(host: Host, address: Address) -> bytes:
    """What the host would challenge that address with now."""
    return host.links._challenges.made_for(address)


def greeting_of(
    node: int,
    *,
    session: bytes = b"s" * 16,
    echo: bytes = b"",
    number: int = 1,
    data_port: int = 9,
    peers: Iterable[tuple[int, str, int]] = (),
    **fields: object,
) -> bytes:
    """An open greeting of anybody."""
    greeting = Greeting(
        node=node,
        incarnation=0,
        session=session,
        challenge=b"c" * 16,
        number=number,
        linked=False,
        data_port=data_port,
        counters=(0, 0),
        settings="the same",
        peers=list(peers),
    )
    return header(echo) + msgspec.msgpack.encode(msgspec.structs.replace(greeting, **fields))


def header(echo: bytes, kind: int = GREETING) -> bytes:
    return HEADER.pack(GREETING_MAGIC, kind, bytes(8), echo)


# --- finding each other -------------------------------------------------------------------------


@SEALED
def test_one_known_address_is_enough(sealed: bool) -> None:
    net = Net()
    hosts = [Host(net, node, 100 * node, [100] if node > 1 else [], sealed=sealed) for node in range(1, 6)]
    net.run()
    net.pass_time(1)
    for host in hosts:
        assert host.targets == [n for n in range(1, 6) if n != host.links.node]
        assert not host.drops
        assert sorted(host.made) == host.targets, "each link is made once"


@SEALED
def test_a_chain_of_seeds(sealed: bool) -> None:
    net = Net()
    hosts = [Host(net, node, 100 * node, [100 * (node - 1)], sealed=sealed) for node in range(1, 7)]
    net.run()
    net.pass_time(2)
    assert all(len(host.targets) == 5 for host in hosts)


def test_a_seed_that_comes_up_later() -> None:
    net = Net()
    late = Host(net, 2, 200, [100])
    net.pass_time(FORGET_S * 1.5)
    assert late.targets == []
    first = Host(net, 1, 100)
    net.pass_time(1)
    assert late.targets == [1]
    assert first.targets == [2]


def test_the_own_address_among_the_seeds() -> None:
    net = Net()
    one = Host(net, 1, 100, [100, 200])
    two = Host(net, 2, 200, [100, 200])
    net.run()
    net.pass_time(1)
    assert one.targets == [2]
    assert two.targets == [1]
    assert not one.drops
    net.seen.clear()
    net.pass_time(2)
    assert not any(source == to for _, source, to in net.seen), "nobody goes on greeting itself"


def test_linked_nodes_send_one_greeting_a_second_each() -> None:
    net = Net()
    Host(net, 1, 100)
    Host(net, 2, 200, [100])
    net.run()
    net.pass_time(1)
    net.seen.clear()
    net.pass_time(5)
    assert len(net.seen) == 2 * 5


def test_all_peers_are_told_of_in_turn() -> None:
    net = Net()
    nodes = MOST_TOLD + 12
    hosts = [Host(net, node, 100 * node, [100]) for node in range(1, nodes + 1)]
    net.pass_time(2)
    assert all(len(host.targets) == nodes - 1 for host in hosts)
    assert max(len(data) for data, _, _ in net.seen) < 1452, "a greeting fits a datagram"


def test_different_settings_are_told_once() -> None:
    net = Net()
    one = Host(net, 1, 100, settings="mtu 1500")
    Host(net, 2, 200, [100], settings="mtu 9000")
    net.pass_time(3)
    assert len(one.warnings) == 1
    assert "mtu 9000" in one.warnings[0]
    assert "10.0.0.1:200" in one.warnings[0]


# --- a list of peers ----------------------------------------------------------------------------


def test_with_a_list_nobody_else_is_let_in() -> None:
    net = Net()
    ports = [100, 200, 300]
    hosts = [Host(net, node, port, ports, closed=True) for node, port in enumerate(ports, 1)]
    stranger = Host(net, 9, 900, [100])
    net.pass_time(2)
    for host in hosts:
        assert len(host.targets) == 2
        assert 9 not in host.links.peers
    assert hosts[0].drops["greeting: not on the list of peers"] > 0
    assert stranger.targets == []


def test_with_a_list_nothing_is_discovered() -> None:
    net = Net()
    one = Host(net, 1, 100, [100, 200], closed=True)
    Host(net, 2, 200, [300])
    Host(net, 3, 300)
    net.pass_time(2)
    assert one.targets == [2]


# --- lives --------------------------------------------------------------------------------------


@SEALED
def test_a_restart_at_the_same_address(sealed: bool) -> None:
    net, one, two = linked(sealed)
    two.die()
    again = Host(net, 2, 200, [100], sealed=sealed, incarnation=1)
    net.run()
    assert one.targets == [2]
    assert one.links.peers[2].session == again.links.session
    assert one.links.peers[2].incarnation == 1
    assert again.targets == [1]


def test_a_restart_at_another_address_waits_until_the_earlier_life_is_surely_over() -> None:
    net, one, two = linked()
    two.die()
    again = Host(net, 2, 400, [100], incarnation=1)
    net.run()
    assert again.refusals
    net.pass_time(ALIVE_S + 1)
    assert again.targets == [1]
    assert one.links.peers[2].token == at(400)
    assert one.links.peer_at(at(200)) is None


def test_another_node_at_the_address_of_one_that_is_gone() -> None:
    net, one, two = linked()
    two.die()
    three = Host(net, 3, 200, [100])
    net.run()
    assert one.targets == [3]
    net.pass_time(FORGET_S + 10)
    peer = one.links.peer_at(three.address)
    assert peer is not None
    assert peer.node == 3
    assert one.links.peer_at(at(201)) is peer
    assert list(one.links.peers) == [3]


def test_a_clock_that_was_set_back_does_not_keep_a_later_life_out() -> None:
    net = Net()
    one = Host(net, 1, 100)
    two = Host(net, 2, 200, [100], session=b"\xff" * 16, incarnation=4)
    net.run()
    two.die()
    again = Host(net, 2, 200, [100], session=b"\x01" * 16, incarnation=5)
    net.run()
    assert again.targets == [1]
    assert one.links.peers[2].incarnation == 5


def test_an_earlier_life_makes_no_link() -> None:
    net = Net()
    one = Host(net, 1, 100)
    early = net.session()
    Host(net, 2, 200, [100], incarnation=1)
    net.run()
    session = one.links.peers[2].session
    one.links.on_greeting(greeting_of(2, session=early, echo=challenge(one, at(200)), number=99), at(200))
    assert one.drops["greeting: earlier life"] == 1
    assert one.links.peers[2].session == session


def test_silence_and_return() -> None:
    net, one, two = linked()
    two.die()
    net.pass_time(SILENT_S + 1)
    assert one.fell_silent == [2]
    assert one.targets == []
    net.hosts[two.address] = two
    net.pass_time(1)
    assert one.targets == [2]
    assert two.targets == [1]


@SEALED
def test_data_of_a_silent_peer_makes_the_link_again_if_nobody_else_can_have_sent_it(sealed: bool) -> None:
    net, one, two = linked(sealed)
    two.die()
    net.pass_time(SILENT_S + 1)
    assert one.targets == []
    peer = one.links.peer_at(at(201))
    assert peer is one.links.peers[2]
    assert one.targets == [], "anybody may write that address on a datagram"
    one.links.heard(peer)
    assert one.targets == ([2] if sealed else [])


def test_who_is_silent_for_long_is_forgotten_but_a_seed_is_tried_on() -> None:
    net, one, two = linked()
    one.die()
    net.pass_time(FORGET_S + 10)
    assert two.links.peers == {}
    assert two.links.peer_at(at(100)) is None
    net.hosts[one.address] = one
    net.pass_time(1)
    assert two.targets == [1]


def test_a_process_that_ended_is_parted_with_and_may_come_back() -> None:
    net, one, two = linked()
    one.links.part_with(one.links.peers[2])
    assert one.targets == []
    assert one.links.peer_at(at(200)) is None
    two.die()
    again = Host(net, 2, 200, [100], incarnation=1)
    net.pass_time(1)
    assert one.targets == [2]
    assert again.targets == [1]


@SEALED
def test_nodes_that_come_at_the_same_time_learn_of_each_other_at_once(sealed: bool) -> None:
    """No time passes: whoever makes a link tells right away who else is here."""
    net = Net()
    hosts = [
        Host(net, 1, 100, sealed=sealed),
        *(Host(net, n, 100 * n, [100], sealed=sealed) for n in (2, 3, 4)),
    ]
    net.run()
    for host in hosts:
        assert len(host.targets) == 3


# --- one identifier, one node -------------------------------------------------------------------


@SEALED
def test_a_second_node_with_an_identifier_is_refused_by_the_first(sealed: bool) -> None:
    net = Net()
    one = Host(net, 1, 100, sealed=sealed)
    second = Host(net, 1, 200, [100], sealed=sealed)
    net.pass_time(3)
    assert second.targets == one.targets == []
    assert not one.refusals, "who was first stays"
    assert "node id 1 is in use" in second.refusals[0]
    assert "`id`" in second.refusals[0]
    assert second.errors[0] is DuplicateNode


def test_the_first_learns_of_the_second_by_its_own_seeds() -> None:
    net = Net()
    one = Host(net, 1, 100, [200])
    second = Host(net, 1, 200)
    net.pass_time(3)
    assert second.refusals
    assert not one.refusals
    assert one.targets == second.targets == []


def test_a_second_node_is_refused_by_others_that_know_the_first() -> None:
    net = Net()
    Host(net, 1, 100)
    third = Host(net, 3, 300, [100])
    net.run()
    second = Host(net, 1, 200, [300])
    net.pass_time(5)
    assert "10.0.0.1:100" in second.refusals[0]
    assert third.links.peers[1].token == at(100)
    assert third.drops["greeting: id in use"] > 0
    assert second.targets == []


def test_a_refusal_that_nobody_asked_for_is_none() -> None:
    net = Net()
    one = Host(net, 1, 100)
    one.links.on_greeting(greeting_of(2, refusal="go away"), at(200))
    assert one.refusals == []
    one.links.on_greeting(greeting_of(2, refusal="go away", echo=challenge(one, at(200))), at(200))
    assert one.refusals == ["go away"]


# --- one group, one protocol --------------------------------------------------------------------


@SEALED
def test_a_node_with_another_protocol_is_refused_by_those_that_were_here_first(sealed: bool) -> None:
    net = Net()
    one = Host(net, 1, 100, sealed=sealed)
    two = Host(net, 2, 200, [100], sealed=sealed)
    net.pass_time(1)
    third = Host(net, 3, 300, [100, 200], sealed=sealed, protocol="dtp")
    net.pass_time(3)
    assert (one.targets, two.targets, third.targets) == ([2], [1], [])
    assert not one.refusals
    assert not two.refusals
    assert "the group runs protocol totem, and this node dtp" in third.refusals[0]
    assert set(third.errors) == {OtherProtocol}
    assert one.drops["greeting: another protocol"] > 0
    assert [told for told in one.warnings if "node 3 at 10.0.0.1:300 runs protocol dtp" in told]


def test_who_was_first_hears_of_the_other_protocol_by_its_own_seeds() -> None:
    net = Net()
    one = Host(net, 1, 100, [200])
    second = Host(net, 2, 200, protocol="dtp")
    net.pass_time(3)
    assert not one.refusals
    assert second.errors
    assert one.targets == second.targets == []


def test_a_node_that_says_nothing_of_a_protocol_runs_totem() -> None:
    """As nodes of the first version do."""
    net = Net()
    one = Host(net, 1, 100)
    whole = msgspec.msgpack.decode(greeting_of(2)[HEADER.size :])
    *whole, protocol, leaving, outlived, relay = whole
    assert (protocol, leaving, outlived, relay) == ("totem", False, -1, 0)
    one.links.on_greeting(header(challenge(one, at(200))) + msgspec.msgpack.encode(whole), at(200))
    assert one.targets == [2]


def test_who_was_not_heard_for_a_while_is_known() -> None:
    net = Net()
    one, _, three = Host(net, 1, 100), Host(net, 2, 200, [100]), Host(net, 3, 300, [100])
    net.pass_time(1)
    net.now += 1.0
    assert [peer.node for peer in one.links.unheard(0.9)] == [2, 3]
    one.links.heard(one.links.peers[3])
    assert [peer.node for peer in one.links.unheard(0.9)] == [2]
    assert three.targets == [1, 2]


# --- and oneself --------------------------------------------------------------------------------


def test_nobody_links_with_itself_under_another_session() -> None:
    net = Net()
    net.session()
    one = Host(net, 1, 100)
    one.links.on_greeting(greeting_of(1, session=bytes(16), echo=challenge(one, at(200))), at(200))
    assert one.links.peers == {}


# --- machines with several addresses ------------------------------------------------------------


def other(address: Address) -> Address:
    return ("192.168.0.1", address[1])


def test_a_node_heard_from_two_addresses_stays_at_the_first() -> None:
    net, one, two = linked()
    peer = one.links.peers[2]
    for number in range(50, 60):
        one.links.on_greeting(
            greeting_of(
                2,
                session=two.links.session,
                echo=challenge(one, other(two.address)),
                number=number,
                data_port=201,
            ),
            other(two.address),
        )
        assert one.links.peers[2] is peer
    assert peer.token == two.address
    assert one.links.peer_at(other(two.address)) is peer
    assert one.links.peer_at(other(at(201))) is peer
    two.die()
    net.pass_time(FORGET_S + 10)
    assert one.links.peer_at(other(two.address)) is None


def test_it_moves_when_it_is_silent_where_it_was() -> None:
    net, one, two = linked()
    two.die()
    net.pass_time(SILENT_S + 1)
    one.links.on_greeting(
        greeting_of(
            2, session=two.links.session, echo=challenge(one, other(two.address)), number=99, data_port=201
        ),
        other(two.address),
    )
    assert one.links.peers[2].token == other(two.address)
    assert one.links.peers[2].data == other(at(201))


def test_the_addresses_of_a_node_are_bounded() -> None:
    _, one, two = linked()
    for number in range(10, 200):
        one.links.on_greeting(
            greeting_of(
                2,
                session=two.links.session,
                echo=challenge(one, (f"192.168.1.{number}", 5)),
                number=number,
            ),
            (f"192.168.1.{number}", 5),
        )
    assert len(one.links.peers[2].addresses) <= MOST_ALIASES
    assert len(one.links._by_address) <= MOST_ALIASES


# --- what strangers send ------------------------------------------------------------------------


@SEALED
def test_a_recorded_greeting_from_elsewhere_is_only_challenged(sealed: bool) -> None:
    net, one, _ = linked(sealed)
    net.pass_time(2)
    recorded = [data for data, _, to in net.seen if to == one.address and data[3] == GREETING]
    peer = one.links.peers[2]
    assert len(recorded) >= 3
    for data in recorded:
        one.links.on_greeting(data, ("6.6.6.6", 666))
        answer, _, to = net.flying.pop()
        assert (answer[3], to) == (CHALLENGE, ("6.6.6.6", 666))
        assert len(answer) < len(data)
    assert one.links.peers[2] is peer
    assert one.links.peer_at(("6.6.6.6", 666)) is None


@SEALED
def test_answers_to_strangers_are_limited_and_spend_nothing(sealed: bool) -> None:
    net, one, _ = linked(sealed)
    recorded = [data for data, _, to in net.seen if to == one.address and data[3] == GREETING]
    sent = one.links._greetings
    for _ in range(20_000):
        one.links.on_greeting(recorded[0], ("6.6.6.6", 666))
    assert len(net.flying) <= AT_ONCE
    assert one.drops["greeting: too many"] >= 20_000 - AT_ONCE
    net.flying.clear()
    net.now += 0.1
    for _ in range(20_000):
        one.links.on_greeting(recorded[0], ("6.6.6.6", 666))
    assert 0 < len(net.flying) <= GREETINGS_PER_S / 10
    for number in range(20_000):
        one.links.on_greeting(recorded[0], (f"6.7.{number // 250}.{number % 250}", 666))
    assert len(net.flying) <= AT_ONCE
    assert one.links._greetings == sent, "no greeting was made for them"
    net.flying.clear()
    net.pass_time(2)
    assert one.targets == [2], "those who are known do not share with strangers"


@SEALED
def test_what_was_recorded_of_a_process_that_ended_makes_no_link_again(sealed: bool) -> None:
    net, one, two = linked(sealed)
    net.pass_time(3)
    two.die()
    one.links.part_with(one.links.peers[2])
    recorded = [(data, source) for data, source, to in net.seen if to == one.address]
    for _ in range(30):
        for data, source in recorded:
            one.links.on_greeting(data, source)
        net.flying.clear()
        assert one.targets == []
        net.now += 0.5
    assert one.drops["greeting: replayed"] > 0, "of the last seconds"


@SEALED
def test_the_owner_at_another_port_wins_over_what_was_recorded_of_its_earlier_life(sealed: bool) -> None:
    net, one, two = linked(sealed)
    net.pass_time(3)
    recorded = [(data, source) for data, source, to in net.seen if to == one.address]
    two.die()
    again = Host(net, 2, 400, [100], sealed=sealed, incarnation=1)
    for _ in range(8):
        for data, source in recorded:
            one.links.on_greeting(data, source)
        old = one.links.peers[2]
        if old.token == at(200) and not sealed:
            one.links.heard(old)  # as data would that anybody can send
        net.pass_time(0.5)
    assert one.links.peers[2].token == at(400)
    assert again.targets == [1]


@pytest.mark.parametrize(
    "forged",
    [
        {"number": 2**40},
        {"number": 2**40, "node": 19},
        {"data_port": 4444},
        {"node": 19, "data_port": 4444},
        {"session": b"x" * 16, "number": 2**40},
        {"incarnation": 77, "session": b"x" * 16},
        {"leaving": True},
        {"protocol": "toten"},
        {"node": 1},
    ],
    ids=str,
)
def test_one_forged_greeting_shuts_nobody_out_for_long(forged: dict[str, Any]) -> None:
    net = Net()
    one = Host(net, 1, 100)
    two = Host(net, 2, 200, [100])
    three = Host(net, 3, 300, [100])
    net.run()
    net.pass_time(3)
    peer = one.links.peers[2]
    fields: dict[str, Any] = {
        "node": 2,
        "session": two.links.session,
        "data_port": peer.data[1],
        "number": 50,
    } | forged
    one.links.on_greeting(greeting_of(**fields, echo=challenge(one, at(200))), at(200))
    net.pass_time(4)
    assert [host.targets for host in (one, two, three)] == [[2, 3], [1, 3], [1, 2]]
    assert sorted(one.links.peers) == [2, 3]
    assert one.links.peers[2].data == peer.data
    assert two.outlived_by == ([77] if "incarnation" in forged else []), (
        "it takes a later life, and is let in"
    )


def test_a_seed_that_seemed_to_be_the_own_address_is_tried_again() -> None:
    net = Net()
    one = Host(net, 1, 100, [200])
    one.links.on_greeting(greeting_of(1, session=one.links.session, echo=challenge(one, at(200))), at(200))
    net.flying.clear()
    two = Host(net, 2, 200)
    net.pass_time(5)
    assert one.targets == []
    net.pass_time(OWN_S)
    assert one.targets == [2]
    assert two.targets == [1]


def test_a_session_that_comes_back_does_not_open_what_it_has_opened() -> None:
    net, one, two = linked(sealed=True)
    assert two.links._seal is not None
    packet = two.links._seal.seal(Port.DATA, b"hello")
    opener = one.links.peers[2].opener
    assert opener is not None
    assert opener.open(Port.DATA, packet) == b"hello"
    one.links.part_with(one.links.peers[2])  # wrongly
    net.pass_time(2)
    assert one.targets == [2]
    again = one.links.peers[2].opener
    assert again is not None
    with pytest.raises(Refused, match="replayed"):
        again.open(Port.DATA, packet)


def test_a_second_node_does_not_get_an_identifier_while_its_owner_answers() -> None:
    """Nor when the owner's own greetings are lost: it is asked."""
    net, one, two = linked()
    second = Host(net, 2, 400, [100])
    for _ in range(20):
        net.now += 0.5
        second.links.greet()
        net.run()
    assert one.links.peers[2].token == two.address
    assert second.refusals


def test_a_challenge_is_answered_once_and_only_if_it_was_asked_for() -> None:
    net = Net()
    one = Host(net, 1, 100, [200])
    data, _, _ = net.flying.pop()
    _, _, tag, _ = HEADER.unpack_from(data)
    forged = HEADER.pack(GREETING_MAGIC, CHALLENGE, bytes(8), b"x" * 16)
    one.links.on_greeting(forged, at(200))
    assert not net.flying
    real = HEADER.pack(GREETING_MAGIC, CHALLENGE, tag, b"x" * 16)
    one.links.on_greeting(real + b"more", at(200))
    one.links.greet()
    data, _, _ = net.flying.pop()
    real = HEADER.pack(GREETING_MAGIC, CHALLENGE, HEADER.unpack_from(data)[2], b"x" * 16)
    one.links.on_greeting(real, at(200))
    answer, _, to = net.flying.pop()
    assert to == at(200)
    assert HEADER.unpack_from(answer)[3] == b"x" * 16
    one.links.on_greeting(real, at(200))
    answered = HEADER.pack(GREETING_MAGIC, CHALLENGE, HEADER.unpack_from(answer)[2], b"x" * 16)
    one.links.on_greeting(answered, at(200))
    assert not net.flying, "or two nodes could be made to challenge each other without end"
    assert one.drops["greeting: challenge that nobody asked for"] == 4


def test_who_has_shown_only_a_key_that_is_pruned_has_no_link_any_more() -> None:
    net = Net()
    one, two, three = (Host(net, node, 100 * node, [100], sealed=True) for node in (1, 2, 3))
    net.pass_time(1)
    seals = [host.links._seal for host in (one, two, three)]
    old, new = RING.keys[0], generate()
    for host, seal in zip((one, two), seals, strict=False):
        assert seal is not None
        seal.rekey(Keyring((new, old)))
        host.links.rekeyed()
    net.pass_time(2)
    assert one.targets == [2, 3]
    assert seals[0] is not None
    seals[0].rekey(Keyring((new,)))
    one.links.rekeyed()
    assert one.targets == [2]
    assert one.fell_silent == [3]
    net.pass_time(2)
    assert one.targets == [2]


def test_a_greeting_without_the_key_is_counted() -> None:
    net = Net()
    one = Host(net, 1, 100, sealed=True)
    stranger = Host(net, 2, 200, [100])
    net.pass_time(2)
    assert one.links.peers == stranger.links.peers == {}
    assert sum(one.drops.values()) == 5
    assert all(reason.startswith("greeting: ") for reason in one.drops)


def test_peers_that_are_told_of_have_to_be_addresses() -> None:
    net = Net()
    one = Host(net, 1, 100)
    net.flying.clear()
    told = [
        (5, "no.such.host", 5),
        (6, "a\0b", 5),
        (7, "ü" * 100, 5),
        (8, "", 5),
        (9, "::1", 5),
        (10, "10.0.0.9", 0),
        (11, "10.0.0.9", 70_000),
        (12, "224.0.0.1", 7),
        (13, "0.0.0.0", 7),
        (14, "10.0.0.14", 14),
    ]
    one.links.on_greeting(greeting_of(2, echo=challenge(one, at(200)), peers=told), at(200))
    assert {to for _, _, to in net.flying} == {at(200), ("10.0.0.14", 14)}


def test_what_is_told_is_bounded_and_forgotten() -> None:
    net = Net()
    one = Host(net, 1, 100)
    for round_ in range(40):
        told = [(1000 + n, f"10.1.{round_}.{n}", 5) for n in range(100)]
        one.links.on_greeting(
            greeting_of(2, echo=challenge(one, at(200)), number=round_ + 1, peers=told), at(200)
        )
    assert len(one.links._known) <= MOST_ADDRESSES
    net.flying.clear()
    for _ in range(30):
        net.now += FORGET_S / 20
        one.links.greet()
        net.flying.clear()
    assert len(one.links._known) == 0


def test_nodes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links_module, "MOST_ADDRESSES", 20)
    net = Net()
    one = Host(net, 1, 100)
    for node in range(2, 100):
        one.links.on_greeting(
            greeting_of(
                node,
                session=node.to_bytes(16, "big"),
                echo=challenge(one, at(10 * node)),
                data_port=10 * node + 1,
            ),
            at(10 * node),
        )
    assert len(one.links.peers) == 20
    assert one.drops["greeting: too many nodes"] == 78


def test_data_port_and_greeting_port_may_not_be_told_apart() -> None:
    net = Net()
    one = Host(net, 1, 100)
    one.links.on_greeting(greeting_of(2, echo=challenge(one, at(200)), data_port=200), at(200))
    peer = one.links.peer_at(at(200))
    assert peer is not None
    one.links.part_with(peer)
    assert one.links._by_address == {}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        greeting_of(1)[HEADER.size :].replace(b"\xa8the same", b"\xa8\xff\xfe\xfdsame!"),
        b"\x9c" + greeting_of(2)[HEADER.size + 1 :] + b"\x91" * 60_000,
        greeting_of(0)[HEADER.size :],
        greeting_of(2**31)[HEADER.size :],
        greeting_of(2, number=0)[HEADER.size :],
        greeting_of(2, data_port=0)[HEADER.size :],
        greeting_of(2, data_port=65_536)[HEADER.size :],
        greeting_of(2, incarnation=-1)[HEADER.size :],
        greeting_of(2, session=b"short")[HEADER.size :],
        greeting_of(2, challenge=b"")[HEADER.size :],
        greeting_of(2, counters=(-1, 0))[HEADER.size :],
        greeting_of(2, refusal="x" * 1000)[HEADER.size :],
    ],
    ids=lambda body: body[:12].hex(),
)
def test_malformed_greetings(body: bytes) -> None:
    net = Net()
    one = Host(net, 1, 100)
    one.links.on_greeting(header(challenge(one, at(200))) + body, at(200))
    assert one.drops == {"greeting: malformed": 1}
    assert not net.flying


small = st.integers(-1, 5)
greetings = st.builds(
    greeting_of,
    small,
    session=st.sampled_from([bytes(16), b"a" * 16, b"z" * 16, b"?"]),
    echo=st.sampled_from([b"", b"right", b"wrong"]),
    number=st.integers(0, 40),
    data_port=st.sampled_from([100, 101, 200, 201, 300, 0]),
    peers=st.lists(
        st.tuples(small, st.sampled_from(["10.0.0.1", "10.0.0.2", "x", "::1"]), small), max_size=4
    ),
    incarnation=small,
    linked=st.booleans(),
    refusal=st.sampled_from(["", "", "no"]),
    settings=st.sampled_from(["the same", "another"]),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("greeting"), greetings, st.sampled_from([100, 101, 200, 201, 300])),
        st.tuples(st.just("garbage"), st.binary(max_size=40), st.sampled_from([100, 200])),
        st.tuples(st.just("data"), st.just(b""), st.sampled_from([100, 101, 200, 201, 300])),
        st.tuples(st.just("time"), st.just(b""), st.sampled_from([0, 1, 4, 700])),
        st.tuples(st.just("gone"), st.just(b""), small),
    ),
    max_size=40,
)


@given(steps)
@settings(max_examples=200, deadline=None)
def test_whatever_comes_the_books_are_in_order(script: list[tuple[str, bytes, int]]) -> None:
    net = Net()
    one = Host(net, 3, 300)
    links = one.links
    for what, data, number in script:
        if what == "greeting":
            right = HEADER.pack(GREETING_MAGIC, GREETING, bytes(8), b"right")[-16:]
            links.on_greeting(data.replace(right, challenge(one, at(number))), at(number))
        elif what == "garbage":
            links.on_greeting(GREETING_MAGIC + data, at(number))
        elif what == "data":
            links.peer_at(at(number))
        elif what == "time":
            net.now += number
            links.greet()
        elif number in links.peers:
            links.part_with(links.peers[number])
        net.flying.clear()
        by_address = [(address, peer) for peer in links.peers.values() for address in peer.addresses]
        assert dict(by_address) == links._by_address
        assert len(by_address) == len(links._by_address), "an address belongs to one peer"
        assert all(links.peers[node].node == node != links.node for node in links.peers)
        assert all(peer.token in peer.addresses for peer in links.peers.values())
        assert links.targets == sorted(
            (peer for peer in links.peers.values() if peer.linked), key=lambda peer: peer.node
        )


def test_addresses_as_people_write_them() -> None:
    assert address_text(("10.0.0.1", 5)) == "10.0.0.1:5"
    assert address_text(("::1", 5, 0, 0)) == "[::1]:5"


# --- lives that others know -----------------------------------------------------------------------


def test_a_life_that_is_not_later_than_one_that_is_known_makes_no_link_before_it_is() -> None:
    """A lost disk with a clock that was set back, or a disk that was put back as it once was."""
    net = Net()
    one, two = Host(net, 1, 100), Host(net, 2, 200, [100], incarnation=9)
    net.pass_time(1)
    for life in (5, 10):
        two.die()
        two = Host(net, 2, 200, [100], incarnation=life)
        net.run()
        assert two.outlived_by == [9 if life == 5 else 10]
        assert two.targets == []
        net.pass_time(1)
        assert (one.targets, two.targets) == ([2], [1])
        assert one.links.peers[2].incarnation == two.links.incarnation == (10 if life == 5 else 11)


def test_a_later_life_of_the_same_process_is_learnt_from_its_greetings() -> None:
    net = Net()
    one, two = Host(net, 1, 100), Host(net, 2, 200, [100], incarnation=3)
    net.pass_time(1)
    two.links.incarnation = 6  # its machine ended three lives
    net.pass_time(1)
    two.die()
    two = Host(net, 2, 200, [100], incarnation=4)
    net.run()
    assert two.outlived_by == [6]
    assert one.drops["greeting: earlier life"] == 1


def test_a_life_that_nobody_can_come_to_is_not_told_of() -> None:
    net = Net()
    one = Host(net, 1, 100)
    forged = greeting_of(2, incarnation=2**31 - 1, echo=challenge(one, at(200)))
    one.links.on_greeting(forged, at(200))
    net.pass_time(5)
    two = Host(net, 2, 200, [100], incarnation=3)
    net.pass_time(1)
    assert (one.targets, two.targets, two.outlived_by) == ([2], [1], [])
