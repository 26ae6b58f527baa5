"""Rows of producers that try again: each is delivered once and in order, the same at every member."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ordercast.core.addresses import address
from ordercast.core.checksum import checksum
from ordercast.core.identity import Batch, Configuration, ConfigurationId, Guarantee, Kind
from ordercast.groups.notes import NOTE, Ask, Clock, Commit, Fence, Job, Known, Progress, job_of, written
from ordercast.groups.producer_table import DONE_US, KEPT_US, Answer, Outcome
from ordercast.groups.producers import FRONT_SIZE, Producers, concern, row_fronts

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
        self, batch: int = 0, attempt: int = 0, run: bytes = b"", task: bytes = TASK, anew: bool = False
    ) -> tuple[bytes, Answer]:
        """Fence as a node does that serves a task: it asks first, and is told what became of it."""
        self.order(written(Ask()))
        return self.fence_unasked(batch, attempt, run, task, anew)

    def fence_unasked(
        self, batch: int = 0, attempt: int = 0, run: bytes = b"", task: bytes = TASK, anew: bool = False
    ) -> tuple[bytes, Answer]:
        owner = next(self.owners).to_bytes(8, "big")
        for producers in self.members.values():
            producers.answers[owner] = None
        self.order(written(Fence(task, batch, run, attempt, owner, GROUP, next(self.numbers), anew)))
        answers = {producers.answers.pop(owner) for producers in self.members.values()}
        assert len(answers) == 1, "all members say the same"
        (answer,) = answers
        assert answer is not None
        return owner, answer

    def commit(self, batch: int = 0, task: bytes = TASK, done: bool = False, time_us: int = 0) -> Answer:
        """Say that all tasks of a batch are done."""
        self.order(written(Ask()))
        owner = next(self.owners).to_bytes(8, "big")
        for producers in self.members.values():
            producers.answers[owner] = None
        self.order(written(Commit(job_of(task), batch, done, owner, time_us or next(self.numbers))))
        answers = {producers.answers.pop(owner) for producers in self.members.values()}
        assert len(answers) == 1, "all members say the same"
        (answer,) = answers
        assert answer is not None
        return answer

    def same(self) -> None:
        """All members remember the same."""
        tables = [producers.table for producers in self.members.values()]
        assert all((table.jobs, table.progress) == (tables[0].jobs, tables[0].progress) for table in tables)

    def rows(self, owner: bytes, *numbers: int) -> None:
        for number in numbers:
            (front,) = row_fronts(owner, number, 1)
            self.order(front + row(number))

    def at(self, node: int) -> list[bytes]:
        return [payload.removeprefix(address(0, [GROUP])) for payload in self.delivered[node]]


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


def test_a_batch_that_is_done_was_delivered_whole() -> None:
    group = a_group()
    late, _ = group.fence()
    group.rows(late, 0)
    group.commit(batch=0)
    group.rows(late, 1)
    _, answer = group.fence(batch=0, attempt=1)
    assert answer.outcome is Outcome.BEFORE
    assert group.at(1) == [row(0)], "what a task sends that still runs then is dropped"


def test_the_next_batch_begins_at_its_first_row() -> None:
    group = a_group()
    first, _ = group.fence()
    group.rows(first, 0, 1)
    group.commit()
    second, answer = group.fence(batch=1)
    assert answer == Answer(Outcome.TAKEN, 0, 0, 1)
    group.rows(second, 0)
    assert group.at(2) == [row(0), row(1), row(0)]


def test_a_commit_can_be_told_again() -> None:
    group = a_group()
    for _ in range(2):
        assert group.commit(batch=3).outcome is Outcome.TAKEN
    assert group.commit(batch=1).batches == 4
    assert group.fence(batch=3)[1].outcome is Outcome.BEFORE
    assert group.fence(batch=4)[1].outcome is Outcome.TAKEN


# --- what is remembered, and for how long -------------------------------------------------------


def test_who_comes_with_a_later_batch_than_is_known_is_told_so() -> None:
    group = a_group()
    _, answer = group.fence(batch=7)
    assert answer == Answer(Outcome.UNKNOWN, batches=0)
    group.commit(batch=2)
    assert group.fence(batch=7)[1] == Answer(Outcome.UNKNOWN, batches=3)
    assert group.fence(batch=7, anew=True)[1] == Answer(Outcome.TAKEN, 0, 0, 7)
    assert group.fence(batch=6)[1].outcome is Outcome.BEFORE
    group.same()


def a_task(job: int, partition: int = 0) -> bytes:
    return b"job %012d" % job + partition.to_bytes(4, "big")


def small(group: Network, most: int) -> None:
    for producers in group.members.values():
        producers.table.most = most


def test_who_is_new_is_refused_when_the_table_is_full_and_nobody_is_forgotten() -> None:
    """A stream, then a write of more partitions than are remembered: the stream goes on where it was."""
    group = a_group()
    small(group, 10)
    stream, _ = group.fence(task=a_task(1))
    group.rows(stream, 0, 1, 2)
    outcomes = [group.fence(task=a_task(2, partition))[1].outcome for partition in range(12)]
    assert outcomes == [Outcome.TAKEN] * 7 + [Outcome.FULL] * 5
    assert group.fence(task=a_task(2, 3), attempt=1)[1].outcome is Outcome.TAKEN, "who is known is served"
    assert group.fence(task=a_task(1), attempt=1)[1] == Answer(
        Outcome.TAKEN, 3, checksum([row(0), row(1), row(2)])
    )
    group.same()


def test_a_write_of_many_partitions_is_released_when_it_is_done() -> None:
    group = a_group()
    small(group, 10)
    for job in range(2, 8):
        for partition in range(7):
            assert group.fence(task=a_task(job, partition))[1].outcome is Outcome.TAKEN
        size = len(group.members[1].table)
        group.commit(task=a_task(job), done=True)
        assert len(group.members[1].table) == size - 7
        assert group.fence(task=a_task(job, 3), attempt=9)[1].outcome is Outcome.BEFORE, (
            "a task that came late"
        )
        small(group, 10 + job)
    group.same()


def at_time(group: Network, time_us: int, *members: int) -> None:
    for node in members or tuple(group.members):
        group.order(written(Clock(time_us)), origin=node)


def test_what_is_too_old_goes_when_there_is_no_room_and_is_not_taken_for_new() -> None:
    group = a_group()
    small(group, 4)
    group.fence(task=a_task(1))
    group.commit(task=a_task(1))
    group.fence(task=a_task(1), batch=1)
    group.fence(task=a_task(2))
    assert group.fence(task=a_task(3))[1].outcome is Outcome.FULL
    at_time(group, KEPT_US * 2, 1)
    assert group.fence(task=a_task(3))[1].outcome is Outcome.FULL, "one clock that is wrong moves nothing"
    at_time(group, KEPT_US * 2, 2)
    assert group.fence(task=a_task(3))[1].outcome is Outcome.TAKEN
    assert group.fence(task=a_task(1), batch=1)[1] == Answer(Outcome.UNKNOWN, batches=0)
    group.same()


def test_that_a_job_is_over_is_remembered_for_a_while_and_a_query_for_longer() -> None:
    group = a_group()
    group.commit(task=a_task(1), done=True)
    group.commit(task=a_task(2))
    for time_us, known in ((DONE_US // 2, {1, 2}), (DONE_US * 2, {2}), (KEPT_US * 2, set())):
        at_time(group, time_us)
        for producers in group.members.values():
            producers._now_us = lambda time_us=time_us: time_us  # type: ignore[misc]
        group.install(1, 2, 3)
        group.order(written(Ask()))
        assert group.members[1].table.jobs.keys() == {job_of(a_task(job)) for job in known}
    group.same()


def test_a_job_that_is_too_old_itself_is_unknown() -> None:
    group = a_group()
    small(group, 2)
    group.commit(task=a_task(1))
    group.commit(task=a_task(2))
    at_time(group, KEPT_US * 2)
    assert group.fence(task=a_task(1), batch=1)[1].outcome is Outcome.UNKNOWN
    group.same()


def test_what_is_taken_down_is_what_another_life_knows() -> None:
    group = a_group(1)
    owner, _ = group.fence(task=a_task(1))
    group.rows(owner, 0, 1)
    notes = group.members[1].table.take_unsaved()
    group.fence(task=a_task(2, 5))
    group.commit(task=a_task(2))
    notes |= group.members[1].table.take_unsaved()
    later = Producers()
    later.table.restore({key: note for key, note in notes.items() if note is not None})
    assert later.table.jobs == group.members[1].table.jobs
    assert later.table.progress == group.members[1].table.progress
    assert [key for key, note in notes.items() if note is None] == [b"p" + a_task(2, 5)]


def test_what_another_version_took_down_is_removed() -> None:
    table = Producers().table
    strange = {b"j" + b"x" * 16: b"\xc1", b"sixteen bytes...": b"\x96\x00\x00\x00\xc4\x00\x00\x00"}
    table.restore(strange)
    assert len(table) == 0
    assert table.take_unsaved() == dict.fromkeys(strange)


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


def test_a_commit_too_is_taken_only_when_all_have_said_what_they_know() -> None:
    group = a_group()
    group.fence()
    group.install(1, 2, 3)
    one = group.members[1]
    one.answers[b"12345678"] = None
    group.order(written(Commit(job_of(TASK), 0, False, b"12345678", 1)))
    assert one.answers[b"12345678"] == Answer(Outcome.UNSETTLED)


def asked(producers: Producers, ring: ConfigurationId) -> list[bytes]:
    """What a member has to say when it is asked what it knows."""
    producers.admit(Batch(ring, 1, 0, 1, 0, 1, Guarantee.SAFE, [written(Ask())]))
    said, producers.to_send = producers.to_send, []
    return said


def test_a_member_says_once_in_a_configuration_what_it_knows() -> None:
    ring = ConfigurationId(4, 1)
    one = Producers()
    assert asked(one, ring) == [], "it is in no configuration yet"
    one.install(Configuration(ring, Kind.REGULAR, (1, 2)))
    assert len(asked(one, ring)) == 1
    assert asked(one, ring) == [], "it has said so, and the other one has not yet"


def test_a_part_of_what_a_member_knows_counts_once_and_only_if_there_is_such_a_part() -> None:
    group = a_group(1, 2)
    one = group.members[1]
    known = Known(group.ring, 0, 2, 5, {}, {})
    other = Known(group.ring, 1, 2, 5, {}, {})
    beyond = Known(group.ring, 2, 2, 5, {}, {})
    for told in (known, known, beyond):
        group.order(written(told), origin=1)
    group.order(written(Known(group.ring, 0, 1, 5, {}, {})), origin=2)
    assert not one.settled
    group.order(written(other), origin=1)
    assert one.settled


def test_progress_in_a_batch_that_others_know_to_be_done_is_forgotten() -> None:
    """The member that was apart knows of rows in batch 0, the others that the batch is done."""
    group = a_group(1, 2)
    knows, job = group.members[1].table, job_of(TASK)
    knows.jobs[job], knows.progress[TASK] = Job(0, 1), Progress(0, 3, 99, b"", 0, 1)
    group.members[2].table.jobs[job] = Job(2, 1)
    group.order(written(Ask()))
    for producers in group.members.values():
        assert producers.table.jobs == {job: Job(2, 1)}
        assert producers.table.progress == {}


def test_who_is_young_enough_is_kept_where_others_are_too_old() -> None:
    table = Producers().table
    table.jobs = {b"old": Job(1, 0), b"young": Job(1, KEPT_US), b"old and done": Job(1, KEPT_US, done=True)}
    table.progress[b"old"] = Progress(1, 2, 3, b"", 0, 0)
    table.expire(KEPT_US + DONE_US + 1)
    assert table.jobs.keys() == {b"young"}
    assert not table.progress


def test_a_task_that_is_in_a_later_batch_already_is_not_released_with_the_batches_before() -> None:
    table = Producers().table
    early, late = a_task(1, 1), a_task(1, 2)
    table.fence(Fence(early, 0, b"", 0, bytes(8), GROUP, 1), 0)
    table.fence(Fence(late, 1, b"", 0, bytes(8), GROUP, 2, anew=True), 0)
    table.fence(Fence(early, 1, b"", 0, bytes(8), GROUP, 3), 0)
    table.commit(Commit(job_of(early), 0, False, bytes(8), 4), 0)
    assert table.progress.keys() == {early, late}
    table.commit(Commit(job_of(early), 1, False, bytes(8), 5), 0)
    assert table.progress == {}


def test_more_than_can_be_told_is_not_kept_and_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ordercast.groups.producer_table.MOST_KNOWN", 3)
    table = Producers().table
    table.merge([{b"%d" % age: Job(1, age)} for age in (5, 1, 3, 4, 2)], [])
    assert table.jobs.keys() == {b"3", b"4", b"5"}
    assert table.take_unsaved()[b"j" + b"1"] is None, "another life does not know it either"


def test_a_commit_of_a_new_job_is_refused_when_the_table_is_full() -> None:
    group = a_group()
    small(group, 2)
    group.fence(task=a_task(1))
    assert group.commit(task=a_task(2)).outcome is Outcome.FULL
    assert group.commit(task=a_task(1)).outcome is Outcome.TAKEN
    group.same()


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
    for node, rows, rest in ((1, 10, 99), (2, 7, 88)):
        table = group.members[node].table
        table.jobs[job_of(TASK)] = Job(5, node)
        table.progress[TASK] = Progress(5, rows, rest, b"", 0, node)
        table.progress[TASK + b"2"] = Progress(5, 1, 0, b"", 0, node)
    group.members[2].table.jobs[job_of(TASK)].batches = 5
    _, answer = group.fence(batch=5)
    assert answer == Answer(Outcome.TAKEN, 10, 99, 5)
    group.same()


def test_a_batch_that_one_part_of_a_group_knows_to_be_done_is_done() -> None:
    group = a_group(1, 2)
    group.fence()
    group.install(2)
    group.commit(batch=0)
    alone = Producers()
    alone.table.jobs[job_of(TASK)] = Job(0, 1)
    alone.table.progress[TASK] = Progress(0, 3, 99, b"", 0, 1)
    group.members[1] = alone
    group.install(1, 2)
    assert group.fence(batch=0, attempt=1)[1].outcome is Outcome.BEFORE
    assert not group.members[1].table.progress
    group.same()


def test_two_full_tables_that_come_together_forget_nobody() -> None:
    group = a_group(1, 2)
    small(group, 300)
    for node in (1, 2):
        table = group.members[node].table
        for place in range(150):
            table.jobs[job_of(a_task(1000 * node + place))] = Job(1, place)
            table.progress[a_task(1000 * node + place)] = Progress(1, 1, 0, b"", 0, place)
    assert group.fence(task=a_task(5))[1].outcome is Outcome.FULL
    assert len(group.members[1].table) == 600
    assert group.fence(task=a_task(1007), batch=1)[1].rows == 1
    group.same()


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
    mixed = [
        address(0, ["a"]) + b"x",
        fronts[0] + b"0",
        fronts[2] + b"too early",
        fronts[1] + b"1",
        address(0, ["a"]) + b"y",
    ]
    runs = group.members[1].admit(Batch(group.ring, 9, 4, 1, 0, 70, Guarantee.SAFE, mixed))
    places = [
        (run.number + i, run.slot + i, payload) for run in runs for i, payload in enumerate(run.payloads)
    ]
    assert places == [
        (70, 4, address(0, ["a"]) + b"x"),
        (71, 5, address(0, [GROUP]) + b"0"),
        (73, 7, address(0, [GROUP]) + b"1"),
        (74, 8, address(0, ["a"]) + b"y"),
    ]


def test_only_batches_with_something_else_than_messages_are_looked_into() -> None:
    assert not concern([address(0, ["a"]) + b"x", address(0, ["b"]), address(0, ["b"], headed=True)])
    assert concern([address(0, ["a"]) + b"x", written(Ask())])
    assert concern([address(0, ["a"]) + b"x", b""])


@given(st.binary(max_size=FRONT_SIZE + 3))
@example(b"\x91\xa1\x80")  # text that is none
@example(b"\x91" * 5000)  # a list in a list in a list
def test_any_payload_can_be_admitted(payload: bytes) -> None:
    group = a_group(1)
    group.fence()
    group.order(payload, b"\x02" + payload, b"\x03" + payload)


@pytest.mark.parametrize("nested", [b"\x91" * 100_000, b"\x81\x01" * 50_000])
def test_a_note_nested_absurdly_deep_is_malformed(nested: bytes) -> None:
    producers = Producers()
    producers.install(Configuration(ConfigurationId(4, 1), Kind.REGULAR, (1,)))
    payload = bytes((NOTE,)) + nested
    batch = Batch(ConfigurationId(4, 1), 1, 0, 1, 0, 1, Guarantee.SAFE, [payload])
    assert producers.admit(batch) == []
    assert producers.malformed == 1
