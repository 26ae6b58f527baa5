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
MISSED_US, IDLE_MISSED_US = 40_000, 230_000
"""A token that has been away for this long makes a node look whether the others are still there."""
UNHEARD_S = 0.15
"""Without a token, a peer that nothing came from for so long is looked after: it missed a heartbeat."""
GOLDEN = 0.618
"""Multiples of it differ as much as can be in what is behind the point."""
LATELY_US = 1_000_000
"""Without a token, a group that delivered something within this time has something to do."""


class ActivityMonitor:
    """When this node last heard of the group's work, and whose process may therefore have ended.

    Once tokens are expected, the token alone shows that the group is at work; else any packet does.
    """

    __slots__ = ("_delivered", "_interval_us", "_last", "_moved_us", "_now_us", "_seen_us", "_tokens")

    def __init__(self, now_us: Callable[[], int], delivered: Callable[[], int]) -> None:
        """`delivered` tells how many messages were delivered here, so far."""
        self._now_us = now_us
        self._delivered = delivered
        self._tokens = False
        self._seen_us = 0
        self._interval_us = 0
        """Between the last two signs of work."""
        self._last = 0
        self._moved_us = 0
        """When the count of delivered messages was last found to have risen."""

    def expect_tokens(self) -> None:
        """From now on `note` is called for tokens alone."""
        self._tokens = True

    def note(self, now_us: int) -> None:
        """A token came; or, where none are expected, any packet."""
        self._interval_us = now_us - self._seen_us
        self._seen_us = now_us

    @property
    def active(self) -> bool:
        """Whether the token came round quickly; without one, whether something was delivered lately, since
        heartbeats come without."""
        if self._tokens:
            return self._interval_us < ACTIVE_US
        return self._now_us() - self._moved_us < LATELY_US

    @property
    def _missed(self) -> bool:
        """Whether nothing has come for longer than it should take."""
        return self._now_us() - self._seen_us >= (MISSED_US if self.active else IDLE_MISSED_US)

    def suspects(self, links: Links) -> list[Peer]:
        """Whose process may have ended: anybody's, once nothing comes; without a token, also that of a peer
        which alone is silent for long."""
        if not self._tokens and (delivered := self._delivered()) != self._last:
            self._last, self._moved_us = delivered, self._now_us()
        if self._missed:
            return links.targets
        return [] if self._tokens else links.unheard(UNHEARD_S)


class PeerMonitor:
    """Greets and probes until it is closed."""

    def __init__(
        self,
        links: Links,
        guard: AbstractContextManager[None, bool],
        activity: ActivityMonitor,
        on_gone: Callable[[Peer], None],
        paths: Paths,
    ) -> None:
        self._paths = paths
        self._loop = asyncio.get_running_loop()
        self._links = links
        self._guard = guard
        self._activity = activity
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
            self._greeting = self._loop.call_at(self._next(GREET_S), self._greet)

    def _look(self) -> None:
        """Look at the peers' processes while no token comes."""
        with self._guard:
            peers = {peer.token: peer for peer in self._activity.suspects(self._links)}
            if peers:
                for address in self._probes.look(list(peers)):
                    self._on_gone(peers[address])
            elif self._probes:
                self._probes.clear()
            self._paths.look(self._links.targets)
        if not self._closed:
            soon = self._activity.active or bool(self._probes)
            self._looking = self._loop.call_at(self._next(LOOK_S if soon else IDLE_LOOK_S), self._look)

    def _next(self, every_s: float) -> float:
        """When to do that again: for all networks of a node at the same time, so that it wakes once for them,
        and at nodes of one host at different ones."""
        phase_s = self._links.node * GOLDEN % 1 * every_s
        return ((self._loop.time() - phase_s) // every_s + 1) * every_s + phase_s

    def close(self) -> None:
        """Greet and look no more."""
        self._closed = True
        self._probes.clear()
        for handle in (self._greeting, self._looking):
            if handle is not None:
                handle.cancel()
