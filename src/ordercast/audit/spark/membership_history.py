"""A run without its messages: who was where, and what each stay comes to.

Configurations are few, so the driver has all of them, as the reference would: a `History` of the rows that
are no message's. What the passes say of stays is laid over it, and whatever does not fit is a reason to let
the reference judge the run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TypeAlias

from ordercast.audit.explain import Violation
from ordercast.audit.history import Stay
from ordercast.audit.membership import ends_misnamed
from ordercast.audit.properties import Promises
from ordercast.audit.spark.chunks import BITS, NOTHING, REGULAR, TRANSITIONAL
from ordercast.audit.spark.passes import LIFE, Fingerprint, Piece, Place
from ordercast.audit.spark.plans import OrderBreak, Ring, RunKey
from ordercast.audit.spark.stay_summaries import StaySummary, summaries_of
from ordercast.core.identity import ConfigurationId
from ordercast.draw.spacetime import Where
from ordercast.trace.columns import CONFIG_KIND, CONFIG_REP, CONFIG_SEQ, EVENT, INCARNATION, NODE, STEP
from ordercast.trace.schema import Row, TraceError

_PASSED_OVER = "packet_sent"
"""An event that says nothing of configurations: it stands for all rows of a life that are no install."""

_KINDS = {"regular": REGULAR, "transitional": TRANSITIONAL}
_WORDS = {number: word for word, number in _KINDS.items()}

At: TypeAlias = tuple[int, int, int | None, int | None, int]
"""A stay by node, life, configuration and kind."""


@dataclass(frozen=True)
class Doubt:
    """Why a run is not certified as it is."""

    why: str
    configurations: frozenset[ConfigurationId] = frozenset()
    """The configurations that it concerns; none: that cannot be told."""


@dataclass
class Run:
    """A run, as far as the passes tell of it."""

    key: RunKey
    name: str
    promises: Promises
    control: list[Row]
    pieces: list[Piece]
    whole: bool = True
    """Whether its beginning is there."""
    one_clock: bool = False
    """Whether one clock told the times of all its nodes."""
    summaries: list[StaySummary] = field(default_factory=list)
    scattered: bool = False
    """Whether rows of a stay do not lie as they happened, so that their order is not known yet."""
    doubts: list[Doubt] = field(default_factory=list)
    misnamed: list[Violation] = field(default_factory=list)
    """What its changes say wrongly of what they end: that takes no row of a message to tell."""
    too_early: list[tuple[ConfigurationId, int]] = field(default_factory=list)
    """Configurations in which a safe message was delivered at a time before all members had come."""
    delivered: dict[At, StaySummary] = field(default_factory=dict)
    """What was delivered in each stay in which something was."""
    originated: dict[At, StaySummary] = field(default_factory=dict)
    order_breaks: list[OrderBreak] = field(default_factory=list)
    """Stays in which something goes back."""
    tail: int = 0
    """Rows beyond the certified part, at which the reference looked."""
    cuts: dict[ConfigurationId, int] = field(default_factory=dict)
    """Up to which rank the order of a regular configuration is certified, where more is to be looked at."""

    def __post_init__(self) -> None:
        lives = [piece for piece in self.pieces if piece.kind == LIFE]
        self.events = sum(piece.delivered for piece in lives)
        if any(piece.bad for piece in lives):
            raise TraceError(
                f"run {self.name!r} has rows with an unknown event, or without node, incarnation, step or "
                "event: audit it with --engine reference, which names the file."
            )
        stays = [piece for piece in self.pieces if piece.kind != LIFE]
        self.summaries, breaks, self.scattered = summaries_of(self.key, stays)
        self.history = self.promises.history([*self.control, *_beginnings(lives)], whole=self.whole)
        self._lay_over()
        for each in breaks:
            self.goes_back(each)

    def doubt(self, why: str, *configurations: ConfigurationId | None) -> None:
        """Say why the run cannot be certified."""
        known = frozenset(each for each in configurations if each is not None)
        self.doubts.append(Doubt(why, known if len(known) == len(configurations) else frozenset()))

    def goes_back(self, found: OrderBreak) -> None:
        """Take note of a stay in which something does."""
        self.order_breaks.append(found)
        known = found.config_seq is not None and found.config_rep is not None
        here = ConfigurationId(found.config_seq or 0, found.config_rep or 0) if known else None
        self.doubt(f"node {found.node} goes back in its order", here)

    def look_at_ends(self) -> None:
        """What changes say of the configurations that they end (`config-ends`)."""
        self.misnamed = ends_misnamed(self.history, self.places)
        for found in self.misnamed:
            self.doubt(found.sentence, *found.configurations)

    def places(self, stay: Stay) -> tuple[int, int] | None:
        """The lowest and the highest sequence number delivered in a stay."""
        summary = self.deliveries(stay)
        if summary is None or summary.lowest is None or summary.highest is None:
            return None
        return summary.lowest >> BITS, summary.highest >> BITS

    @property
    def counted(self) -> dict[Where, int]:
        """How many messages were delivered in each stay, by what the rows of deliveries say."""
        return {
            (
                each.node,
                each.incarnation,
                each.config_seq,
                each.config_rep,
                _WORDS.get(each.kind),
            ): each.delivered
            for each in self.summaries
            if each.delivered
        }

    def ring(self, configuration: ConfigurationId) -> Ring:
        """A configuration as plans call it."""
        return (self.key, configuration.seq, configuration.rep)

    def place(self, configuration: ConfigurationId) -> Place:
        """A configuration as passes call it."""
        return (self.name, configuration.seq, configuration.rep)

    # --- stays ---------------------------------------------------------------------------------

    def deliveries(self, stay: Stay) -> StaySummary | None:
        """What was delivered in a stay."""
        return self.delivered.get(at(stay))

    def last(self, stay: Stay) -> int:
        """The rank of the last message delivered in a stay; `NOTHING` if there is none."""
        summary = self.deliveries(stay)
        return NOTHING if summary is None or summary.highest is None else summary.highest

    def originations(self, configuration: ConfigurationId) -> list[StaySummary]:
        """What was originated in a configuration, node by node."""
        return [
            summary
            for stay in self.history.installs.get(configuration, ())
            if (summary := self.originated.get(at(stay))) is not None
        ]

    @property
    def regular(self) -> dict[ConfigurationId, list[Stay]]:
        """The regular configurations, each with its stays."""
        return {each: stays for each, stays in self.history.installs.items() if stays[0].regular}

    def certified_up_to(self, stays: Sequence[Stay]) -> int:
        """The rank up to which all who went on from a configuration delivered its messages there.

        Where nobody went on, nobody owes anything: then it is the last that anybody delivered.
        """
        left = [self.last(stay) for stay in stays if stay.next is not None]
        return min(left) if left else max(map(self.last, stays), default=NOTHING)

    # --- laying the passes' numbers over the stays -----------------------------------------------

    def _lay_over(self) -> None:
        bounds = _bounds(self.control)
        if any(len(found) > 1 for found in bounds.values()):
            self.doubt("a life installed a configuration more than once")
        for summary in self.summaries:
            here = _configuration(summary)
            if summary.bad:
                self.doubt("rows lack a fact of their message, or contradict their place", here)
            stay = (summary.node, summary.incarnation, summary.config_seq, summary.config_rep, summary.kind)
            known = bounds.get(stay)
            if known is None or not known[0][0] < summary.first_step or not summary.last_step < known[0][1]:
                self.doubt("messages were delivered or originated outside the configuration they name", here)
                continue
            if summary.delivered:
                self.delivered[stay] = summary
            if summary.originated:
                self.originated[stay] = summary
        self._follow_lives()

    def _follow_lives(self) -> None:
        """Numbers of messages rise in each life of a node."""
        for stays in self.history.stays.values():
            numbers: dict[int, int] = {}
            for stay in stays:
                own = self.originated.get(at(stay))
                if own is None or own.first_number is None or own.last_number is None:
                    continue
                if own.first_number <= numbers.get(stay.incarnation, -1):
                    self.doubt("a number was given to two messages", stay.id)
                numbers[stay.incarnation] = own.last_number


def at(stay: Stay) -> At:
    """A stay as the passes call it."""
    return (stay.node, stay.incarnation, stay.id.seq, stay.id.rep, REGULAR if stay.regular else TRANSITIONAL)


def added(prints: Iterable[Fingerprint]) -> Fingerprint:
    """The fingerprint of several sets together."""
    total = Fingerprint()
    for each in prints:
        total = total + each
    return total


def _configuration(summary: StaySummary) -> ConfigurationId | None:
    if summary.config_seq is None or summary.config_rep is None:
        return None
    return ConfigurationId(summary.config_seq, summary.config_rep)


def _beginnings(lives: Iterable[Piece]) -> list[Row]:
    """For each life of a node a row where its rows begin: that it was there is all that it says."""
    first: dict[tuple[int, int], int] = {}
    for piece in lives:
        life = (piece.node, piece.incarnation)
        first[life] = min(first.get(life, piece.first_step), piece.first_step)
    nothing = (None,) * 21
    return [(node, life, step, 0, _PASSED_OVER, *nothing) for (node, life), step in first.items()]


def _bounds(control: Iterable[Row]) -> dict[At, list[tuple[float, float]]]:
    """Between which steps each stay lies: from its install to what next changes the node's state."""
    by_life: defaultdict[tuple[int, int], list[Row]] = defaultdict(list)
    for row in control:
        by_life[row[NODE], row[INCARNATION]].append(row)
    bounds: defaultdict[At, list[tuple[float, float]]] = defaultdict(list)
    for (node, life), rows in by_life.items():
        rows.sort(key=lambda row: row[STEP])
        for row, following in zip(rows, [*rows[1:], None], strict=True):
            kind = _KINDS.get(row[CONFIG_KIND] or "")
            if (
                row[EVENT] == "install"
                and row[CONFIG_SEQ] is not None
                and row[CONFIG_REP] is not None
                and kind is not None
            ):
                end = inf if following is None else following[STEP]
                bounds[node, life, row[CONFIG_SEQ], row[CONFIG_REP], kind].append((row[STEP], end))
    return bounds
