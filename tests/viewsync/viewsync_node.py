"""One member of a group, driven by hand, and the parts of a membership, each with a stand-in around it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ordercast.core.contract import (
    Accept,
    Brake,
    Effect,
    Event,
    Gone,
    Halt,
    Install,
    Multicast,
    Packet,
    Persist,
    Start,
    Stop,
    Submit,
    Timer,
    Unicast,
)
from ordercast.core.identity import Configuration, ConfigurationId, Guarantee, Kind, NodeId
from ordercast.core.randomness import RandomStream
from ordercast.viewsync.change import Joiner, ViewChange
from ordercast.viewsync.config import GroupConfig
from ordercast.viewsync.consensus import Voter
from ordercast.viewsync.contract import Items, Settled, Stream, Unsettled, View
from ordercast.viewsync.header import FIRST_ORDER_KIND, NO_VIEW, header, read_header
from ordercast.viewsync.machine import GroupMachine
from ordercast.viewsync.numbers import ViewNumbers
from ordercast.viewsync.packets import (
    NO_ROUND,
    Abort,
    Accepted,
    Collect,
    Decide,
    Decision,
    Estimate,
    Fetch,
    Group,
    Item,
    Member,
    MembershipPacket,
    Propose,
    Range,
    Refuse,
    Round,
    Summary,
    decode,
    decode_decision,
    encode,
    encode_decision,
)
from ordercast.viewsync.states import State

FIRST = ConfigurationId(1, 1)
"""The view that most tests begin in."""
SECOND = ConfigurationId(2, 1)
OURS = Group(1_000, 1)
OLDER = Group(500, 9)
YOUNGER = Group(2_000, 4)
CONFIG = GroupConfig()

P = TypeVar("P", bound=MembershipPacket)


# --- short ways to say things ---------------------------------------------------------------------


def view(
    members: Sequence[NodeId] = (1, 2, 3),
    id_: ConfigurationId = FIRST,
    *,
    lives: Mapping[NodeId, int] | None = None,
    core: Sequence[NodeId] | None = None,
    turn: int = 0,
) -> View:
    """A view; of first lives, and all in the token list, if nothing else is said."""
    known = lives or {}
    core = members if core is None else core
    return View(id_, tuple(members), tuple(known.get(node, 0) for node in members), tuple(core), turn)


def decision(
    members: Sequence[NodeId] = (1, 2, 3),
    id_: ConfigurationId = FIRST,
    *,
    lives: Mapping[NodeId, int] | None = None,
    core: Sequence[NodeId] | None = None,
    turn: int = 0,
    full: bool = True,
    group: Group = OURS,
    site: NodeId = 0,
    upto: int = 0,
    ranges: Sequence[Range] = (),
) -> Decision:
    """A decision on such a view."""
    known = lives or {}
    core = members if core is None else core
    listed = tuple(Member(node, known.get(node, 0), node in core) for node in members)
    return Decision(full, group, id_, turn, listed, site or min(core, default=0), upto, tuple(ranges))


def stream(node: NodeId, incarnation: int = 0) -> Stream:
    """A member's own packets."""
    return Stream(1, node, incarnation)


def items(**numbered: Iterable[int]) -> Items:
    """Items of members: ``items(n1=(1, 2))`` are the first two of node 1."""
    return {
        stream(int(name[1:])): {number: f"{name}/{number}".encode() for number in numbers}
        for name, numbers in numbered.items()
    }


def span(node: NodeId, first: int = 1, length: int = 1) -> Range:
    """The names of a member's items."""
    return Range(stream(node), first, length)


def summary(
    *ranges: Range,
    turn: int = 0,
    full: bool = True,
    later_life: bool = False,
    leaving: bool = False,
    floor: int = 0,
    upto: int = 0,
) -> Summary:
    """What a member tells of itself; a full one of one that stays, if nothing else is said."""
    return Summary(turn, full, later_life, leaving, floor, upto, ranges)


def packet_from(
    sender: NodeId, packet: MembershipPacket, view_id: ConfigurationId = FIRST, incarnation: int = 0
) -> bytes:
    """A packet as it comes off the wire."""
    kind, body = encode(packet)
    return header(kind, view_id, sender, incarnation) + body


def item(node: NodeId, number: int, turn: int = 0) -> Item:
    """What `items` would hold there."""
    return Item(turn, stream(node), number, f"n{node}/{number}".encode())


# --- a stand-in for what is inside a membership ---------------------------------------------------


class Notes:
    """An orderer that orders nothing, and remembers what it was told."""

    def __init__(self) -> None:
        self.closed = False
        self.incarnation = -1
        self.submitted: list[bytes] = []
        self.packets: list[tuple[int, NodeId]] = []
        self.timers: list[str] = []
        self.proceeded = 0
        self.progress = 0
        self.unanswered: dict[NodeId, int] = {}
        self.activity: int | None = None
        self.owed: tuple[int | None, ...] = ()
        self.frozen = False
        self.installed: list[tuple[View, Settled]] = []
        self.tells = Unsettled(0, 0, {})
        """What it answers when a view is about to end."""
        self.room = 1_000_000
        self.idle = True
        self.holder: NodeId = 0
        self.next_holder: NodeId = 0
        self.waiting_for: NodeId | None = None
        self.cut_off = False
        self.final: tuple[ConfigurationId, int] | None = None
        self.stats: Mapping[str, float] = {"orders": 7.0}

    def begin(self, incarnation: int) -> None:
        self.incarnation = incarnation

    def submit(
        self, now_us: int, payloads: Sequence[bytes], guarantee: Guarantee, effects: list[Effect]
    ) -> None:
        effects.append(Accept(len(self.submitted) + 1))
        self.submitted += payloads

    def packet(self, now_us: int, kind: int, sender: NodeId, data: bytes, effects: list[Effect]) -> None:
        assert not self.frozen, "a frozen orderer sees nothing"
        self.packets.append((kind, sender))

    def timer(self, now_us: int, name: str, effects: list[Effect]) -> None:
        assert not self.frozen, "a frozen orderer sees nothing"
        self.timers.append(name)

    def proceed(self, now_us: int, effects: list[Effect]) -> None:
        assert not self.frozen, "a frozen orderer sees nothing"
        self.proceeded += 1

    def unsettled(self) -> Unsettled:
        self.frozen = True
        return self.tells

    def install(self, now_us: int, view: View, settled: Settled, effects: list[Effect]) -> None:
        if not self.installed or self.installed[-1][0].id != view.id:
            effects.append(Install(Configuration(view.id, Kind.REGULAR, view.members)))
        self.installed.append((view, settled))
        self.frozen = False
        self.waiting_for = None
        self.tells = Unsettled(0, 0, {})


# --- a stand-in for what is around a change -------------------------------------------------------


class CountedNumbers(ViewNumbers):
    """Numbers that can be foretold: one above what is known."""

    def first(self, known: int) -> int:
        return self.after(known)

    def after(self, known: int) -> int:
        return known + 1

    def mark(self) -> int:
        return 0


class CountingMachine(GroupMachine):
    """A machine whose views are counted."""

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        effects = super().handle(now_us, event)
        if isinstance(event, Start):
            self.life.numbers = CountedNumbers(self.life.random)
        return effects


class Around:
    """What a participant needs of the machine around it; whom it suspects is said by the test."""

    def __init__(self, me: NodeId, incarnation: int = 0) -> None:
        self.me = me
        self.incarnation = incarnation
        self.goes = False
        self.group = OURS
        self.numbers: ViewNumbers = CountedNumbers(RandomStream(0))
        self.suspected: set[NodeId] = set()
        self.slow: set[NodeId] = set()
        """Suspected only while they are waited for."""
        self.asking: dict[NodeId, Joiner] = {}
        self.noted: list[str] = []

    def tell(self, packet: MembershipPacket, effects: list[Effect], to: NodeId | None = None) -> None:
        data = packet_from(self.me, packet, incarnation=self.incarnation)
        effects.append(Multicast(data) if to is None else Unicast(to, data))

    def keep(self, effects: list[Effect]) -> None:
        effects.append(Persist(b"vote"))

    def suspects(self, now_us: int, awaited: Collection[NodeId]) -> list[NodeId]:
        return sorted(self.suspected | (self.slow & set(awaited)))

    def joiners(self, now_us: int) -> Mapping[NodeId, Joiner]:
        return self.asking

    def gone_members(self) -> list[NodeId]:
        return []

    def believe_ended(self, node: NodeId) -> None:
        raise AssertionError("nobody is told so")

    def note(self, because: str, effects: list[Effect]) -> None:
        self.noted.append(because)


# --- a member -------------------------------------------------------------------------------------


class Node:
    """A machine, the time at its place, and its disk."""

    def __init__(
        self,
        me: NodeId,
        *,
        procedure: type[ViewChange] = ViewChange,
        i_views: bool = False,
        **settings: Any,
    ) -> None:
        self.me = me
        self.orderer = Notes()
        self.config = GroupConfig(**{"founders": 1, **settings})
        self.machine: GroupMachine = CountingMachine(
            me, self.config, self.orderer, procedure=procedure, i_views=i_views
        )
        self.now_us = 0
        self.disk: bytes | None = None

    @property
    def state(self) -> State:
        return self.machine.state

    def does(self, event: Event) -> list[Effect]:
        effects = list(self.machine.handle(self.now_us, event))
        for effect in effects:
            if isinstance(effect, Persist):
                self.disk = effect.data
        return effects

    def starts(self, incarnation: int = 0, stored: bytes | None = None, seed: int = 0) -> list[Effect]:
        return self.does(Start(incarnation, stored, seed))

    def hears(
        self,
        sender: NodeId,
        *packets: MembershipPacket,
        view_id: ConfigurationId | None = None,
        incarnation: int = 0,
    ) -> list[Effect]:
        """These packets arrive from another node; they are about the current view, if nothing is said."""
        current = self.machine.life.view or self.machine.life.past
        about = view_id or (current.id if current is not None else NO_VIEW)
        told = [packet_from(sender, packet, about, incarnation) for packet in packets]
        return [effect for data in told for effect in self.does(Packet(data, sender))]

    def hears_ordered(
        self, sender: NodeId, view_id: ConfigurationId = FIRST, incarnation: int = 0
    ) -> list[Effect]:
        """A packet for the orderer arrives."""
        return self.does(Packet(header(FIRST_ORDER_KIND, view_id, sender, incarnation), sender))

    def timeout(self, name: str, after_us: int = 0) -> list[Effect]:
        """Time passes, and a timer runs out."""
        self.now_us += after_us
        return self.does(Timer(name))

    def submits(self, *payloads: bytes) -> list[Effect]:
        return self.does(Submit(payloads, Guarantee.AGREED))

    def stops(self) -> list[Effect]:
        return self.does(Stop())

    def brakes(self, on: bool = True) -> list[Effect]:
        return self.does(Brake(on))

    def is_told_gone(self, other: NodeId) -> list[Effect]:
        return self.does(Gone(other))

    def dies_and_comes_back(self) -> Node:
        """The next life: with its disk, and nothing else."""
        again = Node(self.me, i_views=self.machine.life.i_views, procedure=self.machine.life.procedure)
        again.now_us, again.disk = self.now_us, self.disk
        again.starts(self.machine.life.incarnation + 1, self.disk)
        return again


def started(
    me: NodeId = 2, *, procedure: type[ViewChange] = ViewChange, i_views: bool = False, **settings: Any
) -> Node:
    """A node that has just begun its first life."""
    node = Node(me, procedure=procedure, i_views=i_views, **settings)
    node.starts()
    return node


def member(
    me: NodeId = 2,
    members: Sequence[NodeId] = (1, 2, 3),
    *,
    id_: ConfigurationId = FIRST,
    procedure: type[ViewChange] = ViewChange,
    i_views: bool = False,
    incarnation: int = 0,
    **settings: Any,
) -> Node:
    """A node that was let into a view with these members, all in their first lives but for itself."""
    node = Node(me, procedure=procedure, i_views=i_views, **settings)
    node.starts(incarnation)
    first = next(other for other in members if other != me)
    lives = {me: incarnation}
    node.hears(first, Decide(0, encode_decision(decision(members, id_, lives=lives))), view_id=NO_VIEW)
    assert node.state is State.MEMBER
    return node


# --- what was done --------------------------------------------------------------------------------


def sent(effects: Iterable[Effect], kind: type[P]) -> list[P]:
    """The packets of a kind that were sent, in order."""
    packets = [
        decode(read_header(effect.data), effect.data)
        for effect in effects
        if isinstance(effect, Multicast | Unicast) and read_header(effect.data).kind < FIRST_ORDER_KIND
    ]
    return [packet for packet in packets if isinstance(packet, kind)]


def one(effects: Iterable[Effect], kind: type[P]) -> P:
    """The only packet of a kind that was sent."""
    (packet,) = sent(effects, kind)
    return packet


def receivers(effects: Iterable[Effect], kind: type[P]) -> list[NodeId | None]:
    """Whom packets of a kind were sent to; None is everybody."""
    return [
        effect.to if isinstance(effect, Unicast) else None
        for effect in effects
        if isinstance(effect, Multicast | Unicast)
        and isinstance(decode(read_header(effect.data), effect.data), kind)
    ]


def halts(effects: Iterable[Effect]) -> list[str]:
    """Why the life ended."""
    return [effect.reason for effect in effects if isinstance(effect, Halt)]


def installs(effects: Iterable[Effect]) -> list[ConfigurationId]:
    """The views that the application was told of."""
    return [effect.configuration.id for effect in effects if isinstance(effect, Install)]


def stored_before_sent(effects: Sequence[Effect], kind: type[P]) -> bool:
    """Whether the vote is on the disk before packets of a kind are on the wire."""
    kinds = [
        type(effect)
        for effect in effects
        if isinstance(effect, Persist)
        or (
            isinstance(effect, Multicast | Unicast)
            and isinstance(decode(read_header(effect.data), effect.data), kind)
        )
    ]
    return len(kinds) > 1 and kinds[0] is Persist


def round_(attempt: int, coordinator: NodeId) -> Round:
    """A round, in short."""
    return Round(attempt, coordinator)


# --- a change, driven by hand ------------------------------------------------------------------------


class Part:
    """One participant of a change of view, and the time at its place."""

    def __init__(
        self,
        me: NodeId = 1,
        *,
        of: View | None = None,
        holds: Items | None = None,
        floor: int = 0,
        upto: int = 0,
        full: bool = True,
        later_life: bool = False,
        voter: Voter | None = None,
        procedure: type[ViewChange] = ViewChange,
    ) -> None:
        """A participant that has not begun; a member, or with `later_life` a later life of one."""
        self.around = Around(me, incarnation=int(later_life))
        self.now_us = 0
        unsettled = None if later_life else Unsettled(floor, upto, holds or {})
        self.change = procedure(0, self.around, of or view(), voter or Voter(), CONFIG, unsettled, full)

    def begins(self, detected: bool = True) -> list[Effect]:
        effects: list[Effect] = []
        self.change.begin(self.now_us, detected, effects)
        return effects

    def is_told(
        self, told: Mapping[NodeId, Summary], lives: Mapping[NodeId, int] | None = None
    ) -> list[Effect]:
        """Others tell what they hold."""
        effects: list[Effect] = []
        for node, what in told.items():
            life = (lives or {}).get(node, int(what.later_life))
            self.change.on_summary(self.now_us, node, life, what, effects)
        return effects

    def hears(self, sender: NodeId, *packets: MembershipPacket) -> list[Effect]:
        effects: list[Effect] = []
        change, now_us = self.change, self.now_us
        for packet in packets:
            match packet:
                case Collect() | Estimate() | Propose() | Accepted() | Refuse() | Abort():
                    change.on_vote(now_us, sender, packet, effects)
                case Fetch():
                    change.on_fetch(sender, packet, effects)
                case Item():
                    change.on_item(now_us, packet, effects)
        return effects

    def waits(self, us: int) -> list[Effect]:
        """Time passes, and the timer of the change runs out."""
        self.now_us += us
        effects: list[Effect] = []
        self.change.on_timer(self.now_us, effects)
        return effects

    def answers_to(self, round_: Round, *nodes: NodeId) -> list[Effect]:
        """Others take part in a round; they have adopted nothing before."""
        return [e for node in nodes for e in self.hears(node, Estimate(0, round_, NO_ROUND, b""))]


def proposal(effects: Iterable[Effect]) -> Decision:
    """What was proposed."""
    return decode_decision(one(effects, Propose).value)
