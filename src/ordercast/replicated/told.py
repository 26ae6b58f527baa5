"""What commands tell those who watch, as it travels from the primary to other replicas.

Where every replica carries commands out, what they tell need not travel. From a primary it does: numbers,
texts, bytes, lists, tuples, dicts and sets of such; and objects (`msgspec.Struct`, dataclass, `NamedTuple`)
of classes that are defined at the top of the module of the object's class, or of one of its bases.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable
from typing import Any

import msgspec

from ordercast.replicated.command import encode

_SCALARS = (bool, int, float, str, bytes)
_CONTAINERS: dict[str, type] = {"t": tuple, "l": list, "s": set, "f": frozenset}
_TAGS = {kind: tag for tag, kind in _CONTAINERS.items()}


def encoded(event: object) -> msgspec.Raw:
    """An event for other replicas. Raises `TypeError` for what cannot travel."""
    return msgspec.Raw(encode(_plain(event)))


def decoded(data: msgspec.Raw, owner: type) -> Any:
    """The event, told by an object of the class `owner`. Raises `msgspec.MsgspecError`, or `TypeError`."""
    return _event(msgspec.msgpack.decode(data), owner)


def _plain(value: Any) -> Any:
    kind = type(value)
    if value is None or kind in _SCALARS:
        return value
    if kind in _TAGS:
        return [_TAGS[kind], *map(_plain, value)]
    if kind is dict:
        return ["d", *([_plain(key), _plain(each)] for key, each in value.items())]
    fields = _fields_of(kind)
    if fields is None:
        raise TypeError(f"a {kind.__name__} cannot be told to those who watch at other nodes")
    return ["o", kind.__qualname__, *(_plain(getattr(value, name)) for name in fields)]


def _fields_of(kind: type) -> Iterable[str] | None:
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    return getattr(kind, "_fields", None) if issubclass(kind, tuple) else None


def _event(plain: Any, owner: type) -> Any:
    if not isinstance(plain, list):
        return plain
    tag, *rest = plain
    if tag == "d":
        return {_event(key, owner): _event(value, owner) for key, value in rest}
    if tag == "o":
        name, *values = rest
        kind = _class_called(name, owner)
        found = dict(zip(_fields_of(kind) or (), [_event(each, owner) for each in values], strict=True))
        return kind(**found)
    return _CONTAINERS[tag](_event(each, owner) for each in rest)


def _class_called(name: str, owner: type) -> type:
    for base in owner.__mro__:
        found = getattr(sys.modules.get(base.__module__), name, None)
        if isinstance(found, type) and _fields_of(found) is not None:
            return found
    raise TypeError(f"{name} is no class of the modules of {owner.__name__}: define it beside that")
