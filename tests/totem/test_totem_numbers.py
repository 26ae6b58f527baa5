"""Ring numbers: never the same twice, rising, and out of reach for who claims too much."""

from __future__ import annotations

import pytest
from totem_node import Node, entry, one, operational, started

from effects import drops, shifts
from ordercast.core.contract import Persist
from ordercast.core.identity import ConfigurationId
from ordercast.core.randomness import RandomStream
from ordercast.core.wire import MAX_COUNT
from ordercast.totem.config import TotemConfig
from ordercast.totem.machine import TotemMachine
from ordercast.totem.numbers import REACH, REFILL_PER_US, RING_STEP, STRIDE, RingNumbers
from ordercast.totem.packets import Commit, Join
from ordercast.totem.states import State
from ordercast.totem.storage import recall, store


def test_a_number_is_above_what_is_known_and_leaves_room_for_a_transitional_one() -> None:
    numbers = RingNumbers(RandomStream(1))
    for known in (0, 4, STRIDE - 1, STRIDE, 10**14):
        number = numbers.after(known)
        assert known < number < known + 2 * STRIDE
        assert number - 2 > known, "a transitional configuration lies between its neighbours"
        assert number % RING_STEP == 0


@pytest.mark.parametrize("stored", [None, 0, 123_456_788])
def test_lives_that_know_the_same_take_different_numbers(stored: int | None) -> None:
    """A lost disk, two lives in one millisecond, a disk that returns an old state: all are this."""
    firsts = [RingNumbers(RandomStream(seed)).first(stored) for seed in range(500)]
    assert len(set(firsts)) == len(firsts)
    seconds = [RingNumbers(RandomStream(seed)).after(max(firsts)) for seed in range(500)]
    assert len(set(seconds)) == len(seconds)


def test_the_clock_has_no_part_in_it() -> None:
    def first_number(now_us: int) -> int:
        node = Node(3)
        node.machine = TotemMachine(3, TotemConfig())
        node.waits(now_us)
        return one(node.starts(seed=5), Join).ring_seq

    assert first_number(0) == first_number(10**15)


def test_what_is_stored_is_recalled() -> None:
    assert recall(3, store(2**60)) == 2**60
    assert recall(3, None) is None


def test_who_claims_too_much_is_followed_a_step() -> None:
    numbers = RingNumbers(RandomStream(1))
    assert numbers.follow(0, 0, own=100) == 100
    assert numbers.follow(0, 500, own=100) == 500
    assert numbers.follow(0, MAX_COUNT - 1, own=500) == 100 + REACH
    assert numbers.follow(0, MAX_COUNT - 1, own=500) == 500, "the allowance is spent"
    assert numbers.follow(1_000, MAX_COUNT - 1, own=500) == 500 + 1_000 * REFILL_PER_US
    assert numbers.follow(10**15, MAX_COUNT - 1, own=500) == 500 + REACH, "and is never more than this"
    node = started(me=1)
    forged = Join(2, MAX_COUNT - 1, (1, 2), ())
    assert one(node.hears(forged), Commit).ring.seq == 4 + REACH + RING_STEP
    for _ in range(50):
        node.hears(forged)
    assert 4 + REACH < node.machine.formation.ring_seq < 4 + REACH + 50 * 2 * STRIDE, (
        "not one step for every Join"
    )


def test_the_way_to_the_next_ring_is_free() -> None:
    numbers = RingNumbers(RandomStream(1))
    own = numbers.first(None)
    assert numbers.follow(0, MAX_COUNT - 1, own) == own + REACH
    for _ in range(100):
        number = numbers.after(own)
        assert numbers.reach(0, number, own)
        own = number
    assert not numbers.reach(0, own + 3 * STRIDE, own)
    assert numbers.reach(1_000_000, own + 3 * STRIDE, own)


def test_members_that_followed_differently_far_are_together_again_within_seconds() -> None:
    spent, fresh = RingNumbers(RandomStream(1)), RingNumbers(RandomStream(2))
    assert not spent.reach(0, REACH, spent.follow(0, MAX_COUNT, 0) - REACH)
    far = fresh.follow(0, MAX_COUNT, 0)
    assert spent.reach(REACH // REFILL_PER_US, far, 0)
    assert REACH // REFILL_PER_US < 3_000_000


def test_a_commit_token_of_a_number_out_of_reach_is_not_taken_but_followed_a_step() -> None:
    node = started(me=2)
    node.agrees((1, 2))
    assert node.machine.formation.gathering.agreed
    effects = node.hears(Commit(ConfigurationId(MAX_COUNT - 4, 1), (1, 2), 1, (entry(1),)))
    assert drops(effects) == ["ring number out of reach"]
    assert Persist(store(4 + REACH)) in effects
    assert shifts(effects) == [("gather", "no commit token")]
    assert one(effects, Join).ring_seq == 4 + REACH
    again = node.hears(Commit(ConfigurationId(MAX_COUNT - 4, 1), (1, 2), 1, (entry(1),)))
    assert node.machine.formation.ring_seq == 4 + REACH, "one step for each time that all agree"
    assert drops(again) == ["ring number out of reach"]


def test_a_commit_token_is_for_one_life_of_a_member() -> None:
    """An earlier life may have agreed to that ring; this one knows nothing of it."""
    node = started(me=2)
    node.agrees((1, 2))
    ring = ConfigurationId(8, 1)
    assert drops(node.hears(Commit(ring, (1, 2), 1, (entry(1),), (0, 77)))) == ["commit token not agreed to"]
    node.hears(Commit(ring, (1, 2), 1, (entry(1),), (77, 0)))
    assert node.state is State.COMMIT


def test_a_member_that_forgot_the_ring_being_formed_is_not_waited_for() -> None:
    node = started(me=2)
    node.agrees((1, 2))
    node.hears(Commit(ConfigurationId(8, 1), (1, 2), 1, (entry(1),)))
    assert shifts(node.hears(Join(1, 4, (1,), (), life=5))) == [("gather", "join heard")]


def test_a_member_that_lost_its_disk_is_heard_although_its_number_fell() -> None:
    node = operational(me=2)
    assert shifts(node.hears(Join(3, 4, (3,), (), life=5))) == [("gather", "join heard")]
    assert drops(node.hears(Join(3, 8, (1, 2, 3), ()))) == ["outdated join"], "of its earlier life"
