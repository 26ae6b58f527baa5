"""What a mutant is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mutant:
    """One defect, made by replacing one attribute of a class or module."""

    name: str
    protocol: str
    area: str
    """Ordering, packing, flow control, membership, recovery or persistence."""
    breaks: str
    """What the defect is, in a sentence."""
    place: Any
    """The class or module in which something is replaced."""
    attribute: str
    wrong: Callable[[Any], Any]
    """Given the right attribute, the wrong one."""

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The defect is in the protocol while this lasts."""
        right = self.place.__dict__[self.attribute]
        setattr(self.place, self.attribute, self.wrong(right))
        try:
            yield
        finally:
            setattr(self.place, self.attribute, right)
