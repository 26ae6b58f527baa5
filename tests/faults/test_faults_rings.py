"""Rings of real processes, and the gateway between them, which is killed and comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from group import Cluster

from free_ports import free_address

RINGS = {1: (1, 2, 3), 2: (3, 4, 5)}
GATEWAY = 3


def tables() -> dict[int, list[dict[str, Any]]]:
    """The `[[ring]]` tables of each node; those of a ring know each other."""
    found: dict[int, list[dict[str, Any]]] = {}
    for network, nodes in RINGS.items():
        addresses = {node: free_address() for node in nodes}
        for node, address in addresses.items():
            ring = {"network": network, "listen": address, "seeds": list(addresses.values())}
            found.setdefault(node, []).append(ring)
    return found


def test_rings_go_on_when_their_gateway_is_killed_and_are_one_again_when_it_is_back(tmp_path: Path) -> None:
    with Cluster(tmp_path, rate=40.0, safe=0.2) as group:
        options = {node: {"protocol": "rings", "ring": rings} for node, rings in sorted(tables().items())}
        for node, told in options.items():
            group.start(node, options=told)
        group.await_whole()
        group.await_progress()

        group.members[GATEWAY].kill()
        left, right = ([group.members[node] for node in nodes if node != GATEWAY] for nodes in RINGS.values())
        for side in (left, right):
            group.await_whole(side)
            group.await_progress(members=side)

        group.start(GATEWAY, options=options[GATEWAY])
        group.await_whole()
        group.await_progress()
        topology = group.members[1].report()["status"]["topology"]
        assert {path["gateway"] for path in topology["paths"]} == {GATEWAY}
        group.conclude()
