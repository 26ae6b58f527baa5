"""What a trace of the sequencer family tells, put in order once (004 §4.3.2).

It differs from a `History` of Totem in where a message's place is learnt: an origination has none yet, so the
deliveries tell. In each view the node that delivered most, of those that did not fail in it, gives the order;
whoever delivered a beginning of that has a plain ``range`` of numbers, and most properties hold at a glance.

A *stay* is one life's time in one view. A life *fails* in a view if it ends there: by `crash`, by `halt`, or
because another life of the node follows it. So does one that the next view leaves out: it is bound to halt
(004 §4.3.4), though it may not have heard of that when the trace ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple

from ordercast.audit.history import History, Identity, Message, Stay, check_whole
from ordercast.core.identity import ConfigurationId, Guarantee, NodeId
from ordercast.trace.columns import message_of
from ordercast.trace.schema import TraceError

_IDENTITY = slice(0, 3)
_VIEW = slice(3, 5)
_MESSAGE = slice(0, 8)
_copy = itemgetter(slice(9, 19))
_place = itemgetter(5, 6)


class Copy(NamedTuple):
    """What a row says of a message, by name: the facts of `Message`, its group and its size."""

    origin: NodeId
    incarnation: int
    number: int
    config_seq: int
    config_rep: NodeId
    seq: int
    slot: int
    guarantee: str
    group: str | None
    size: int

    @property
    def message(self) -> Message:
        """The message without what it carries."""
        return Message._make(self[:8])


class Differing(NamedTuple):
    """A delivery that says of its message something else than another row does."""

    stay: Stay
    said: Copy
    known: Copy


class Views(History):
    """A run of the sequencer family, in order: its messages, the lives of its nodes, and their stays in
    views."""

    safe_binds_members = False
    originated: dict[Identity, Copy]
    """Every message's origination, by the first of its rows."""
    differing: list[Differing]
    """Deliveries that do not say what the first delivery of the message says; `known` is that one."""
    misquoted: list[tuple[int, Copy]]
    """Messages, by number, of which the deliveries say something else than the origination, which is here."""

    def _arrange(self) -> None:
        self._gather_originations()
        self._copies: list[tuple[Any, ...]] = []
        for view in sorted(self.installs):
            self._number_view(view, self.installs[view])
        self.differing = []
        for stay in self.all_stays():
            if not stay.tidy:
                stay.delivered = self._number_one_by_one(stay)
        self._number([copy for copy in self.originated.values() if copy[:3] not in self.number])
        self.messages = [copy[_MESSAGE] for copy in self._copies]
        self._compare_with_originations()
        for stay in self.all_stays():
            stay.own = [self.number[message_of(row)] for row in stay.originations]

    def copy(self, number: int) -> Copy:
        """What is known of a message, by name."""
        return Copy._make(self._copies[number])

    # --- messages to numbers --------------------------------------------------------------------

    def _gather_originations(self) -> None:
        self.originated = {}
        for stay in self.all_stays():
            for copy in map(Copy._make, map(_copy, stay.originations)):
                if None in copy[:5] or copy.guarantee is None:
                    check_whole([copy._replace(seq=0, slot=0)[:8]])  # it has no place yet
                first = self.originated.setdefault(copy[:3], copy)
                if first is not copy:
                    self.originated_again.append((copy.message, first.message))

    def _number_view(self, view: ConfigurationId, stays: list[Stay]) -> None:
        """Number what was delivered in a view of its own messages: first all that its best witness has."""
        start = stop = len(self._copies)
        for stay in sorted(stays, key=lambda stay: (self.failed(stay), -len(stay.deliveries))):
            said = list(map(_copy, stay.deliveries))
            if stop == start:  # nothing is known of the view yet
                self._number_new(view, said)
                stop = len(self._copies)
            if len(said) <= stop - start and said == self._copies[start : start + len(said)]:
                stay.delivered = range(start, start + len(said))
            else:
                self._number_new(view, said)
        self.spans[view] = range(start, len(self._copies))

    def _number_new(self, view: ConfigurationId, said: Iterable[tuple[Any, ...]]) -> None:
        """Number messages of the view that have no number yet, in the order of their places."""
        new: dict[Identity, tuple[Any, ...]] = {}
        for copy in said:
            if copy[_VIEW] == view and copy[_IDENTITY] not in self.number:
                new.setdefault(copy[_IDENTITY], copy)
        check_whole(copy[_MESSAGE] for copy in new.values())
        self._number(sorted(new.values(), key=_place))

    def _number_one_by_one(self, stay: Stay) -> list[int]:
        """The numbers of deliveries that are not the beginning of the view's order."""
        numbers = []
        for said in map(_copy, stay.deliveries):
            if said[_IDENTITY] not in self.number:  # delivered outside its view only
                check_whole([said[_MESSAGE]])
                self._number([said])
            number = self.number[said[_IDENTITY]]
            numbers.append(number)
            if said != self._copies[number]:
                self.differing.append(Differing(stay, Copy._make(said), self.copy(number)))
        return numbers

    def _number(self, copies: Iterable[tuple[Any, ...]]) -> None:
        for copy in copies:
            self.number[copy[_IDENTITY]] = len(self._copies)
            self._copies.append(copy)

    def _compare_with_originations(self) -> None:
        self.misquoted = []
        for number, copy in enumerate(self._copies):
            first = self.originated.get(copy[_IDENTITY])
            if first is None:
                self.unoriginated.add(number)
            elif first[3:5] != copy[3:5] or first[7:] != copy[7:]:
                self.misquoted.append((number, first))

    # --- who fails, and what is excused ---------------------------------------------------------

    @cached_property
    def departures(self) -> dict[ConfigurationId, list[list[Stay]]]:
        """For each view that a node left: the stays by the view that followed, the most frequent first."""
        departures = {}
        for view, stays in self.installs.items():
            ways: dict[ConfigurationId, list[Stay]] = {}
            for stay in stays:
                if stay.next is not None:
                    ways.setdefault(stay.next.id, []).append(stay)
            if ways:
                departures[view] = sorted(ways.values(), key=lambda way: (-len(way), way[0].node))
        return departures

    def failed(self, stay: Stay) -> bool:
        """Whether the life ended in that view, or is bound to."""
        if stay.next is not None:
            return False
        if self.alive[stay.node] != stay.incarnation:
            return True
        departures = self.departures.get(stay.id)
        successor = departures[0][0].next if departures else None
        return successor is not None and stay.node not in successor.members

    @cached_property
    def lasting(self) -> frozenset[NodeId]:
        """Nodes of which something is expected at the end: see `Expectation`."""
        expected = self.expectation
        return frozenset(node for group in expected.components for node in group) if expected else frozenset()

    def lasts(self, stay: Stay) -> bool:
        """Whether the life is in that view at the end, and the end is one at which all should be done."""
        return stay.next is None and stay.node in self.lasting and not self.failed(stay)

    @cached_property
    def failures(self) -> dict[ConfigurationId, int]:
        """How many members of each view failed in it, or before they came to it."""
        failures = {}
        for view, stays in self.installs.items():
            its = {stay.node: stay for stay in stays}
            failures[view] = sum(
                self.failed(its[node]) if node in its else self._fell_before(node, view)
                for node in set(stays[0].members)
            )
        return failures

    def _fell_before(self, node: NodeId, view: ConfigurationId) -> bool:
        """Whether a life of that node ended that installed nothing from the view on.

        A trace does not tell which life of a member a view means; where several lives could be meant, or
        rows are missing, this takes it for one that ended, so that nothing right is called wrong.
        """
        lives = self.lives.get(node)
        if not lives or lives[0]:
            return True  # the beginning of its rows is missing
        further = {stay.incarnation for stay in self.stays[node] if stay.id.seq >= view.seq}
        return any(life != self.alive[node] and life not in further for life in lives)

    def excused(self, stay: Stay, guarantee: str) -> bool:
        """Whether so many failed in a view that messages of that level need not survive (004 §3.2.2).

        A level of k tolerates k - 1 failures. What all members had when it was delivered is never excused.
        """
        level = _level(guarantee, len(stay.members))
        return level < len(stay.members) and self.failures[stay.id] >= level

    def counted(self, stay: Stay) -> Sequence[int]:
        """What was delivered in a stay, without what a failed life delivered and nobody is bound by."""
        if not self.failed(stay) or not stay.delivered:
            return stay.delivered
        levels = {self._copies[number][7] for number in stay.delivered}
        excused = {guarantee for guarantee in levels if self.excused(stay, guarantee)}
        if not excused:
            return stay.delivered
        return [number for number in stay.delivered if self._copies[number][7] not in excused]


class TokenListViews(Views):
    """A run in which a level of resilience counts the members of a token list, as iRBP's do.

    Who is slow is taken off the list and stays a member of the view: nothing is promised of what it has (004
    §4.4.3: "the only thing we can do for the external processes is to allow them to be kept up-to-date"). The
    list holds a majority of the members at least, so that much survives fewer failures than a majority.
    """

    def excused(self, stay: Stay, guarantee: str) -> bool:
        """Whether so many failed in a view that messages of that level need not survive."""
        members = len(stay.members)
        level = min(_level(guarantee, members), Guarantee.AGREED.needed(members))
        return level < members and self.failures[stay.id] >= level


def _level(guarantee: str, members: int) -> int:
    try:
        return Guarantee(guarantee).needed(members)
    except ValueError as error:
        raise TraceError(
            f"{guarantee!r} is no guarantee: they are {', '.join(Guarantee)}. "
            "Write the trace with ordercast.trace."
        ) from error
