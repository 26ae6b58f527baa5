"""The fields of a replicated object as bytes, piece by piece, and back.

A field that is a list, dict, set or deque goes in pieces of about `PIECE_BYTES`, anything else whole. What is
decoded shares nothing with what was encoded.

A field is *captured* at one moment, so that it can be encoded while commands go on. Where its annotation says
that its elements cannot change (`ordercast.replicated.immutable`), references to them are copied, and encoded
later; else it is encoded at once. Either goes in steps, between which nothing may change the object.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, groupby, islice
from typing import Any, ClassVar, Self, TypeVar, get_args, get_origin

import msgspec

from ordercast.errors import ConfigProblem
from ordercast.replicated.command import annotations_of, check_type, encode
from ordercast.replicated.fingerprint import may_have_sets
from ordercast.replicated.immutable import is_immutable

T = TypeVar("T")
PIECE_BYTES = 32 * 1024
"""About so many bytes are encoded at a time."""
PIECE_ENTRIES = 256
"""Entries of a container in one piece, at most."""
STEP_ENTRIES = 20_000
"""Entries of which references are copied at a time: less than a millisecond, as a rule."""
ENTRY_BYTES = 8
"""Encoding so many bytes takes about as long as copying a reference."""

CANNOT_TRAVEL = (msgspec.MsgspecError, TypeError, ValueError, OverflowError)
"""What is raised where values are encoded that are not of their types."""


class Outdated(Exception):
    """The class of an object is an earlier version, which lacks something that others have."""

    def __str__(self) -> str:
        return (
            f"the class of the object at this node is an earlier version, or another one: {self.args[0]}; "
            "upgrade this node, or give the class what it lacks"
        )


class Piece(msgspec.Struct, array_like=True):
    """A part of one field."""

    field: str
    first: bool
    """Whether the field begins with this piece."""
    data: msgspec.Raw
    maxlen: int | None = None
    """The `maxlen` of the field, if it is a deque."""


_piece = msgspec.msgpack.Decoder(Piece).decode


def in_pieces(entries: Iterable[T], encoded: Callable[[list[T]], bytes]) -> Iterator[bytes]:
    """Entries, some at a time: how many follows from how large those before were, so pieces of equal entries
    are equal. There is at least one piece."""
    rest, count = iter(entries), PIECE_ENTRIES // 16
    some = list(islice(rest, count))
    while True:
        data = encoded(some)
        yield data
        count = max(1, min(PIECE_ENTRIES, count * PIECE_BYTES // len(data)))
        some = list(islice(rest, count))
        if not some:
            return


class Field:
    """How one field is encoded."""

    def __init__(self, name: str, where: str, kind: Any) -> None:
        """`where` names it for people."""
        self.name = name
        self._made_of = name, where, kind
        self._where = where
        self.made = get_origin(kind) or kind
        """The type of container, if it is one."""
        self.divided = self.made in (list, dict, set, deque)
        if self.made is deque:
            kind = list[get_args(kind)[0]] if get_args(kind) else list[Any]  # type: ignore[misc]
        check_type(where, kind)
        parts = (get_args(kind) or (Any,)) if self.divided else (kind,)
        self.immutable = all(is_immutable(each) for each in parts)
        """Whether nothing can change what is in it, or its value where it is not divided."""
        self.has_sets = may_have_sets(kind)
        """Whether there may be sets in it."""
        self._decode = msgspec.msgpack.Decoder(kind).decode
        self.key = msgspec.msgpack.Decoder(parts[0]).decode if self.divided else self._decode
        """Decodes a key of a dict, or an element."""
        self.some = self._decode
        """Decodes some entries of a container."""

    def __reduce__(self) -> tuple[Any, ...]:
        """For classes of notebooks and scripts, which go to other processes by value."""
        return Field, self._made_of

    def made_of(self, pieces: Iterable[bytes]) -> Any:
        """The value that these pieces are of."""
        value: Any = None
        for data in pieces:
            piece = _piece(data)
            if piece.first:
                value = self.begin(piece)
            else:
                self.go_on(value, piece)
        return value

    def fits(self, value: Any) -> bool:
        """Whether it is a container of the field's type, if that is one."""
        return not self.divided or isinstance(value, self.made)

    def check_container(self, value: Any) -> None:
        """Raise `TypeError` if a command has put in what is no container of the field's type."""
        if not self.fits(value):
            raise TypeError(f"{self._where} is a {type(value).__name__}, and no {self.made.__name__}")

    def pieces(self, value: Any) -> Iterator[bytes]:
        """The value, piece by piece. Raises `TypeError` if it cannot travel."""
        self.check_container(value)
        if self.divided:
            return self.pieces_of(value.items() if self.made is dict else value, value)
        return self.pieces_of((), value)

    def pieces_of(self, entries: Iterable[Any], value: Any) -> Iterator[bytes]:
        """The value, piece by piece, from entries that were taken from it before."""
        if not self.divided:
            yield encode(Piece(self.name, True, msgspec.Raw(encode(value))))
            return
        first, maxlen = True, value.maxlen if self.made is deque else None
        for data in in_pieces(entries, _encode_dict if self.made is dict else encode):
            yield encode(Piece(self.name, first, msgspec.Raw(data), maxlen))
            first = False

    def check(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The same pieces. Raises `TypeError` if nobody could make the value of them again: a command has put
        in what is not of the field's type."""
        for data in pieces:
            try:
                self._decode(_piece(data).data)
            except msgspec.ValidationError as error:
                raise TypeError(f"{self._where} holds what is not of its type: {error}") from None
            yield data

    def begin(self, piece: Piece) -> Any:
        """The value, as the first piece has it."""
        value = self._decode(piece.data)
        return deque(value, piece.maxlen) if self.made is deque else value

    def go_on(self, value: Any, piece: Piece) -> None:
        """Add another piece."""
        more = self._decode(piece.data)
        (value.update if self.made in (dict, set) else value.extend)(more)


def _encode_dict(entries: list[tuple[Any, Any]]) -> bytes:
    return encode(dict(entries))


class Captured:
    """A field as it is at one moment, once `steps` are done."""

    def __init__(self, field: Field, value: Any) -> None:
        self._field = field
        self._value = value
        self._copies: list[list[tuple[Any, ...]]] = []
        """References to the entries: of a dict, to its keys, and to its values."""
        self._encoded: list[bytes] = []

    def steps(self) -> Iterator[int]:
        """Capture some more with each, until the last one nothing may change the object; how much it was, in
        references."""
        field, value = self._field, self._value
        field.check_container(value)
        if not field.immutable:
            for piece in field.pieces(value):
                self._encoded.append(piece)
                yield len(piece) // ENTRY_BYTES
        elif field.divided:
            for source in (value, value.values()) if field.made is dict else (value,):
                rest, copies = iter(source), list[tuple[Any, ...]]()
                self._copies.append(copies)
                while some := tuple(islice(rest, STEP_ENTRIES)):
                    copies.append(some)
                    gc.collect(0)  # looks at these alone, and never again if they cannot be parts of cycles
                    yield len(some)

    def checked(self) -> Iterator[bytes]:
        """The same as `pieces`. Raises `TypeError` if nobody could make the field of them again."""
        return self._field.check(self.pieces())

    def pieces(self) -> Iterator[bytes]:
        """The field as bytes, piece by piece; as often as is wanted."""
        if not self._field.immutable:
            return iter(self._encoded)
        entries = [chain.from_iterable(copies) for copies in self._copies]
        together = zip(*entries, strict=True) if self._field.made is dict else chain(*entries)
        return self._field.pieces_of(together, self._value)


class Fields:
    """The fields of a class's state."""

    def __init__(self, fields: Mapping[str, Field]) -> None:
        self._fields = fields

    @classmethod
    def of(cls, owner: type, base: type) -> Self:
        """The fields that the annotations of a class name, and `wake_at_us`. Raises what is wrong with
        them."""
        hints = annotations_of(owner, owner, owner.__name__)
        return cls(
            {
                name: Field(name, f"the field {owner.__name__}.{name}", kind)
                for name, kind in hints.items()
                if get_origin(kind) is not ClassVar and kind is not ClassVar and not name.startswith("_")
            }
        )

    def only(self, names: Collection[str]) -> Fields:
        """The fields of these names."""
        return Fields({name: field for name, field in self._fields.items() if name in names})

    def __iter__(self) -> Iterator[Field]:
        return iter(self._fields.values())

    def sorted(self) -> list[Field]:
        """The fields by name."""
        return [self._fields[name] for name in sorted(self._fields)]

    def called(self, name: str) -> Field:
        """The field of that name. Raises `Outdated` if there is none."""
        if name not in self._fields:
            raise Outdated(f"it lacks the field {name}, which the others have")
        return self._fields[name]

    @property
    def names(self) -> frozenset[str]:
        """What the fields are called."""
        return frozenset(self._fields)

    @property
    def immutable(self) -> bool:
        """Whether references to what is in them are enough to keep the state."""
        return all(field.immutable for field in self._fields.values())

    def pieces(self, target: object) -> Iterator[bytes]:
        """The state, piece by piece: nothing may change it until the last one is taken."""
        for name, field in self._fields.items():
            yield from field.pieces(getattr(target, name))

    def begun(self, target: object) -> list[bytes]:
        """The state that an object begins with, piece by piece; `ConfigProblem` if it cannot travel."""
        found: list[bytes] = []
        for name, field in self._fields.items():
            with _said_of(target, name):
                found += field.pieces(getattr(target, name))
        return found

    def renew(self, pieces: Iterable[bytes], target: object) -> None:
        """Give an object the values that these pieces are of, which nobody else has; `ConfigProblem` if they
        are not of its fields' types."""
        for name, some in groupby(pieces, lambda data: _piece(data).field):
            with _said_of(target, name):
                setattr(target, name, self._fields[name].made_of(some))

    def captured(self, target: object) -> list[Captured]:
        """The fields as they are now, those with mutable elements first."""
        fields = sorted(self._fields.values(), key=lambda field: field.immutable)
        return [Captured(field, getattr(target, field.name)) for field in fields]

    def taking(self) -> Incoming:
        """A state that comes for an object of the class."""
        return Incoming(self._fields)


@contextmanager
def _said_of(target: object, name: str) -> Iterator[None]:
    """What is wrong with the value that a field begins with is said of that field."""
    try:
        yield
    except CANNOT_TRAVEL as error:
        kind = type(getattr(target, name)).__name__
        raise ConfigProblem(
            f"{type(target).__name__}.{name} begins with a value of the type {kind}, which cannot travel as "
            f"what is annotated: {error}"
        ) from None


class Incoming:
    """A state that is put together, piece by piece, beside what the object has."""

    def __init__(self, fields: Mapping[str, Field]) -> None:
        self._fields = fields
        self._values: dict[str, Any] = {}

    def add(self, data: bytes) -> None:
        """The next piece. Raises `msgspec.MsgspecError` if it is none, `Outdated` if the class has no such
        field, or one of another type."""
        piece = _piece(data)
        field = self._fields.get(piece.field)
        if field is None:
            raise Outdated(f"it lacks the field {piece.field}, which the others have")
        if not piece.first and (not field.divided or piece.field not in self._values):
            raise msgspec.DecodeError(f"a piece of {piece.field} is out of place")
        try:
            if piece.first:
                self._values[piece.field] = field.begin(piece)
            else:
                field.go_on(self._values[piece.field], piece)
        except msgspec.ValidationError as error:
            raise Outdated(
                f"its field {piece.field} is of another type than that of the others, or a command has put "
                f"in what is not of its type ({error})"
            ) from error

    def finish(self, initial: Iterable[bytes], target: object) -> None:
        """Put it into an object; fields that did not come have the values of `initial`."""
        missing = self._fields.keys() - self._values.keys()
        for data in initial:
            if _piece(data).field in missing:
                self.add(data)
        for name, value in self._values.items():
            setattr(target, name, value)
