"""Guarantee Vectors (001): a gateway speaks for the rings behind it, if somebody waits for them.

A vector is asked for when it is due, and written when the token comes: so it says what is known then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ordercast.rings.attached import AttachedRing
from ordercast.rings.messages import Vector


def due(rings: Iterable[AttachedRing], latest: int) -> Iterator[AttachedRing]:
    """The rings on which a gateway has to send a vector, and has not been asked to yet.

    Vectors are of use up to the `latest` timestamp that a message has, so none is sent on rings where all
    know that much.
    """
    for ring in rings:
        for target, sources, _ in ring.edges:
            if target.outbox.vector is None and any(
                ring.horizon[i] > horizon < latest or ring.acknowledged[i] > acknowledged < latest
                for i in sources
                for horizon, acknowledged in (target.told.get(i, (0, 0)),)
            ):
                yield target


def written(rings: Iterable[AttachedRing], target: AttachedRing) -> Vector:
    """The vector that a gateway sends on a ring.

    It says of each ring behind the gateway how much has come from it, and what all its members have, where
    that is more than the gateway told before.
    """
    known = {
        i: (ring.horizon[i], ring.acknowledged[i])
        for ring in rings
        for to, sources, _ in ring.edges
        if to is target
        for i in sorted(sources)
    }
    news = {i: now for i, now in known.items() if now != target.told.get(i, (0, 0))}
    target.told.update(news)
    return Vector(tuple((i, horizon, acknowledged) for i, (horizon, acknowledged) in news.items()))
