"""The end of a view (004 Figs 29 to 32): all who go on make the same of what they had."""

from __future__ import annotations

import pytest
from seat import Seat, view_of
from shuffler import ALL, Node, Shuffler, check_order, check_same, numbers_of, union

from ordercast.core.contract import Deliver, Effect, Halt, Install
from ordercast.core.identity import ConfigurationId, Ended, Guarantee
from ordercast.sequencers.cm import Cm
from ordercast.sequencers.member import Member, RulesClass
from ordercast.sequencers.order import Order
from ordercast.sequencers.packets import NULL, encode_msg
from ordercast.sequencers.settling import _PLACED, MESSAGES, ORDER, settle, unsettled
from ordercast.viewsync.config import GroupConfig
from ordercast.viewsync.contract import Items, Settled, Stream, View

every = pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.NAME)


def packet(origin: int, lsn: int) -> bytes:
    return encode_msg(b"", (origin, lsn), lsn, 0, Guarantee.SAFE, 0, [b"%d.%d" % (origin, lsn)]).body


def items(places: dict[int, tuple[int, int]], *messages: tuple[int, int]) -> Items:
    streams: dict[Stream, dict[int, bytes]] = {}
    for origin, lsn in messages:
        streams.setdefault(Stream(MESSAGES, origin, 0), {})[lsn] = packet(origin, lsn)
    streams[ORDER] = {place: _PLACED.pack(*key, 1) for place, key in places.items()}
    return streams


def settled_in(order: Order, settled: Settled) -> list[tuple[int, bytes]]:
    effects: list[Effect] = []
    settle(order, settled, effects)
    return [
        (effect.batch.seq, payload)
        for effect in effects
        if isinstance(effect, Deliver)
        for payload in effect.batch.payloads
    ]


def fresh(me: int = 1) -> Order:
    return Order(view_of(3), me, GroupConfig(), Guarantee.K1)


def test_first_what_has_a_place_then_the_rest_sender_by_sender() -> None:
    union = items({1: (3, 1), 2: NULL, 3: (2, 1)}, (1, 1), (2, 1), (2, 2), (3, 1), (3, 2))
    assert settled_in(fresh(), Settled(3, union)) == [
        (1, b"3.1"),
        (3, b"2.1"),
        (4, b"1.1"),
        (5, b"2.2"),
        (6, b"3.2"),
    ]


def test_behind_a_gap_a_place_means_nothing() -> None:
    union = items({1: (3, 1), 3: (2, 1)}, (2, 1), (3, 1))
    assert settled_in(fresh(), Settled(1, union)) == [(1, b"3.1"), (2, b"2.1")]
    union = items({1: (3, 1), 2: (1, 1), 3: (2, 1)}, (2, 1), (3, 1))  # whose message nobody has
    assert settled_in(fresh(), Settled(1, union)) == [(1, b"3.1"), (2, b"2.1")]


def test_a_sender_s_messages_behind_a_gap_are_left_out() -> None:
    union = items({}, (2, 1), (2, 3), (3, 2))
    assert settled_in(fresh(), Settled(0, union)) == [(1, b"2.1")]


def test_what_cannot_be_read_is_left_out_by_everyone_alike() -> None:
    union = {
        Stream(MESSAGES, 2, 0): {1: b"rubbish"},
        Stream(MESSAGES, 3, 0): {1: packet(3, 1), 2: packet(3, 7)},
        Stream(MESSAGES, 1, 4): {1: packet(1, 1)},
        Stream(77, 1, 0): {1: b""},
        ORDER: {1: b"short"},
    }
    assert settled_in(fresh(), Settled(0, union)) == [(1, b"3.1")]


def test_what_was_delivered_is_not_delivered_again() -> None:
    seat = Seat(Cm, 3)
    for lsn in (1, 2):
        seat.msg(2, lsn)
    seat.ack(1, 1, (2, 1), following=2)
    assert [batch.seq for batch in seat.delivered] == [1]
    seat.install(view_of(3)._replace(id=ConfigurationId(2, 1)), union([seat.orderer.unsettled()]))
    assert [batch.seq for batch in seat.delivered] == [2]


def test_what_nobody_had_to_be_told_of_is_taken_from_ones_own() -> None:
    seat = Seat(Cm, 3)
    seat.msg(2, 1, guarantee=Guarantee.SAFE)
    seat.ack(1, 1, (2, 1), following=2)
    assert seat.delivered == []
    seat.orderer.unsettled()
    seat.install(view_of(3)._replace(id=ConfigurationId(2, 1)), Settled(1, {}))
    assert [batch.seq for batch in seat.delivered] == [1]


def test_who_cannot_have_what_the_others_had_ends_its_life() -> None:
    seat = Seat(Cm, 3)
    seat.orderer.unsettled()
    seat.install(view_of(3)._replace(id=ConfigurationId(2, 1)), Settled(4, {}))
    assert Halt("cut off") in seat.effects
    assert seat.orderer.cut_off


def test_what_is_told_is_what_somebody_may_lack() -> None:
    seat = Seat(Cm, 3)
    for lsn in (1, 2, 3):
        seat.msg(1, lsn)
    seat.ack(1, 1, (1, 1), following=2)
    seat.ack(2, 2, (1, 2), following=3)
    order = seat.orderer.order
    assert order is not None
    told = unsettled(order)
    assert (told.floor, told.upto) == (1, 3)
    assert sorted(told.items[Stream(MESSAGES, 1, 0)]) == [2, 3]
    assert sorted(told.items[ORDER]) == [2, 3]


def test_without_a_view_nothing_is_unsettled() -> None:
    orderer = Member(Cm, 1, GroupConfig())
    assert orderer.unsettled() == (0, 0, {})


def test_messages_are_delivered_before_the_next_view_is_installed() -> None:
    seat = Seat(Cm, 2)
    seat.submit(b"m")
    seat.install(view_of(3)._replace(id=ConfigurationId(2, 1)), union([seat.orderer.unsettled()]))
    kinds = [type(effect) for effect in seat.effects]
    assert kinds.index(Deliver) < kinds.index(Install)
    assert seat.delivered[0].configuration == ConfigurationId(1, 1)


def test_the_next_view_says_where_the_old_one_ended() -> None:
    seat = Seat(Cm, 2)
    seat.submit(b"m")
    seat.install(view_of(3)._replace(id=ConfigurationId(2, 1)), union([seat.orderer.unsettled()]))
    [change] = [effect for effect in seat.effects if isinstance(effect, Install) and effect.ended]
    assert change.ended == Ended(ConfigurationId(1, 1), seat.delivered[-1].seq)
    seat.install(view_of(3)._replace(id=ConfigurationId(3, 1)), union([seat.orderer.unsettled()]))
    *_, change = [effect for effect in seat.effects if isinstance(effect, Install)]
    assert change.ended == Ended(ConfigurationId(2, 1), 0), "nothing was delivered in it"


# --- several members ----------------------------------------------------------------------------


def busy(kind: RulesClass, nodes: int = 4, seed: int = 1) -> Shuffler:
    """A group in the midst of things."""
    run = Shuffler(kind, nodes, GroupConfig(packet_size=300, max_message_size=4_000), seed=seed, loss=0.1)
    run.install(run.nodes)
    for n in range(12):
        for node in run.nodes:
            run.submit(node, bytes([node]) * (1_000 if n % 4 == 1 else 20))
        run.run(700)
    return run


def own(node: Node, me: int) -> list[int]:
    return numbers_of(node, me)


@every
def test_nothing_of_a_survivor_is_lost_when_the_first_member_dies(kind: RulesClass) -> None:
    """003: requests that survive the sequencer's death, once each; 004 §3.2.1 c."""
    run = busy(kind)
    run.nodes[1].halted = "dead"
    run.change((2, 3, 4))
    survivors = [run.nodes[node] for node in (2, 3, 4)]
    check_same(survivors)
    for node in (2, 3, 4):
        run.submit(node, b"in the next view")
    run.run()
    run.loss = 0
    run.run(1_000_000)
    check_order(run.nodes.values())
    check_same(survivors)
    for node in (2, 3, 4):
        assert own(run.nodes[node], node) == list(range(1, 14))
    assert not any(node.halted for node in survivors)


@every
def test_a_message_of_which_some_was_sent_is_sent_again_from_its_start(kind: RulesClass) -> None:
    run = Shuffler(kind, 3, GroupConfig(packet_size=256, max_message_size=5_000, window=1))
    run.install(run.nodes)
    run.submit(2, bytes(range(250)) * 20)
    run.run(1_000)
    assert run.nodes[2].heard == []
    assert run.nodes[2].originated == []
    run.change((1, 2, 3))
    run.run()
    run.run(1_000_000)
    check_same(run.nodes.values())
    (heard,) = run.nodes[3].heard
    assert heard.payload == bytes(range(250)) * 20
    assert heard.view == run.view.id


@every
def test_a_newcomer_has_nothing_of_the_view_before(kind: RulesClass) -> None:
    run = busy(kind, 3)
    run.nodes[4] = Node(Member(kind, 4, run.config))
    run.nodes[4].orderer.begin(0)
    run.change((1, 2, 3, 4))
    assert run.nodes[4].heard == []
    run.submit(4, b"hello")
    run.run()
    run.loss = 0
    run.run(1_000_000)
    assert [heard.view for heard in run.nodes[4].heard] == [run.view.id] * len(run.nodes[4].heard)
    check_order(run.nodes.values())
    assert numbers_of(run.nodes[1], 4) == [1]


@every
def test_views_begin_anew(kind: RulesClass) -> None:
    """003: "we can consider each view independently"."""
    run = busy(kind)
    run.change((1, 2, 3, 4))
    for node in run.nodes.values():
        order = node.orderer.order
        assert order is not None
        assert order.delivered <= 4
        assert order.view == View(ConfigurationId(2, 1), (1, 2, 3, 4), (0,) * 4, (1, 2, 3, 4))
