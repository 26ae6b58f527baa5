"""What an application says of a message that it sends, checked and put into the form that is sent."""

from __future__ import annotations

from collections.abc import Mapping

from ordercast.core.headers import head_of
from ordercast.core.identity import Guarantee
from ordercast.core.protocol import Protocol
from ordercast.errors import ConfigProblem
from ordercast.process_groups.notes import head


def level(protocol: Protocol, safe: bool, resilience: int) -> Guarantee:
    """The guarantee that is a level of resilience."""
    if not protocol.levels:
        raise ConfigProblem(
            f"resilience is {resilience}, but {protocol.name} has no levels of resilience: ask for "
            "safe delivery, or run a protocol that has them; `ordercast protocols` tells which do"
        )
    if safe:
        raise ValueError(f"safe and resilience={resilience} are both given: safe waits for all, choose one")
    return Guarantee.of(resilience)


def not_bytes(payload: object) -> TypeError:
    """What who sends something else is told."""
    advice = "encode it, as in text.encode()" if isinstance(payload, str) else "encode it first"
    return TypeError(f"a message is bytes, not {type(payload).__name__}: {advice}")


def with_head(payload: bytes, key: str | None, headers: Mapping[str, str] | None) -> tuple[bytes, bool]:
    """A message with what is said beside it in front, and whether anything is."""
    words = head_of(key, headers)
    if words is None:
        return payload, False
    try:
        return head(words) + payload, True
    except TypeError:
        raise not_bytes(payload) from None
