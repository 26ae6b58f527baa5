"""Faults of a plan: begins each in a world at its time or moment, and mends it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ordercast.core.identity import NodeId
from ordercast.replicated.replicated import Replicated
from ordercast.testing.faults import Fault

if TYPE_CHECKING:
    from ordercast.testing.world import World


class FaultPlayer:
    """The faults that were drawn for one run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._forgetful: set[NodeId] = set()
        """Nodes that lost their memory and have not got it back from the others."""

    def schedule(self, faults: Sequence[Fault]) -> None:
        """Have these faults happen."""
        for fault in faults:
            if fault.moment:
                self._world.at(fault.at_s, self._wait_for, fault)
            else:
                self._world.at(fault.at_s, self._begin, fault, fault.node)

    def _wait_for(self, fault: Fault) -> None:
        def come(here: NodeId) -> None:
            node = fault.node or here
            if fault.after_s:
                self._world.at(self._world.now + fault.after_s, self._begin, fault, node)
            else:
                self._begin(fault, node)

        self._world.when(fault.moment, come)

    def _begin(self, fault: Fault, node: NodeId) -> None:
        world = self._world
        up, runs = world.process(node) is not None, node not in world.stopped
        what: object = None
        match fault.kind:
            case "crash":
                if not up or not self.may_crash(node, without_disk=fault.without_disk):
                    return
                if fault.without_disk or not world.durable:
                    self._forgetful.add(node)
                world.crash(node, silently=fault.silently)
            case "outage":
                for each in world.ids:
                    if world.process(each) is not None:
                        world.crash(each, silently=True)
            case "pause":
                if not (up and runs):
                    return
                world.pause(node)
            case "partition":
                world.partition(fault.side or (node,))
                what = "network"
            case "slow":
                world.slow(node, fault.amount)
                what = ("slow", node)
            case _:
                world.lose(fault.amount)
                what = "loss"
        world.faults.append((world.now, fault.words(node)))
        world.at(world.now + fault.lasts_s, self._mend, fault, node, what, world.changes[what])

    def _mend(self, fault: Fault, node: NodeId, what: object, change: int) -> None:
        world = self._world
        if world.changes[what] != change:
            return  # another fault came later
        match fault.kind:
            case "crash":
                if world.process(node) is None:
                    world.set_clock(node, fault.ahead_s)
                    world.restart(node, without_disk=fault.without_disk)
            case "outage":
                for each in world.ids:
                    if world.process(each) is None:
                        world.restart(each)
            case "pause":
                if node in world.stopped:
                    world.resume(node)
            case "partition":
                world.heal()
            case "slow":
                world.slow(node, 0)
            case _:
                world.lose(world.usual_loss)

    # --- what must not go wrong -----------------------------------------------------------------

    def may_crash(self, node: NodeId, *, without_disk: bool = False) -> bool:
        """Whether the others still keep what was answered when this node has lost its memory, or its disk: of
        those that decide what goes on, a majority has to."""
        world = self._world
        if world.durable and not without_disk:
            return True
        self._forgetful = {id for id in self._forgetful if not world.is_whole(id)}
        lost = self._forgetful | self._empty() | {node}
        decide = set(world.voters) or set(world.ids)
        view = self._primary_view() or decide
        return all(2 * len(each - lost) > len(each) for each in (decide, view))

    def _empty(self) -> set[NodeId]:
        """Nodes that have nothing yet of what others have in memory. Replicated objects know of that
        themselves: they answer once enough of them hold a state."""
        return {
            id
            for service in self._world.services
            if service.there and not any(isinstance(each, Replicated) for each in service.there.values())
            for id in self._world.ids
            if id not in service.there
        }

    def _primary_view(self) -> set[NodeId]:
        """The members of the latest configuration, in protocols of which only one goes on."""
        latest = None
        for id in self._world.ids:
            member = self._world.nodes[id - 1]._member
            if self._world.process(id) is None or member is None or not member.protocol.primary_partition:
                continue
            there = member.processes.configuration
            if there is not None and (latest is None or there.id > latest.id):
                latest = there
        return set() if latest is None else set(latest.members)
