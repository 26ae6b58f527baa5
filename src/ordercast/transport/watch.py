"""What a node does at regular intervals: greet its peers, and look whether they are still there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager

from ordercast.transport.links import GREET_S, Links
from ordercast.transport.paths import Paths
from ordercast.transport.peers import Peer
from ordercast.transport.probes import LivenessProbes

ACTIVE_US = 50_000
"""A ring whose token came round in less time has something to do."""
LOOK_S, IDLE_LOOK_S = 0.02, 0.2
"""How often a node looks where the token is, on a ring that has something to do and on one that has not."""
MISSED_US, IDLE_MISSED_US = 40_000, 150_000
"""A token that has been away for this long makes a node look whether the others are still there."""


UNHEARD_S = 0.15
"""Without a token, a peer that nothing came from for so long is looked after: it missed a heartbeat."""
LATELY_US = 1_000_000
"""Without a token, a group that delivered something within this time has something to do."""


class Sightings:
    """When the token came."""

    __slots__ = ("_now_us", "interval_us", "seen_us")

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self.seen_us = 0
        self.interval_us = 0
        """Between the last two."""

    def note(self, now_us: int) -> None:
        """It is here."""
        self.interval_us = now_us - self.seen_us
        self.seen_us = now_us

    @property
    def active(self) -> bool:
        """Whether it went round quickly."""
        return self.interval_us < ACTIVE_US

    @property
    def missed(self) -> bool:
        """Whether it stays away for longer than it should."""
        return self._now_us() - self.seen_us >= (MISSED_US if self.active else IDLE_MISSED_US)

    def suspects(self, links: Links) -> list[Peer]:
        """Whose process may have ended: anybody's, once the token stays away."""
        return links.targets if self.missed else []


class Signs(Sightings):
    """When anything came, where there is no token to be seen."""

    __slots__ = ("_delivered", "_last", "_moved_us")

    def __init__(self, now_us: Callable[[], int], delivered: Callable[[], int]) -> None:
        """`delivered` tells how many messages were, so far."""
        super().__init__(now_us)
        self._delivered = delivered
        self._last = 0
        self._moved_us = 0

    @property
    def active(self) -> bool:
        """Whether something was delivered lately: heartbeats come without."""
        return self._now_us() - self._moved_us < LATELY_US

    def suspects(self, links: Links) -> list[Peer]:
        """Whose process may have ended: anybody's, once all are silent; else whoever is silent for long."""
        if (delivered := self._delivered()) != self._last:
            self._last, self._moved_us = delivered, self._now_us()
        return super().suspects(links) or links.unheard(UNHEARD_S)


class Watch:
    """Greets and probes until it is closed."""

    def __init__(
        self,
        links: Links,
        guard: AbstractContextManager[None],
        sightings: Sightings,
        on_gone: Callable[[Peer], None],
        paths: Paths,
    ) -> None:
        self._paths = paths
        self._loop = asyncio.get_running_loop()
        self._links = links
        self._guard = guard
        self._sightings = sightings
        self._on_gone = on_gone
        self._probes = LivenessProbes()
        self._closed = False
        self._greeting: asyncio.TimerHandle | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._greet()
        self._look()

    def _greet(self) -> None:
        with self._guard:
            self._links.greet()
        if not self._closed:
            self._greeting = self._loop.call_later(GREET_S, self._greet)

    def _look(self) -> None:
        """Look at the peers' processes while no token comes."""
        with self._guard:
            peers = {peer.token: peer for peer in self._sightings.suspects(self._links)}
            if peers:
                for address in self._probes.look(list(peers)):
                    self._on_gone(peers[address])
            elif self._probes:
                self._probes.clear()
            self._paths.look(self._links.targets)
        if not self._closed:
            soon = self._sightings.active or bool(self._probes)
            self._looking = self._loop.call_later(LOOK_S if soon else IDLE_LOOK_S, self._look)

    def close(self) -> None:
        """Greet and look no more."""
        self._closed = True
        self._probes.clear()
        for handle in (self._greeting, self._looking):
            if handle is not None:
                handle.cancel()
