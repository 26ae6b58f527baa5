"""What commands change is found out, undone, and made elsewhere: the same in the end, in the same order."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import ordercast
from ordercast.replicated import told
from ordercast.replicated.changes import ADD, EXTEND, PUT, WHOLE, Before, Change, make

NUMBERS = some.integers(-3, 3)


class Fact(msgspec.Struct, frozen=True):
    """Something that cannot change."""

    words: tuple[str, ...]


class Said(NamedTuple):
    """Something to be told."""

    what: str
    facts: list[Fact]


class Things(ordercast.Replicated):
    """A field of each sort."""

    by_name: dict[str, int]
    by_number: dict[int, Fact]
    names: set[str]
    row: list[int]
    last: deque[int]
    text: str
    deep: dict[str, list[int]]
    deep_row: list[dict[str, int]]

    def __init__(self) -> None:
        self.by_name, self.by_number, self.names, self.row = {}, {}, set(), []
        self.last, self.text, self.deep, self.deep_row = deque(maxlen=3), "", {}, []


STEPS: dict[str, Any] = {
    "put": lambda it, n: it.by_name.__setitem__(f"k{n}", n),
    "take": lambda it, n: it.by_name.pop(f"k{n}", None),
    "move": lambda it, n: it.by_name.__setitem__(f"k{n}", it.by_name.pop(f"k{n}", 0)),
    "clear": lambda it, n: it.by_name.clear(),
    "another": lambda it, n: setattr(it, "by_name", {**it.by_name, "another": n}),
    "fact": lambda it, n: it.by_number.__setitem__(n, Fact((str(n),))),
    "no fact": lambda it, n: it.by_number.pop(n, None),
    "name": lambda it, n: it.names.add(str(n)),
    "no name": lambda it, n: it.names.discard(str(n)),
    "append": lambda it, n: it.row.append(n),
    "insert": lambda it, n: it.row.insert(0, n),
    "pop": lambda it, n: it.row and it.row.pop(),
    "last": lambda it, n: it.last.append(n),
    "text": lambda it, n: setattr(it, "text", str(n)),
    "deep": lambda it, n: it.deep.setdefault(str(n), []).append(n),
    "deep row": lambda it, n: it.deep_row.append({str(n): n}),
    "deeper": lambda it, n: it.deep_row and it.deep_row[0].__setitem__("x", n),
}
steps = some.lists(some.tuples(some.sampled_from(sorted(STEPS)), NUMBERS), max_size=12)


def do(things: Things, some_steps: list[tuple[str, int]]) -> None:
    for name, number in some_steps:
        STEPS[name](things, number)


def state(things: Things) -> object:
    """With the order of dicts, and the types of numbers; sets have no order."""
    pieces = list(things._fields.only(things._fields.names - {"names"}).pieces(things))
    return pieces, things.names, things.last.maxlen


def travelled(changes: list[Change]) -> list[Change]:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(changes), type=list[Change])


@settings(max_examples=300, deadline=None)
@given(steps, steps, steps)
def test_what_is_tried_is_undone_and_made_everywhere(
    before: list[tuple[str, int]], tried: list[tuple[str, int]], then: list[tuple[str, int]]
) -> None:
    primary, backup = Things(), Things()
    do(primary, before)
    make(travelled(Before(Things._fields, backup).changes()), Things._fields, backup)
    kept = Before(Things._fields, Things())
    kept._target = primary
    make(travelled(kept.changes()), Things._fields, backup)
    assert state(backup) == state(primary)
    for some_steps in (tried, then):
        was, held = state(primary), Before(Things._fields, primary)
        do(primary, some_steps)
        reached, changes = state(primary), travelled(held.changes())
        held.undo(changes)
        assert state(primary) == was
        make(changes, Things._fields, primary)
        make(changes, Things._fields, backup)
        assert state(primary) == reached
        assert state(backup) == reached


def test_without_knowing_what_has_changed_all_is_put_back() -> None:
    things = Things()
    do(things, [(name, 1) for name in STEPS])
    was, held = state(things), Before(Things._fields, things)
    do(things, [(name, 2) for name in STEPS])
    held.undo(None)
    assert state(things) == was


def test_of_what_cannot_change_little_travels() -> None:
    things = Things()
    do(things, [("put", 1), ("put", 2), ("put", 3), ("append", 1), ("name", 1), ("deep", 1)])
    held = Before(Things._fields, things)
    by_name = things.by_name
    do(things, [("put", 2), ("take", 1), ("append", 2), ("name", 2), ("no name", 1), ("deep", 1)])
    changes = {each.field: each for each in held.changes()}
    assert {name: each.how for name, each in changes.items()} == {
        "by_name": PUT,
        "row": EXTEND,
        "names": ADD,
        "deep": WHOLE,
    }
    assert changes["by_name"].new == [], "it had that value before"
    assert [msgspec.msgpack.decode(key) for key in changes["by_name"].gone] == ["k1"]
    assert msgspec.msgpack.decode(changes["row"].new[0]) == [2]
    held.undo(list(changes.values()))
    assert things.by_name is by_name, "who holds a container goes on seeing the state"


def test_an_unknown_field_is_of_a_later_class() -> None:
    with pytest.raises(Exception, match="lacks the field elsewhere"):
        make([Change("elsewhere", WHOLE)], Things._fields, Things())


@pytest.mark.parametrize(
    "event",
    [
        None,
        True,
        1.5,
        "text",
        b"bytes",
        (1, ("a", None)),
        [1, [2]],
        {1: {"a": (2,)}},
        {1, 2},
        frozenset({3}),
        Fact(("a", "b")),
        Said("x", [Fact(()), Fact(("c",))]),
    ],
)
def test_what_is_told_arrives_as_it_was(event: object) -> None:
    again = told.decoded(told.encoded(event), Things)
    assert again == event
    assert type(again) is type(event)


def test_what_cannot_be_told() -> None:
    class Here(NamedTuple):
        x: int

    with pytest.raises(TypeError, match="cannot be told"):
        told.encoded(object())
    with pytest.raises(TypeError, match="define it beside that"):
        told.decoded(told.encoded(Here(1)), Things)
