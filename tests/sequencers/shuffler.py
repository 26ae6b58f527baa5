"""Several orderers in views of our making, on a network that loses, delays, duplicates and reorders.

There is no membership here: `change` does what one would do, by asking all who go on for what is unsettled
and giving each the union, and `turn` the same for an intermediate view.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import NamedTuple

from ordercast.core.contract import (
    Accept,
    CancelTimer,
    Deliver,
    Drop,
    Effect,
    Halt,
    Install,
    Multicast,
    Originate,
    SetTimer,
    Stable,
    Unicast,
)
from ordercast.core.identity import ConfigurationId, Guarantee, NodeId
from ordercast.sequencers.cm import Cm, Irbp, Rbp
from ordercast.sequencers.dtp import Dtp
from ordercast.sequencers.member import Member, RulesClass
from ordercast.sequencers.pinwheel import Pinwheel
from ordercast.sequencers.primary_backup import PrimaryBackup
from ordercast.sequencers.total import Total
from ordercast.viewsync.config import GroupConfig
from ordercast.viewsync.contract import NOTHING, Settled, Stream, Unsettled, View
from ordercast.viewsync.header import read_header
from ordercast.viewsync.parts import PART, Parts, decode_part

ALL: tuple[RulesClass, ...] = (Cm, Rbp, Irbp, Pinwheel, Dtp, Total, PrimaryBackup)
MOVING: tuple[RulesClass, ...] = (Cm, Pinwheel, Dtp)


class Heard(NamedTuple):
    """A message as it was delivered at one node."""

    view: ConfigurationId
    place: int
    slot: int
    origin: NodeId
    incarnation: int
    number: int
    guarantee: Guarantee
    payload: bytes


class Node:
    """An orderer, and what came out of it."""

    def __init__(self, orderer: Member) -> None:
        self.orderer = orderer
        self.parts = Parts(100)
        self.heard: list[Heard] = []
        self.stable: list[tuple[int, int]] = []
        self.originated: list[int] = []
        self.accepted = 0
        self.drops: list[str] = []
        self.views: list[ConfigurationId] = []
        self.halted = ""
        self.timers: dict[str, int] = {}


class Shuffler:
    """Nodes, their packets and timers, and one seed."""

    def __init__(
        self,
        orderer: RulesClass,
        nodes: int | Iterable[NodeId],
        config: GroupConfig | None = None,
        *,
        seed: int = 0,
        loss: float = 0.0,
        duplication: float = 0.0,
        delays: tuple[int, int] = (50, 150),
    ) -> None:
        self.config = config or GroupConfig()
        self.chance = Random(seed)
        self.loss = loss
        self.duplication = duplication
        self.delays = delays
        self.now = 0
        self.queue: list[tuple[int, int, Callable[[], None]]] = []
        self.order = 0
        self.lost: Callable[[NodeId, NodeId, int], bool] = lambda source, target, kind: False
        """Says of each packet whether it is lost on purpose."""
        self.sent: list[tuple[NodeId, NodeId, int]] = []
        self.watch: Callable[[NodeId, Heard], None] = lambda node, heard: None
        ids = range(1, nodes + 1) if isinstance(nodes, int) else nodes
        self.nodes = {node: Node(Member(orderer, node, self.config)) for node in ids}
        self.view = View(ConfigurationId(0, 1), (), (), ())
        self.turns: list[tuple[View, Settled]] = []
        for node in self.nodes.values():
            node.orderer.begin(0)

    # --- running --------------------------------------------------------------------------------

    def submit(self, node: NodeId, *payloads: bytes, guarantee: Guarantee = Guarantee.AGREED) -> None:
        effects: list[Effect] = []
        self.nodes[node].orderer.submit(self.now, payloads, guarantee, effects)
        self.carry_out(node, effects)

    def run(self, for_us: int | None = None, most: int = 300_000) -> None:
        """For so long; or, without a time, until every node is idle."""
        end = None if for_us is None else self.now + for_us
        for _ in range(most):
            if not self.queue or (end is not None and self.queue[0][0] > end):
                break
            if end is None and all(node.orderer.idle for node in self.members()):
                return
            self.now, _, action = heapq.heappop(self.queue)
            action()
        else:
            raise AssertionError(f"still busy after {most} events")
        if end is not None:
            self.now = end

    def members(self) -> list[Node]:
        return [self.nodes[node] for node in self.view.members]

    def _later(self, delay: int, action: Callable[[], None]) -> None:
        self.order += 1
        heapq.heappush(self.queue, (self.now + delay, self.order, action))

    def carry_out(self, me: NodeId, effects: Sequence[Effect]) -> None:
        node = self.nodes[me]
        for effect in effects:
            match effect:
                case Multicast(data):
                    for other in self.nodes:
                        if other != me:
                            self._transmit(me, other, data)
                case Unicast(to, data):
                    assert to != me
                    self._transmit(me, to, data)
                case SetTimer(name, delay):
                    self.order += 1
                    node.timers[name] = self.order
                    self._later(delay, lambda name=name, of=self.order: self._ring(me, name, of))  # type: ignore[misc]
                case CancelTimer(name):
                    node.timers.pop(name, None)
                case Deliver(batch):
                    assert batch.configuration == node.views[-1]
                    for i, payload in enumerate(batch.payloads):
                        heard = Heard(
                            batch.configuration,
                            batch.seq,
                            batch.slot + i,
                            batch.origin,
                            batch.incarnation,
                            batch.number + i,
                            batch.guarantee,
                            payload,
                        )
                        node.heard.append(heard)
                        self.watch(me, heard)
                case Stable(batches):
                    node.stable += [(b.origin, b.number + i) for b in batches for i in range(len(b.payloads))]
                case Originate(batch):
                    assert batch.seq == 0
                    node.originated += range(batch.number, batch.number + len(batch.payloads))
                case Accept():
                    node.accepted += 1
                case Install(configuration):
                    node.views.append(configuration.id)
                case Drop(reason):
                    node.drops.append(reason)
                case Halt(reason):
                    node.halted = reason
                case _:
                    raise AssertionError(effect)

    def _transmit(self, source: NodeId, target: NodeId, data: bytes) -> None:
        kind = data[3]
        self.sent.append((source, target, kind))
        if self.lost(source, target, kind):
            return
        copies = 1 + (self.chance.random() < self.duplication)
        for _ in range(copies):
            if self.chance.random() >= self.loss:
                self._later(self.chance.randint(*self.delays), lambda: self._arrive(target, data))

    def _arrive(self, target: NodeId, data: bytes) -> None:
        """What `GroupMachine` does with a packet before the orderer sees it."""
        head = read_header(data)
        node = self.nodes[target]
        if node.halted or not node.views or head.view != node.views[-1] or node.orderer._told is not None:
            return
        if head.kind == PART:
            whole = node.parts.join(head.sender, decode_part(data))
            if whole is None:
                return
            data, head = whole, read_header(whole)
        effects: list[Effect] = []
        node.orderer.packet(self.now, head.kind, head.sender, data, effects)
        self.carry_out(target, effects)

    def _ring(self, me: NodeId, name: str, of: int) -> None:
        node = self.nodes[me]
        if node.timers.get(name) == of and not node.halted and node.orderer._told is None:
            del node.timers[name]
            effects: list[Effect] = []
            node.orderer.timer(self.now, name, effects)
            self.carry_out(me, effects)

    # --- what a membership does -----------------------------------------------------------------

    def install(self, members: Iterable[NodeId]) -> None:
        """A first view, or one that settles nothing."""
        self._next_view(members, NOTHING)

    def freeze(self, members: Iterable[NodeId]) -> dict[NodeId, Unsettled]:
        return {node: self.nodes[node].orderer.unsettled() for node in members}

    def change(self, members: Iterable[NodeId]) -> None:
        """The next view, of these; what those of them had who were in the last one is settled."""
        members = tuple(members)
        told = self.freeze(node for node in members if node in self.view.members)
        self._next_view(members, union(told.values()))

    def _next_view(self, members: Iterable[NodeId], settled: Settled) -> None:
        members = tuple(sorted(members))
        self.turns.clear()
        identity = ConfigurationId(self.view.id.seq + 1, members[0])
        self.view = View(identity, members, tuple(0 for _ in members), members)
        for node in members:
            self._give(node, self.view, settled)

    def turn(
        self, core: Iterable[NodeId], told_to: Iterable[NodeId] | None = None, first: NodeId | None = None
    ) -> None:
        """An intermediate view with that token list, agreed on by those in it; the others may not hear.

        The list begins with `first`, or with the lowest.
        """
        core = tuple(sorted(core))
        at = 0 if first is None else core.index(first)
        core = core[at:] + core[:at]
        upto = max(told.upto for told in self.freeze(core).values())
        self.view = self.view._replace(core=core, turn=self.view.turn + 1)
        self.turns.append((self.view, Settled(upto, {})))
        for node in self.view.members if told_to is None else told_to:
            self.tell(node)

    def tell(self, node: NodeId) -> None:
        """The token lists that a member missed reach it, one after the other."""
        order = self.nodes[node].orderer.order
        assert order is not None
        for view, settled in self.turns[order.view.turn :]:
            self._give(node, view, settled)

    def up_to_date(self, node: NodeId) -> bool:
        order = self.nodes[node].orderer.order
        return order is not None and order.view == self.view

    def _give(self, node: NodeId, view: View, settled: Settled) -> None:
        effects: list[Effect] = []
        self.nodes[node].orderer.install(self.now, view, settled, effects)
        self.carry_out(node, effects)


def union(told: Iterable[Unsettled]) -> Settled:
    """What all of them have together."""
    items: dict[Stream, dict[int, bytes]] = {}
    upto = 0
    for one in told:
        upto = max(upto, one.upto)
        for stream, packets in one.items.items():
            items.setdefault(stream, {}).update(packets)
    return Settled(upto, items)


# --- what must hold -----------------------------------------------------------------------------


def check_order(nodes: Iterable[Node]) -> None:
    """Any two nodes delivered, in each view, the same messages in the same order, as far as both came."""
    whole: dict[ConfigurationId, list[Heard]] = {}
    for node in nodes:
        for view in dict.fromkeys(heard.view for heard in node.heard):
            mine = [heard for heard in node.heard if heard.view == view]
            longest = whole.setdefault(view, mine)
            for one, other in zip(mine, longest, strict=False):
                assert one == other
            if len(mine) > len(longest):
                whole[view] = mine
            places = [(heard.place, heard.slot) for heard in mine]
            assert places == sorted(set(places))
        identities = [(heard.origin, heard.number) for heard in node.heard]
        assert len(identities) == len(set(identities)), "delivered twice"


def check_same(nodes: Iterable[Node]) -> None:
    """They delivered the same messages in the same order."""
    told = [node.heard for node in nodes]
    assert all(heard == told[0] for heard in told)


def numbers_of(node: Node, origin: NodeId) -> list[int]:
    return [heard.number for heard in node.heard if heard.origin == origin]
