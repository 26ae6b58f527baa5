"""One Totem machine, driven by hand: what it is told in one line, what it does in answer in another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from ordercast.core.contract import (
    Brake,
    Effect,
    Event,
    Gone,
    Multicast,
    Packet,
    Start,
    Stop,
    Submit,
    Timer,
    Unicast,
)
from ordercast.core.identity import ConfigurationId, Guarantee, NodeId
from ordercast.core.randomness import RandomStream
from ordercast.core.wire import Malformed
from ordercast.totem.config import TotemConfig
from ordercast.totem.formation import Formation
from ordercast.totem.machine import TotemMachine
from ordercast.totem.numbers import RING_STEP, RingNumbers
from ordercast.totem.packets import (
    Announce,
    AnyPacket,
    Commit,
    Data,
    Entry,
    Hurry,
    Join,
    Recovered,
    Token,
    decode,
)
from ordercast.totem.states import State

LIMITS = TotemConfig().limits

FIRST = ConfigurationId(8, 1)
"""The ring that nodes 1, 2, 3, … form when they start together at time 0."""

P = TypeVar("P", Data, Recovered, Token, Commit, Join, Announce, Hurry)


class Steady(RandomStream):
    """No randomness: timers are as long as the settings say."""

    def bits(self, count: int) -> int:
        return 0

    def between(self, lowest: int, highest: int) -> int:
        return lowest

    def spread(self, delay_us: int) -> int:
        return delay_us


class PaperNumbers(RingNumbers):
    """Ring sequence numbers as 000 §6.2.2 has them: each is four above the highest that is known."""

    def first(self, stored: int | None) -> int:
        return self.after(stored or 0)

    def after(self, known: int) -> int:
        return known + RING_STEP


class SteadyFormation(Formation):
    """Draws what can be foretold."""

    def _draw(self, stream: RandomStream) -> None:
        super()._draw(Steady(0))
        self.numbers = PaperNumbers(self.random)


class SteadyMachine(TotemMachine):
    """A machine whose every step can be foretold."""

    def __init__(self, me: NodeId, config: TotemConfig) -> None:
        super().__init__(me, config)
        self.formation.__class__ = SteadyFormation


class Node:
    """A machine and the time at its place."""

    def __init__(self, me: NodeId, **settings: int | bool | str) -> None:
        """A machine that has not been started; without anything said, an idle ring's token is not held."""
        self.me = me
        self.machine: TotemMachine = SteadyMachine(me, TotemConfig(**{"hold_us": 0, **settings}))  # type: ignore[arg-type]
        self.now_us = 0
        self.forwarded = Token(FIRST)
        """The regular token as it left last."""

    @property
    def state(self) -> State:
        return self.machine.state

    def does(self, event: Event) -> list[Effect]:
        effects = list(self.machine.handle(self.now_us, event))
        for token in sent(effects, Token):
            self.forwarded = token
        return effects

    def starts(self, stored: bytes | None = None, incarnation: int = 0, seed: int = 0) -> list[Effect]:
        return self.does(Start(incarnation, stored, seed))

    def hears(
        self, *packets: AnyPacket | bytes, waited_us: int = 0, sender: NodeId | None = None
    ) -> list[Effect]:
        """These packets arrive, one after the other: from `sender`, or from who would have sent them."""
        effects: list[Effect] = []
        for packet in packets:
            came_from = self.due_from(packet) if sender is None else sender
            effects += self.does(Packet(raw(packet), came_from, waited_us))
        return effects

    def due_from(self, packet: AnyPacket | bytes) -> NodeId:
        """Who would have sent a packet to this node: the sender it names, or the predecessor on the ring."""
        if isinstance(packet, bytes):
            try:
                packet = decode(packet)
            except Malformed:
                return 1
        match packet:
            case Join() | Announce() | Recovered():
                return packet.sender
            case Data():
                return packet.origin
            case Commit() if self.me in packet.members:
                return packet.members[packet.members.index(self.me) - 1]
            case Token():
                return self.members[self.members.index(self.me) - 1]
        return 1

    def timeout(self, name: str) -> list[Effect]:
        return self.does(Timer(name))

    def submits(self, *payloads: bytes, safe: bool = False) -> list[Effect]:
        return self.does(Submit(payloads, Guarantee.SAFE if safe else Guarantee.AGREED))

    def brakes(self) -> list[Effect]:
        """The application here does not keep up."""
        return self.does(Brake(True))

    def lets_go(self) -> list[Effect]:
        """The application here has caught up."""
        return self.does(Brake(False))

    def is_told_gone(self, other: NodeId) -> list[Effect]:
        """The driver believes that another's process has ended."""
        return self.does(Gone(other))

    def stops(self) -> list[Effect]:
        return self.does(Stop())

    def waits(self, us: int) -> None:
        self.now_us += us

    # --- what happens on a ring -----------------------------------------------------------------

    def next_token(
        self,
        *,
        seq: int | None = None,
        aru: int | None = None,
        aru_id: NodeId | None = None,
        rtr: Iterable[int] = (),
        retrans_flg: bool | None = None,
        idle: bool = False,
        merge: tuple[NodeId, ...] | None = None,
        brake: NodeId | None = None,
        holds: Iterable[int] | None = None,
    ) -> Token:
        """The token that this node forwarded last, come round again, and what the others changed on it."""
        made, last = Token(self.forwarded.ring), self.forwarded
        made.token_seq = last.token_seq + len(self.members) - 1
        made.seq = last.seq if seq is None else seq
        made.aru = last.aru if aru is None else aru
        made.aru_id = last.aru_id if aru_id is None else aru_id
        made.rtr = list(rtr)
        made.fcc, made.backlog = last.fcc, last.backlog
        made.retrans_flg = last.retrans_flg if retrans_flg is None else retrans_flg
        made.idle = idle
        made.merge = last.merge if merge is None else merge
        made.brake = last.brake if brake is None else brake
        made.holds = list(last.holds if holds is None else holds)
        return made

    @property
    def members(self) -> tuple[NodeId, ...]:
        exchange = self.machine.formation.exchange
        return self.machine.ring.members if exchange is None else exchange.ring.members

    def visited(self, *, waited_us: int = 0, **changed: Any) -> list[Effect]:
        """The token visits, `changed` as for `next_token`; it lay in this node's buffers for `waited_us`."""
        return self.hears(self.next_token(**changed), waited_us=waited_us)

    # --- how a ring is formed ---------------------------------------------------------------------

    def agrees(
        self, members: Sequence[NodeId], ring_seq: int = 4, failed: Sequence[NodeId] = ()
    ) -> list[Effect]:
        """Everyone else's Join with these sets arrives; in the end there is consensus."""
        proc_set = tuple(sorted({*members, *failed}))
        joins = [Join(node, ring_seq, proc_set, tuple(failed)) for node in members if node != self.me]
        effects = self.hears(*joins)
        return effects + self.hears(*joins) if self.state is State.GATHER else effects

    def commits(self, ring: ConfigurationId, entries: Sequence[Entry]) -> list[Effect]:
        """The Commit token's first rotation reaches this node; its predecessors have made their entries."""
        members = tuple(entry.node for entry in entries)
        place = members.index(self.me)
        return self.hears(Commit(ring, members, place, tuple(entries[:place])))

    def returns(self, entries: Sequence[Entry]) -> list[Effect]:
        """The Commit token comes back for the second rotation, with everyone's entries."""
        forming = self.machine.formation.forming
        assert forming is not None
        members = forming.members
        place = members.index(self.me)
        mine = forming.entries[place]
        full = tuple(mine if entry.node == self.me else entry for entry in entries)
        effects = self.hears(Commit(forming.ring, members, len(members) + place, full))
        self.forwarded = Token(forming.ring)
        if place > 0:
            self.forwarded.token_seq = (
                place - len(members) + 1
            )  # so that its first visit has token_seq = place
        elif len(members) > 1:
            effects += self.hears(Commit(forming.ring, members, 2 * len(members), full))
        return effects

    def recovers(self, most: int = 8) -> list[Effect]:
        """Token visits, until the ring is installed."""
        effects: list[Effect] = []
        while self.state is State.RECOVERY:
            most -= 1
            assert most, "it takes too long"
            effects += self.visited()
        return effects


def entry(
    node: NodeId, old: ConfigurationId | None = None, aru: int = 0, delivered: int = 0, received: bool = False
) -> Entry:
    """A line of a Commit token; without more, that of a node that has just started."""
    return Entry(node, old or ConfigurationId(4, node), aru, delivered, received, LIMITS)


def started(me: NodeId = 1, **settings: int | bool | str) -> Node:
    """A node that has just started, and gathers."""
    node = Node(me, **settings)
    node.starts()
    return node


def operational(me: NodeId = 2, members: Sequence[NodeId] = (1, 2, 3), **settings: int | bool | str) -> Node:
    """A node on the ring `FIRST` with these members, all of which started at the same time."""
    node = started(me, **settings)
    form(node, members)
    return node


def form(node: Node, members: Sequence[NodeId]) -> None:
    """Let a node that has just started come to the ring `FIRST`."""
    node.agrees(members)
    entries = [entry(member) for member in members]
    if node.me != members[0]:
        node.commits(FIRST, entries)
    node.returns(entries)
    node.recovers()
    assert node.state is State.OPERATIONAL
    assert node.machine.ring.id == FIRST


# --- what a machine did ------------------------------------------------------------------------------


def raw(packet: AnyPacket | bytes) -> bytes:
    if isinstance(packet, bytes):
        return packet
    return packet.raw if isinstance(packet, Data | Recovered) else packet.encode()


def sent(effects: Iterable[Effect], kind: type[P]) -> list[P]:
    """The packets of a kind that were sent, in order."""
    packets = [decode(effect.data) for effect in effects if isinstance(effect, Multicast | Unicast)]
    return [packet for packet in packets if isinstance(packet, kind)]


def one(effects: Iterable[Effect], kind: type[P]) -> P:
    """The only packet of a kind that was sent."""
    (packet,) = sent(effects, kind)
    return packet


def receivers(effects: Iterable[Effect]) -> list[NodeId]:
    """Whom something was sent to, and to nobody else."""
    return [effect.to for effect in effects if isinstance(effect, Unicast)]


def order(effects: Iterable[Effect], *kinds: type[Effect]) -> list[type[Effect]]:
    """In which order effects of these kinds come."""
    return [type(effect) for effect in effects if isinstance(effect, kinds)]
