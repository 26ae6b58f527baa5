"""The topology as a node sees it, for `ordercast status`: rings, gateways, paths, and what waits for whom."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import Any

from ordercast.rings.machine import RingsMachine
from ordercast.rings.states import State


def report(machine: RingsMachine) -> dict[str, Any]:
    """The component configuration that was installed last; everything can be written as JSON."""
    order = machine.order
    attached = {ring.ring: ring for ring in machine.rings}
    on_rings = Counter(chain.from_iterable(ring.members for ring in order.rings))
    waiting = order.waiting_for()
    rings = []
    for ring, (agreed, safe) in zip(order.rings, waiting, strict=True):
        own = attached.get(ring)
        rings.append(
            {
                "network": ring.network,
                "seq": ring.seq,
                "rep": ring.rep,
                "members": list(ring.members),
                "gateways": [node for node in ring.members if on_rings[node] > 1],
                "attached": own is not None,
                "waiting": agreed,
                "waiting_safe": safe,
                "to_be_broadcast": 0 if own is None else own.outbox.traffic_bytes,
            }
        )
    lagging = min(range(len(rings)), key=order.horizon.__getitem__) if any(map(sum, waiting)) else None
    return {
        "topology": {
            "rings": rings,
            "paths": [
                {
                    "gateway": edge.gateway,
                    "from": order.rings[edge.source].network,
                    "to": order.rings[edge.target].network,
                }
                for edge in (machine.paths if machine.state is State.OPERATIONAL else ())
            ],
            "lagging": None if lagging is None else order.rings[lagging].network,
            "paused_by": sorted(machine.paused_by),
        }
    }
