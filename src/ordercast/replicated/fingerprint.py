"""Fingerprints of objects: short texts that are equal where the states are."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import inspect

_encode = msgspec.msgpack.Encoder().encode
_PLAIN = frozenset((bool, int, float, str, bytes, type(None)))
_UNORDERED = (inspect.SetType, inspect.FrozenSetType, inspect.AnyType)
_BYTES = 16


def fingerprint(position: int, now_us: int, fields: Iterable[tuple[str, Any, bool]]) -> str:
    """Of the state behind a position, at a time. `fields`: name and value of each, and whether there may be
    sets in it, whose order is their process's own."""
    found = blake2b(_encode((position, now_us)), digest_size=_BYTES)
    for name, value, has_sets in fields:
        found.update(_encode((name, in_order(value, has_sets))))
    return f"{position}/{found.hexdigest()}"


def in_order(value: Any, has_sets: bool) -> Any:
    """The value of a field without sets, as `ordered`; where there are none, nothing in it is looked at."""
    if has_sets:
        return ordered(value)
    return list(value) if isinstance(value, deque) else value


def ordered(value: Any) -> Any:
    """A value without sets, whose order is their process's own; that of a dict is a part of the state."""
    if type(value) in _PLAIN:
        return value
    match value:
        case set() | frozenset():
            return sorted((ordered(each) for each in value), key=_encode)
        case dict():
            return [(ordered(key), ordered(each)) for key, each in value.items()]
        case list() | tuple() | deque():
            return [ordered(each) for each in value]
        case msgspec.Struct():
            return [ordered(each) for each in msgspec.structs.astuple(value)]
    if dataclasses.is_dataclass(value):
        return [ordered(getattr(value, field.name)) for field in dataclasses.fields(value)]
    return value


def may_have_sets(kind: Any) -> bool:
    """Whether there may be sets in values of a type."""
    return _may(inspect.type_info(kind), set())


def _may(info: Any, within: set[type]) -> bool:
    """`within`: classes that are looked at already: a class may have itself as a part."""
    if isinstance(info, _UNORDERED):
        return True
    cls = getattr(info, "cls", None)
    if cls is not None:
        if cls in within:
            return False
        within.add(cls)
    if not isinstance(info, inspect.Type | inspect.Field):
        return False
    for name in getattr(info, "__struct_fields__", ()):
        value = getattr(info, name)
        if any(_may(each, within) for each in (value if isinstance(value, tuple) else (value,))):
            return True
    return False
