"""Word that a process has ended (`Gone`): no more than a hint, heeded at once in every state."""

from __future__ import annotations

import pytest
from totem_node import FIRST, Node, entry, form, one, operational, order, sent, started
from totem_parts import data, delivered

from effects import shifts, timers
from ordercast.core.contract import Halt, Install
from ordercast.core.identity import ConfigurationId, Kind
from ordercast.totem.packets import Join, Token
from ordercast.totem.states import State

NEXT_RING = ConfigurationId(12, 1)


def in_state(state: State, me: int = 2) -> Node:
    """A node of the ring of 1, 2 and 3, in a state on the way to the next ring of all three."""
    node = operational(me=me)
    if state is State.OPERATIONAL:
        return node
    node.timeout("token-loss")
    if state is State.GATHER:
        return node
    node.agrees((1, 2, 3), ring_seq=8)
    entries = [entry(member, FIRST) for member in (1, 2, 3)]
    node.commits(NEXT_RING, entries)
    if state is State.RECOVERY:
        node.returns(entries)
    assert node.state is state
    return node


@pytest.mark.parametrize("state", State)
def test_in_every_state_a_ring_is_formed_without_who_is_gone(state: State) -> None:
    node = in_state(state)
    ring_seq = node.machine.formation.ring_seq
    effects = node.is_told_gone(3)
    assert shifts(effects) == [("gather", "member gone")]
    assert one(effects, Join) == Join(2, ring_seq, (1, 2, 3), (3,))
    touched = timers(effects)
    assert touched["token-loss"] is None
    assert touched["consensus"] is not None
    assert order(effects, Install) == [], "the configuration stays until the next is installed"


@pytest.mark.parametrize("state", State)
def test_word_about_itself_or_a_stranger_says_nothing(state: State) -> None:
    node = in_state(state)
    assert node.is_told_gone(2) == []
    assert node.is_told_gone(9) == []
    assert node.state is state


@pytest.mark.parametrize("state", State)
def test_told_twice_a_node_does_nothing_the_second_time(state: State) -> None:
    node = in_state(state)
    node.is_told_gone(3)
    assert node.is_told_gone(3) == []


@pytest.mark.parametrize("state", [State.COMMIT, State.RECOVERY])
def test_the_attempt_is_given_up_and_counted(state: State) -> None:
    node = in_state(state)
    node.is_told_gone(3)
    assert node.machine.formation.forming is None
    assert node.machine.formation.exchange is None
    assert node.machine.stats["attempts_failed"] == 1


def test_of_two_that_are_gone_each_is_left_out() -> None:
    node = in_state(State.OPERATIONAL)
    node.is_told_gone(1)
    effects = node.is_told_gone(3)
    assert one(effects, Join).fail_set == (1, 3)
    effects = node.timeout("consensus")
    assert node.machine.ring.members == (2,)
    told = [effect.configuration for effect in effects if isinstance(effect, Install)]
    assert [(kind, members) for _, kind, members in told] == [
        (Kind.TRANSITIONAL, (2,)),
        (Kind.REGULAR, (2,)),
    ]


def test_who_is_gone_is_not_waited_for() -> None:
    """The other survivor's Join makes consensus: no timeout runs out in between."""
    node = operational(me=1)
    node.is_told_gone(3)
    assert shifts(node.hears(Join(2, 8, (1, 2, 3), (3,)))) == [("commit", "consensus")]


def test_what_the_dead_one_had_sent_is_delivered() -> None:
    node = operational(me=2)
    node.hears(data(1, b"a", origin=3, ring=FIRST, safe=True))
    node.is_told_gone(3)
    node.agrees((1, 2), ring_seq=8, failed=(3,))
    entries = [entry(1, FIRST, aru=1), entry(2, FIRST, aru=1)]
    node.commits(NEXT_RING, entries)
    effects = node.returns(entries) + node.recovers()
    assert delivered(effects) == [b"a"]
    assert node.machine.ring.members == (1, 2)


def test_a_wrong_word_is_not_held_against_the_node_on_the_next_ring() -> None:
    node = operational(me=2)
    node.is_told_gone(3)
    node.agrees((1, 2), ring_seq=8, failed=(3,))
    entries = [entry(1, FIRST), entry(2, FIRST)]
    node.commits(NEXT_RING, entries)
    node.returns(entries)
    node.recovers()
    node.waits(1_000_000)
    while not node.machine.formation.settled(node.now_us):
        node.visited()
    assert shifts(node.hears(Join(3, 12, (1, 2, 3), (), merge=True))) == [("gather", "join heard")]


def test_while_a_node_of_whom_it_was_told_is_left_out_its_joins_say_nothing() -> None:
    """000 §6.1: fail_set only grows until a ring is installed."""
    node = in_state(State.GATHER)
    node.is_told_gone(3)
    assert shifts(node.hears(Join(3, 8, (1, 2, 3), ()))) == []
    assert node.machine.formation.gathering.proposal == (1, 2)


def test_a_representative_that_holds_the_token_lets_it_go_for_good() -> None:
    node = operational(me=1, hold_us=10_000, idle_rotations=1)
    node.visited()
    effects = node.visited()
    assert "hold" in timers(effects), "it holds the token"
    assert timers(node.is_told_gone(3))["hold"] is None
    assert sent(node.timeout("hold"), Token) == []


def test_alone_there_is_nobody_to_be_gone() -> None:
    node = started(me=1)
    node.timeout("consensus")
    assert node.is_told_gone(2) == []
    assert node.state is State.OPERATIONAL


def test_before_the_start_it_says_nothing() -> None:
    assert Node(1).is_told_gone(2) == []


def test_who_comes_to_a_ring_starts_without_memory_of_who_was_gone() -> None:
    node = started(me=2)
    assert node.is_told_gone(3) == [], "not one it looks for yet"
    form(node, (1, 2, 3))
    assert node.machine.formation.gathering.fail_set == set()


def test_who_wants_to_leave_leaves_from_the_ring_without_the_dead() -> None:
    node = operational(me=1)
    node.submits(b"a")
    node.stops()
    node.is_told_gone(2)
    node.is_told_gone(3)
    effects = node.timeout("consensus")
    assert delivered(effects) == [b"a"]
    assert order(effects, Halt) == [Halt]
