"""Which rings are connected, and the ways between them (001, "Network Topology Maintenance")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ordercast.core.identity import NodeId
from ordercast.rings.messages import Report, Ring
from ordercast.rings.topology import Topology, closure, toward


def reports_of(networks: Mapping[NodeId, Sequence[int]], number: int = 0) -> dict[NodeId, Report]:
    """What nodes report that are attached to networks, all of which are whole."""
    members: dict[int, list[NodeId]] = {}
    for node in sorted(networks):
        for network in networks[node]:
            members.setdefault(network, []).append(node)
    rings = {network: Ring(network, 8, nodes[0], tuple(nodes)) for network, nodes in members.items()}
    return {
        node: Report(node, 1, tuple(rings[network] for network in sorted(attached)), number)
        for node, attached in networks.items()
    }


def topology_of(networks: Mapping[NodeId, Sequence[int]], number: int = 0) -> Topology:
    reports = reports_of(networks, number)
    found = closure(reports[1], reports, {})
    assert found is not None
    return found


def test_all_that_gateways_connect_is_one_topology() -> None:
    found = topology_of({1: [1], 2: [1, 2], 3: [2, 3], 4: [3], 5: [9]})
    assert [ring.network for ring in found.rings] == [1, 2, 3]
    assert found.members == (1, 2, 3, 4)


def test_who_has_not_reported_keeps_a_topology_from_being_complete() -> None:
    reports = reports_of({1: [1], 2: [1, 2], 3: [2]})
    assert closure(reports[1], {node: reports[node] for node in (1, 2)}, {}) is None
    assert closure(reports[1], reports, {3: 1}) is None, "this report led to the configuration before"
    assert closure(reports[1], reports, {3: 0}) is not None


def test_who_reports_another_ring_keeps_a_topology_from_being_complete() -> None:
    reports = reports_of({1: [1], 2: [1, 2], 3: [2]})
    reports[3] = Report(3, 2, (Ring(2, 12, 3, (3,)),), 0)
    assert closure(reports[1], reports, {}) is None


def test_every_ring_gets_the_messages_of_every_other_by_one_way() -> None:
    for networks in (
        {1: [1, 2], 2: [2, 3], 3: [3, 4]},  # a line
        {1: [1, 2], 2: [2, 3], 3: [3, 1]},  # a cycle
        {1: [1, 2, 3], 2: [1, 2, 3], 3: [3, 4], 4: [4, 5, 1]},  # gateways on three networks, redundant ones
        {1: [1], 2: [1]},
    ):
        topology = topology_of(networks)
        edges = topology.edges()
        for source in range(len(topology.rings)):
            came = [edge.target for edge in edges if source in topology.behind(edge, edges)]
            assert sorted([*came, source]) == list(range(len(topology.rings)))


def test_a_gateway_forwards_between_all_its_rings_directly() -> None:
    edges = topology_of({1: [1, 2, 3], 2: [2], 3: [3]}).edges()
    assert {(edge.source, edge.target) for edge in edges} == {(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)}


def test_configurations_are_numbered_above_all_that_their_nodes_know() -> None:
    """And two topologies never have the same identifier, even if nobody remembers the other."""
    plain = topology_of({1: [1], 2: [1]}, number=10**9)
    assert plain.id.seq > 10**9
    assert plain.id.seq % 4 == 0
    other = topology_of({1: [1], 2: [1, 2], 3: [2]}, number=10**9)
    assert plain.id != other.id


def first_on_the_way(networks: Mapping[NodeId, Sequence[int]], me: NodeId, node: NodeId) -> NodeId | None:
    return toward(me, node, topology_of(networks).rings)


def test_the_first_node_on_the_way_to_another_is_a_gateway_of_the_shortest_one() -> None:
    line = {1: [1], 2: [1, 2], 3: [2], 4: [2, 3], 5: [3, 4], 6: [4]}
    assert [first_on_the_way(line, 1, node) for node in (2, 3, 4, 6)] == [2, 2, 2, 2]
    assert [first_on_the_way(line, 2, node) for node in (1, 3, 6)] == [1, 3, 4]
    circle = {**line, 7: [1, 4]}
    assert [first_on_the_way(circle, 1, node) for node in (3, 5, 6)] == [2, 7, 7]
    assert first_on_the_way(circle, 1, 9) is None
