"""Snapshots: the state as it was at their moment, whatever commands did while they were encoded."""

from __future__ import annotations

import copy
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, NamedTuple, Optional, Union

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ordercast
from ordercast.process_groups.views import Process
from ordercast.replicated import snapshot as snapshots
from ordercast.replicated import state as states
from ordercast.replicated.durable.heads import Head
from ordercast.replicated.immutable import is_immutable
from ordercast.replicated.sessions import Sessions
from ordercast.replicated.snapshot import Common, Restored, Snapshot, Unsound
from ordercast.replicated.state import Outdated

HEAD = Head(3, 7, 99)


class Colour(Enum):
    RED = "red"


class Frozen(msgspec.Struct, frozen=True):
    name: str
    next: Optional[Frozen] = None  # noqa: UP045 - resolved when the test runs


class FrozenAroundMutable(msgspec.Struct, frozen=True):
    words: list[str]


class Mutable(msgspec.Struct):
    number: int


class Pair(NamedTuple):
    left: int
    right: str


class PairOfLists(NamedTuple):
    left: list[int]


@dataclass(frozen=True)
class FrozenData:
    number: int


@dataclass
class MutableData:
    number: int


@pytest.mark.parametrize(
    "kind",
    [
        *(int, str, bytes, bool, float, None, Colour, Frozen, Pair, FrozenData),
        *(tuple[int, str], tuple[str, ...], frozenset[int], int | None, Literal["a", 1], Process),
        Union[Frozen, int],  # noqa: UP007 - written as applications do
    ],
)
def test_what_cannot_change_is_kept(kind: Any) -> None:
    assert is_immutable(kind)


@pytest.mark.parametrize(
    "kind",
    [
        *(list[int], dict[str, int], set[int], bytearray, Any, object, Mutable, MutableData, PairOfLists),
        *(FrozenAroundMutable, tuple[int, list[int]], tuple[Mutable, ...], int | list[int], deque[int]),
        *(list, tuple, msgspec.Raw),
    ],
)
def test_what_may_change_is_not(kind: Any) -> None:
    assert not is_immutable(kind)


class Mixed(ordercast.Replicated):
    """A field of each kind, with elements that can change and that cannot."""

    numbers: list[int]
    names: set[str]
    balance: dict[str, Frozen]
    last: deque[int]
    rows: list[list[int]]
    by_name: dict[str, Mutable]
    recent: deque[list[int]]
    whole: tuple[int, ...]
    word: str | None
    one: Mutable
    maybe: dict[str, int] | None

    def __init__(self) -> None:
        self.numbers = []
        self.names = set()
        self.balance = {}
        self.last = deque(maxlen=5)
        self.rows = []
        self.by_name = {}
        self.recent = deque()
        self.whole = ()
        self.word = None
        self.one = Mutable(0)
        self.maybe = None


def change(target: Mixed, what: int, key: int) -> None:
    """What a command might do."""
    name = f"n{key % 40}"
    match what:
        case 0:
            target.numbers.append(key)
            target.last.append(key)
            target.names.add(name)
        case 1:
            target.balance[name] = Frozen(f"v{key}")
            target.by_name.setdefault(name, Mutable(0)).number = key
        case 2:
            target.balance.pop(name, None)
            target.names.discard(name)
            if target.numbers:
                target.numbers[key % len(target.numbers)] = -key
        case 3:
            target.rows.append([key])
            target.rows[key % len(target.rows)].append(key)
            target.recent.append([key])
            target.recent[0][0] += 1
        case 4:
            target.one.number, target.word = key, name
            target.whole = (*target.whole[-3:], key)
            target.maybe = {**(target.maybe or {}), name: key}
        case 5:
            target.last = deque(target.last, maxlen=key % 7 + 1)
            target.numbers = target.numbers[: key % 50]
        case 6:
            target.balance.clear()
            target.rows.insert(0, [])
        case _:
            target.numbers.extend(range(key % 300))
            target.wake_at_us = key
            if target.maybe:
                target.maybe.popitem()


def fields(target: ordercast.Replicated) -> dict[str, Any]:
    """Its state, for comparing: with the order of dicts, and the length of deques."""
    found = {name: getattr(target, name) for name in target._fields.names}
    more = {
        name: list(each) if isinstance(each, dict) else each.maxlen
        for name, each in found.items()
        if isinstance(each, dict | deque)
    }
    return copy.deepcopy({**found, "more": more})


def common(target: ordercast.Replicated) -> Common:
    there = Process(1, 2, 3)
    return Common(5, [there], {there: 4}, frozenset({"f()"}), 6, 7, target._fields.names)


def taken(target: ordercast.Replicated, sessions: Sessions | None = None) -> Snapshot:
    return Snapshot(HEAD, common(target), sessions or Sessions(), target)


def restored(slices: list[bytes], into: ordercast.Replicated) -> Restored:
    state = Restored(into)
    for each in slices:
        state.add(each)
    assert state.whole
    state.install([], into)
    return state


CHANGES = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 1000)), max_size=60)


@settings(max_examples=200, deadline=None)
@given(CHANGES, CHANGES, st.sampled_from([1, 3, 20_000]), st.sampled_from([40, 32 * 1024]))
def test_a_snapshot_is_the_state_at_its_moment(
    before: list[tuple[int, int]], after: list[tuple[int, int]], step: int, piece: int
) -> None:
    """It is taken in steps, and encoded while the object changes; twice, since several may want it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(states, "STEP_ENTRIES", step)
        patch.setattr(snapshots, "STEP_ENTRIES", step)
        patch.setattr(states, "PIECE_BYTES", piece)
        patch.setattr(snapshots, "SLICE_BYTES", 16)
        target = Mixed()
        for what, key in before:
            change(target, what, key)
        expected = fields(target)
        snapshot = taken(target)
        while not snapshot.complete:
            snapshot.step()
        slices, changes = list[bytes](), iter(after)
        for each in snapshot.slices():
            slices.append(each)
            for what, key in [next(changes, (4, 0))]:
                change(target, what, key)
        for what, key in changes:
            change(target, what, key)
        into = Mixed()
        state = restored(slices, into)
        assert fields(into) == expected
        assert (state.head, state.common) == (HEAD, common(target))
        assert list(snapshot.slices()) == slices


def test_a_small_state_of_immutable_elements_holds_nobody_up() -> None:
    class Plain(ordercast.Replicated):
        balance: dict[str, int]
        nothing: list[int]

        def __init__(self) -> None:
            self.balance = {str(number): number for number in range(1000)}
            self.nothing = []

    target = Plain()
    snapshot = taken(target)
    assert snapshot.complete
    target.balance.clear()
    into = Plain()
    restored(list(snapshot.slices()), into)
    assert into.balance == {str(number): number for number in range(1000)}


def test_sessions_are_those_of_the_moment() -> None:
    sessions = Sessions()
    for session in range(200):
        for number in range(1, 4):
            sessions.keep(session, number, 0, session * 3 + number, [b"%d" % number])
    snapshot = taken(Mixed(), sessions)
    while not snapshot.complete:
        snapshot.step()
    for session in range(0, 400, 7):
        sessions.keep(session, 4, 4, 1000, [b"later"])
    state = restored(list(snapshot.slices()), Mixed())
    assert state.sessions.forgotten == 6
    assert [state.sessions.look(session, 2, 0) for session in range(200)] == [b"2"] * 200
    assert state.sessions.look(300, 1, 5) is sessions.look(301, 1, -1)
    as_before = Sessions()
    for session in range(200):
        for number in range(1, 4):
            as_before.keep(session, number, 0, session * 3 + number, [b"%d" % number])
    assert state.sessions.bytes == as_before.bytes


def full() -> Mixed:
    target = Mixed()
    for key in range(300):
        change(target, key % 4, key)
    return target


def test_a_state_that_lacks_a_slice_is_refused() -> None:
    snapshot = taken(full())
    while not snapshot.complete:
        snapshot.step()
    slices = list(snapshot.slices())
    assert len(slices) > 10
    for missing in range(len(slices) - 1):
        with pytest.raises(Unsound):
            restored(slices[:missing] + slices[missing + 1 :], Mixed())
    for twice in range(len(slices)):
        with pytest.raises(Unsound):
            restored([*slices[: twice + 1], slices[twice], *slices[twice + 1 :]], Mixed())
    cut = Restored(Mixed())
    for each in slices[:-1]:
        cut.add(each)
    assert not cut.whole


class Other(Mixed):
    """Has a field of the same name and of another type."""

    numbers: dict[str, int]  # type: ignore[assignment]


class Earlier(ordercast.Replicated):
    """Has one field of the other class."""

    numbers: list[int]

    def __init__(self) -> None:
        self.numbers = []


class Newer(Mixed):
    """Has the fields of the other class, and a new one."""

    more: list[str]

    def __init__(self) -> None:
        super().__init__()
        self.more = ["as", "in", "the", "beginning"]


def test_another_class_takes_what_it_has_if_it_has_all() -> None:
    snapshot = taken(full())
    while not snapshot.complete:
        snapshot.step()
    slices = list(snapshot.slices())
    with pytest.raises(Outdated, match="its field numbers is of another type than that of the others"):
        restored(slices, Other())
    with pytest.raises(Outdated, match=r"lacks the field .*, which the others have; upgrade this node"):
        restored(slices, Earlier())
    newer = Newer()
    state = Restored(newer)
    for each in slices:
        state.add(each)
    newer.more = ["changed"]
    state.install(list(Newer()._fields.pieces(Newer())), newer)
    assert newer.numbers == full().numbers
    assert newer.more == ["as", "in", "the", "beginning"]
