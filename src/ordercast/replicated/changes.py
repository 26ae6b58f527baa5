"""What commands change in the fields of an object: found out, undone, and made elsewhere.

A primary carries commands out, and the other replicas take over what they changed (004 §4.3.1, the
*update*). `Before` keeps the fields as they are; `changes` compares, `undo` puts them back. Of a dict, list
or set whose elements cannot change only what is new or gone travels; any other field travels whole if it is
not what it was. That takes time with the number of entries: a comparison of references where elements cannot
change, else as long as to encode the field.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any

import msgspec

from ordercast.replicated.command import encode
from ordercast.replicated.state import Field, Fields

WHOLE, PUT, ADD, EXTEND = range(4)


class Change(msgspec.Struct, array_like=True, frozen=True):
    """What has become of one field."""

    field: str
    how: int
    gone: list[msgspec.Raw] = []
    """Keys that a dict has no more, or elements of a set."""
    new: list[bytes] = []
    """Entries that are new, or have other values; pieces of the field, if it is whole."""


class Before:
    """The fields of an object as they were."""

    def __init__(self, fields: Fields, target: object) -> None:
        self._target = target
        self._fields = fields
        self._kept = {field.name: _kept(field, getattr(target, field.name)) for field in fields}

    def changes(self) -> list[Change]:
        """What is different now."""
        found = (_change(field, self._kept[field.name], self._value(field)) for field in self._fields)
        return [change for change in found if change is not None]

    def undo(self, changes: Sequence[Change] | None) -> None:
        """Put back what these have changed, within the same containers; without `changes`, everything."""
        changed = None if changes is None else {change.field for change in changes}
        for field in self._fields:
            if changed is None or field.name in changed:
                kept = self._kept[field.name]
                if not field.immutable:
                    setattr(self._target, field.name, field.made_of(kept))
                elif field.made in (dict, set, list) and field.fits(value := self._value(field)):
                    value.clear()
                    (value.extend if field.made is list else value.update)(kept)
                else:
                    setattr(self._target, field.name, kept)

    def _value(self, field: Field) -> Any:
        return getattr(self._target, field.name)


def make(changes: Sequence[Change], fields: Fields, target: object) -> None:
    """Make these changes in an object. Raises `msgspec.MsgspecError` if they are not of its fields' types."""
    for change in changes:
        field = fields.called(change.field)
        if change.how == WHOLE:
            setattr(target, field.name, field.made_of(change.new))
            continue
        value = getattr(target, field.name)
        for key in change.gone:
            (value.pop if change.how == PUT else value.discard)(field.key(key))
        for data in change.new:
            (value.extend if change.how == EXTEND else value.update)(field.some(data))


def check(changes: Sequence[Change], fields: Fields) -> None:
    """Raise `msgspec.MsgspecError` if other replicas could not make these changes: they are not of the
    fields' types."""
    for change in changes:
        field = fields.called(change.field)
        if change.how == WHOLE:
            field.made_of(change.new)
        else:
            for data in change.new:
                field.some(data)


def _kept(field: Field, value: Any) -> Any:
    """What is enough to have the field again: references where nothing can change them, else its bytes.
    Raises `TypeError` where that is not enough, since it is not of its type."""
    field.check_container(value)
    if not field.immutable:
        return list(field.pieces(value))
    return value.copy() if field.divided else value


def _change(field: Field, before: Any, now: Any) -> Change | None:
    field.check_container(now)
    if not field.immutable:
        pieces = list(field.pieces(now))
        return None if pieces == before else Change(field.name, WHOLE, [], pieces)
    if field.made is dict:
        return _change_of_dict(field, before, now)
    if field.made is set:
        return _change_of_set(field, before, now)
    if field.made is list and len(before) <= len(now) and all(map(is_, before, now)):
        return (
            Change(field.name, EXTEND, [], [encode(now[len(before) :])]) if len(before) < len(now) else None
        )
    if before is now or list(field.pieces(before)) == list(field.pieces(now)):
        return None
    return Change(field.name, WHOLE, [], list(field.pieces(now)))


def _change_of_dict(field: Field, before: dict[Any, Any], now: dict[Any, Any]) -> Change | None:
    new = {key: value for key, value in now.items() if before.get(key, before) is not value}
    gone = [key for key in before if key not in now] if len(before) + len(new) != len(now) else []
    if not new and not gone:
        return None if list(before) == list(now) else Change(field.name, WHOLE, [], list(field.pieces(now)))
    after = [key for key in before if key in now]
    after += [key for key in new if key not in before]
    if after != list(now):  # a key has gone to another place: order is part of a dict
        return Change(field.name, WHOLE, [], list(field.pieces(now)))
    return Change(field.name, PUT, [msgspec.Raw(encode(key)) for key in gone], [encode(new)] if new else [])


def _change_of_set(field: Field, before: set[Any], now: set[Any]) -> Change | None:
    new, gone = now - before, before - now
    if not new and not gone:
        return None
    return Change(field.name, ADD, [msgspec.Raw(encode(each)) for each in gone], [encode(new)] if new else [])
