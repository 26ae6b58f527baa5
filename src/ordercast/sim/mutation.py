"""Packets with something wrong in them, made of real ones: fields changed, or bytes.

A packet whose fields are changed is encoded again, so it has the right form and says something untrue; one
whose bytes are changed may have no form at all. Everything follows from one random stream.
"""

from __future__ import annotations

import random
import struct
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from copy import copy
from enum import Enum
from functools import lru_cache
from typing import Any, cast

from ordercast.core.contract import Packet
from ordercast.core.wire import MAX_PACKET, PREFIX_SIZE, Malformed

Rewrite = Callable[[bytes, Callable[[Any], Any]], bytes]
"""A packet, and what changes it once it is decoded, to the packet encoded again. Raises `Malformed`."""

EDGES = (
    *(0, 1, 2, 3, -1, 127, 128, 255, 256, 65_535, 65_536),
    *(2**31 - 2, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**60),
    *(2**61, 2**62 - 5, 2**62 - 4, 2**62 - 1, 2**62, 2**63 - 1, -(2**31), -(2**63)),
)
"""Numbers at which something may change."""
MOST_PACKETS = 48
"""Real packets of each kind from which others are made: the last ones."""
MOST_VALUES = 48
"""Values of each field that were seen, to be put into other packets."""
LONGEST_LIST = 2_000
DERIVED = frozenset({"raw", "at", "kind"})
"""Fields that follow from others."""


def unreadable(data: bytes, change: Callable[[Any], Any]) -> bytes:
    """Stands in where nobody can decode packets: then only their bytes are changed."""
    raise Malformed("not to be decoded")


class Mutator:
    """Remembers real packets, and makes wrong ones of them."""

    def __init__(self, chance: random.Random, rewrite: Rewrite, nodes: Sequence[int]) -> None:
        self._chance = chance
        self._rewrite = rewrite
        self._nodes = [*nodes, max(nodes) + 1, max(nodes) + 7]
        self._packets: dict[int, deque[Packet]] = {}
        self._kinds: list[int] = []
        self._values: dict[tuple[str, type], deque[Any]] = {}

    def saw(self, packet: Packet) -> None:
        """Remember a real packet."""
        if len(packet.data) < PREFIX_SIZE:
            return
        kind = packet.data[PREFIX_SIZE - 1]
        known = self._packets.get(kind)
        if known is None:
            known = self._packets[kind] = deque(maxlen=MOST_PACKETS)
            self._kinds = sorted(self._packets)
        known.append(packet)

    @property
    def ready(self) -> bool:
        """Whether there is something to make packets of."""
        return bool(self._packets)

    def some_kinds(self) -> list[int]:
        """Some of the kinds of packets that were seen, or all of them."""
        kinds = self._kinds
        return (
            kinds
            if self._chance.random() < 0.3
            else self._chance.sample(kinds, min(len(kinds), self._chance.randint(1, 3)))
        )

    def packet(self, kinds: Sequence[int] = ()) -> Packet:
        """A packet with something wrong in it, from who sent the real one, mostly.

        Rare kinds are as frequent as others. Some packets are only old.
        """
        chance = self._chance
        real = chance.choice(self._packets[chance.choice(kinds or self._kinds)])
        sender = chance.choice(self._nodes) if chance.random() < 0.05 else real.sender
        return Packet(self._wrong(real.data), sender, network=real.network)

    def _wrong(self, data: bytes) -> bytes:
        way = self._chance.random()
        if way < 0.05:
            return data
        if way < 0.8:
            try:
                changed = self._rewrite(data, self._change_some)
                if len(changed) <= MAX_PACKET:
                    return changed
            except (Malformed, struct.error, OverflowError, TypeError, ValueError, AttributeError):
                pass  # it cannot be written down: then its bytes are changed
        return self._bent(data)

    # --- fields ---------------------------------------------------------------------------------

    def _change_some(self, packet: Any) -> Any:
        """One field changed mostly, sometimes a few."""
        if self._chance.random() < 0.1:
            self._note("", packet)
        for _ in range(1 if self._chance.random() < 0.7 else self._chance.randint(2, 4)):
            packet = self._changed(packet)
        return packet

    def _note(self, name: str, value: Any) -> None:
        """Keep what was seen in each field."""
        for inner, field in _fields(value):
            seen = self._values.get((inner, type(field)))
            if seen is None:
                seen = self._values[inner, type(field)] = deque(maxlen=MOST_VALUES)
            seen.append(field)
            if not isinstance(field, int | bytes | list):
                self._note(inner, field)

    def _changed(self, packet: Any) -> Any:
        """A copy with one of its fields changed, however deep it lies."""
        fields = [name for name, _ in _fields(packet)]
        if not fields:
            return packet
        name = self._chance.choice(fields)
        value = getattr(packet, name)
        other = copy(packet) if hasattr(packet, "__slots__") and not hasattr(packet, "_fields") else None
        new = self._value(name, value)
        if other is None:
            return packet._replace(**{name: new})
        setattr(other, name, new)
        return other

    def _value(self, name: str, value: Any) -> Any:
        chance = self._chance
        seen = self._values.get((name, type(value)))
        if seen and chance.random() < 0.25:
            return chance.choice(seen)
        if value is None:
            return None
        if isinstance(value, bool):
            return not value
        if isinstance(value, Enum):
            return chance.choice(list(type(value)))
        if isinstance(value, int):
            return self._number(value)
        if isinstance(value, bytes):
            return self._bent(value)
        if isinstance(value, list) or (isinstance(value, tuple) and not hasattr(value, "_fields")):
            items = list(value)
            if not name.endswith("[]"):
                return type(value)(self._items(name, items))
            at = chance.randrange(len(items))  # a pair: its form stays
            items[at] = self._value(f"{name}{at}", items[at])
            return type(value)(items)
        return self._changed(value)

    def _number(self, value: int) -> int:
        chance = self._chance
        match chance.randrange(6):
            case 0:
                return value + chance.choice((1, -1))
            case 1:
                return value + chance.choice((2, -2, 4, -4, 16, -16, 1000, -1000))
            case 2 | 3:
                return chance.choice(EDGES)
            case 4:
                return chance.choice(self._nodes)
        return int(value + chance.getrandbits(chance.choice((4, 8, 16, 32, 61))))

    def _items(self, name: str, items: list[Any]) -> list[Any]:
        """A list with one more, one less, one changed, or put together otherwise."""
        chance = self._chance
        way = chance.randrange(8)
        if not items or way == 0:
            numbers = [chance.choice(self._nodes), chance.choice(EDGES)]
            return [*items, chance.choice(items) if items else chance.choice(numbers)]
        at = chance.randrange(len(items))
        match way:
            case 1:
                del items[at]
            case 2:
                items = []
            case 3:
                items = [*items, items[at]]
            case 4:
                chance.shuffle(items)
            case 5:
                items = (items * 50)[:LONGEST_LIST]
            case 6:
                items = items[:at]
            case _:
                items[at] = self._value(f"{name}[]", items[at])
        return items

    # --- bytes ----------------------------------------------------------------------------------

    def _bent(self, data: bytes) -> bytes:
        """Bits flipped, bytes replaced, cut off, glued to others, or grown."""
        chance = self._chance
        changed = bytearray(data)
        match chance.randrange(7) if changed else 6:
            case 0:
                for _ in range(chance.randint(1, 3)):
                    changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
            case 1:
                changed[chance.randrange(len(changed))] = chance.choice((0, 1, 127, 128, 255))
            case 2:
                del changed[chance.randrange(len(changed)) :]
            case 3:
                other = chance.choice(self._packets[chance.choice(self._kinds)])[0] if self._kinds else b""
                at = chance.randrange(len(changed))
                changed = changed[:at] + other[at:]
            case 4:
                at = chance.randrange(len(changed))
                changed[at : at + 8] = struct.pack("<q", self._fitting())
            case 5:
                at = chance.randrange(len(changed))
                del changed[at : at + chance.randint(1, 12)]
            case _:
                changed += chance.randbytes(chance.choice((1, 2, 8, 40)))
        return bytes(changed[:MAX_PACKET])

    def _fitting(self) -> int:
        return max(-(2**63), min(2**63 - 1, self._chance.choice(EDGES)))


def _fields(value: Any) -> list[tuple[str, Any]]:
    """The fields of a packet, or of a part of one."""
    return [(name, getattr(value, name)) for name in _names(cast(Hashable, type(value)))]


@lru_cache(maxsize=256)
def _names(kind: Any) -> tuple[str, ...]:
    names: tuple[str, ...] | None = getattr(kind, "_fields", None)
    if names is None:
        names = () if issubclass(kind, int | bytes | str | list | tuple) else getattr(kind, "__slots__", ())
    return tuple(name for name in names or () if name not in DERIVED)
