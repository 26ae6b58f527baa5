"""A task that writes rows: what it keeps until the group has it, and how it goes on at another node."""

from __future__ import annotations

import random
from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.core.addresses import address
from ordercast.core.checksum import checksum
from ordercast.core.identity import Batch, Configuration, ConfigurationId, Guarantee, Kind
from ordercast.errors import LogError, Unreachable
from ordercast.groups.notes import Ask, Commit, Fence, written
from ordercast.groups.producer_table import Answer, Outcome
from ordercast.groups.producers import Producers, row_fronts
from ordercast.streaming.backlog import Backlog, Forgotten, NotTheSame
from ordercast.streaming.options import Access
from ordercast.streaming.producer import Producer, Refused, Superseded, Task, commit

NODES = Access(("one", "two", "three"), None)
ROWS = [b"row %d" % number for number in range(40)]

# --- what is kept here --------------------------------------------------------------------------


def a_backlog(*rows: bytes) -> Backlog:
    backlog = Backlog()
    backlog.add(list(rows))
    return backlog


def test_rows_stay_until_they_are_known_to_be_delivered() -> None:
    backlog = a_backlog(*ROWS[:4])
    backlog.resume(0, 0)
    backlog.keep(3)
    assert backlog.between(3, 1000) == ROWS[3:4]
    assert backlog.size == len(ROWS[3])


def test_what_an_earlier_attempt_delivered_is_skipped_also_when_it_comes_later() -> None:
    backlog = a_backlog(ROWS[0])
    backlog.resume(3, checksum(ROWS[:3]))
    backlog.add(ROWS[1:5])
    assert backlog.between(3, 1000) == ROWS[3:5]


def test_rows_that_differ_from_those_of_an_earlier_attempt_are_noticed() -> None:
    backlog = a_backlog(ROWS[0])
    backlog.resume(3, checksum(ROWS[:3]))
    with pytest.raises(NotTheSame, match=r"first 3 rows .* are others now"):
        backlog.add([ROWS[2], ROWS[1]])


def test_fewer_rows_than_an_earlier_attempt_delivered_are_noticed() -> None:
    backlog = a_backlog(*ROWS[:2])
    backlog.resume(3, checksum(ROWS[:3]))
    with pytest.raises(NotTheSame, match="delivered 3 rows, and now there are 2 in all"):
        backlog.end()


def test_a_group_that_lost_what_it_had_is_noticed() -> None:
    backlog = a_backlog(*ROWS[:4])
    backlog.resume(0, 0)
    backlog.keep(4)
    with pytest.raises(Forgotten, match="had 4 rows of this task and now knows of 2 only"):
        backlog.resume(2, checksum(ROWS[:2]))


# --- a group in which everything fails ----------------------------------------------------------


class Frail:
    """A group whose nodes end connections whenever they like; what was said before may still come through."""

    def __init__(self, chances: random.Random, failing: float) -> None:
        self.chances = chances
        self.failing = failing
        self.producers = Producers()
        self.delivered: list[bytes] = []
        self.owners = count()
        self.late: list[bytes] = []
        self.members = [1]
        self.change()

    def change(self) -> None:
        self.producers.install(Configuration(ConfigurationId(4, 1), Kind.REGULAR, (1,)))

    def order(self, payload: bytes) -> None:
        batch = Batch(ConfigurationId(4, 1), 1, 0, 1, 0, 1, Guarantee.SAFE, [payload])
        for run in self.producers.admit(batch):
            self.delivered += (row.removeprefix(address(0, ["rows"])) for row in run.payloads)
        said, self.producers.to_send = self.producers.to_send, []
        for note in said:
            self.order(note)

    def fence(self, task: dict[str, Any]) -> tuple[bytes, Answer]:
        self.order(written(Ask()))
        owner = next(self.owners).to_bytes(8, "big")
        self.producers.answers[owner] = None
        wish = {name: value for name, value in task.items() if name not in ("op", "headed")}
        self.order(written(Fence(owner=owner, time_us=0, **wish)))
        answer = self.producers.answers.pop(owner)
        assert answer is not None
        return owner, answer

    def fails(self) -> bool:
        return self.chances.random() < self.failing

    def connect(self, where: str) -> FrailConnection:
        if self.fails():
            raise Unreachable(f"{where} is away")
        return FrailConnection(self)


class FrailConnection:
    def __init__(self, group: Frail) -> None:
        self.group = group
        self.answers: list[dict[str, Any]] = []
        self.owner = b""
        self.fence = 0

    def send(self, header: dict[str, Any], body: bytes = b"") -> None:
        group = self.group
        while group.late and group.fails():
            group.order(group.late.pop())
        if header.get("op") == "commit":
            group.order(written(Ask()))
            owner = next(group.owners).to_bytes(8, "big")
            group.order(written(Commit(header["job"], header["batch"], header["done"], owner, 0)))
            self.answers.append({"outcome": "taken"})
            return
        if "op" in header:
            self.task = header
            self.begin()
            return
        if group.fails():
            group.change()
            self.begin()
        if header["fence"] != self.fence:
            return
        rows = msgspec.msgpack.decode(body, type=list[bytes])
        fronts = row_fronts(self.owner, header["rows"], len(rows))
        payloads = [front + row for front, row in zip(fronts, rows, strict=True)]
        through = group.chances.randint(0, len(rows)) if group.fails() else len(rows)
        for payload in payloads[:through]:
            group.order(payload)
        if through < len(rows):
            group.late += payloads[through:]
            raise Unreachable("the node ended")
        progress = group.producers.owns(self.owner)
        if progress is None:
            self.answers.append({"outcome": "superseded"})
        else:
            self.answers.append({"kept": progress.count})

    def begin(self) -> None:
        self.owner, answer = self.group.fence(self.task)
        said: dict[str, Any] = {"outcome": answer.outcome.value}
        if answer.outcome is Outcome.TAKEN:
            self.fence += 1
            said |= {"rows": answer.rows, "checksum": answer.checksum, "fence": self.fence}
        self.answers.append(said)

    def receive(self, timeout: float) -> dict[str, Any] | None:
        if self.answers:
            if self.group.fails():
                raise Unreachable("the node ended")
            return self.answers.pop(0)
        return None

    def close(self) -> None:
        self.answers.clear()


def a_task(attempt: int = 0, batch: int = 0, run: bytes = b"") -> Task:
    return Task("rows", b"task", batch, run, attempt)


def written_by(group: Frail, task: Task, rows: list[bytes], step: int = 7) -> tuple[int, int]:
    with Producer(group.connect, NODES, task) as producer:
        for begin in range(0, len(rows), step):
            producer.write(rows[begin : begin + step])
        return producer.finish()


@given(st.integers(0, 10**9), st.floats(0, 0.4), st.lists(st.integers(0, len(ROWS)), max_size=5))
@settings(max_examples=100, deadline=None)
def test_whatever_fails_the_group_delivers_each_row_once(seed: int, failing: float, ends: list[int]) -> None:
    """Attempts that end after some of their rows, through nodes that end connections at any moment."""
    group = Frail(random.Random(seed), failing)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ordercast.streaming.producer.AGAIN_S", 0.0)
        patch.setattr("ordercast.streaming.producer.CHUNK", 100)
        for attempt, end in enumerate(ends):
            with Producer(group.connect, NODES, a_task(attempt)) as producer:
                producer.write(ROWS[:end])
        written_by(group, a_task(len(ends)), ROWS)
        assert group.delivered == ROWS
        while group.late:
            group.order(group.late.pop())
        assert group.delivered == ROWS, "nor does anything come late"
        assert written_by(group, a_task(0, run=b"another run of the query"), ROWS) == (40, 0)
        commit(group.connect, NODES, "rows", b"task", 0, done=False)
        assert written_by(group, a_task(0, batch=1), ROWS[:3]) == (3, 3)
        assert written_by(group, a_task(9), ROWS) == (40, 0), "the batch before was delivered whole"
        assert group.delivered == ROWS + ROWS[:3]


class Liar(FrailConnection):
    """A connection to what is no node: it answers everything with the same."""

    def __init__(self, said: dict[str, Any]) -> None:
        self.said = said

    def send(self, header: dict[str, Any], body: bytes = b"") -> None:
        pass

    def receive(self, timeout: float) -> dict[str, Any] | None:
        return self.said if timeout else None

    def close(self) -> None:
        pass


def deep(depth: int) -> list[Any]:
    return [deep(depth - 1)] if depth else []


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"kept": -1},
        {"kept": "all"},
        {"outcome": "taken"},
        {"outcome": "taken", "rows": None, "checksum": 0, "fence": 1},
        {"outcome": ["taken"]},
        {"error": deep(300), "message": deep(300)},
        {"kept": deep(300)},
        {"message": 5},
    ],
    ids=str,
)
def test_what_no_node_says_is_told_and_nothing_else_is_raised(
    said: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ordercast.streaming.producer.AGAIN_S", 0.0)
    monkeypatch.setattr("ordercast.streaming.producer.FIND_NODE_TIMEOUT_S", 0.0)
    with pytest.raises(LogError, match=r"no node takes rows for the group rows:\n.*not understood"):
        written_by(Lies(said), a_task(), ROWS)
    if said.get("outcome") == "taken":
        return  # that is all that a node says to a commit
    with pytest.raises(LogError, match="no node of the group rows takes the commit of batch 0"):
        commit(Lies(said).connect, NODES, "rows", b"task", 0, done=False)


class Lies(Frail):
    """A group that is none."""

    def __init__(self, said: dict[str, Any]) -> None:
        self.said = said

    def connect(self, where: str) -> FrailConnection:
        return Liar(self.said)


def calm() -> Frail:
    return Frail(random.Random(0), 0.0)


def test_a_task_without_rows_says_nothing() -> None:
    group = calm()
    assert written_by(group, a_task(), []) == (0, 0)
    assert not group.producers.table.progress


def test_what_the_group_does_not_know_is_not_taken_for_new_unless_that_is_wished() -> None:
    group = calm()
    with pytest.raises(Refused, match=r"nothing of this query, and is to take batch 3.*acceptUnknown"):
        written_by(group, a_task(batch=3), ROWS)
    assert group.delivered == []
    assert written_by(group, a_task(batch=3)._replace(anew=True), ROWS) == (40, 40)


def test_a_full_group_is_told_of() -> None:
    group = calm()
    group.producers.table.most = 0
    with pytest.raises(Refused, match=r"no room for another: write with fewer partitions"):
        written_by(group, a_task(), ROWS)


def test_an_attempt_that_another_one_took_over_from_ends() -> None:
    group = calm()
    with Producer(group.connect, NODES, a_task(attempt=0)) as first:
        first.write(ROWS[:1])
        written_by(group, a_task(attempt=1), ROWS[:2])
        with pytest.raises(Superseded):
            first.write(ROWS[1:3])


def test_what_the_group_never_takes_is_said() -> None:
    group = calm()
    with Producer(group.connect, NODES, a_task()) as producer:
        producer.write(ROWS[:1])
        connection = producer._connection
        assert isinstance(connection, FrailConnection)
        connection.answers.append({"error": "MessageTooLarge", "message": "a row of 9 bytes is too large"})
        with pytest.raises(Refused, match="too large"):
            producer.write(ROWS[1:2])


def test_without_any_node_each_of_them_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ordercast.streaming.producer.FIND_NODE_TIMEOUT_S", 0.0)
    monkeypatch.setattr("ordercast.streaming.producer.AGAIN_S", 0.0)
    group = Frail(random.Random(0), 1.0)
    with pytest.raises(
        Exception, match=r"(?s)no node takes rows for the group rows:.*one: one is away.*three"
    ):
        written_by(group, a_task(), ROWS)
