"""Networks and the gateways that join them, as a drawing: in the terminal, and in SVG.

In the terminal nodes stand in a row and each network is a line that joins its own. In SVG each network is a
ring with its nodes on it; a gateway is a box between rings, with a spoke to each of them. Where it is known
over which gateways messages are forwarded, the others, which stand by, are hollow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from html import escape
from itertools import combinations
from math import atan2, cos, hypot, pi, sin, sqrt, tau

from rich.text import Text

from ordercast.core.identity import NodeId
from ordercast.draw.networks import Attached, in_a_row, joined, lines, neighbours_first
from ordercast.draw.palette import INK, LIGHT
from ordercast.draw.sheet import sheet

Forwarding = Collection[tuple[NodeId, int]]
"""Gateways with each network that they forward from or to."""

NODE, FORWARDS, STANDS_BY = "●", "◆", "◇"


def colour(number: int) -> int:
    """Index of a network's colour in `INK` and `LIGHT`, of which the first, grey, is no network's."""
    return 1 + (number - 1) % (len(INK) - 1)


# --- terminal --------------------------------------------------------------------------------------


def in_terminal(
    networks: Attached, forwarding: Forwarding, names: Mapping[NodeId, str], width: int
) -> Iterator[Text]:
    """A line for each network, the nodes below, and what the signs mean.

    Where that is wider than `width` columns, the nodes of a network that are no gateways are one sign.
    """
    row = in_a_row(networks)
    label = max(len(f"network {line.number}") for line in lines(networks, row))
    told = [names[node] for node in row]
    cell = max(3, *(len(name) + 1 for name in told))
    if label + 2 + cell * len(row) > width:
        first = {tuple(networks[node]): node for node in reversed(row)}
        row = [node for node in row if len(networks[node]) > 1 or node == first[tuple(networks[node])]]
        told = [_together(networks, names, node) for node in row]
        cell = max(len(name) + 1 for name in told)
    for line in lines(networks, row):
        text = Text(f"{f'network {line.number}':>{label}}  ", no_wrap=True)
        style = INK[colour(line.number)]
        for place, node in enumerate(row):
            sign = "─" if joined(line, place) else " "
            if place in line.places:
                sign = _sign(networks, forwarding, node, line.number)
            text.append(sign, f"bold {style}" if place in line.places else style)
            text.append(("─" if joined(line, place) else " ") * (cell - 1), style)
        text.rstrip()
        yield text
    yield Text(
        f"{'node':>{label}}  " + "".join(f"{name:<{cell}}" for name in told).rstrip(), "bold", no_wrap=True
    )
    yield Text("")
    signs = ((NODE, "node"), (FORWARDS, "gateway that forwards"), (STANDS_BY, "gateway that stands by"))
    yield Text("   ".join(f"{sign} {meaning}" for sign, meaning in signs), "bright_black")


def _together(networks: Attached, names: Mapping[NodeId, str], node: NodeId) -> str:
    """The name of a gateway; of another node, how many there are like it."""
    like = sum(on == networks[node] for on in networks.values())
    return names[node] if len(networks[node]) > 1 or like == 1 else f"×{like}"


def _sign(networks: Attached, forwarding: Forwarding, node: NodeId, number: int) -> str:
    if len(networks[node]) < 2:
        return NODE
    return FORWARDS if (node, number) in forwarding else STANDS_BY


# --- SVG -------------------------------------------------------------------------------------------

MARGIN = 28.0
HEAD = 66.0
FOOT = 44.0
DOT = 13.0
"""Radius of a node, in pixels."""
APART = 34.0
"""Pixels along a ring between two nodes, at least."""
SMALLEST = 46.0
"""Radius of a ring with few nodes."""
BETWEEN = 96.0
"""Pixels between two rings that a gateway joins."""
ROUNDS = 60
"""Rounds in which rings move to where their distances fit best."""

Point = tuple[float, float]

STYLE = """
text{font:12px ui-sans-serif,system-ui,"Helvetica Neue",Arial,sans-serif;fill:#1b1f24;text-anchor:middle}
.title{font-size:17px;font-weight:600;text-anchor:start}.faint{fill:#5b6470;text-anchor:start}
.name{font-weight:600;font-size:11px}.ring{font-weight:600;font-size:15px}.count{fill:#5b6470;font-size:11px}
.by{stroke-dasharray:4 4}
""".strip()


def in_svg(networks: Attached, forwarding: Forwarding, names: Mapping[NodeId, str], title: str) -> str:
    """Networks and their gateways, as the text of an SVG file."""
    return "\n".join(_Plan(networks, forwarding, names, title).file()) + "\n"


class _Plan:
    """Where rings, nodes and gateways are."""

    def __init__(
        self, networks: Attached, forwarding: Forwarding, names: Mapping[NodeId, str], title: str
    ) -> None:
        self.networks, self.forwarding, self.names, self.title = networks, forwarding, names, title
        self.numbers = neighbours_first(networks)
        self.own: dict[int, list[NodeId]] = {number: [] for number in self.numbers}
        self.gateways: list[NodeId] = []
        for node in sorted(networks):
            if len(networks[node]) > 1:
                self.gateways.append(node)
            elif networks[node]:
                self.own[networks[node][0]].append(node)
        self.radius = {n: max(SMALLEST, len(own) * APART / tau) for n, own in self.own.items()}
        centres = arrange(self._distances())
        self.boxes = self._boxes(centres)
        self._onto_the_sheet(centres)

    def _distances(self) -> dict[int, dict[int, float]]:
        """Between any two rings, over the gateways that join them: how far their centres should be apart."""
        far = sum(2 * radius + BETWEEN for radius in self.radius.values())
        apart = {a: {b: 0.0 if a == b else far for b in self.numbers} for a in self.numbers}
        for gateway in self.gateways:
            for a, b in combinations(self.networks[gateway], 2):
                apart[a][b] = apart[b][a] = self.radius[a] + BETWEEN + self.radius[b]
        for over in self.numbers:
            for a in self.numbers:
                for b in self.numbers:
                    apart[a][b] = min(apart[a][b], apart[a][over] + apart[over][b])
        return apart

    def _boxes(self, centres: Mapping[int, Point]) -> dict[NodeId, Point]:
        """Gateways in the middle of what they join; those that join the same, beside each other."""
        same: defaultdict[frozenset[int], list[NodeId]] = defaultdict(list)
        for gateway in self.gateways:
            same[frozenset(self.networks[gateway])].append(gateway)
        boxes: dict[NodeId, Point] = {}
        for joins, gateways in same.items():
            edges = self._between(sorted(joins), centres)
            x, y = sum(x for x, _ in edges) / len(edges), sum(y for _, y in edges) / len(edges)
            (ax, ay), (bx, by) = edges[0], edges[1]
            length = hypot(bx - ax, by - ay) or 1.0
            across = (-(by - ay) / length, (bx - ax) / length)
            for i, gateway in enumerate(gateways):
                aside = (i - (len(gateways) - 1) / 2) * 2.9 * DOT
                boxes[gateway] = (x + aside * across[0], y + aside * across[1])
        return boxes

    def _between(self, joins: Sequence[int], centres: Mapping[int, Point]) -> list[Point]:
        """Of rings, the places on them that are nearest to their common middle."""
        x = sum(centres[n][0] for n in joins) / len(joins)
        y = sum(centres[n][1] for n in joins) / len(joins)
        return [_towards(centres[n], (x, y), self.radius[n]) for n in joins]

    def _onto_the_sheet(self, centres: Mapping[int, Point]) -> None:
        room = DOT + 4
        around = [(x, y, self.radius[n] + room) for n, (x, y) in centres.items()]
        around += [(x, y, room) for x, y in self.boxes.values()]
        left, top = min(x - r for x, _, r in around), min(y - r for _, y, r in around)
        right, bottom = max(x + r for x, _, r in around), max(y + r for _, y, r in around)
        self.width = max(right - left + 2 * MARGIN, 520.0)
        self.height = bottom - top + HEAD + FOOT
        dx, dy = (self.width - (right - left)) / 2 - left, HEAD - top
        self.centres = {n: (x + dx, y + dy) for n, (x, y) in centres.items()}
        self.boxes = {node: (x + dx, y + dy) for node, (x, y) in self.boxes.items()}

    # --- the file ------------------------------------------------------------------------------

    def file(self) -> Iterator[str]:
        """Its lines."""
        body = [
            *self._head(),
            *self._rings(),
            *self._spokes(),
            *self._nodes(),
            *self._gateways(),
            *self._foot(),
        ]
        return sheet(self.width, self.height, self.title, STYLE, body)

    def _head(self) -> Iterator[str]:
        yield _text(MARGIN, 34, self.title, "title")
        told = f"networks: {len(self.numbers)}, nodes: {len(self.networks)}, gateways: {len(self.gateways)}"
        yield _text(MARGIN, 53, told, "faint")

    def _rings(self) -> Iterator[str]:
        for number, (x, y) in self.centres.items():
            c, r = colour(number), self.radius[number]
            yield (
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}" fill="{LIGHT[c]}" fill-opacity="0.16" '
                f'stroke="{INK[c]}" stroke-width="2.5"/>'
            )
            yield _text(x, y + 1, str(number), "ring")
            on_it = sum(number in on for on in self.networks.values())
            yield _text(x, y + 16, f"{on_it} nodes" if on_it != 1 else "1 node", "count")

    def _spokes(self) -> Iterator[str]:
        for gateway in self.gateways:
            for number in self.networks[gateway]:
                x, y = _towards(self.centres[number], self.boxes[gateway], self.radius[number])
                bx, by = self.boxes[gateway]
                ink = INK[colour(number)]
                style = "" if (gateway, number) in self.forwarding else ' class="by"'
                yield (
                    f'<line x1="{bx:.1f}" y1="{by:.1f}" x2="{x:.1f}" y2="{y:.1f}" stroke="{ink}" '
                    f'stroke-width="2.5"{style}/>'
                )
                yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{ink}"/>'

    def _nodes(self) -> Iterator[str]:
        for number, own in self.own.items():
            x, y = self.centres[number]
            taken = [
                atan2(self.boxes[gateway][1] - y, self.boxes[gateway][0] - x)
                for gateway in self.gateways
                if number in self.networks[gateway]
            ]
            for node, angle in zip(own, spread(len(own), taken), strict=True):
                yield self._node(
                    node, x + self.radius[number] * cos(angle), y + self.radius[number] * sin(angle)
                )

    def _node(self, node: NodeId, x: float, y: float) -> str:
        c = colour(self.networks[node][0])
        told = f"node {self.names[node]}, attached to network {self.networks[node][0]}"
        return (
            f'<g><title>{escape(told)}</title><circle cx="{x:.1f}" cy="{y:.1f}" r="{DOT}" fill="{LIGHT[c]}" '
            f'stroke="{INK[c]}" stroke-width="1.2"/>{_text(x, y + 4, self.names[node], "name")}</g>'
        )

    def _gateways(self) -> Iterator[str]:
        for gateway in self.gateways:
            x, y = self.boxes[gateway]
            to = " and ".join(map(str, sorted(self.networks[gateway])))
            over = sorted(number for node, number in self.forwarding if node == gateway)
            does = f"forwards between {' and '.join(map(str, over))}" if over else "stands by"
            told = f"gateway {self.names[gateway]}, attached to networks {to}: {does}"
            yield f"<g><title>{escape(told)}</title>{_box(x, y, bool(over))}"
            style = ' style="fill:#fff"' if over else ""
            name = escape(self.names[gateway])
            yield f'<text class="name" x="{x:.1f}" y="{y + 4:.1f}"{style}>{name}</text></g>'

    def _foot(self) -> Iterator[str]:
        x, y = MARGIN + DOT, self.height - 22
        signs = ((None, "node"), (True, "gateway that forwards"), (False, "gateway that stands by"))
        for forwards, meaning in signs:
            if forwards is None:
                yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="8" fill="{LIGHT[0]}" stroke="{INK[0]}"/>'
            else:
                yield _box(x, y, forwards, 8)
            yield _text(x + 14, y + 4, meaning, "faint")
            x += 46 + 6.6 * len(meaning)


def arrange(distances: Mapping[int, Mapping[int, float]]) -> dict[int, Point]:
    """Points in the plane whose distances are near the wanted ones, the longest extent from left to right.

    They begin between the two that should be farthest from each other, by their distances from these, above
    and below the line in turn. Then each moves to the mean of where the others want it, again and again
    (stress majorisation).
    """
    numbers = list(distances)
    if len(numbers) < 2:
        return dict.fromkeys(numbers, (0.0, 0.0))
    left, right = max(combinations(numbers, 2), key=lambda pair: round(distances[pair[0]][pair[1]], 3))
    span = distances[left][right]
    at: dict[int, Point] = {}
    side = 1
    for n in numbers:
        x = (distances[left][n] ** 2 - distances[right][n] ** 2 + span**2) / (2 * span)
        y = sqrt(max(0.0, distances[left][n] ** 2 - x**2))
        if any(hypot(*_minus(other, (x, y))) < distances[n][b] / 4 for b, other in at.items()):
            y += span / 8  # two that are equally far from both must not begin at one place
        at[n] = (x, side * y)
        side = -side if y > 1 else side
    for _ in range(ROUNDS):
        for a in numbers:
            at[a] = _wanted(a, at, distances[a])
    return at


def _wanted(a: int, at: Mapping[int, Point], distances: Mapping[int, float]) -> Point:
    """The mean of the places where the other points want a point; near ones count more."""
    x = y = weights = 0.0
    for b, (bx, by) in at.items():
        if a != b:
            far = distances[b]
            dx, dy = _minus(at[a], (bx, by))
            now = hypot(dx, dy) or 1.0
            weight = far**-2
            x += weight * (bx + far * dx / now)
            y += weight * (by + far * dy / now)
            weights += weight
    return x / weights, y / weights


def _minus(one: Point, other: Point) -> Point:
    return one[0] - other[0], one[1] - other[1]


def spread(count: int, taken: Sequence[float]) -> list[float]:
    """Angles for so many nodes on a ring, evenly over what is left between the angles that are taken."""
    if not taken:
        return [-pi / 2 + tau * i / max(1, count) for i in range(count)]
    marks = sorted({round(angle % tau, 6) for angle in taken})
    gaps = [(marks[(i + 1) % len(marks)] - mark) % tau or tau for i, mark in enumerate(marks)]
    share = [0] * len(marks)
    for _ in range(count):  # each node to where there is most room
        widest = max(range(len(marks)), key=lambda i: (round(gaps[i] / (share[i] + 1), 6), -i))
        share[widest] += 1
    angles: list[float] = []
    for mark, gap, nodes in zip(marks, gaps, share, strict=True):
        angles += [mark + gap * (i + 1) / (nodes + 1) for i in range(nodes)]
    return angles


def _towards(centre: Point, point: Point, radius: float) -> Point:
    """Where a ring is left on the way from its centre to a point."""
    dx, dy = _minus(point, centre)
    length = hypot(dx, dy) or 1.0
    return centre[0] + radius * dx / length, centre[1] + radius * dy / length


def _box(x: float, y: float, forwards: bool, half: float = DOT) -> str:
    fill, more = ("#334155", "") if forwards else ("#ffffff", ' stroke-dasharray="3 2"')
    return (
        f'<rect x="{x - half:.1f}" y="{y - half:.1f}" width="{2 * half:.0f}" height="{2 * half:.0f}" rx="4" '
        f'fill="{fill}" stroke="#334155" stroke-width="1.6"{more}/>'
    )


def _text(x: float, y: float, text: str, style: str) -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'
