"""Commands that travel together, and what was asked and has no answer: machines without any node."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ordercast
from ordercast.core.identity import Configuration, ConfigurationId, Kind
from ordercast.process_groups.views import Cause, Member, Process, View, ViewId
from ordercast.replicated import asking
from ordercast.replicated.asking import MOST_BYTES, Asked, Asking, packed, together
from ordercast.replicated.command import encode, listed
from ordercast.replicated.effects import Answers, Effect, Send
from ordercast.replicated.machine import Machine
from ordercast.replicated.notes import Calls, Report, Run, read, written
from ordercast.replicated.outcome import NOTHING, failed, forgotten, succeeded, unknown
from ordercast.replicated.quorum import Always
from ordercast.replicated.replicated import Subject
from ordercast.replicated.sessions import MOST_RESULTS, Known, Sessions
from ordercast.testing import run

HERE = ConfigurationId(4, 1)


class Row(ordercast.Replicated):
    """What was put in, and at which positions."""

    words: list[str]
    positions: list[int]

    def __init__(self) -> None:
        self.words = []
        self.positions = []

    @ordercast.command
    def put(self, word: str) -> None:
        """Put a word behind the others."""
        self.words.append(word)
        self.positions.append(self.position)

    @ordercast.command
    def count(self, *, least: int = 0) -> list[str]:
        """All words, if there are so many."""
        self.positions.append(self.position)
        if len(self.words) < least:
            raise ordercast.CommandFailed(f"only {len(self.words)}")
        return self.words


PUT, COUNT = "put(word)", "count(least)"


class Alone:
    """A replica without others, in a round that is active."""

    def __init__(self) -> None:
        self.row = Row()
        self.me = Process(1, 1, 1)
        initial = list(self.row._fields.pieces(self.row))
        self.machine = Machine(Subject(self.row), Always(), 77, initial)
        self.machine.configuration(Configuration(HERE, Kind.REGULAR, (1,)), self.me, rejoined=False)
        view = View("$row", ViewId(HERE, 1), (Member(self.me, {}),), Cause.JOINED)
        (report,) = self.machine.view(view, self.me)
        assert isinstance(report, Send)
        assert isinstance(report.note, Report)
        self.machine.deliver(self.me, written(report.note))
        assert self.machine.up_to_date

    def deliver(self, calls: Calls) -> Sequence[Effect]:
        return self.machine.deliver(self.me, written(calls))

    def answers(self, calls: Calls) -> list[bytes]:
        (answers,) = self.deliver(calls)
        assert isinstance(answers, Answers)
        assert answers.first == calls.first
        return list(answers.outcomes)


def run_of(shape: str, *arguments: tuple[Any, ...]) -> Run:
    return Run(shape, listed([encode(each) for each in arguments]))


def calls(first: int, *runs: Run, session: int = 77, floor: int = 0, since: int = 0) -> Calls:
    return Calls(session, first, floor, since, 0, list(runs))


def puts(first: int, *words: str, session: int = 77, floor: int = 0) -> Calls:
    return calls(first, run_of(PUT, *((word,) for word in words)), session=session, floor=floor)


def test_each_command_has_a_position_of_its_own() -> None:
    alone = Alone()
    before = alone.row.position
    outcomes = alone.answers(calls(1, run_of(PUT, ("a",), ("b",)), run_of(COUNT, (2,)), run_of(PUT, ("c",))))
    assert outcomes == [NOTHING, NOTHING, succeeded(["a", "b"]), NOTHING]
    alone.answers(puts(5, "d"))
    assert alone.row.words == ["a", "b", "c", "d"]
    assert alone.row.positions == [before + number for number in range(1, 6)]


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 5)), max_size=12))
def test_however_commands_are_sent_again_each_is_carried_out_once(sent: list[tuple[int, int]]) -> None:
    """Any numbers may come in any company, in any order: as when two configurations deliver them."""
    alone, done = Alone(), dict[int, int]()
    for first, count in sent:
        numbers = range(first, first + count)
        outcomes = alone.answers(
            calls(
                first,
                *(run_of(COUNT, (0,)) for _ in numbers[:1]),
                *([run_of(PUT, *((str(number),) for number in numbers[1:]))] if count > 1 else []),
            )
        )
        for number in numbers:
            done.setdefault(number, len(done))
        assert len(outcomes) == count
    assert len(alone.row.positions) == len(done)
    assert len(set(alone.row.positions)) == len(done)


def test_what_is_sent_again_is_answered_as_before() -> None:
    alone = Alone()
    assert alone.answers(calls(1, run_of(COUNT, (0,)), run_of(PUT, ("a",)), run_of(COUNT, (0,)))) == [
        succeeded([]),
        NOTHING,
        succeeded(["a"]),
    ]
    again = calls(2, run_of(PUT, ("a",)), run_of(COUNT, (0,), (0,)))
    assert alone.answers(again) == [NOTHING, succeeded(["a"]), succeeded(["a"])]
    alone.answers(puts(5, "b", floor=4))
    assert alone.answers(again) == [forgotten(), forgotten(), succeeded(["a"])]
    assert alone.row.words == ["a", "b"]


def test_an_outcome_is_that_of_its_moment() -> None:
    """A command may answer with its own state, which the next one of the same message changes."""
    alone = Alone()
    (first, _, last) = alone.answers(calls(1, run_of(COUNT, (0,)), run_of(PUT, ("a",)), run_of(COUNT, (0,))))
    assert (first, last) == (succeeded([]), succeeded(["a"]))


def test_one_command_that_fails_leaves_the_others_alone() -> None:
    alone = Alone()
    outcomes = alone.answers(
        calls(
            1,
            run_of(PUT, ("a",), (3,), ("b", "c"), ("d",)),
            run_of(COUNT, (9,)),
            run_of("paint(color)", ("red",), ("blue",)),
            run_of(PUT, ("e",)),
        )
    )
    assert [each[:1] for each in outcomes[1:3]] == [failed(ValueError())[:1]] * 2
    assert b"expected" in outcomes[1].lower()
    assert b"only 2" in outcomes[4]
    assert outcomes[5:] == [unknown("paint(color)")] * 2 + [NOTHING]
    assert [outcomes[0], outcomes[3]] == [NOTHING, NOTHING]
    assert alone.row.words == ["a", "d", "e"]


def test_what_is_no_list_of_calls_says_nothing() -> None:
    alone = Alone()
    nothing = Run(PUT, msgspec.Raw(encode({"word": "x"})))
    short = Run(PUT, msgspec.Raw(encode([("x",)])))
    assert alone.answers(calls(1, nothing, short, run_of(PUT, ("a",)))) == [NOTHING]
    assert alone.row.words == ["a"]
    cut_off = written(puts(2, "b"))[:-1]
    assert read(cut_off) is None


def test_two_sessions_do_not_answer_for_each_other() -> None:
    alone = Alone()
    alone.answers(puts(1, "a"))
    assert not alone.deliver(puts(1, "b", session=78)), "who asked is at another replica"
    assert alone.row.words == ["a", "b"]


# --- the table of sessions -----------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 30), st.integers(1, 6), st.integers(0, 30)), max_size=40
    ),
    st.sampled_from([1, 2, 10_000]),
    st.sampled_from([300, 64 * 1024 * 1024]),
)
def test_many_commands_at_once_are_remembered_as_one_by_one(
    steps: list[tuple[int, int, int, int]], most: int, most_bytes: int
) -> None:
    sessions = Sessions(most, most_bytes)
    for position, (session, first, count, floor) in enumerate(steps, 1):
        looks = [sessions.look(session, number, 0) for number in range(first, first + count)]
        new = all(each is Known.NEW for each in looks)
        assert sessions.all_new(session, first, count, 0) == new
        if new:
            results = [b"%d" % number for number in range(first, first + count)]
            sessions.keep(session, first, min(floor, first), position, results)
        held = sum(
            64 + sum(64 + len(result) for result in each.results.values()) for _, each in sessions.captured()
        )
        assert sessions.bytes == held
        for _, each in sessions.captured():
            assert all(number >= each.floor for number in each.results)


def test_no_session_has_more_results_than_are_remembered() -> None:
    sessions = Sessions()
    assert not sessions.all_new(1, 1, MOST_RESULTS + 1, 0)
    sessions.keep(1, 1, 0, 1, [b""] * (MOST_RESULTS - 1))
    assert sessions.all_new(1, MOST_RESULTS, 1, 0)
    assert not sessions.all_new(1, MOST_RESULTS, 2, 0)


def test_a_floor_that_leaps_costs_no_more_than_what_is_remembered() -> None:
    sessions = Sessions()
    sessions.keep(1, 1, 0, 1, [b"a", b"b"])
    sessions.keep(1, 2**61, 2**61, 2, [b"c"])
    assert sessions.look(1, 2, 0) is Known.FORGOTTEN
    assert sessions.look(1, 2**61, 0) == b"c"


# --- what was asked ------------------------------------------------------------------------------

FORM = Row.count.form(Row)


def unanswered(asked: Asked, how_long: str) -> ordercast.OrdercastError:
    return ordercast.Unanswered(f"{asked.number} {how_long}")


def ask(asked: Asking, arguments: bytes = b"", shape: str = COUNT) -> Asked:
    return asked.ask(0, shape, FORM, arguments)


def test_answers_come_to_those_who_asked() -> None:
    async def main() -> None:
        waits = Asking(None, unanswered)
        some = [ask(waits) for _ in range(5)]
        mark = waits.ask(0, "", None, b"")
        assert [each.number for each in some] == [1, 2, 3, 4, 5]
        some[1].future.cancel()
        waits.answered(1, [succeeded(["a"]), NOTHING, failed(ordercast.CommandFailed("no"))])
        assert await some[0].future == ["a"]
        with pytest.raises(ordercast.CommandFailed, match="no"):
            await some[2].future
        assert waits.floor == 4
        waits.answered(5, [NOTHING, NOTHING])
        assert await some[4].future is None
        assert waits.floor == 4
        assert not mark.future.done(), "a mark is reached, and has no outcome"
        waits.reached(6)
        await mark.future
        waits.answered(4, [succeeded([])])
        assert waits.floor == 7
        assert not waits.unanswered

    run(main())


def test_who_waits_longest_is_told_first_that_there_is_no_answer() -> None:
    async def main() -> None:
        loop, waits = asyncio.get_running_loop(), Asking(2.0, unanswered)
        told: list[tuple[int, float]] = []
        begun = loop.time()
        for number in range(1, 4):
            asked = ask(waits)
            asked.future.add_done_callback(
                lambda future, number=number: told.append((number, loop.time() - begun))  # type: ignore[misc]
            )
            if number == 2:
                waits.answered(1, [NOTHING])
            await asyncio.sleep(0.5)
        with pytest.raises(ordercast.Unanswered, match="3 for 2 s"):
            await asked.future
        await asyncio.sleep(0)
        assert [number for number, _ in told] == [1, 2, 3]
        assert [round(when, 3) for _, when in told] == [0.5, 2.5, 3.0]
        assert waits.floor == 4

    run(main())


def test_who_finds_no_room_waits_for_it_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "MOST_PENDING", 2)

    async def main() -> None:
        waits = Asking(None, unanswered)
        first = [ask(waits), ask(waits)]
        order: list[str] = []

        async def later(name: str) -> None:
            await waits.room()
            order.append(name)
            ask(waits)

        tasks = [asyncio.create_task(later(name)) for name in "abcd"]
        await asyncio.sleep(0)
        assert not waits.has_room
        tasks[1].cancel()
        await asyncio.sleep(0)
        waits.answered(first[0].number, [NOTHING])
        assert not waits.has_room, "a was told that there is some"
        tasks[0].cancel()  # before it could ask
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert order == ["c"]
        waits.fail(lambda _: ordercast.NodeClosed("over"), ordercast.NodeClosed("over"))
        with pytest.raises(ordercast.NodeClosed):
            await tasks[3]
        assert waits.has_room

    run(main())


def test_who_waits_for_room_has_one_deadline_for_that_and_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "MOST_PENDING", 1)

    async def main() -> None:
        loop, waits = asyncio.get_running_loop(), Asking(2.0, unanswered)
        first = ask(waits)
        await asyncio.sleep(0.5)
        over: list[float] = []

        async def later() -> None:
            try:
                deadline = await waits.room()
                await waits.ask(0, COUNT, FORM, b"", deadline).future
            except (TimeoutError, ordercast.Unanswered):
                over.append(round(loop.time() - begun, 3))

        begun = loop.time()
        tasks = [asyncio.create_task(later()) for _ in range(3)]
        await asyncio.sleep(1)
        waits.answered(first.number, [NOTHING])
        await asyncio.gather(*tasks)
        assert over == [2.0, 2.0, 2.0], "one had asked, and two had no room"
        assert not waits.unanswered
        await asyncio.sleep(5)
        late = ask(waits)
        begun = loop.time()
        with pytest.raises(ordercast.Unanswered):
            await late.future
        assert loop.time() - begun == pytest.approx(2.0)

    run(main())


def test_who_waits_for_room_is_told_in_time_where_nobody_else_waits_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asking, "MOST_PENDING", 1)

    async def main() -> None:
        loop, waits = asyncio.get_running_loop(), Asking(2.0, unanswered)
        ask(waits).future.cancel()
        await asyncio.sleep(0.5)
        begun = loop.time()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(waits.room(), 10)
        assert loop.time() - begun == pytest.approx(2.0)

    run(main())


PUTS, COUNTS, MARKS, CANCELLED, ANSWERED = range(5)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, MOST_BYTES // 2)), min_size=1, max_size=30))
def test_what_travels_together_is_in_order_and_of_a_bounded_size(what: list[tuple[int, int]]) -> None:
    """Numbers may be missing, where something was answered before the rest is sent again."""

    async def main() -> None:
        waits, outbox = Asking(None, unanswered), list[Asked]()
        for since, (kind, size) in enumerate(what):
            shape = PUT if kind == PUTS else COUNT
            asked = waits.ask(since, *(("", None, b"") if kind == MARKS else (shape, FORM, bytes(size))))
            if kind == CANCELLED:
                asked.future.cancel()
            if kind != ANSWERED:
                outbox.append(asked)
        sent: list[int] = []
        while outbox:
            if outbox[0].future.done() or outbox[0].form is None:
                del outbox[0]
                continue
            some = together(outbox, MOST_BYTES)
            note = packed(some, 5, 1, 9)
            assert len(some) == 1 or sum(len(each.arguments) for each in some) <= MOST_BYTES
            assert [each.number for each in some] == list(range(note.first, note.first + len(some)))
            assert note.since == min(each.since for each in some)
            assert b"".join(bytes(run.calls)[5:] for run in note.runs) == b"".join(
                each.arguments for each in some
            )
            sent += [each.number for each in some]
            del outbox[: len(some)]
        assert sent == [number for number, (kind, _) in enumerate(what, 1) if kind in (PUTS, COUNTS)]

    run(main())
