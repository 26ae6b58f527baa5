"""``ordercast sim topology``: networks and the gateways that join them, drawn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.markup import escape

from ordercast.catalogue import LAB_RINGS
from ordercast.cli import options
from ordercast.cli.options import Json, NodeRange
from ordercast.cli.scenario import blaming_scenario
from ordercast.cli.screen import STDOUT, answer, blaming, refuse
from ordercast.core.identity import NodeId
from ordercast.draw.networks import Attached, neighbours_first
from ordercast.draw.topology import in_svg, in_terminal
from ordercast.rings.messages import Report, Ring
from ordercast.rings.topology import Topology
from ordercast.sim.fuzz import plan
from ordercast.sim.scenario import parse
from ordercast.sim.topology import attached, members


class _Drawn(NamedTuple):
    networks: Attached
    names: Mapping[NodeId, str]
    title: str


def topology(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A scenario with several networks.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, help="Or: what the fuzzer of rings draws from it."),
    ] = None,
    nodes: NodeRange = None,
    svg: Annotated[
        Path | None, typer.Option(dir_okay=False, metavar="FILE", help="Draw it into this file, too.")
    ] = None,
    json: Json = False,
) -> None:
    """Draw networks, the nodes attached to them, and the gateways that join them.

    Gateways that forward while everybody is up are told from those that stand by.
    """
    if (file is None) == (seed is None):
        raise typer.BadParameter("name a scenario file, or give a --seed", param_hint="FILE")
    drawn = _of_scenario(file) if file is not None else _of_seed(seed or 0, nodes)
    forwarding = forwarding_in(drawn.networks)
    if svg is not None:
        with blaming("--svg"):
            svg.parent.mkdir(parents=True, exist_ok=True)
            svg.write_text(in_svg(drawn.networks, forwarding, drawn.names, drawn.title), encoding="utf-8")
    if json:
        answer(
            {
                "networks": {
                    str(number): [drawn.names[node] for node in members(drawn.networks, number)]
                    for number in neighbours_first(drawn.networks)
                },
                "forwarding": {
                    drawn.names[node]: sorted(number for other, number in forwarding if other == node)
                    for node in sorted({node for node, _ in forwarding})
                },
            }
        )
        return
    for line in in_terminal(drawn.networks, forwarding, drawn.names, STDOUT.width):
        STDOUT.print(line)
    if svg is not None:
        STDOUT.print(f"[bright_black]written:[/] {escape(str(svg))}", soft_wrap=True)


def _of_scenario(file: Path) -> _Drawn:
    with blaming_scenario(file):
        story = parse(file.read_text(encoding="utf-8"))
    if not story.networks:
        refuse(f"{file} has one network for all nodes; say who is attached where: attach p q g to 1")
    return _Drawn(story.networks, {node: name for name, node in story.nodes.items()}, file.stem)


def _of_seed(seed: int, nodes: str | None) -> _Drawn:
    with blaming("--nodes"):
        case = plan(LAB_RINGS, seed, options.nodes(nodes, LAB_RINGS.nodes))
    networks = attached(case.settings, case.nodes)
    assert networks is not None, "rings have networks"
    return _Drawn(networks, {node: str(node) for node in case.nodes}, f"rings, seed {seed}")


def forwarding_in(networks: Attached) -> frozenset[tuple[NodeId, int]]:
    """Gateways with the networks that they forward from and to, if each network is one ring."""
    numbers = sorted({number for on in networks.values() for number in on})
    rings = {number: Ring(number, 0, 1, tuple(sorted(members(networks, number)))) for number in numbers}
    reports = {
        node: Report(node, 1, tuple(rings[number] for number in sorted(on)), 0)
        for node, on in networks.items()
    }
    edges = Topology({(number, 0, 1): ring for number, ring in rings.items()}, reports).edges()
    return frozenset((edge.gateway, numbers[end]) for edge in edges for end in (edge.source, edge.target))
