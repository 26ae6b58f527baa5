"""Guarantee Vectors (001): a gateway speaks for the rings behind it, if somebody waits for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ordercast.rings.attached import AttachedRing
from ordercast.rings.messages import Vector


def due(rings: Iterable[AttachedRing], latest: int) -> Iterator[tuple[AttachedRing, Vector]]:
    """The vectors that a gateway has to send now, and on which of its rings.

    They say of each ring behind the gateway how much has come from it, and what all its members have. That is
    of use up to the `latest` timestamp that a message has, so nothing is sent on rings where all know that
    much. At most one vector of a gateway is on its way on a ring.
    """
    for ring in rings:
        for target, sources in ring.edges:
            if target.telling:
                continue
            entries = []
            wanted = False
            for i in sources:
                horizon, acknowledged = ring.horizon[i], ring.acknowledged[i]
                told_horizon, told_acknowledged = target.told.get(i, (0, 0))
                if horizon > told_horizon or acknowledged > told_acknowledged:
                    entries.append((i, horizon, acknowledged))
                    wanted |= horizon > told_horizon < latest or acknowledged > told_acknowledged < latest
            if wanted:
                target.told.update({i: (horizon, acknowledged) for i, horizon, acknowledged in entries})
                target.telling = True
                yield target, Vector(tuple(entries))
