"""A replicated set of values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Generic, Self, overload

from ordercast.objects.merging import survivors
from ordercast.objects.values import V, Values
from ordercast.replicated.command import CallId, command
from ordercast.replicated.replicated import Replicated


class Set(Replicated, Generic[V]):
    """A set of values of one type, the same at every node that replicates it.

        seen = await node.replicate(Set(str), "seen")
        first_time = await seen.add("order 17")

    It is in the order in which its elements were added. `contains` and what changes it are linearisable;
    `local` is what this replica has, at once and perhaps stale: behind others' until `sync`.

    With ``partition="merge"`` an element stays that was added in any partition, unless one of those that knew
    of it has taken it out.
    """

    __slots__ = ("_values",)

    elements: dict[bytes, int]
    """Encoded, and the position at which each was added."""
    added: dict[bytes, CallId]
    """By which command, if histories are merged."""

    @overload
    def __init__(self, kind: type[V]) -> None: ...

    @overload
    def __init__(self, kind: Any = Any) -> None: ...

    def __init__(self, kind: Any = Any) -> None:
        self._values: Values[V] = Values("Set", kind)
        self.elements = {}
        self.added = {}

    async def add(self, element: V) -> bool:
        """Add an element; whether it was not there."""
        return await self.include(self._values.encode(element))

    async def discard(self, element: V) -> bool:
        """Take an element out; whether it was there."""
        return await self.exclude(self._values.encode(element))

    async def contains(self, element: V) -> bool:
        """Whether it is there; not older than this call."""
        await self.sync()
        return element in self.local

    @property
    def local(self) -> LocalSet[V]:
        """The set as this replica has it: read at once, and perhaps behind others' until `sync`."""
        return LocalSet(self)

    @command
    def include(self, element: bytes) -> bool:
        """Add an encoded element."""
        if element in self.elements:
            return False
        self.elements[element] = self.position
        if self.is_merged:
            self.added[element] = self.call_id
        self.tell(("add", element))
        return True

    @command
    def exclude(self, element: bytes) -> bool:
        """Take an encoded element out."""
        if self.elements.pop(element, None) is None:
            return False
        self.added.pop(element, None)
        self.tell(("discard", element))
        return True

    def merge(self, others: Sequence[Self]) -> None:
        """What was added in any partition stays, unless one that knew of it has taken it out."""
        states = [self, *others]
        kept = survivors(states, [each.added for each in states])
        self.elements = {
            element: min(states[put.state].elements[element] for put in puts)
            for element, puts in kept.items()
        }
        self.added = {element: max(put.by for put in puts) for element, puts in kept.items()}


class LocalSet(AbstractSet[V]):
    """A set as one replica has it: it changes as commands are carried out.

    Whoever iterates over it and awaits meanwhile takes a copy first.
    """

    def __init__(self, of: Set[V]) -> None:
        self._of = of  # whose elements are others when it gets the state of another replica

    def __contains__(self, element: object) -> bool:
        try:
            return self._of._values.encode(element) in self._of.elements  # type: ignore[arg-type]
        except TypeError:
            return False

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> set[Any]:
        return set(it)  # what comes of & and | is of nobody's state

    def __iter__(self) -> Iterator[V]:
        return map(self._of._values.decode, self._of.elements)

    def __len__(self) -> int:
        return len(self._of.elements)
