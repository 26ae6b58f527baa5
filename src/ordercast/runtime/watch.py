"""What a node does at regular intervals: greet its peers, and look whether they are still there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ordercast.runtime.ending import EndingOnError
from ordercast.runtime.links import GREET_S, Links, Peer
from ordercast.runtime.probes import Probes

WATCH_S = 0.02
MISSED_US = 50_000
"""A token that has been away for this long makes a node look whether the others are still there."""


class Watch:
    """Greets and probes until it is closed."""

    def __init__(
        self,
        links: Links,
        guard: EndingOnError,
        token_away_us: Callable[[], int],
        on_gone: Callable[[Peer], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._links = links
        self._guard = guard
        self._token_away_us = token_away_us
        self._on_gone = on_gone
        self._probes = Probes()
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
            if self._token_away_us() >= MISSED_US:
                peers = {peer.token: peer for peer in self._links.targets}
                for address in self._probes.look(list(peers)):
                    self._on_gone(peers[address])
            elif self._probes:
                self._probes.clear()
        if not self._closed:
            self._looking = self._loop.call_later(WATCH_S, self._look)

    def close(self) -> None:
        """Greet and look no more."""
        self._closed = True
        self._probes.clear()
        for handle in (self._greeting, self._looking):
            if handle is not None:
                handle.cancel()
