"""What the rules of a protocol may have, beside what all have (`ordercast.sequencers.member.Rules`).

Rules are asked whether they have it, so this module is not compiled (docs/building.md): a class would have to
derive from a compiled `Protocol` to be known as one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol, TypeAlias, runtime_checkable

from ordercast.core.contract import Effect
from ordercast.core.identity import Guarantee
from ordercast.sequencers.order import Order
from ordercast.sequencers.packets import AnyPacket

Decode: TypeAlias = Callable[[bytes], AnyPacket]
"""Takes a packet apart, or raises `Malformed`."""


@runtime_checkable
class HasTokenList(Protocol):
    """Rules of a protocol with a token list, which can change within a view."""

    @property
    def AT_LEAST(self) -> Guarantee:  # noqa: N802
        """The level of resilience to which lower ones are raised."""

    @property
    def hop(self) -> int:
        """How often the token was passed as far as is known here."""

    def turn(self, order: Order, effects: list[Effect]) -> None:
        """Another token list of the same view begins; the order goes on behind what was settled."""


@runtime_checkable
class ShowsActivity(Protocol):
    """Rules of a protocol in which whoever orders is heard from time to time, also without messages."""

    @property
    def activity(self) -> Hashable:
        """Changes at least every `silence_us` if others order; None if only this member does."""


@runtime_checkable
class Reads(Protocol):
    """Rules that know what is in some packets without taking them apart."""

    def read(self, order: Order, kind: int, data: bytes, decode: Decode) -> AnyPacket:
        """What is in a packet, or `Malformed`; mostly what `decode` makes of it."""
