"""A run that is still being written: the rows that something may come of yet, and what was found in it.

The reference judges these rows, again and again, with all of its properties; what is settled then is
forgotten (`settled`). A violation is told once it has stood for as long as rows may be under way that heal
it, such as the origination of a message that another node has delivered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from operator import itemgetter
from typing import NamedTuple

from ordercast.audit.explain import Violation, told_once
from ordercast.audit.files import has_one_clock, promises_by_name
from ordercast.audit.follow.ends import UnnamedEnds
from ordercast.audit.follow.forgotten import Forgotten
from ordercast.audit.follow.group_rows import current_views, of_members, same_so_far
from ordercast.audit.follow.settled import Settled, settled
from ordercast.audit.history import History, Identity
from ordercast.audit.properties import EXTENDED_VIRTUAL_SYNCHRONY, Promises, promised
from ordercast.core.identity import ConfigurationId, MessageId, NodeId
from ordercast.trace.columns import CONFIG_KIND, EVENT, INCARNATION, MEMBERS, NODE, STEP, TIME_US, message_of
from ordercast.trace.schema import About, Row

GIVE_UP_FACTOR = 20
"""How long others wait for a node whose rows stopped coming, as a multiple of `patience`."""

_MESSAGES = ("originate", "deliver", "group_deliver")
_LIVES = ("crash", "halt", "restart")
_COUNTED = frozenset(("submit", "stable", "packet_sent", "packet_received", "packet_dropped"))
"""Events whose rows are counted and not held: no property that is judged while the trace grows reads them."""


class Sign(NamedTuple):
    """What tells a violation from others, while more and more of it is seen."""

    property: str
    messages: tuple[MessageId, ...]
    configurations: tuple[ConfigurationId, ...]
    nodes: tuple[NodeId, ...]

    @classmethod
    def of(cls, found: Violation) -> Sign:
        """The sign of a violation: other nodes may come to be concerned by a message."""
        nodes = () if found.messages else found.nodes
        return cls(found.property, found.messages[:2], found.configurations, nodes)


class Window:
    """The rows of one run that are not settled."""

    def __init__(self, run: str, about: About, patience: float, checks: Promises | None = None) -> None:
        """`patience` is for how many seconds rows of one node may lack that another node's rows speak of.

        `checks` are what it is judged by; else what its files promise, or what is found in it.
        """
        self.run = run
        self.about = about
        self.events = 0
        self.counts: Counter[str] = Counter()
        """How often each property was broken."""
        self.rows: dict[NodeId, list[Row]] = {}
        self.forgotten = Forgotten()
        self.ends = UnnamedEnds()
        self.told: dict[tuple[str, NodeId | None], Violation] = {}
        """What was told, by property and culprit, with how often by now."""
        self.signs: dict[Sign, float] = {}
        """When each present violation was seen first; `_TOLD` instead for those that were told."""
        self.spoilt: set[ConfigurationId] = set()
        """Configurations in which something is wrong, and that was told."""
        self.left_behind: set[NodeId] = set()
        self.waited_for: dict[NodeId, ConfigurationId] = {}
        """Nodes whose rows others wait for, and the configuration that is held for that."""
        self.begun: dict[NodeId, int] = {}
        """By node the life whose beginning is forgotten."""
        self.last_us = 0
        """The latest time that a row has told."""
        self._patience = patience
        self._promises = checks or promises_by_name(run, about)
        self._contradictions: list[Violation] = []
        self._unseen: dict[NodeId, float] = {}
        self._absent: set[NodeId] = set()
        self._active: set[NodeId] = set()
        """Nodes with rows since the last judgement."""
        self._heard: dict[NodeId, float] = {}
        """By node, when its rows came last."""
        self._since: dict[ConfigurationId, float] = {}
        """By configuration, when a row first told of it."""

    @property
    def held(self) -> int:
        """Rows that are held."""
        return sum(map(len, self.rows.values()))

    @property
    def undecided(self) -> bool:
        """Whether something is to be judged again though no row has come."""
        untold = any(since != _TOLD for since in self.signs.values())
        return untold or bool(self._active or self.waited_for or self._unseen.keys() - self._absent)

    @property
    def promises(self) -> Promises:
        """What the run is judged by."""
        if self._promises is not None:
            return self._promises
        found = promised(row for rows in self.rows.values() for row in rows)
        if found is EXTENDED_VIRTUAL_SYNCHRONY:
            self._promises = found  # more rows cannot change that
        return found

    def add(self, rows: Iterable[Row]) -> None:
        """Take rows; those of one node in their order."""
        for row in rows:
            node = row[NODE]
            self.events += 1
            self._active.add(node)
            if row[EVENT] in _COUNTED or (node in self.left_behind and not self._caught_up(row)):
                continue
            if not self.forgotten.concerns(row):
                self.rows.setdefault(node, []).append(row)
                self.last_us = row[TIME_US]
            elif self.forgotten.comes_late(row):
                self.left_behind.add(node)
            else:
                contradiction = self.forgotten.contradiction(row, self.promises)
                if contradiction is not None:
                    self._contradictions.append(contradiction)

    def hold(self, rows: Iterable[Row]) -> None:
        """Hold rows that were held when what is known was stored."""
        for row in rows:
            self.rows.setdefault(row[NODE], []).append(row)
            self._active.add(row[NODE])

    @property
    def told_signs(self) -> list[Sign]:
        """The signs of what was told and is there still."""
        return [sign for sign, since in self.signs.items() if since == _TOLD]

    def remember(self, signs: Iterable[Sign]) -> None:
        """Do not tell of these again."""
        self.signs.update(dict.fromkeys(signs, _TOLD))

    def _caught_up(self, row: Row) -> bool:
        """Whether a node that was left behind begins a configuration that the others are in."""
        if row[EVENT] != "install" or row[CONFIG_KIND] != "regular" or self.forgotten.concerns(row):
            return False
        self.left_behind.discard(row[NODE])
        self.begun[row[NODE]] = row[INCARNATION]
        self.rows.pop(row[NODE], None)
        return True

    def give_way(self) -> None:
        """Wait no longer for anybody: there is no room. Who is left behind is judged from its next
        configuration on."""
        self.left_behind.update(self.waited_for)
        self._since = dict.fromkeys(self._since, _TOLD)

    # --- judging --------------------------------------------------------------------------------

    def judge(self, now: float, *, ended: bool = False) -> list[Violation]:
        """What is found to be broken and was not told before. `now` is in seconds, of any clock.

        With `ended` nothing more comes: what could have been healed is told, too.
        """
        promises = self.promises
        history: History = promises.history(
            [row for its in self.rows.values() for row in its],
            one_clock=has_one_clock(self.about),
            absent=self._look_for_absent(now, ended),
            begun=self.begun.items(),
        )
        found = [each for check in promises.values() for each in check(history)]
        given_up = self._give_up(history, now)
        ready = settled(history, self.left_behind, given_up, self.spoilt)
        found += same_so_far(history, ready.messages)
        confirmed = self._confirmed(found, now, ended)
        confirmed += [*self._contradictions, *self.ends.unnamed(history)]
        self._contradictions = []
        self._forget(history, ready, found)
        return self._told_of(confirmed)

    def _look_for_absent(self, now: float, ended: bool) -> set[NodeId]:
        """Members of which no row has come, for as long as rows may be under way."""
        installs = (row for its in self.rows.values() for row in its if row[EVENT] == "install")
        for node in {node for row in installs for node in row[MEMBERS] or ()}:
            if node in self.rows or node in self.forgotten.nodes:
                self._unseen.pop(node, None)
                self._absent.discard(node)
            elif ended or now - self._unseen.setdefault(node, now) >= self._patience:
                self._absent.add(node)
        return self._absent

    def _give_up(self, history: History, now: float) -> set[ConfigurationId]:
        """Wait no longer for those who have been silent for long while others went on.

        Answers with configurations that are so old that who has not come to them is not going to.
        """
        longest = GIVE_UP_FACTOR * self._patience
        self._since = {each: self._since.get(each, now) for each in history.installs}
        self._heard.update(dict.fromkeys(self._active, now))
        self._active.clear()
        for node in self.waited_for:
            if now - self._heard.setdefault(node, now) > longest:
                self.left_behind.add(node)
        return {each for each, since in self._since.items() if now - since > longest}

    def _confirmed(self, found: Sequence[Violation], now: float, ended: bool) -> list[Violation]:
        """Those that are certain, and were not before."""
        seen = {Sign.of(each): each for each in found}
        self.signs = {sign: self.signs.get(sign, now) for sign in seen}
        confirmed = []
        for sign, since in self.signs.items():
            if since != _TOLD and (ended or now - since >= self._patience):
                self.signs[sign] = _TOLD
                confirmed.append(seen[sign])
        return confirmed

    def _told_of(self, confirmed: Sequence[Violation]) -> list[Violation]:
        """Each culprit once; of one that was told before only how often is counted."""
        new = []
        by_property: dict[str, list[Violation]] = {}
        for each in confirmed:
            by_property.setdefault(each.property, []).append(each)
            self.spoilt.update(each.configurations)
        for code, violations in by_property.items():
            self.counts[code] += len(violations)
            for each in told_once(violations):
                known = self.told.get((code, each.culprit))
                times = each.times if known is None else known.times + each.times
                self.told[code, each.culprit] = replace(known or each, run=self.run, times=times)
                if known is None:
                    new.append(self.told[code, each.culprit])
        return new

    # --- forgetting -----------------------------------------------------------------------------

    def _forget(self, history: History, ready: Settled, found: Sequence[Violation]) -> None:
        """Forget what is settled, unless something is still to be told of it."""
        self.waited_for = ready.waited_for
        pending = [each for each in found if self.signs[Sign.of(each)] != _TOLD]
        if any(not each.messages for each in pending):
            return
        named: set[Identity] = {message for each in pending for message in each.messages}
        begins = {node: _begin(history, node, ready.closed, its) for node, its in self.rows.items()}
        kept = {node: _kept(its, begins[node], ready) for node, its in self.rows.items()}
        if named and _telling(self.rows, named) != _telling(kept, named):
            return
        self.forgotten.take(history, ready)
        self.spoilt -= ready.closed
        for node, begin in begins.items():
            if begin and kept[node]:
                self.begun[node] = kept[node][0][INCARNATION]
        self.rows = {node: its for node, its in kept.items() if its}


_TOLD = float("-inf")


def _begin(history: History, node: NodeId, closed: Set[ConfigurationId], rows: list[Row]) -> int:
    """The place of the first row of a node that is kept.

    It is the install of the first regular configuration that goes on, or what ended the last one.
    """
    stays = history.stays_of(node)
    first = next((at for at, stay in enumerate(stays) if stay.regular and stay.id not in closed), len(stays))
    if not first:
        return 0
    rows.sort(key=itemgetter(INCARNATION, STEP))
    installs = [at for at, row in enumerate(rows) if row[EVENT] == "install"]
    if first < len(installs):
        return installs[first]
    behind = range(len(rows) - 1, installs[-1], -1)
    return next((at for at in behind if rows[at][EVENT] in _LIVES), installs[-1])


def _kept(rows: list[Row], begin: int, ready: Settled) -> list[Row]:
    """The rows of a node, in order, without those that are settled."""
    gone = ready.messages
    dropped = [row[EVENT] in _MESSAGES and message_of(row) in gone for row in rows]
    backwards = range(len(rows) - 1, -1, -1)
    last = next((at for at in backwards if dropped[at] and rows[at][EVENT] == "deliver"), -1)
    upto = max(begin, last + 1)
    views = current_views(rows, upto)
    return [
        row
        for at, row in enumerate(rows)
        if at in views or (not dropped[at] and at >= (upto if of_members(row) else begin))
    ]


def _telling(rows: Mapping[NodeId, Sequence[Row]], named: Set[Identity]) -> int:
    """How many rows tell of these messages."""
    return sum(message_of(row) in named for its in rows.values() for row in its)
