"""The brake: while one application does not keep up, nobody sends anything new."""

from __future__ import annotations

import pytest
from totem_node import FIRST, Node, entry, one, operational, receivers, sent, started
from totem_parts import data, delivered

from effects import timers
from ordercast.core.contract import Halt, Start
from ordercast.core.identity import ConfigurationId
from ordercast.totem.packets import NOBODY, Data, Hurry, Recovered, Token
from ordercast.totem.states import State


def braked(by: int = 3) -> Node:
    """A node that has seen another's brake on the token."""
    node = operational()
    node.visited(brake=by)
    return node


def test_who_brakes_writes_its_name_on_the_token_and_sends_nothing_itself() -> None:
    node = operational()
    node.submits(b"a")
    assert node.brakes() == []
    effects = node.visited()
    assert one(effects, Token).brake == 2
    assert sent(effects, Data) == []


def test_who_sees_a_brake_sends_nothing_new_but_says_that_it_would_like_to() -> None:
    node = braked()
    node.submits(b"a")
    effects = node.visited()
    assert sent(effects, Data) == []
    assert one(effects, Token).brake == 3
    assert one(effects, Token).backlog == 1


def test_who_sees_a_brake_still_answers_requests() -> None:
    node = operational()
    node.hears(data(1, ring=FIRST, origin=1))
    effects = node.visited(seq=1, aru=0, aru_id=3, rtr=[1], brake=3)
    assert [packet.seq for packet in sent(effects, Data)] == [1]


def test_what_waited_goes_out_when_the_brake_is_off() -> None:
    node = braked()
    node.submits(b"a")
    node.visited()
    assert one(node.visited(brake=NOBODY), Data).chunks == [b"a"]


def test_who_came_first_keeps_the_brake_and_the_next_takes_it_over() -> None:
    node = braked(by=3)
    node.brakes()
    node.visited()
    assert node.forwarded.brake == 3
    node.visited(brake=NOBODY)
    assert node.forwarded.brake == 2


def test_only_who_set_it_takes_it_off_when_it_lets_go() -> None:
    node = operational()
    node.brakes()
    node.visited()
    node.visited()
    assert node.forwarded.brake == 2
    node.submits(b"a")
    node.lets_go()
    effects = node.visited()
    assert node.forwarded.brake == NOBODY
    assert one(effects, Data).chunks == [b"a"]


def test_a_brake_that_was_let_go_before_the_token_came_is_never_seen() -> None:
    node = operational()
    node.brakes()
    assert node.lets_go() == []
    node.visited()
    assert node.forwarded.brake == NOBODY


def test_a_brake_of_somebody_outside_the_ring_does_not_count() -> None:
    node = operational()
    node.submits(b"a")
    effects = node.visited(brake=9)
    assert one(effects, Data).chunks == [b"a"]
    assert node.forwarded.brake == NOBODY
    node.brakes()
    node.visited(brake=9)
    assert node.forwarded.brake == 2


# --- the token of a braked ring is held --------------------------------------------------------------


def held(by: int) -> Node:
    """A representative with something to send, that holds a braked ring's token."""
    node = operational(me=1, hold_us=10_000, idle_rotations=1)
    if by == 1:
        node.brakes()
    node.visited(brake=by)
    node.submits(b"a")
    for _ in range(5):
        effects = node.visited()
        if "hold" in timers(effects):
            assert sent(effects, Token) == []
            return node
    raise AssertionError("it is not held")


def test_a_braked_ring_does_not_spin_however_much_waits() -> None:
    node = held(by=3)
    assert one(node.timeout("hold"), Token).backlog == 1
    assert node.forwarded.brake == 3


def test_what_is_submitted_while_somebody_brakes_does_not_fetch_the_token() -> None:
    assert sent(held(by=3).submits(b"b"), Token) == []
    node = operational()
    node.visited(brake=3, idle=True)
    assert sent(node.submits(b"a"), Hurry) == []


def test_a_braked_ring_on_which_something_is_missing_goes_round() -> None:
    node = operational(me=1, hold_us=10_000, idle_rotations=1)
    for _ in range(5):
        assert one(node.visited(brake=3, seq=1, aru=0, aru_id=2), Token)


def test_who_lets_go_tells_the_representative_to_hurry() -> None:
    node = operational()
    node.brakes()
    node.visited(idle=True)
    effects = node.lets_go()
    assert one(effects, Hurry) == Hurry(FIRST)
    assert receivers(effects) == [1]
    assert node.lets_go() == [], "once is enough"


def test_who_lets_go_of_a_brake_that_is_not_its_own_hurries_nobody() -> None:
    node = operational()
    node.brakes()
    node.visited(idle=True, brake=3)
    assert node.lets_go() == []


def test_a_representative_that_lets_go_releases_the_token_and_sends() -> None:
    node = held(by=1)
    effects = node.lets_go()
    assert one(effects, Data).chunks == [b"a"]
    assert one(effects, Token).brake == NOBODY


def test_a_representative_told_to_hurry_releases_a_braked_token() -> None:
    node = held(by=3)
    assert one(node.hears(Hurry(FIRST)), Token).brake == 3


# --- alone -------------------------------------------------------------------------------------------


def alone() -> Node:
    node = started(1)
    node.timeout("consensus")
    node.timeout("consensus")
    assert node.state is State.OPERATIONAL
    return node


def test_alone_a_braked_node_keeps_its_messages_until_it_lets_go() -> None:
    node = alone()
    node.brakes()
    assert node.machine.laggard == 1
    assert delivered(node.submits(b"a", safe=True)) == []
    assert delivered(node.lets_go()) == [b"a"]
    assert node.machine.laggard is None


def test_alone_a_braked_node_that_leaves_waits_with_what_it_has_to_send() -> None:
    node = alone()
    node.brakes()
    node.submits(b"a")
    assert node.stops() == []
    effects = node.lets_go()
    assert delivered(effects) == [b"a"]
    assert isinstance(effects[-1], Halt)


def test_a_node_that_is_not_started_may_be_told_to_brake() -> None:
    node = Node(1)
    node.brakes()
    node.does(Start(0, None, 0))
    node.timeout("consensus")
    node.timeout("consensus")
    assert delivered(node.submits(b"a")) == []
    assert node.machine.laggard == 1


# --- other rings, and leaving ------------------------------------------------------------------------


def test_each_ring_starts_without_a_brake_and_who_still_brakes_sets_it_again() -> None:
    node = operational()
    node.brakes()
    node.visited()
    assert node.machine.laggard == 2
    node.timeout("token-loss")
    assert node.machine.laggard is None
    second = ConfigurationId(12, 1)
    node.agrees((1, 2), ring_seq=8, failed=(3,))
    entries = [entry(1, FIRST), entry(2, FIRST)]
    node.commits(second, entries)
    node.returns(entries)
    node.visited(brake=NOBODY)
    assert node.forwarded.brake == 2
    node.recovers()
    node.submits(b"a")
    assert sent(node.visited(), Data) == []
    assert node.machine.laggard == 2


def test_the_brake_of_a_node_that_is_lost_does_not_stop_the_next_ring() -> None:
    node = braked(by=3)
    node.submits(b"a")
    node.timeout("token-loss")
    node.agrees((1, 2), ring_seq=8, failed=(3,))
    entries = [entry(1, FIRST), entry(2, FIRST)]
    node.commits(ConfigurationId(12, 1), entries)
    node.returns(entries)
    node.recovers()
    assert node.machine.laggard is None
    assert one(node.visited(), Data).chunks == [b"a"]


def test_old_messages_are_exchanged_while_somebody_brakes() -> None:
    """Who has installed the ring may brake before the others have."""
    node = operational()
    node.hears(data(1, ring=FIRST, origin=1))
    node.timeout("token-loss")
    node.agrees((1, 2), ring_seq=8, failed=(3,))
    entries = [entry(1, FIRST), entry(2, FIRST, aru=1, delivered=1)]
    node.commits(ConfigurationId(12, 1), entries)
    node.returns(entries)
    assert one(node.visited(brake=1), Recovered).old.seq == 1


def test_who_leaves_with_something_to_send_stays_while_somebody_brakes() -> None:
    node = braked()
    node.submits(b"a")
    node.stops()
    assert not any(isinstance(effect, Halt) for _ in range(5) for effect in node.visited())
    effects = node.visited(brake=NOBODY)
    assert one(effects, Data).chunks == [b"a"]
    assert isinstance(node.visited()[-1], Halt)


def test_who_leaves_with_nothing_to_send_goes_though_somebody_brakes() -> None:
    node = braked()
    node.stops()
    assert isinstance(node.visited()[-1], Halt)
    first = operational(me=1, hold_us=10_000, idle_rotations=1)
    first.stops()
    assert isinstance(first.visited(brake=3)[-1], Halt)


# --- who keeps this node from sending ----------------------------------------------------------------


def test_the_laggard_is_who_brakes() -> None:
    node = operational()
    assert node.machine.laggard is None
    node.visited(brake=3)
    assert node.machine.laggard == 3
    node.visited(brake=NOBODY)
    assert node.machine.laggard is None


def test_the_laggard_is_who_holds_aru_back_once_that_stops_this_node() -> None:
    node = operational(max_outstanding=4, window_size=3, fail_to_receive=50)
    node.hears(*(data(seq, ring=FIRST, origin=1) for seq in range(1, 5)))
    node.visited(seq=4, aru=0, aru_id=3)
    assert node.machine.laggard is None, "it has nothing to send"
    node.submits(b"a")
    node.visited(seq=4, aru=0, aru_id=3)
    assert node.machine.laggard == 3
    node.visited(seq=4, aru=4, aru_id=NOBODY)
    assert node.machine.laggard is None


@pytest.mark.parametrize("on", [True, False])
def test_a_node_that_gathers_may_be_told_to_brake(on: bool) -> None:
    node = operational()
    node.brakes()
    node.visited(idle=True)
    node.timeout("token-loss")
    assert (node.brakes() if on else node.lets_go()) == []
    assert node.machine.laggard is None
