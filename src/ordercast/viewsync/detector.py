"""Failure detectors (004 §4.1): who was heard lately, and who was not.

Every packet of a member is a sign of life, and heartbeats are sent by all. The *active* detector suspects a
member that is being waited for after an aggressive timeout, the *passive* one any member after a conservative
one. Suspicions may be wrong: who is heard again is not suspected any more.

RBP, and RMP after it, have others (`TrafficDetector`), which need no messages of their own: the active one
counts attempts without an answer, and the passive one watches whether the token is passed. Which ones begin a
change of view is the setting `detector`. Once a change has begun, everything is sent again at regular
intervals, and the times of `Detector` say who does not answer.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable

from ordercast.core.identity import NodeId
from ordercast.viewsync.config import GroupConfig
from ordercast.viewsync.contract import Orderer

LATELY = 16
"""Conservative timeouts for which is remembered, at least, how many attempts a member needed."""
SPARE = 2
"""For each attempt that it needed, a member gets so many more before it is suspected."""
MOST_SPARE = 8
"""Times `attempts` that it gets at most."""


class Detector:
    """Watches the other members of a view."""

    def __init__(self, config: GroupConfig) -> None:
        self._aggressive_us = config.aggressive_us
        self._conservative_us = config.conservative_us
        self._heard: dict[NodeId, int] = {}
        self._gone: set[NodeId] = set()
        self._elsewhere: dict[NodeId, int] = {}
        """When one that is watched was last heard in another group, or with a vote in a later view."""

    def watch(self, now_us: int, nodes: Iterable[NodeId]) -> None:
        """Watch these from now on, as if they had just been heard."""
        self._heard = dict.fromkeys(nodes, now_us)
        self._gone.clear()
        self._elsewhere.clear()

    def heard(self, now_us: int, node: NodeId) -> None:
        """Record that `node` was heard at `now_us`."""
        if node in self._heard:
            self._heard[node] = now_us
            self._gone.discard(node)

    def gone(self, node: NodeId) -> None:
        """Suspect `node` until it is heard again: there is reason to believe that its process has ended."""
        if node in self._heard:
            self._gone.add(node)

    @property
    def ended(self) -> list[NodeId]:
        """The nodes that are believed to be gone, in ascending order."""
        return sorted(self._gone)

    def elsewhere(self, now_us: int, node: NodeId) -> None:
        """Record that `node` was heard in another group, or with a vote in a later view of this one."""
        if node in self._heard:
            self._elsewhere[node] = now_us

    def away(self, now_us: int) -> list[NodeId]:
        """The nodes that were heard in another group, or voting in a later view, lately."""
        since_us = now_us - self._conservative_us
        return [node for node, heard_us in self._elsewhere.items() if heard_us >= since_us]

    def silent_us(self, now_us: int, node: NodeId) -> int:
        """Microseconds for which `node` has not been heard."""
        return now_us - self._heard.get(node, now_us)

    def active(self, now_us: int, waited_for: Collection[NodeId]) -> list[NodeId]:
        """The suspected nodes among those `waited_for`: silent for the aggressive timeout, or gone."""
        return self._silent(now_us, self._aggressive_us, waited_for)

    def passive(self, now_us: int) -> list[NodeId]:
        """The nodes that are suspected in any case: silent for the conservative timeout, or gone."""
        return self._silent(now_us, self._conservative_us, self._heard)

    def _silent(self, now_us: int, limit_us: int, nodes: Collection[NodeId]) -> list[NodeId]:
        return [
            node
            for node, heard_us in self._heard.items()
            if node in nodes and (node in self._gone or now_us - heard_us > limit_us)
        ]


class TrafficDetector:
    """The detectors of RBP (004 §3.2.1) and RMP (§3.3.1): they watch the order, and who answers."""

    def __init__(self, config: GroupConfig, orderer: Orderer) -> None:
        self._used = config.detector != "heartbeats"
        self._adaptive = config.detector == "adaptive"
        self._attempts = config.attempts
        self._limit_us = config.conservative_us + config.silence_us
        """A holder may keep the token for `silence_us`: the limit has to be beyond that (004 §4.1)."""
        self._lately_us = LATELY * config.conservative_us
        self._orderer = orderer
        self._activity: Hashable = None
        self._moved_us = 0
        self._needed: dict[NodeId, int] = {}
        """Most attempts after which a member answered, since `_since_us`; and before that."""
        self._needed_before: dict[NodeId, int] = {}
        self._since_us = 0

    def begin(self, now_us: int) -> None:
        """Another view, or token list, begins: the token is passed from its first member on."""
        self._orderer.unanswered.clear()
        self._activity, self._moved_us = None, now_us

    @property
    def watched(self) -> bool:
        """Whether the passive detector watches the token: it is to, and there is one to be passed."""
        return self._used and self._orderer.activity is not None

    def stands_still(self, now_us: int) -> bool:
        """Whether the token has not been passed for too long ("ActivityFailure", 004 Fig. 25, line 70)."""
        activity = self._orderer.activity
        if activity is None or activity != self._activity:
            self._activity, self._moved_us = activity, now_us
        return self._used and now_us - self._moved_us > self._limit_us

    def answered(self, now_us: int, node: NodeId) -> None:
        """Record that a packet of the order came from `node`."""
        needed = self._orderer.unanswered.pop(node, 0)
        if needed and self._adaptive:
            self._forget_old(now_us)
            self._needed[node] = max(needed, self._needed.get(node, 0))

    def given_up(self, node: NodeId) -> bool:
        """Whether `node` was tried too often without an answer ("A attempts", 002 §2)."""
        return self._orderer.unanswered.get(node, 0) >= self._attempts + self._spare(node)

    def _spare(self, node: NodeId) -> int:
        """How many more attempts `node` gets, since it needed several lately: the network loses packets."""
        needed = max(self._needed.get(node, 0), self._needed_before.get(node, 0))
        return min(SPARE * needed, MOST_SPARE * self._attempts)

    def _forget_old(self, now_us: int) -> None:
        """Forget what was needed longer ago than lately; at most once as often."""
        if now_us - self._since_us > self._lately_us:
            recent = now_us - self._since_us <= 2 * self._lately_us
            self._needed_before = self._needed if recent else {}
            self._needed, self._since_us = {}, now_us
