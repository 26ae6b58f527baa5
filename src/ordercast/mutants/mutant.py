"""What a mutant is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from ordercast.mutants.shown_by import SHOWN_BY


@dataclass(frozen=True)
class Mutant:
    """One defect, made by replacing one attribute of a class or module."""

    name: str
    protocol: str
    """The one with which it is hunted."""
    area: str
    """The part of the protocol that is wrong: ordering, recovery, consensus, …"""
    breaks: str
    """What the defect is, in a sentence."""
    place: Any
    """The class or module in which something is replaced."""
    attribute: str
    wrong: Callable[[Any], Any]
    """Given the right attribute, the wrong one."""
    shown_by: int = 0
    """A seed that shows it, tried first: the hunt need not pass all the harmless ones before it."""

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The defect is in the protocol while this lasts."""
        right = self.place.__dict__[self.attribute]
        setattr(self.place, self.attribute, self.wrong(right))
        try:
            yield
        finally:
            setattr(self.place, self.attribute, right)


Wrong = Callable[[Any], Any]


class Register(Protocol):
    """Makes the decorator of one mutant."""

    def __call__(
        self, protocol: str, area: str, place: Any, attribute: str, breaks: str
    ) -> Callable[[Wrong], Wrong]:
        """Told is what `Mutant` has, but for its name and the wrong attribute."""


def register(mutants: list[Mutant]) -> Register:
    """A decorator for what makes the wrong attribute out of the right one; its name names the mutant."""

    def mutant(protocol: str, area: str, place: Any, attribute: str, breaks: str) -> Callable[[Wrong], Wrong]:
        def add(wrong: Wrong) -> Wrong:
            name = wrong.__name__.strip("_").replace("_", "-")
            seed = SHOWN_BY.get(name, 0)
            mutants.append(Mutant(name, protocol, area, breaks, place, attribute, wrong, seed))
            return wrong

        return add

    return mutant
