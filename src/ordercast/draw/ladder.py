"""Packets between nodes as a space-time diagram in SVG, the way the papers draw them.

A lane is a node, time goes to the right, and a packet is an arrow from when it was sent to when it arrived; a
lost one ends in a cross. What it says stands where it was sent. Dots are deliveries, with what was delivered
below them; bars are configurations that were installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from typing import NamedTuple

from ordercast.core.identity import NodeId
from ordercast.draw.palette import INK
from ordercast.draw.sheet import sheet

WIDTH = 1120.0
GUTTER = 40.0
MARGIN = 28.0
TOP = 84.0
PITCH = 78.0
LETTER = 5.7
"""Width of a letter of the labels, near enough."""
ABOVE, BELOW = (-6.0, -17.0, -28.0), (14.0, 25.0, 36.0)
"""Where labels may stand at a lane: of packets above it, of deliveries below it; the first that is free."""
COLOURS = (*INK[1:], "#5b6470", "#7a4a1d", "#004488", "#994455")
"""The colours of kinds of packets."""
LOST = 0.6
"""How far a lost packet gets."""
STEPS = (100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000)
"""Times between two labels of the axis, in microseconds."""

STYLE = """
text{font:10px ui-sans-serif,system-ui,"Helvetica Neue",Arial,sans-serif;fill:#1b1f24}
.title{font-size:16px;font-weight:600}.faint,.tick{fill:#5b6470}.tick{text-anchor:middle}
.node{font-size:13px;font-weight:600;text-anchor:end}.lane{stroke:#1b1f24;stroke-width:1.1}
.down{stroke:#9aa3ad;stroke-width:1.1;stroke-dasharray:2 4}.rule{stroke:#eceef1;stroke-width:1}
.on{paint-order:stroke;stroke:#ffffff;stroke-width:3px;stroke-linejoin:round}.what{font-weight:600}
.flight{stroke-width:1.2}.lost{stroke-width:1.2;stroke-dasharray:3 2}
.gone{stroke:#c1121f;stroke-width:2;fill:none}.view{stroke:#1b1f24;stroke-width:3}
""".strip()


class Flight(NamedTuple):
    """A packet on its way to one node."""

    sent_us: int
    source: NodeId
    to: NodeId
    arrived_us: int | None
    """None: it was lost."""
    text: str
    """What it says. The first word is its kind, and gives the colour."""


class Mark(NamedTuple):
    """Something that happened at a node."""

    time_us: int
    node: NodeId
    what: str
    """``deliver``, ``install``, ``crash``, ``halt`` or ``restart``."""
    text: str


class Lane(NamedTuple):
    """A node, and what it is called."""

    node: NodeId
    name: str


def draw(
    flights: Sequence[Flight],
    marks: Sequence[Mark],
    lanes: Sequence[Lane],
    span: tuple[int, int],
    title: str,
) -> str:
    """What was sent and what happened between two times, as the text of an SVG file."""
    return "\n".join(_Sheet(flights, marks, lanes, span, title).lines()) + "\n"


class _Sheet:
    """A drawing in the making: what is to be drawn, and which places of labels are taken."""

    def __init__(
        self,
        flights: Sequence[Flight],
        marks: Sequence[Mark],
        lanes: Sequence[Lane],
        span: tuple[int, int],
        title: str,
    ) -> None:
        self.start_us, self.end_us = span
        self.flights = sorted(flight for flight in flights if self.start_us <= flight.sent_us < self.end_us)
        inside = [mark for mark in marks if self.start_us <= mark.time_us < self.end_us]
        self.marks = sorted(inside, key=lambda mark: mark[:2])  # and as they are told, at one node and time
        self.earlier = [mark for mark in marks if mark.time_us < self.start_us]
        self.lanes, self.title = lanes, title
        self.y = {lane.node: TOP + PITCH * (place + 0.5) for place, lane in enumerate(lanes)}
        self.right = MARGIN + GUTTER + WIDTH
        self.bottom = TOP + PITCH * len(lanes)
        kinds = dict.fromkeys(flight.text.split()[0] for flight in self.flights)
        self.ink = {kind: COLOURS[place % len(COLOURS)] for place, kind in enumerate(kinds)}
        self._taken: dict[tuple[NodeId, float], float] = {}

    def x(self, time_us: float) -> float:
        """Where a time is."""
        share = (time_us - self.start_us) / (self.end_us - self.start_us)
        return MARGIN + GUTTER + 8 + share * (WIDTH - 16)

    def lines(self) -> Iterator[str]:
        """The lines of the SVG file."""
        return sheet(self.right + MARGIN, self.bottom + 40, self.title, STYLE, self._body())

    def _body(self) -> Iterator[str]:
        yield _text(MARGIN, 34, self.title, "title")
        yield from self._axis()
        yield from self._lanes()
        for flight in self.flights:
            yield from self._arrow(flight)
        yield from self._signs()
        yield from self._labels()
        yield from self._legend()

    def _axis(self) -> Iterator[str]:
        span_us = self.end_us - self.start_us
        step_us = next((step for step in STEPS if span_us / step <= 14), STEPS[-1])
        for time_us in range(-(-self.start_us // step_us) * step_us, self.end_us + 1, step_us):
            x = self.x(time_us)
            yield _line("rule", x, TOP - 12, x, self.bottom)
            yield _text(x, TOP - 18, f"{time_us / 1000:g} ms", "tick")

    def _lanes(self) -> Iterator[str]:
        for node, name in self.lanes:
            y, since, up = self.y[node], MARGIN + GUTTER, self._up_before(node)
            yield _text(MARGIN + GUTTER - 10, y + 4, name, "node")
            for mark in self.marks:
                if mark.node == node and mark.what in ("crash", "halt", "restart"):
                    yield _line("lane" if up else "down", since, y, self.x(mark.time_us), y)
                    since, up = self.x(mark.time_us), mark.what == "restart"
            yield _line("lane" if up else "down", since, y, self.right, y)

    def _up_before(self, node: NodeId) -> bool:
        ends = [
            mark for mark in self.earlier if mark.node == node and mark.what in ("crash", "halt", "restart")
        ]
        return not ends or max(ends).what == "restart"

    def _arrow(self, flight: Flight) -> Iterator[str]:
        colour = self.ink[flight.text.split()[0]]
        x1, y1, y2 = self.x(flight.sent_us), self.y[flight.source], self.y[flight.to]
        lost = flight.arrived_us is None
        x2 = self.x(self._usual(flight) if flight.arrived_us is None else flight.arrived_us)
        if lost:
            x2, y2 = x1 + LOST * (x2 - x1), y1 + LOST * (y2 - y1)
        length = max(((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5, 1.0)
        ux, uy = (x2 - x1) / length, (y2 - y1) / length
        yield _line("lost" if lost else "flight", x1, y1, x2, y2, f' stroke="{colour}"')
        if lost:
            yield f'<path class="gone" d="M{x2 - 4:.1f} {y2 - 4:.1f}l8 8m-8 0l8 -8"/>'
        else:
            left, top = x2 - 6 * ux + 2.6 * uy, y2 - 6 * uy - 2.6 * ux
            right, low = x2 - 6 * ux - 2.6 * uy, y2 - 6 * uy + 2.6 * ux
            head = f"M{x2:.1f} {y2:.1f}L{left:.1f} {top:.1f}L{right:.1f} {low:.1f}Z"
            yield f'<path d="{head}" fill="{colour}"/>'

    def _usual(self, flight: Flight) -> int:
        """When a lost packet would have arrived: as others of the same sending did, or all others."""
        others = [other for other in self.flights if other.arrived_us is not None]
        same = [other for other in others if (other.sent_us, other.source) == flight[:2]] or others
        took_us = max((other.arrived_us or 0) - other.sent_us for other in same) if same else 1
        return flight.sent_us + took_us

    def _signs(self) -> Iterator[str]:
        for time_us, node, what, _ in self.marks:
            x, y = self.x(time_us), self.y[node]
            if what == "deliver":
                yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.6" fill="#1b1f24"/>'
            elif what == "install":
                yield _line("view", x, y - 9, x, y + 9)
            elif what in ("crash", "halt"):
                yield f'<path class="gone" d="M{x - 6:.1f} {y - 6:.1f}l12 12m-12 0l12 -12"/>'

    def _labels(self) -> Iterator[str]:
        sent = {(flight.sent_us, flight.source, flight.text): flight for flight in self.flights}
        for time_us, node, text in sent:
            style = f'class="on" style="fill:{self.ink[text.split()[0]]}"'
            yield self._label(node, time_us, text, ABOVE, style)
        for (time_us, node), together in groupby(self.marks, key=lambda mark: mark[:2]):
            text = " ".join(mark.text for mark in together if mark.text)
            if text:
                yield self._label(node, time_us, text, BELOW, 'class="on what"')

    def _label(self, node: NodeId, time_us: int, text: str, rows: Sequence[float], style: str) -> str:
        """A text at a lane, in the first row that is free there; if none is, in the last."""
        width = LETTER * len(text) + 8
        left = min(self.x(time_us) + 2, self.right - width)
        row = next((row for row in rows if self._taken.get((node, row), 0.0) <= left), rows[-1])
        self._taken[node, row] = left + width
        return f'<text x="{left:.1f}" y="{self.y[node] + row:.1f}" {style}>{escape(text)}</text>'

    def _legend(self) -> Iterator[str]:
        x, y = MARGIN + GUTTER, self.bottom + 18
        for kind, colour in self.ink.items():
            yield _line("flight", x, y - 3.5, x + 20, y - 3.5, f' stroke="{colour}"')
            yield _text(x + 25, y, kind)
            x += 42 + LETTER * len(kind)
        seen = {mark.what for mark in self.marks}
        if "deliver" in seen:
            yield f'<circle cx="{x + 5:.1f}" cy="{y - 3.5:.1f}" r="3.6" fill="#1b1f24"/>'
            yield _text(x + 14, y, "delivered")
            x += 78
        if "install" in seen:
            yield _line("view", x, y - 10, x, y + 3)
            yield _text(x + 8, y, "installed")


def _text(x: float, y: float, text: str, style: str = "") -> str:
    styled = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{styled}>{escape(text)}</text>'


def _line(style: str, x1: float, y1: float, x2: float, y2: float, more: str = "") -> str:
    return f'<line class="{style}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"{more}/>'
