"""The state of a replicated object as bytes, piece by piece, and back.

A field that is a list, dict, set or deque goes in pieces of a bounded number of entries, anything else whole.
So whoever encodes a large state can let others have their turn between two pieces, as long as nothing changes
the object meanwhile. What is decoded shares nothing with what was encoded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, ClassVar, Self, get_args, get_origin, get_type_hints

import msgspec

from ordercast.errors import ConfigProblem
from ordercast.replicated.command import check_type, encode

ENTRIES = 256
"""Entries of a container in one piece."""


class Piece(msgspec.Struct, array_like=True):
    """A part of one field."""

    field: str
    first: bool
    """The field begins with it."""
    data: msgspec.Raw


_piece = msgspec.msgpack.Decoder(Piece).decode


class Field:
    """How one field is encoded."""

    def __init__(self, where: str, kind: Any) -> None:
        self._made = get_origin(kind) or kind
        """The type of container, if it is one."""
        self.divided = self._made in (list, dict, set, deque)
        if self._made is deque:
            kind = list[get_args(kind)[0]] if get_args(kind) else list[Any]  # type: ignore[misc]
        check_type(where, kind)
        self._decode = msgspec.msgpack.Decoder(kind).decode

    def pieces(self, value: Any) -> Iterator[bytes]:
        """The value, piece by piece."""
        if not self.divided:
            yield encode(value)
            return
        entries = iter(value.items() if self._made is dict else value)
        some = list(islice(entries, ENTRIES))
        while True:
            yield encode(dict(some) if self._made is dict else some)
            some = list(islice(entries, ENTRIES))
            if not some:
                return

    def begin(self, data: msgspec.Raw, now: Any) -> Any:
        """The value, as the first piece has it; `now` is what the field has."""
        value = self._decode(data)
        return deque(value, now.maxlen) if self._made is deque else value

    def go_on(self, value: Any, data: msgspec.Raw) -> None:
        """Add another piece."""
        more = self._decode(data)
        (value.update if self._made in (dict, set) else value.extend)(more)


class Fields:
    """The fields of a class's state."""

    def __init__(self, fields: Mapping[str, Field]) -> None:
        self._fields = fields

    @classmethod
    def of(cls, owner: type, base: type) -> Self:
        """Those that the annotations of a class name, and `wake_at_us`. Raises what is wrong with them."""
        try:
            hints = get_type_hints(owner, localns={owner.__name__: owner}, include_extras=True)
        except NameError as error:
            raise ConfigProblem(
                f"{owner.__name__} has an annotation that is not known: {error}; define types at the top of "
                "a module"
            ) from None
        return cls(
            {
                name: Field(f"the field {owner.__name__}.{name}", kind)
                for name, kind in hints.items()
                if get_origin(kind) is not ClassVar and kind is not ClassVar and not name.startswith("_")
            }
        )

    @property
    def names(self) -> frozenset[str]:
        """What the fields are called."""
        return frozenset(self._fields)

    def pieces(self, target: object) -> Iterator[bytes]:
        """The state, piece by piece: nothing may change it until the last one is taken."""
        for name, field in self._fields.items():
            first = True
            for data in field.pieces(getattr(target, name)):
                yield encode(Piece(name, first, msgspec.Raw(data)))
                first = False

    def taking(self, target: object) -> Incoming:
        """A state that comes for an object of the class."""
        return Incoming(self._fields, target)


class Incoming:
    """A state that is put together, piece by piece, beside what the object has."""

    def __init__(self, fields: Mapping[str, Field], target: object) -> None:
        self._fields = fields
        self._target = target
        self._values: dict[str, Any] = {}

    def add(self, piece: bytes) -> None:
        """The next piece. A field that the class does not have is left out. Raises `msgspec.MsgspecError` if
        it is not what the class's annotations say."""
        name, first, data = _take(piece)
        field = self._fields.get(name)
        if field is None:
            return
        if first:
            self._values[name] = field.begin(data, getattr(self._target, name))
        elif not field.divided or name not in self._values:
            raise msgspec.ValidationError(f"a piece of {name} is out of place")
        else:
            field.go_on(self._values[name], data)

    def finish(self, initial: Iterable[bytes]) -> None:
        """Put it into the object; fields that did not come have the values of `initial`."""
        missing = self._fields.keys() - self._values.keys()
        for piece in initial:
            if _take(piece)[0] in missing:
                self.add(piece)
        for name, value in self._values.items():
            setattr(self._target, name, value)


def _take(piece: bytes) -> tuple[str, bool, msgspec.Raw]:
    taken = _piece(piece)
    return taken.field, taken.first, taken.data
