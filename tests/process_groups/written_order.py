"""Nodes with process groups over an order that a test writes itself: every payload at the place it says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ordercast.core.identity import Batch, Configuration, ConfigurationId, Guarantee, Kind
from ordercast.process_groups.machine import MOST_HELD, ProcessGroups
from ordercast.process_groups.views import Installed, Left, Output, Received, View

ROOM = 1 << 20


class Order:
    """Some nodes, and the configurations that they are taken through."""

    def __init__(self, *nodes: int, most_held: int = MOST_HELD) -> None:
        self.machines = {node: ProcessGroups(node, 0, most_held=most_held) for node in nodes}
        self.told: dict[int, list[Output]] = {node: [] for node in nodes}
        self.numbers = dict.fromkeys(nodes, 0)
        self.seq = 0
        self.here = ConfigurationId(0, 0)

    def restart(self, node: int, incarnation: int) -> None:
        self.machines[node] = ProcessGroups(node, incarnation)
        self.told[node], self.numbers[node] = [], 0

    def install(self, seq: int, members: Iterable[int], kind: Kind = Kind.REGULAR) -> None:
        """The members go into a configuration together; nobody's state is ordered yet."""
        members = tuple(members)
        id_ = ConfigurationId(seq, members[0])
        for node in members:
            self.told[node] += self.machines[node].install(Configuration(id_, kind, members))
        if kind is Kind.REGULAR:
            self.here, self.seq = id_, 0

    def transitional(self, seq: int, members: Iterable[int]) -> None:
        self.install(seq, members, Kind.TRANSITIONAL)

    def regular(self, seq: int, members: Sequence[int]) -> None:
        """The members go into a regular configuration, and their states are ordered in it."""
        self.install(seq, members)
        for node in members:
            self.order(node, to=members)

    def order(self, node: int, to: Iterable[int] | None = None) -> None:
        """What the node would submit now is ordered next, and delivered to these, or to all."""
        while (submit := self.machines[node].take(ROOM)) is not None:
            self.deliver(node, submit.payloads, submit.guarantee, to)

    def deliver(
        self,
        origin: int,
        payloads: Sequence[bytes],
        guarantee: Guarantee = Guarantee.AGREED,
        to: Iterable[int] | None = None,
    ) -> None:
        """Payloads of a node, at the next place in the order, in one packet."""
        self.seq += 1
        life = self.machines[origin].me.incarnation
        batch = Batch(self.here, self.seq, 0, origin, life, self.numbers[origin] + 1, guarantee, payloads)
        self.numbers[origin] += len(payloads)
        for node in self.machines if to is None else to:
            self.told[node] += self.machines[node].routing.deliver(batch)

    # --- what processes were told ----------------------------------------------------------------

    def views(self, node: int, process: int, group: str) -> list[View]:
        return [
            each.view
            for each in self.told[node]
            if isinstance(each, Installed) and process in each.to and each.view.group == group
        ]

    def members(self, node: int, process: int, group: str) -> list[str]:
        """The members of each view of a group that a process was told of, and why; ``~``: transitional."""
        told = []
        for view in self.views(node, process, group):
            names = " ".join(str(each.process) for each in view.members)
            told.append(f"{'' if view.id.part is None else '~'}{names}: {view.cause}")
        return told

    def messages(self, node: int, process: int) -> list[bytes]:
        return [
            body
            for each in self.told[node]
            if isinstance(each, Received) and process in each.to
            for body in each.batch.payloads
        ]

    def left(self, node: int) -> list[Left]:
        return [each for each in self.told[node] if isinstance(each, Left)]

    def story(self, node: int, process: int) -> list[str]:
        """Views and messages of a process, in order."""
        told = []
        for each in self.told[node]:
            if isinstance(each, Installed) and process in each.to:
                told.append(f"{each.view.group} {each.view.id}")
            elif isinstance(each, Received) and process in each.to:
                told += [body.decode() for body in each.batch.payloads]
        return told
