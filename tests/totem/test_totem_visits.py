"""Members that the token visits more often than others (000 §8): schedules, and what a whole cycle means."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from totem_node import FIRST, entry, one, sent, started
from totem_parts import data, delivered, examples, ring, token

from effects import drops
from ordercast.catalogue import lab_protocol
from ordercast.core.contract import Effect, Multicast, Unicast
from ordercast.core.identity import NodeId
from ordercast.sim.network import preset
from ordercast.sim.workload import Workload, drive
from ordercast.totem.circulation import Outbox, work
from ordercast.totem.config import TotemConfig
from ordercast.totem.machine import TotemMachine
from ordercast.totem.ordering import Ring
from ordercast.totem.packets import NOBODY, Commit, Token
from ordercast.totem.states import State
from ordercast.totem.visits import (
    EXPONENTS,
    LONGEST,
    PLAIN,
    Cycle,
    Rates,
    Rule,
    Scheduling,
    Visits,
    expected_wait,
    is_schedule,
    place_of,
    schedule,
    spread,
)

ABCBC: Visits = (0, 1, ~2, ~1, 2)
"""1, 2, 3, 2, 3: of the second and the third member one visit each is an extra one."""


def times(visits: Visits, members: int) -> list[int]:
    return [[place_of(visit) for visit in visits].count(place) for place in range(members)]


# --- schedules ----------------------------------------------------------------------------------


def test_visits_follow_the_square_root_of_the_rate() -> None:
    """000 §8: visits approximately proportional to the square root of the rate of broadcasts."""
    assert times(schedule([16, 1, 1, 1, 1, 1, 1, 1], "square-root"), 8) == [4, 1, 1, 1, 1, 1, 1, 1]
    assert times(schedule([1, 4, 4, 1, 1, 9, 1, 1, 1], "square-root"), 9) == [1, 2, 2, 1, 1, 3, 1, 1, 1]


def test_a_member_is_not_visited_twice_in_succession() -> None:
    """1 : 2 : 4 would be; so the third has every other visit."""
    assert times(schedule([1, 4, 16], "square-root"), 3) == [1, 2, 3]
    assert times(schedule([1, 4, 16], "proportional"), 3) == [1, 4, 5]
    assert schedule([1, 100], "square-root") == PLAIN


def test_visits_are_spread_evenly() -> None:
    """From one visit of the hot member to its next it is equally far, give or take a hop."""
    visits = spread([1, 1, 1, 4, 1, 1, 1, 1])
    stops = [index for index, visit in enumerate(visits) if place_of(visit) == 3]
    gaps = [(later - stop) % len(visits) for stop, later in zip(stops, stops[1:] + stops[:1], strict=True)]
    assert sorted(gaps) == [2, 3, 3, 3]


@pytest.mark.parametrize("rule", EXPONENTS)
def test_members_that_broadcast_alike_are_visited_alike(rule: Rule) -> None:
    assert schedule([100, 108, 93, 97, 100], rule) == PLAIN
    assert schedule([0, 0, 0], rule) == PLAIN


def test_a_member_that_broadcasts_next_to_nothing_does_not_stretch_the_cycle() -> None:
    visits = schedule([10_000, 1, 10_000, 10_000], "square-root")
    assert is_schedule(visits, 4)
    assert len(visits) <= LONGEST * 4


rates = st.lists(st.sampled_from((0, 0, 1, 2, 5, 30, 1_000, 50_000)), min_size=1, max_size=12)


@examples(300)
@given(rates, st.sampled_from(tuple(EXPONENTS)))
def test_every_schedule_is_the_ring_with_further_visits(rates: list[float], rule: Rule) -> None:
    visits = schedule(rates, rule)
    assert visits == PLAIN or is_schedule(visits, len(rates))
    assert expected_wait(visits, rates) <= expected_wait(PLAIN, rates) + 0.5


@pytest.mark.parametrize(
    "visits",
    [
        (0, 1, 2),  # a plain one is written otherwise
        (0, 2, 1, ~0),  # not in the order of the ring
        (1, 2, 0, ~1),  # the representative begins
        (0, 1, ~1, 2),  # twice in succession
        (0, 1, 2, ~0),  # from the end to the beginning, too
        (0, 1, ~0, 1, 2),  # two visits that count
        (0, 1, 2, ~3),  # nobody is there
        (0, ~1, ~0, ~2),  # some have none that counts
        (0, *(~1, ~2) * 6, 1, 2),  # too long
    ],
)
def test_what_is_no_schedule_of_three(visits: Visits) -> None:
    assert is_schedule(ABCBC, 3)
    assert not is_schedule(visits, 3)


def test_the_expected_wait_is_half_the_square_of_the_gaps() -> None:
    """Of a ring of four, 2 hops; where one that sends all is every second one, 1."""
    assert expected_wait(PLAIN, [1, 1, 1, 1]) == 2
    assert expected_wait((0, ~3, 1, ~3, 2, 3), [0, 0, 0, 7]) == 1


# --- rates --------------------------------------------------------------------------------------


def test_rates_are_measured_over_a_span_and_smoothed() -> None:
    counted = Rates(1_000_000)
    counted.begin(0, (1, 2), (100, 0))
    counted.count(1, 300)
    counted.count(2, 40)
    assert not counted.measured(999_999)
    assert counted.measured(2_000_000)
    assert (counted.of(1), counted.of(2)) == (125, 10)


def scheduling(rule: Rule, *counts: int) -> Scheduling:
    made = Scheduling(rule, 1_000)
    made.begin(0, (1, 2, 3), (0, 0, 0), PLAIN)
    for node, count in enumerate(counts, 1):
        assert made.rates is not None
        made.rates.count(node, count)
    return made


def test_the_schedule_changes_when_rates_were_measured_and_by_whom_it_may() -> None:
    members: tuple[NodeId, ...] = (1, 2, 3)
    assert scheduling("square-root", 1, 4, 16).rotation(999, PLAIN, members, True) == PLAIN
    assert scheduling("square-root", 1, 4, 16).rotation(1_000, PLAIN, members, False) == PLAIN
    found = scheduling("square-root", 1, 4, 16).rotation(1_000, PLAIN, members, True)
    assert times(found, 3) == [1, 2, 3]


def test_it_changes_only_where_that_helps_and_back_where_it_harms() -> None:
    members: tuple[NodeId, ...] = (1, 2, 3)
    assert scheduling("square-root", 10, 11, 13).rotation(1_000, PLAIN, members, True) == PLAIN
    present = spread([1, 2, 3])
    assert scheduling("square-root", 10, 11, 13).rotation(1_000, present, members, True) == PLAIN
    assert scheduling("square-root").rotation(1_000, present, members, True) == present


def test_a_ring_begins_with_what_its_commit_token_says() -> None:
    made = Scheduling("square-root", 1_000_000)
    planned = made.plan([1, 4, 16])
    made.begin(0, (1, 2, 3), (1, 4, 16), planned)
    assert made.rate_of(3) == 16
    assert made.rotation(5, PLAIN, (1, 2, 3), True) == planned == schedule([1, 4, 16], "square-root")


# --- a cycle, as a member of it sees it -----------------------------------------------------------


def on(visits: Visits, visit: int, **fields: Any) -> Token:
    made = token(**fields)
    made.visits, made.visit = visits, visit
    return made


def test_a_member_knows_each_of_its_visits_by_its_place_in_the_cycle() -> None:
    cycle = Cycle(ABCBC, (4, 5, 6), 2)
    assert cycle.length == 5
    assert list(cycle.turns) == [2, 4]
    assert cycle.turns[2] == (False, 0, 5, 5)
    assert cycle.turns[4] == (True, 1, 5, 4)


def test_a_token_that_says_what_cannot_be_has_no_turn() -> None:
    made = ring(me=2)
    assert made.turn_of(on(ABCBC, 0, token_seq=7)) is None, "that is the visit of another"
    assert made.turn_of(on((0, 2, 1, ~0), 2, token_seq=7)) is None, "no schedule"
    first = on(ABCBC, 1, token_seq=7)
    turn = made.turn_of(first)
    assert turn is not None
    made.arrive(first, turn)
    made.forward(first, 0)
    assert first.visit == 2
    assert made.turn_of(on(ABCBC, 3, token_seq=9)) is not None
    assert made.turn_of(on(ABCBC, 1, token_seq=9)) is None, "it has gone two hops, not none"
    assert made.turn_of(on(ABCBC, 3, token_seq=14)) is not None, "or a cycle more"


def visit(made: Ring, visiting: Token, now_us: int = 0) -> list[Effect]:
    """The token comes, and is passed on."""
    turn = made.turn_of(visiting)
    assert turn is not None
    made.arrive(visiting, turn)
    effects: list[Effect] = []
    arrived_seq = visiting.seq
    work(now_us, made, visiting, Outbox(TotemConfig()), effects)
    made.forward(visiting, arrived_seq)
    made.deliver(effects)
    return effects


def test_a_safe_message_waits_for_a_whole_cycle_not_for_two_visits() -> None:
    """000 §5.2: aru has to be that high at two successive *rotations*, in which all others had the token."""
    made = ring(data(1, b"safe", safe=True, origin=1), me=3)
    extra, counted = on(ABCBC, 2, token_seq=3, seq=1), on(ABCBC, 4, token_seq=5, seq=1)
    assert delivered(visit(made, extra)) == []
    assert delivered(visit(made, counted)) == []
    assert delivered(visit(made, on(ABCBC, 2, token_seq=8, seq=1))) == []
    assert delivered(visit(made, on(ABCBC, 4, token_seq=10, seq=1))) == [b"safe"]


def test_aru_is_neither_raised_nor_lowered_at_an_extra_visit() -> None:
    """Raised by who set it, it could pass a member that has less, before that one had the token."""
    made = ring(data(1), data(2), me=3)
    extra = on(ABCBC, 2, token_seq=3, seq=2, aru=1, aru_id=3)
    visit(made, extra)
    assert (extra.aru, extra.aru_id) == (1, 3)
    counted = on(ABCBC, 4, token_seq=5, seq=2, aru=1, aru_id=3)
    visit(made, counted)
    assert (counted.aru, counted.aru_id) == (2, NOBODY)
    lacking = ring(data(1), me=3)
    extra = on(ABCBC, 2, token_seq=3, seq=2)
    visit(lacking, extra)
    assert (extra.aru, extra.rtr) == (2, [])


def test_failure_to_receive_counts_cycles() -> None:
    """000 §6.2.2: rotations without progress of aru: five, which are ten visits here."""
    made = ring(me=3, config=TotemConfig(fail_to_receive=3, token_loss_us=30_001))
    for cycle in range(5):
        for place, seq in ((2, 3), (4, 5)):
            visit(made, on(ABCBC, place, token_seq=5 * cycle + seq, seq=1, aru=0, aru_id=2))
    assert made.aru_count == 5


def test_everybody_may_answer_at_an_extra_visit() -> None:
    made = ring(data(1), data(2), me=3)
    extra = on(ABCBC, 2, token_seq=3, seq=2, aru=1, aru_id=2)
    extra.rtr = [2]
    assert [effect for effect in visit(made, extra) if isinstance(effect, Multicast)] == [
        Multicast(data(2).raw)
    ]
    assert extra.rtr == []


def test_what_was_broadcast_counts_towards_the_window_for_a_cycle() -> None:
    """000 §8.1: fcc is what all have broadcast in a rotation, at all of their visits."""
    made, fcc = ring(me=3), 0
    for cycle, counts in enumerate(((5, 7), (2, 0), (0, 0))):
        for (place, seq), count in zip(((2, 3), (4, 5)), counts, strict=True):
            visiting = on(ABCBC, place, token_seq=5 * cycle + seq, fcc=fcc)
            turn = made.turn_of(visiting)
            assert turn is not None
            made.arrive(visiting, turn)
            made.flow.settle(visiting, count, count, count)
            made.forward(visiting, 0)
            fcc = visiting.fcc
        assert fcc == sum(counts)


def test_what_was_broadcast_before_the_schedule_changed_counts_for_another_cycle() -> None:
    made, plain = ring(me=3), token(token_seq=3)
    turn = made.turn_of(plain)
    assert turn is not None
    made.arrive(plain, turn)
    made.flow.settle(plain, 9, 9, 9)
    made.forward(plain, 0)
    fcc: list[int] = []
    for place, seq in ((2, 6), (4, 8), (2, 11)):
        visiting = on(ABCBC, place, token_seq=seq, fcc=(fcc or [9])[-1])
        turn = made.turn_of(visiting)
        assert turn is not None
        made.arrive(visiting, turn)
        made.flow.settle(visiting, 1, 1, 1)
        made.forward(visiting, 0)
        fcc.append(visiting.fcc)
    assert fcc == [10, 11, 2]


def test_a_member_sends_its_share_once_in_a_cycle() -> None:
    """All want all of the window, at each visit: a third of it is for each member, in a whole cycle."""
    made = ring(me=3, config=TotemConfig(window_size=90, max_messages=90))
    visiting = on(ABCBC, 2, fcc=60, backlog=2_000, entitled=60)
    shares = []
    for place, seq in ((2, 3), (4, 5), (2, 8), (4, 10)):
        visiting.visit, visiting.token_seq = place, seq
        turn = made.turn_of(visiting)
        assert turn is not None
        made.arrive(visiting, turn)
        allowed = made.flow.new_datagrams(visiting, 0, 1_000)
        made.flow.settle(visiting, allowed, 1_000, allowed)
        made.forward(visiting, 0)
        shares.append(allowed)
    assert shares == [30, 0, 30, 0]


# --- whole rings --------------------------------------------------------------------------------


def scheduled(rule: Rule, shares: tuple[float, ...]) -> tuple[float, int]:
    """How often the schedule of a ring under such a load changed, and its length at the end."""
    settings = {"visits": rule, "visits_us": 100_000, "hold_us": 0}
    nodes = tuple(range(1, len(shares) + 1))
    world = lab_protocol("totem").world(settings, nodes, preset("lan"), 3)
    drive(world, Workload(rate=1_000.0, shares=shares, safe=0.3, start_us=200_000, stop_us=600_000))
    world.start()
    world.run_until(700_000)
    machine = world.hosts[1].machine
    assert isinstance(machine, TotemMachine)
    return machine.stats["schedules"], machine.ring.cycle.length


def test_a_ring_takes_the_schedule_of_its_load() -> None:
    changed, length = scheduled("square-root", (1.0, 4.0, 16.0))
    assert (changed > 0, length) == (True, 6)
    assert scheduled("equal", (1.0, 4.0, 16.0)) == (0, 3)


def test_the_representative_puts_the_schedule_on_the_commit_token() -> None:
    """The members told their rates in its first rotation."""
    node = started(1, visits="square-root")
    node.agrees((1, 2, 3))
    told = [entry(1), entry(2)._replace(rate=400), entry(3)._replace(rate=1_600)]
    commit = one(node.returns(told), Commit)
    assert commit.visits == schedule([0, 400, 1_600], "square-root") != PLAIN


def test_it_is_plain_unless_the_representative_is_set_to_that() -> None:
    node = started(1)
    node.agrees((1, 2, 3))
    commit = one(node.returns([entry(1), entry(2), entry(3)._replace(rate=1_600)]), Commit)
    assert commit.visits == PLAIN


def test_a_schedule_is_refused_while_a_ring_is_recovered() -> None:
    """Recovery counts visits: there, the ring is plain."""
    node = started(2)
    node.agrees((1, 2, 3))
    node.commits(FIRST, [entry(1), entry(2), entry(3)])
    node.returns([entry(1), entry(2), entry(3)])
    assert node.state is State.RECOVERY
    coming = on(ABCBC, 1, ring=FIRST, token_seq=1)
    assert drops(node.hears(coming)) == ["implausible token"]
    node.recovers()
    coming = node.next_token()
    coming.visits, coming.visit = ABCBC, 1
    (passed,) = sent(node.hears(coming), Token)
    assert (passed.visits, passed.visit) == (ABCBC, 2)


def test_a_token_with_a_schedule_comes_from_who_is_before_on_it() -> None:
    node = started(3)
    node.agrees((1, 2, 3))
    node.commits(FIRST, [entry(1), entry(2), entry(3)])
    node.returns([entry(1), entry(2), entry(3)])
    node.recovers()
    coming = node.next_token()
    coming.visits, coming.visit = (0, ~2, 1, ~0, 2, ~1), 1
    assert drops(node.hears(coming, sender=2)) == ["forged sender"]
    effects = node.hears(coming, sender=1)
    assert [effect.to for effect in effects if isinstance(effect, Unicast)] == [2]
