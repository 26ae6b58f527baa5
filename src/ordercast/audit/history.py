"""What a trace tells, put in order once, so that every property can be read off it.

The rows become *stays* (a node's time in one configuration) and *messages* (numbered in the order of
their configurations and of their positions in them). A stay's deliveries are then a run of small
integers, and a node that did everything right in a regular configuration delivered a plain ``range``
of them: most properties hold for such a stay at a glance, which is what makes the audit quick.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import eq, itemgetter
from typing import Any, ClassVar, NamedTuple, TypeAlias

from ordercast.audit.process_stories import ProcessStories
from ordercast.audit.stay_order import ascends, heard_before
from ordercast.core.identity import ConfigurationId, Ended, MessageId, NodeId
from ordercast.trace.columns import (
    CONFIG_KIND,
    CONFIG_REP,
    CONFIG_SEQ,
    ENDED_CONFIG_REP,
    ENDED_CONFIG_SEQ,
    ENDED_PLACE,
    EVENT,
    INCARNATION,
    MEMBERS,
    NODE,
    ORIGIN,
    ORIGIN_CONFIG_REP,
    ORIGIN_CONFIG_SEQ,
    ORIGIN_INCARNATION,
    SEQ,
    STEP,
    TIME_US,
    facts_of,
    message_of,
    origin_configuration_of,
)
from ordercast.trace.schema import GROUP_EVENTS, Row, TraceError

Facts: TypeAlias = tuple[Any, ...]
"""What a row says of a message: the columns ``origin`` to ``guarantee``. See `Message` for the names."""

Identity: TypeAlias = tuple[Any, ...]
"""The first three of them: what makes a message the same message."""

_OF_GROUPS = frozenset(GROUP_EVENTS)
_IDENTITY = slice(0, 3)
_CONFIGURATION = slice(3, 5)
_PLACE = itemgetter(3, 4, 5, 6)


class Message(NamedTuple):
    """The facts of a message, by name."""

    origin: NodeId
    incarnation: int
    number: int
    config_seq: int
    config_rep: NodeId
    seq: int | None
    """None, and so is `slot`, where the place is not known when it is originated, and nobody delivered it."""
    slot: int | None
    guarantee: str

    @property
    def id(self) -> MessageId:
        """The message's identifier: who originated it, in which life, and its number in that life."""
        return MessageId(self.origin, self.incarnation, self.number)

    @property
    def configuration(self) -> ConfigurationId:
        """The regular configuration it was originated in."""
        return ConfigurationId(self.config_seq, self.config_rep)

    @property
    def position(self) -> tuple[int | None, int | None]:
        """The message's place in the order of its configuration."""
        return (self.seq, self.slot)


class Stay:
    """A node's time in one configuration: from its install to the next one, or to the life's end."""

    __slots__ = (
        "after",
        "delivered",
        "deliveries",
        "ended",
        "id",
        "incarnation",
        "members",
        "next",
        "node",
        "originations",
        "own",
        "previous",
        "regular",
        "time_us",
    )

    def __init__(self, row: Row, previous: Stay | None) -> None:
        seq, rep, kind, members = row[CONFIG_SEQ], row[CONFIG_REP], row[CONFIG_KIND], row[MEMBERS]
        if seq is None or rep is None or members is None or kind not in ("regular", "transitional"):
            raise TraceError(
                f"node {row[NODE]}, step {row[STEP]}: an install needs config_seq, config_rep, config_kind "
                "and members: write the trace with ordercast.trace."
            )
        self.node = row[NODE]
        self.incarnation = row[INCARNATION]
        self.time_us = row[TIME_US]
        self.id = ConfigurationId(seq, rep)
        self.regular = kind == "regular"
        self.members = tuple(sorted(members))
        self.ended = _ended(row)
        """What its install says that it ends; None if it says nothing."""
        self.previous = previous
        """The stay before it in the same life."""
        self.next: Stay | None = None
        """The stay after it in the same life."""
        if previous is not None:
            previous.next = self
        self.deliveries: list[Row] = []
        self.delivered: Sequence[int] = ()
        """What was delivered, by number: a `range` if it is the beginning of the configuration's order."""
        self.originations: list[Row] = []
        self.after: list[int] = []
        """After how many deliveries each of these came."""
        self.own: list[int] = []
        """What was originated, by number."""

    @property
    def tidy(self) -> bool:
        """Whether the stay is regular and delivers exactly the beginning of its configuration's order."""
        return isinstance(self.delivered, range)

    @property
    def source(self) -> ConfigurationId | None:
        """The regular configuration whose messages may be delivered here: this one, or the last."""
        if self.regular:
            return self.id
        before = self.previous
        return before.id if before is not None and before.regular else None

    def places(self) -> tuple[int, int] | None:
        """The lowest and the highest sequence number delivered here of that one's order; None: none was."""
        if self.tidy and self.deliveries:
            return self.deliveries[0][SEQ] or 0, self.deliveries[-1][SEQ] or 0
        found = [row[SEQ] or 0 for row in self.deliveries if origin_configuration_of(row) == self.source]
        return (min(found), max(found)) if found else None

    def until_next_regular(self) -> tuple[list[Stay], bool]:
        """This stay and the transitional ones behind it, and whether a regular one follows them.

        What a node owes to a configuration it owes within these, and only if a regular one follows:
        otherwise its life or the trace ended first.
        """
        stays, stay = [self], self.next
        while stay is not None and not stay.regular:
            stays.append(stay)
            stay = stay.next
        return stays, stay is not None


class Claim(NamedTuple):
    """A delivery that says of its message something else than its origination."""

    stay: Stay
    said: Message
    known: Message


class Odd(NamedTuple):
    """A row that does not fit the state of the node it happened at."""

    node: NodeId
    incarnation: int
    message: Message
    says: ConfigurationId | None
    here: ConfigurationId | None
    """The configuration the node installed last; None: none in this life."""
    kind: str | None


@dataclass(frozen=True)
class Expectation:
    """What only the one who made the run knows, and no trace tells: how the run has to end."""

    components: Sequence[Set[NodeId]]
    """Nodes that are up at the end, by who reaches whom: each must end as one regular configuration."""
    quiet_since_us: int | None = None
    """When the last fault ended."""
    bound_us: int | None = None
    """How long after that the last configuration may be installed."""


class History:
    """A run, in order: its messages, the lives of its nodes, and their stays in configurations."""

    safe_binds_members: ClassVar[bool] = True
    """Whether a safe message that one delivers tells something of every member of its configuration."""

    def __init__(
        self,
        rows: Iterable[Row],
        expectation: Expectation | None = None,
        *,
        whole: bool = True,
        one_clock: bool = False,
        absent: Collection[NodeId] | None = None,
        begun: Collection[tuple[NodeId, int]] = (),
    ) -> None:
        """Without `whole`, rows are missing: beginnings of nodes, or all rows of some messages.

        `absent` are nodes that are known to have no row; if it is not said, members that have none here, of
        a run that is whole. `begun` are lives of which earlier stays are missing, and what was done in them.
        With `one_clock`, times of different nodes may be compared: what has a later time happened later.
        """
        self.expectation = expectation
        self.whole = whole
        self.one_clock = one_clock
        self.begun = frozenset(begun)
        self.events = 0
        self.stays: dict[NodeId, list[Stay]] = {}
        """Every node's stays, over all its lives."""
        self.alive: dict[NodeId, int | None] = {}
        """The life in which each node reached the trace's end; None if that life had ended."""
        self.lives: dict[NodeId, list[int]] = {}
        """Every life of each node, in order."""
        self.risen: list[Stay] = []
        """Stays that began after the end of their life."""
        self.submitted: list[Row] = []
        self.group_rows: list[Row] = []
        """What processes did and were told, where there are process groups."""
        self.deliveries_astray: list[Odd] = []
        """Deliveries outside the configuration they name."""
        self.originations_astray: list[Odd] = []
        """Originations by another node or life, or in another configuration, than they say."""
        self.originated_again: list[tuple[Message, Message]] = []
        """Second originations of a message, with the first."""
        self.claims: list[Claim] = []
        self.messages: list[Facts] = []
        """Every message, by configuration, then by position. The place in this list is its number."""
        self.number: dict[Identity, int] = {}
        self.spans: dict[tuple[int, ...], range] = {}
        """The numbers of a configuration's messages, which are consecutive."""
        self.unoriginated: set[int] = set()

        by_node: defaultdict[NodeId, list[Row]] = defaultdict(list)
        for row in rows:
            by_node[row[NODE]].append(row)
        for node in sorted(by_node):
            self._follow(node, by_node[node])
        self._absent = absent
        self._arrange()

    def message(self, number: int) -> Message:
        """A message, with names to its facts."""
        return Message._make(self.messages[number])

    def deliverable(self, stay: Stay) -> range:
        """The numbers of the messages that may be delivered in a stay: those of its regular one."""
        return self.spans.get(stay.source, range(0)) if stay.source else range(0)

    @cached_property
    def installs(self) -> dict[ConfigurationId, list[Stay]]:
        """The stays in each configuration, by node."""
        installs: defaultdict[ConfigurationId, list[Stay]] = defaultdict(list)
        for stays in self.stays.values():
            for stay in stays:
                installs[stay.id].append(stay)
        return installs

    @cached_property
    def absent(self) -> dict[NodeId, Stay]:
        """Members without a row, each with a stay in the first configuration that it is a member of."""
        if self._absent is None and not self.whole:
            return {}
        found: dict[NodeId, Stay] = {}
        for _, stays in sorted(self.installs.items()):
            for node in stays[0].members:
                if node not in self.lives and (self._absent is None or node in self._absent):
                    found.setdefault(node, stays[0])
        return found

    @cached_property
    def processes(self) -> ProcessStories:
        """What processes did and were told, in order."""
        return ProcessStories(self)

    def all_stays(self) -> Iterator[Stay]:
        """Every stay, by node and in order."""
        for stays in self.stays.values():
            yield from stays

    def stays_of(self, node: NodeId) -> list[Stay]:
        """A node's stays, over all its lives."""
        return self.stays.get(node, [])

    def every_stay(self) -> Iterator[Stay]:
        """The same, with stays of nodes that are no members of what they are told of, if there are any."""
        return self.all_stays()

    @cached_property
    def ascending(self) -> frozenset[NodeId]:
        """Nodes whose deliveries, over all their lives, come in the order of the messages' numbers."""
        return frozenset(node for node, stays in self.stays.items() if ascends(stays))

    def delivered_again(self) -> Iterator[tuple[Stay, Stay, int]]:
        """Messages that a node delivered more than once, over all its lives: the stay in which it first did,
        the one in which it did again, which may be the same, and the message's number."""
        for node, stays in self.stays.items():
            if node in self.ascending:
                continue
            first: dict[int, Stay] = {}
            for stay in stays:
                for number in stay.delivered:
                    if number in first:
                        yield first[number], stay, number
                    else:
                        first[number] = stay

    # --- rows to stays --------------------------------------------------------------------------

    def _follow(self, node: NodeId, rows: list[Row]) -> None:
        """Walk through one node's rows. The loop that sees every row: it looks at little."""
        lives = self.lives[node] = sorted(set(map(itemgetter(INCARNATION), rows)))
        rows.sort(key=itemgetter(INCARNATION, STEP) if len(lives) > 1 else itemgetter(STEP))
        self.events += len(rows)
        stays: list[Stay] = []
        self.stays[node] = stays
        stay: Stay | None = None
        life: int | None = rows[0][INCARNATION]
        ended: int | None = None
        seq = rep = kind = None
        deliveries: list[Row] = []
        for row in rows:
            event = row[EVENT]
            if event == "deliver":
                if (
                    row[CONFIG_SEQ] != seq
                    or row[CONFIG_REP] != rep
                    or row[CONFIG_KIND] != kind
                    or stay is None
                ):
                    self.deliveries_astray.append(_odd(row, stay))
                    if stay is None:
                        continue
                deliveries.append(row)
            elif event == "originate":
                fits = (
                    row[CONFIG_SEQ] == row[ORIGIN_CONFIG_SEQ] == seq
                    and row[CONFIG_REP] == row[ORIGIN_CONFIG_REP] == rep
                    and row[CONFIG_KIND] == kind == "regular"
                )
                if not fits or row[ORIGIN] != node or row[ORIGIN_INCARNATION] != life:
                    self.originations_astray.append(_odd(row, stay))
                if stay is not None:
                    stay.originations.append(row)
                    stay.after.append(len(deliveries))
            elif event == "submit":
                self.submitted.append(row)
            elif event == "install":
                stay = Stay(row, stay if row[INCARNATION] == life else None)
                stays.append(stay)
                if row[INCARNATION] == ended:
                    self.risen.append(stay)
                deliveries = stay.deliveries
                life, seq, rep, kind = row[INCARNATION], row[CONFIG_SEQ], row[CONFIG_REP], row[CONFIG_KIND]
            elif event in ("crash", "halt", "restart"):
                stay = seq = rep = kind = None
                life, ended = (row[INCARNATION], None) if event == "restart" else (None, row[INCARNATION])
            elif event in _OF_GROUPS:
                self.group_rows.append(row)
        self.alive[node] = life

    # --- messages to numbers --------------------------------------------------------------------

    def _arrange(self) -> None:
        self._number_messages()
        self._find_causes()

    def _number_messages(self) -> None:
        known: dict[Identity, Facts] = {}
        for stay in self.all_stays():
            for facts in map(facts_of, stay.originations):
                first = known.setdefault(facts[_IDENTITY], facts)
                if first is not facts:
                    self.originated_again.append((Message._make(facts), Message._make(first)))
        strangers: dict[Identity, Facts] = {}
        while True:
            check_whole(known.values())
            self._put_in_order(known.values())
            found = self._number_deliveries()
            if not found:
                break
            # Delivered and never originated. They have a position too: put them in and look again.
            strangers |= found
            known |= found
        self.unoriginated = {self.number[identity] for identity in strangers}

    def _put_in_order(self, messages: Iterable[Facts]) -> None:
        self.messages = sorted(messages, key=_PLACE)
        self.number = {facts[_IDENTITY]: number for number, facts in enumerate(self.messages)}
        self.spans = {}
        start = 0
        for configuration, group in groupby(self.messages, itemgetter(_CONFIGURATION)):
            stop = start + sum(1 for _ in group)
            self.spans[configuration] = range(start, stop)
            start = stop

    def _number_deliveries(self) -> dict[Identity, Facts]:
        """Number what every stay delivered; answer with the messages that have no number yet."""
        strangers: dict[Identity, Facts] = {}
        self.claims = []
        for stay in self.all_stays():
            if stay.regular:
                order = self.spans.get(stay.id, range(0))[: len(stay.deliveries)]
                if len(order) == len(stay.deliveries) and all(
                    map(eq, map(facts_of, stay.deliveries), self.messages[order.start : order.stop])
                ):
                    stay.delivered = order
                    continue
            stay.delivered = numbers = []
            for said in map(facts_of, stay.deliveries):
                number = self.number.get(said[_IDENTITY])
                if number is None:
                    strangers.setdefault(said[_IDENTITY], said)
                    continue
                numbers.append(number)
                if said != self.messages[number]:
                    self.claims.append(Claim(stay, Message._make(said), self.message(number)))
        return strangers

    # --- causes ---------------------------------------------------------------------------------

    def _find_causes(self) -> None:
        """What precedes each message in its configuration (000 §3, "Causal Order").

        The originator p delivers in the order of positions, so that what p had delivered is all up to
        the last of it; and so is what those messages' originators had delivered before, and their own
        earlier messages. What p itself originated before may lie beyond that. Hence two numbers say
        all: the last that p had delivered (`past`), and p's message before this one (`prior`).
        """
        self.past = [-1] * len(self.messages)
        self.prior = [-1] * len(self.messages)
        for stay in self.all_stays():
            stay.own = [self.number[message_of(row)] for row in stay.originations]
            span = self.spans.get(stay.id, range(0))
            prior = -1
            for number, heard in zip(stay.own, heard_before(stay, span), strict=True):
                if number in span:
                    self.past[number] = heard
                    self.prior[number] = prior
                    prior = number


def _ended(row: Row) -> Ended | None:
    seq, rep, place = row[ENDED_CONFIG_SEQ], row[ENDED_CONFIG_REP], row[ENDED_PLACE]
    if seq is None or rep is None or place is None:
        return None
    return Ended(ConfigurationId(seq, rep), place)


def _odd(row: Row, stay: Stay | None) -> Odd:
    seq, rep = row[CONFIG_SEQ], row[CONFIG_REP]
    says = None if seq is None or rep is None else ConfigurationId(seq, rep)
    return Odd(
        row[NODE],
        row[INCARNATION],
        Message._make(facts_of(row)),
        says,
        None if stay is None else stay.id,
        row[CONFIG_KIND],
    )


def check_whole(messages: Iterable[Facts]) -> None:
    """Raise `TraceError` if something of a message is not said."""
    for facts in messages:
        if None in facts:
            column = Message._fields[facts.index(None)]
            raise TraceError(
                f"a message of node {facts[0]} (number {facts[2]}) has rows without a value for its "
                f"{column}: originate and deliver rows need all the columns from origin to guarantee."
            )
