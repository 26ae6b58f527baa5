"""Why a run does not end: who waits for what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ordercast.core.identity import NodeId

if TYPE_CHECKING:
    from ordercast.testing.world import World


class Stuck(AssertionError):
    """A run does not end: nothing can happen any more, or it takes longer than its limit."""


def standstill(world: World) -> str:
    """Clients, nodes, and what runs there, as far as they wait."""
    told = [
        f"{client.name} waits for {client.waits_for}"
        for client, task in world.clients.items()
        if not task.done() and client.waits_for
    ]
    told += [each for id in world.ids for each in _node(world, id)]
    return "; ".join(told) or "the test itself waits for something"


def _node(world: World, id: NodeId) -> Iterator[str]:
    if world.process(id) is None:
        yield f"node {id} is down"
        return
    if id in world.stopped:
        yield f"node {id} is stopped"
    member = world.nodes[id - 1]._member
    if member is None:
        yield f"node {id} has not started"
        return
    for service in world.services:
        if id not in service.there:
            yield f"{service.name} has not opened at node {id}"
    for replica in world.replicas_of(id):
        if not replica.machine.up_to_date:
            yield f"{replica.name} at node {id} waits: {replica.machine.agreement.why_not or 'for a state'}"
    if not member.settled:
        yield f"node {id} is in state {member.driver.state} ({member.driver.because})"
    elif not member.primary.there:
        yield f"node {id} is not in the primary partition"
