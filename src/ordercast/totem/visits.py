"""Which members the token visits more often than others (000 §8), where a ring is set to that.

A *schedule* is one cycle of the token: the plain ring, with further visits of some members in between. Each
member has one visit in a cycle that is not such an extra one, in the order of the ring, and everything that
counts rotations counts these alone. At an extra visit a member answers requests and broadcasts, and that is
all: see docs/decisions/weighted-visits.md.

A schedule is written as places on the ring: ``2`` is the member at place 2, ``~2`` an extra visit to it. The
empty one is the plain ring.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from ordercast.core.identity import NodeId

Visits = tuple[int, ...]
Rule = Literal["equal", "square-root", "proportional"]

PLAIN: Visits = ()
EXPONENTS: Mapping[Rule, float] = {"equal": 0.0, "square-root": 0.5, "proportional": 1.0}
"""How often a member is visited: its rate to this power."""
MOST_VISITS = 16
"""Most visits of one member in a cycle."""
LONGEST = 4
"""A cycle is no longer than so many rotations: what waits for whole cycles waits for so long."""
MOST_RATE = 2**32 - 1
"""Most messages a second that a member says of itself."""
GAIN = 0.9
"""Another schedule is taken where the expected wait is at most this part of what it is now: rates are only
measured, and each change costs a little."""


def place_of(visit: int) -> int:
    """The place on the ring of who is visited."""
    return visit if visit >= 0 else ~visit


def is_schedule(visits: Sequence[int], members: int) -> bool:
    """Whether a ring of so many members can have this schedule."""
    places = [place_of(visit) for visit in visits]
    return (
        members < len(visits) <= LONGEST * members
        and [visit for visit in visits if visit >= 0] == list(range(members))
        and visits[0] == 0
        and max(places) < members
        and all(places[index - 1] != place for index, place in enumerate(places))
    )


def schedule(rates: Sequence[float], rule: Rule) -> Visits:
    """The schedule for members that broadcast so much; the plain one for rates that are about the same."""
    exponent, highest = EXPONENTS[rule], max(rates)
    if not exponent or highest <= 0:
        return PLAIN
    unit = max(min(rates), highest / MOST_VISITS ** (1 / exponent))
    while True:
        visits = spread([max(1, round((rate / unit) ** exponent)) for rate in rates])
        if len(visits) <= LONGEST * len(rates):
            return visits
        unit *= 1.5


def spread(times: Sequence[int]) -> Visits:
    """A cycle in which the member at each place is visited so often, as evenly as that goes.

    Two visits of a member in succession are one.
    """
    size = len(times)
    extra = [
        ((place / size + turn / count) % 1.0, ~place)
        for place, count in enumerate(times)
        for turn in range(1, count)
    ]
    due = sorted([(place / size, place) for place in range(size)] + extra)
    visits = [visit for _, visit in due]
    first = visits.index(0)
    visits = visits[first:] + visits[:first]
    index = 0
    while index < len(visits):  # an extra visit right behind or before another of the same member is left out
        beside = place_of(visits[index - 1]), place_of(visits[(index + 1) % len(visits)])
        if visits[index] < 0 and ~visits[index] in beside:
            del visits[index]
            index = max(0, index - 1)
        else:
            index += 1
    return tuple(visits) if len(visits) > size else PLAIN


def expected_wait(visits: Visits, rates: Sequence[float]) -> float:
    """How many hops a message waits for the token, on average over all messages; 0 without any."""
    places = [place_of(visit) for visit in visits] or list(range(len(rates)))
    length, total = len(places), sum(rates)
    waited = 0.0
    for place, rate in enumerate(rates):
        stops = [index for index, other in enumerate(places) if other == place]
        gaps = [
            (stop - before - 1) % length + 1 for before, stop in zip(stops[-1:] + stops, stops, strict=False)
        ]
        waited += rate * sum(gap * gap for gap in gaps) / (2 * length)
    return waited / total if total else 0.0


class Turn(NamedTuple):
    """One visit of a cycle, as the member that is visited knows it."""

    counts: bool
    """Whether what counts rotations counts it: it is no extra visit."""
    number: int
    """Which of the member's visits in a cycle it is, from 0."""
    predecessor: NodeId
    """From whom the token comes,"""
    successor: NodeId
    """and who is next."""


class Cycle:
    """A schedule, as one member sees it."""

    def __init__(self, visits: Visits, members: tuple[NodeId, ...], place: int) -> None:
        self.visits = visits
        """Empty on a plain ring."""
        order = [members[place_of(visit)] for visit in visits] or list(members)
        me = members[place]
        mine = [index for index, node in enumerate(order) if node == me]
        self.length = len(order)
        """Hops of a cycle."""
        self.turns = {
            index: Turn(
                visits[index] >= 0 if visits else True,
                number,
                order[index - 1],
                order[(index + 1) % len(order)],
            )
            for number, index in enumerate(mine)
        }
        """The visits of this cycle to this member, by their positions in the cycle."""
        self.plain_turn = self.turns[mine[0]]
        self.times = [order.count(node) for node in members] if visits else []
        """How often it visits each member; empty on a plain ring, which visits each once."""


class Rates:
    """How many messages each member broadcasts a second, counted where they are delivered."""

    def __init__(self, span_us: int) -> None:
        """They are measured over so long, and each measurement counts as much as all before it."""
        self._span_us = span_us
        self._since_us = 0
        self._counts: dict[NodeId, int] = {}
        self._rates: dict[NodeId, float] = {}

    def begin(self, now_us: int, members: Sequence[NodeId], told: Sequence[float]) -> None:
        """A ring was installed, whose members told their rates as it was formed."""
        self._since_us = now_us
        self._counts = dict.fromkeys(members, 0)
        self._rates = dict(zip(members, told, strict=True))

    def count(self, origin: NodeId, messages: int) -> None:
        """Count messages of a member that were delivered."""
        self._counts[origin] = self._counts.get(origin, 0) + messages

    def measured(self, now_us: int) -> bool:
        """Whether there are new rates."""
        took_us = now_us - self._since_us
        if took_us < self._span_us:
            return False
        for node, count in self._counts.items():
            self._rates[node] = (self._rates.get(node, 0.0) + count * 1e6 / took_us) / 2
            self._counts[node] = 0
        self._since_us = now_us
        return True

    def of(self, node: NodeId) -> float:
        """Messages a second."""
        return self._rates.get(node, 0.0)


class Scheduling:
    """Which schedule a ring has that this node represents, by the rates of its members."""

    def __init__(self, rule: Rule, span_us: int) -> None:
        """Rates are measured over so long."""
        self._rule: Rule = rule
        self.rates = None if rule == "equal" else Rates(span_us)
        self._planned: Visits = PLAIN
        """What the Commit token said that the ring begins with."""

    def rate_of(self, node: NodeId) -> int:
        """What a Commit token says of a member: messages a second, 0 where nobody measures."""
        return 0 if self.rates is None else min(round(self.rates.of(node)), MOST_RATE)

    def plan(self, rates: Sequence[float]) -> Visits:
        """The schedule that a ring begins with, whose members tell these rates as it is formed."""
        return self._worthwhile(PLAIN, rates)

    def begin(self, now_us: int, members: Sequence[NodeId], rates: Sequence[float], planned: Visits) -> None:
        """A ring was installed, of which the Commit token said this."""
        self._planned = planned
        if self.rates is not None:
            self.rates.begin(now_us, members, rates)

    def rotation(self, now_us: int, present: Visits, members: Sequence[NodeId], may_change: bool) -> Visits:
        """A rotation has ended: the schedule of the next one, which is the `present` one unless this node is
        the one who `may_change` it."""
        measured = self.rates is not None and self.rates.measured(now_us)
        if not may_change:
            return present
        if self._planned:
            planned, self._planned = self._planned, PLAIN
            return planned
        return self._worthwhile(present, list(map(self.rate_of, members))) if measured else present

    def _worthwhile(self, present: Visits, rates: Sequence[float]) -> Visits:
        found = schedule(rates, self._rule)
        if expected_wait(found, rates) <= GAIN * expected_wait(present, rates) > 0:
            return found
        return present
