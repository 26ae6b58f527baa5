"""View numbers: never the same twice, whoever founds or forgets what; rising; a claim is followed a step."""

from __future__ import annotations

import pytest
from viewsync_node import OURS, Node, decision, installs, member, started

from effects import drops
from ordercast.catalogue import lab_protocol
from ordercast.core.randomness import RandomStream
from ordercast.core.wire import MAX_COUNT
from ordercast.sim.fuzz import Cuts, plan, run
from ordercast.viewsync.header import NO_VIEW
from ordercast.viewsync.machine import GroupMachine
from ordercast.viewsync.numbers import BEGINNINGS, REACH, REFILL_PER_US, STRIDE, ViewNumbers
from ordercast.viewsync.packets import Decide, Group, Join, encode_decision


def numbers(seed: int = 1) -> ViewNumbers:
    return ViewNumbers(RandomStream(seed))


def test_a_number_is_above_what_is_known() -> None:
    for known in (0, 1, STRIDE - 1, STRIDE, 10**14):
        assert known < numbers().after(known) < known + 2 * STRIDE
        assert known < numbers().first(known) < known + BEGINNINGS + 2 * STRIDE


@pytest.mark.parametrize("known", [0, 5, 10**14])
def test_lives_that_know_the_same_give_different_numbers(known: int) -> None:
    """Groups founded apart, a lost disk, one that returns an old state, a clock that went back."""
    assert len({numbers(seed).after(known) for seed in range(500)}) == 500


def test_groups_that_are_founded_apart_do_not_count_through_the_same_numbers() -> None:
    """Not even their high parts meet, with few exceptions: each has one of 4,096 beginnings."""
    high = [numbers(seed).first(0) // STRIDE for seed in range(500)]
    assert len(set(high)) > 450


def test_a_group_is_no_other_of_the_same_founder_and_microsecond() -> None:
    def founded(seed: int) -> Group:
        node = Node(2, founders=1)
        node.machine = GroupMachine(2, node.config, node.orderer)
        node.starts(seed=seed)
        node.timeout("join", after_us=node.config.found_us)
        return node.machine.life.group

    one, other = founded(1), founded(2)
    assert (one.founded_us, one.founder) == (other.founded_us, other.founder)
    assert one != other


def test_the_way_to_the_next_view_is_free() -> None:
    mine, own = numbers(), 0
    assert not mine.believes(0, MAX_COUNT - 1, own)
    own = 2 * STRIDE + REACH
    for _ in range(100):
        number = numbers(own).after(own)
        assert mine.believes(0, number, own)
        own = number
    assert not mine.believes(0, own + 3 * STRIDE, own)


def test_a_number_is_believed_once_the_way_to_it_is_spent() -> None:
    mine = numbers()
    assert mine.believes(0, 2 * STRIDE + REACH, own=0)
    assert mine.believes(0, 2 * STRIDE + REACH, own=0), "it was followed before"
    ahead = 2 * STRIDE + REACH + 1_000_000 * REFILL_PER_US
    assert not mine.believes(10, ahead, own=0)
    assert mine.believes(1_000_000, ahead, own=0)
    assert not mine.believes(10**15, MAX_COUNT - 1, own=0), "however long nothing was claimed"


def test_a_forged_join_moves_a_group_a_step_and_shuts_nobody_out() -> None:
    """One Join with the highest number there is once led to where no new node believed the next view's."""
    node = started(1)
    node.timeout("join", after_us=node.config.found_us)
    for number in (MAX_COUNT - 1, MAX_COUNT // 2 - 1, MAX_COUNT - 1):
        assert drops(node.hears(5, Join(OURS, number, bound=False), view_id=NO_VIEW)) == [
            "number out of reach"
        ]
    node.hears(5, Join(OURS, REACH, bound=False), view_id=NO_VIEW)
    far = node.orderer.installed[-1][0].id
    assert far.seq <= REACH + 1
    made = encode_decision(decision((1, 9), far))
    assert installs(started(9).hears(1, Decide(0, made), view_id=NO_VIEW)) == [far]


def test_a_new_node_gets_to_any_number_in_time() -> None:
    node = started(9)
    far = member().machine.life.view
    assert far is not None
    made = encode_decision(decision((1, 9), far.id._replace(seq=3 * REACH)))
    asked = 0
    while not installs(node.hears(1, Decide(0, made), view_id=NO_VIEW)):
        asked += 1
        node.now_us += 1_000_000
    assert 25 < asked < 40, "seconds"


@pytest.mark.untraced
@pytest.mark.parametrize("name", ["total", "rbp", "irbp"])
def test_each_view_of_a_run_has_a_number_of_its_own(name: str) -> None:
    """In a run with the faults in which two groups once took the same."""
    of = lab_protocol(name)
    case = plan(of, 79, (2, 7), Cuts(faults=(4, 6, 9, 18, 21, 24, 25), duration_us=84_000))
    _, world = run(of, case)
    installed = {(row[5], row[6], row[8]) for row in world.rows if row[4] == "install"}
    assert len({seq for seq, _, _ in installed}) == len(installed) > 3
