"""Rows of producers that try again: each is delivered once and in order, the same at every member."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ordercast.core.checksum import checksum
from ordercast.core.identity import Batch, Configuration, ConfigurationId, Guarantee, Kind
from ordercast.groups.envelope import tag
from ordercast.groups.notes import MOST_PRODUCERS, Ask, Fence, Progress, written
from ordercast.groups.producers import (
    FRONT_SIZE,
    Answer,
    Outcome,
    Producers,
    concern,
    row_fronts,
)

GROUP = "rows"
TASK = b"a task of a query"


def row(number: int) -> bytes:
    return b"row %d" % number


@dataclass
class Network:
    """Members that deliver the same, one message after the other, and what they handed on."""

    members: dict[int, Producers] = field(default_factory=dict)
    delivered: dict[int, list[bytes]] = field(default_factory=dict)
    ring: ConfigurationId = field(default_factory=lambda: ConfigurationId(0, 1))
    owners: count[int] = field(default_factory=count)
    numbers: count[int] = field(default_factory=lambda: count(1))

    def install(self, *members: int) -> None:
        self.ring = ConfigurationId(self.ring.seq + 4, members[0])
        self.members = {node: self.members.get(node, Producers()) for node in members}
        for node, producers in self.members.items():
            self.delivered.setdefault(node, [])
            producers.install(Configuration(self.ring, Kind.REGULAR, members))

    def order(self, *payloads: bytes, origin: int = 1) -> None:
        number = next(self.numbers)
        batch = Batch(self.ring, number, 0, origin, 0, number, Guarantee.SAFE, payloads)
        for node, producers in self.members.items():
            for run in producers.admit(batch):
                self.delivered[node] += run.payloads
        for node, producers in self.members.items():
            said, producers.to_send = producers.to_send, []
            for note in said:
                self.order(note, origin=node)

    def fence(
        self, batch: int = 0, attempt: int = 0, run: bytes = b"", task: bytes = TASK
    ) -> tuple[bytes, Answer]:
        """Fence as a node does that serves a task: it asks first, and is told what became of it."""
        self.order(written(Ask()))
        return self.fence_unasked(batch, attempt, run, task)

    def fence_unasked(
        self, batch: int = 0, attempt: int = 0, run: bytes = b"", task: bytes = TASK
    ) -> tuple[bytes, Answer]:
        owner = next(self.owners).to_bytes(8, "big")
        for producers in self.members.values():
            producers.answers[owner] = None
        self.order(written(Fence(task, batch, run, attempt, owner, GROUP, next(self.numbers))))
        answers = {producers.answers.pop(owner) for producers in self.members.values()}
        assert len(answers) == 1, "all members say the same"
        (answer,) = answers
        assert answer is not None
        return owner, answer

    def rows(self, owner: bytes, *numbers: int) -> None:
        for number in numbers:
            (front,) = row_fronts(owner, number, 1)
            self.order(front + row(number))

    def at(self, node: int) -> list[bytes]:
        return [payload.removeprefix(tag(GROUP)) for payload in self.delivered[node]]


def a_group(*members: int) -> Network:
    network = Network()
    network.install(*(members or (1, 2, 3)))
    return network


# --- attempts -----------------------------------------------------------------------------------


def test_a_second_attempt_is_told_how_far_the_first_one_came() -> None:
    group = a_group()
    first, _ = group.fence()
    group.rows(first, 0, 1, 2)
    _, answer = group.fence(attempt=1)
    assert answer == Answer(Outcome.TAKEN, 3, checksum([row(0), row(1), row(2)]))


def test_rows_of_an_earlier_attempt_that_come_late_are_dropped() -> None:
    group = a_group()
    first, _ = group.fence()
    second, _ = group.fence(attempt=1)
    group.rows(first, 0)
    group.rows(second, 0, 1)
    group.rows(first, 1, 2)
    assert group.at(1) == group.at(2) == group.at(3) == [row(0), row(1)]


def test_an_earlier_attempt_does_not_come_back() -> None:
    group = a_group()
    second, _ = group.fence(attempt=1)
    _, answer = group.fence(attempt=0)
    assert answer.outcome is Outcome.SUPERSEDED
    group.rows(second, 0)
    assert group.at(1) == [row(0)]


def test_attempts_of_another_run_of_the_query_are_numbered_anew() -> None:
    group = a_group()
    first, _ = group.fence(attempt=7, run=b"first")
    group.rows(first, 0)
    _, answer = group.fence(attempt=0, run=b"second")
    assert (answer.outcome, answer.rows) == (Outcome.TAKEN, 1)


def test_a_batch_behind_which_the_producer_is_was_delivered_whole() -> None:
    group = a_group()
    group.fence(batch=4)
    _, answer = group.fence(batch=3, attempt=1)
    assert answer.outcome is Outcome.BEFORE


def test_the_next_batch_begins_at_its_first_row() -> None:
    group = a_group()
    first, _ = group.fence(batch=3)
    group.rows(first, 0, 1)
    second, answer = group.fence(batch=4)
    assert answer == Answer(Outcome.TAKEN, 0, 0)
    group.rows(second, 0)
    assert group.at(2) == [row(0), row(1), row(0)]


def test_producers_do_not_mix() -> None:
    group = a_group()
    ours, _ = group.fence(task=b"ours")
    theirs, _ = group.fence(task=b"theirs")
    group.rows(ours, 0)
    group.rows(theirs, 0)
    group.rows(ours, 1)
    assert group.at(3) == [row(0), row(0), row(1)]


# --- members that come and go -------------------------------------------------------------------


def test_who_is_new_is_told_and_drops_what_the_others_drop() -> None:
    group = a_group(1, 2)
    first, _ = group.fence()
    group.rows(first, 0, 1)
    group.install(1, 2, 3)
    second, answer = group.fence(attempt=1)
    assert answer.rows == 2
    group.rows(second, 0, 1, 2)
    assert group.at(3) == [row(2)]
    assert group.at(1) == group.at(2) == [row(0), row(1), row(2)]


def test_nothing_is_taken_before_all_have_said_what_they_know() -> None:
    group = a_group()
    first, _ = group.fence()
    group.rows(first, 0)
    group.install(1, 2, 3)
    group.rows(first, 1)
    _, answer = group.fence_unasked(attempt=1)
    assert answer.outcome is Outcome.UNSETTLED
    assert group.at(1) == [row(0)]


def test_what_a_member_said_of_an_earlier_configuration_does_not_count() -> None:
    group = a_group(1, 2)
    late = Producers()
    late.install(Configuration(group.ring, Kind.REGULAR, (1, 2)))
    late.admit(Batch(group.ring, 1, 0, 1, 0, 1, Guarantee.SAFE, [written(Ask())]))
    group.install(1, 2)
    group.order(*late.to_send, origin=1)
    group.order(*late.to_send, origin=2)
    assert not group.members[1].settled


def test_of_two_parts_of_a_group_the_one_that_came_further_counts() -> None:
    group = a_group(1, 2)
    group.members[1].progress[TASK] = Progress(5, 10, 99, b"", 0, 1)
    group.members[2].progress[TASK] = Progress(5, 7, 88, b"", 0, 2)
    _, answer = group.fence(batch=5)
    assert answer == Answer(Outcome.TAKEN, 10, 99)


def test_the_oldest_producers_are_forgotten_at_all_members_alike() -> None:
    group = a_group(1, 2)
    for node, when in ((1, 0), (2, MOST_PRODUCERS)):
        group.members[node].progress = {
            b"%d of %d" % (place, node): Progress(0, 1, 0, b"", 0, when + place)
            for place in range(MOST_PRODUCERS)
        }
    group.fence()
    known = group.members[1].progress
    assert known == group.members[2].progress
    assert len(known) == MOST_PRODUCERS
    assert TASK in known or b"0 of 1" not in known
    assert b"%d of 2" % (MOST_PRODUCERS - 1) in known


# --- everything at once -------------------------------------------------------------------------

WHOLE = 6
steps = st.lists(
    st.one_of(
        st.tuples(st.just("attempt"), st.integers(0, WHOLE)),  # rows sent of what was missing
        st.tuples(st.just("late"), st.integers(0, WHOLE)),  # rows of some attempt before, delivered now
        st.tuples(st.just("join"), st.integers(2, 5)),
        st.tuples(st.just("lose"), st.integers(2, 5)),
        st.tuples(st.just("run"), st.just(0)),
    ),
    max_size=14,
)


@given(steps, st.randoms(use_true_random=False))
@settings(max_examples=300, deadline=None)
def test_whatever_fails_each_row_is_delivered_once_and_in_order(steps, random) -> None:  # type: ignore[no-untyped-def]
    """Attempts that end anywhere, rows of theirs that come late, other runs, members that come and go."""
    group = a_group(1, 2)
    attempts = count()
    run = 0
    earlier: list[bytes] = []
    for what, how_many in steps:
        if what == "attempt":
            owner, answer = group.fence(attempt=next(attempts), run=b"%d" % run)
            assert answer.checksum == checksum(map(row, range(answer.rows)))
            group.rows(owner, *range(answer.rows, min(WHOLE, answer.rows + how_many)))
            earlier.append(owner)
        elif what == "late" and earlier[:-1]:
            owner = random.choice(earlier[:-1])
            group.rows(owner, *random.sample(range(WHOLE), how_many))
        elif what == "join":
            group.install(*sorted({*group.members, how_many}))
        elif what == "lose":
            group.install(*sorted({*group.members} - {how_many}))
        elif what == "run":
            run, attempts = run + 1, count()
    owner, answer = group.fence(attempt=next(attempts), run=b"%d" % run)
    group.rows(owner, *range(answer.rows, WHOLE))
    assert group.at(1) == [row(number) for number in range(WHOLE)]
    for node in group.members:
        seen = group.at(node)
        assert len(set(seen)) == len(seen), "never twice, whenever it joined"
        assert seen == sorted(seen), "and in order"


# --- batches ------------------------------------------------------------------------------------


def test_what_is_delivered_keeps_its_place_in_the_order() -> None:
    group = a_group(1)
    owner, _ = group.fence()
    fronts = list(row_fronts(owner, 0, 3))
    mixed = [tag("a") + b"x", fronts[0] + b"0", fronts[2] + b"too early", fronts[1] + b"1", tag("a") + b"y"]
    runs = group.members[1].admit(Batch(group.ring, 9, 4, 1, 0, 70, Guarantee.SAFE, mixed))
    places = [
        (run.number + i, run.slot + i, payload) for run in runs for i, payload in enumerate(run.payloads)
    ]
    assert places == [
        (70, 4, tag("a") + b"x"),
        (71, 5, tag(GROUP) + b"0"),
        (73, 7, tag(GROUP) + b"1"),
        (74, 8, tag("a") + b"y"),
    ]


def test_only_batches_with_something_else_than_messages_are_looked_into() -> None:
    assert not concern([tag("a") + b"x", tag("b")])
    assert concern([tag("a") + b"x", written(Ask())])
    assert concern([tag("a") + b"x", b""])


@given(st.binary(max_size=FRONT_SIZE + 3))
@example(b"\x91\xa1\x80")  # text that is none
@example(b"\x91" * 5000)  # a list in a list in a list
def test_any_payload_can_be_admitted(payload: bytes) -> None:
    group = a_group(1)
    group.fence()
    group.order(payload, b"\x02" + payload, b"\x03" + payload)
