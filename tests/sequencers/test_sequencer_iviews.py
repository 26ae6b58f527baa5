"""Intermediate views (004 §4.3.5, §4.4.3, §4.4.4): the token list changes, the members stay."""

from __future__ import annotations

from typing import Any

import pytest
from seat import ALL, Seat, Sent, acks_to_deliver, view_of
from shuffler import Shuffler, check_same, numbers_of

from ordercast.core.contract import Install
from ordercast.core.identity import Guarantee
from ordercast.sequencers.cm import Cm, Irbp
from ordercast.sequencers.moving import PASS, MovingSequencer, Token
from ordercast.sequencers.order import Order
from ordercast.sequencers.packets import GONE, NULL, Ack, Gone, Placed, Req
from ordercast.viewsync.config import GroupConfig
from ordercast.viewsync.contract import Settled


def order_of(seat: Seat) -> Order:
    assert seat.orderer.order is not None
    return seat.orderer.order


def turn(seat: Seat, members: int, core: tuple[int, ...], upto: int, number: int = 1) -> list[Sent]:
    seat.orderer.unsettled()
    return seat.install(view_of(members, core, number), Settled(upto, {}))


def test_the_first_of_the_new_list_holds_the_token_and_the_application_hears_nothing() -> None:
    seat = Seat(Irbp, 2, members=5)
    turn(seat, 5, (2, 3, 4, 5), 0)
    assert isinstance(seat.orderer.rules, MovingSequencer)
    assert seat.orderer.rules.S_TOKEN is Token.HOLD
    assert not any(isinstance(effect, Install) for effect in seat.effects)
    (ack,) = seat.expire(PASS)
    assert ack == Sent(ALL, Ack(1, 1, 1, 3, (NULL,)))


def test_the_token_goes_round_the_core_only() -> None:
    """004 §4.4.3: "the token is passed only among the core members, which are not suspected"."""
    seat = Seat(Irbp, 5, members=5)
    turn(seat, 5, (1, 3, 5), 0)
    seat.null(1, 1, following=3, turn=1)
    seat.ack(3, 2, NULL, following=5, turn=1)
    (ack,) = seat.expire(PASS)
    assert isinstance(ack.packet, Ack)
    assert ack.packet.next == 1


def test_a_list_may_begin_with_any_member() -> None:
    seat = Seat(Irbp, 5, members=5)
    turn(seat, 5, (3, 5, 1), 0)
    assert seat.orderer.holder == 3
    assert seat.orderer.next_holder == 5
    seat.null(3, 1, following=5, turn=1)
    (ack,) = seat.expire(PASS)
    assert isinstance(ack.packet, Ack)
    assert ack.packet.next == 1


def test_what_was_placed_beyond_the_settled_has_no_place_any_more() -> None:
    seat = Seat(Irbp, 3, members=5)
    seat.msg(4, 1)
    seat.msg(5, 1)
    seat.ack(1, 1, (4, 1), following=2)
    seat.ack(2, 2, (5, 1), following=3)
    assert order_of(seat).hgsn == 2
    turn(seat, 5, (3, 4, 5), 1)
    (ack,) = seat.sent()
    assert isinstance(ack.packet, Ack)
    assert (ack.packet.first, ack.packet.keys) == (2, ((5, 1),))


def test_nobody_is_known_to_have_more_than_is_settled() -> None:
    seat = Seat(Irbp, 4, members=5)
    seat.msg(5, 1)
    seat.ack(1, 1, (5, 1), following=2)
    seat.null(2, 2, following=3)
    turn(seat, 5, (3, 4, 5), 1)
    assert order_of(seat).R == {1: 1, 2: 1, 3: 0, 4: 1, 5: 0}


def test_acks_of_another_turn_are_void() -> None:
    seat = Seat(Irbp, 4, members=5)
    turn(seat, 5, (3, 4, 5), 0)
    seat.null(1, 1, following=2, turn=0)
    assert seat.drops == ["other turn"]
    seat.copy(1, (1, Placed(*NULL, 1)), hop=1, turn=0)
    assert seat.drops == ["other turn"]
    assert order_of(seat).hgsn == 0
    seat.null(3, 1, following=4, turn=1)
    assert order_of(seat).hgsn == 1


def test_the_new_holder_recovers_what_is_settled_before_it_orders_anything() -> None:
    """It asks whoever has it: there is no last holder who would answer."""
    seat = Seat(Irbp, 3, members=5)
    seat.msg(4, 1)
    assert turn(seat, 5, (3, 4, 5), 1) == []
    asked = set()
    for _ in range(4):
        ((to, packet),) = seat.expire("order req")
        assert isinstance(packet, Req)
        assert packet.places == (1,)
        assert packet.asked == to
        asked.add(to)
    assert asked == {1, 2, 4, 5}
    assert seat.orderer.waiting_for in asked
    (ack,) = seat.copy(4, (1, Placed(*NULL, 1)), turn=1)
    assert isinstance(ack.packet, Ack)
    assert (ack.packet.first, ack.packet.keys) == (2, ((4, 1),))


@pytest.mark.parametrize(
    ("kind", "guarantee", "acks"),
    [
        (Irbp, Guarantee.K1, 2),
        (Irbp, Guarantee.K2, 2),
        (Irbp, Guarantee.AGREED, 2),
        (Irbp, Guarantee.SAFE, 4),
        (Cm, Guarantee.K1, 1),
    ],
)
def test_no_level_below_a_majority_of_the_members(kind: type[Cm], guarantee: Guarantee, acks: int) -> None:
    """004 §4.2: "there is a lower bound on the RBP resiliency"."""
    assert acks_to_deliver(kind, guarantee) == acks


def test_levels_count_members_of_the_core() -> None:
    seat = Seat(Irbp, 5, members=5)
    turn(seat, 5, (3, 4, 5), 0)
    seat.msg(3, 1, guarantee=Guarantee.SAFE)
    seat.ack(3, 1, (3, 1), following=4, turn=1)
    assert seat.delivered == []
    seat.null(4, 2, following=5, turn=1)
    assert [batch.seq for batch in seat.delivered] == [1]


def test_what_is_stable_is_kept_for_externals() -> None:
    """004 §4.4.3: "they postpone the garbage collection"."""
    for keep_bytes, kept in ((1_000_000, True), (0, False)):
        seat = Seat(Irbp, 5, members=5, config=GroupConfig(keep_bytes=keep_bytes))
        turn(seat, 5, (3, 4, 5), 0)
        seat.msg(3, 1)
        seat.ack(3, 1, (3, 1), following=4, turn=1)
        seat.null(4, 2, following=5, turn=1)
        assert seat.stable == [1]
        assert ((3, 1) in order_of(seat).BUF) is kept
        sent = seat.req(1, keys=((3, 1),), places=(1,), asked=5)
        assert [packet for _, packet in sent if isinstance(packet, Gone)] == ([] if kept else [Gone(1)])


def test_keeping_is_bounded() -> None:
    config = GroupConfig(keep_bytes=10_000)
    seat = Seat(Irbp, 5, members=5, config=config)
    turn(seat, 5, (3, 4, 5), 0)
    for lsn in range(1, 60):
        seat.msg(3, lsn, payload=bytes(1_000))
        seat.ack(3, 2 * lsn - 1, (3, lsn), hop=3 * lsn - 2, following=4, turn=1)
        seat.ack(4, 2 * lsn, NULL, hop=3 * lsn - 1, following=5, turn=1)
        seat.ack(5, 2 * lsn + 1, hop=3 * lsn, following=3, turn=1)
    order = order_of(seat)
    assert order.delivered == 118
    assert 5 < len(order.BUF) < 12
    assert order.floor > 90


def test_who_needs_what_is_gone_is_cut_off() -> None:
    """004 §4.4.3: "if core member sends a 'no more in the buffers' message"."""
    seat = Seat(Irbp, 1, members=5)
    turn(seat, 5, (3, 4, 5), 0)
    seat.null(4, 7, following=5, turn=1)
    seat.gone(4, 5)
    assert seat.orderer.cut_off
    healthy = Seat(Irbp, 2, members=5)
    healthy.null(1, 1, following=2)
    healthy.gone(4, 1)
    assert not healthy.orderer.cut_off


def test_an_old_message_of_an_external_whose_place_is_gone() -> None:
    seat = Seat(Irbp, 3, members=5, config=GroupConfig(keep_bytes=0))
    turn(seat, 5, (3, 4, 5), 0)
    seat.msg(1, 1)
    seat.null(4, 2, following=5, turn=1)
    seat.ack(5, 3, NULL, hop=3, following=3, turn=1)
    assert order_of(seat).floor >= 1
    assert seat.msg(1, 1) == [Sent(1, Gone(order_of(seat).floor))]


# --- several members ----------------------------------------------------------------------------


def group(seed: int = 0, **settings: Any) -> Shuffler:
    shuffler = Shuffler(Irbp, 5, GroupConfig(**settings), seed=seed)
    shuffler.install(shuffler.nodes)
    return shuffler


def test_an_external_still_sends_and_receives() -> None:
    """004 §4.4.3: "it receives all broadcasts, and can send messages to the group"."""
    run = group()
    run.turn((1, 2, 3, 4))
    for node in run.nodes:
        run.submit(node, b"from %d" % node)
    run.run()
    run.run(300_000)
    check_same(run.nodes.values())
    assert len(run.nodes[5].heard) == 5


def test_an_external_that_was_cut_off_for_a_while_fetches_what_it_missed() -> None:
    """004 Fig. 33."""
    run = group()
    run.lost = lambda source, target, kind: 5 in (source, target)
    run.turn((1, 2, 3, 4), told_to=(1, 2, 3, 4))
    for n in range(40):
        run.submit(1 + n % 4, b"%d" % n)
        run.run(2_000)
    run.run(50_000)
    assert run.nodes[5].heard == []
    run.lost = lambda source, target, kind: False
    run.tell(5)
    run.run(1_000_000)
    assert len(run.nodes[5].heard) == 40
    run.turn((1, 2, 3, 4, 5))
    run.submit(5, b"back")
    run.run()
    run.run(1_000_000)
    check_same(run.nodes.values())
    assert not run.nodes[5].orderer.cut_off


def test_an_external_that_missed_too_much_is_told_so() -> None:
    run = group(keep_bytes=0)
    run.lost = lambda source, target, kind: 5 in (source, target)
    run.turn((1, 2, 3, 4), told_to=(1, 2, 3, 4))
    for n in range(40):
        run.submit(1 + n % 4, b"%d" % n)
        run.run(2_000)
    run.lost = lambda source, target, kind: False
    run.tell(5)
    run.run(1_000_000)
    assert run.nodes[5].orderer.cut_off
    assert any((target, kind) == (5, GONE) for _, target, kind in run.sent)


def test_a_holder_that_is_taken_off_the_list_has_its_place_taken_by_another() -> None:
    """004 §4.2: p is not crashed, only unreachable, and what it placed alone was never delivered."""
    run = group()
    run.lost = lambda source, target, kind: 1 in (source, target)
    run.submit(1, b"alone")
    run.run(1_000)
    first = run.nodes[1].orderer.order
    assert first is not None
    assert first.places
    assert run.nodes[1].heard == []
    run.submit(2, b"others")
    run.turn((2, 3, 4, 5), told_to=(2, 3, 4, 5))
    run.run(200_000)
    assert [heard.payload for heard in run.nodes[2].heard] == [b"others"]
    run.lost = lambda source, target, kind: False
    run.tell(1)
    run.run()
    run.run(1_000_000)
    check_same(run.nodes.values())
    assert numbers_of(run.nodes[3], 1) == [1]


def test_turns_come_one_after_the_other() -> None:
    seat = Seat(Irbp, 2, members=5)
    with pytest.raises(AssertionError, match="turn 2 after 0"):
        turn(seat, 5, (2, 3, 4), 0, number=2)


def test_a_turn_that_is_told_twice_changes_nothing() -> None:
    seat = Seat(Irbp, 2, members=5)
    turn(seat, 5, (2, 3, 4), 0)
    seat.expire(PASS)
    told = seat.orderer.unsettled()
    assert seat.install(view_of(5, (2, 3, 4), 1), Settled(0, {})) == []
    assert seat.orderer.unsettled() is told
    assert order_of(seat).hgsn == 1
