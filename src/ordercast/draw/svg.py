"""A run as a space-time drawing in SVG: one self-contained file, lanes above each other, time to the right.

Every bar is a node's time in a configuration, in the configuration's colour, and tells on hovering what
there is to tell. A regular configuration is solid, a transitional one dashed (and at least wide enough
to be seen: most last no time at all). Faults are lines from top to bottom.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from ordercast.core.identity import Configuration, Kind, NodeId
from ordercast.draw import words
from ordercast.draw.networks import Line
from ordercast.draw.palette import INK, LIGHT, colours
from ordercast.draw.scale import Scale
from ordercast.draw.sheet import sheet
from ordercast.draw.spacetime import Ending, Lane, Life, Note, Segment, Timeline

NARROWEST, WIDEST = 1040.0, 6000.0
"""The least and the greatest width of the time axis, in pixels."""
GUTTER = 64.0
"""Left of the axis, for the nodes' names."""
NETWORK = 16.0
"""More of it for each network, where there are several."""
MARGIN = 24.0
LETTER = 6.1
"""Width of a letter of the small text, near enough to say whether a label fits."""
SLIVER = 9.0
"""Least width of a transitional configuration."""
NOTE_ROWS = 6
"""Rows of text for notes; with more, notes are numbered and told below the drawing."""
NOTES_TOP = 74.0
ROW = 15.0
MOST_LISTED = 60
"""Configurations in the legend, and notes below the drawing; the rest is counted."""

NETWORKS = "#475569"
TEXT, FAINT, RULE, FAULT, GONE, BACK = "#1b1f24", "#5b6470", "#e3e6ea", "#9a3412", "#c1121f", "#15803d"

STYLE = f"""
text{{font:11px ui-sans-serif,system-ui,"Helvetica Neue",Arial,sans-serif;fill:{TEXT}}}
.title{{font-size:17px;font-weight:600}}.faint{{fill:{FAINT}}}.node{{font-weight:600;text-anchor:end}}
.tick{{fill:{FAINT};text-anchor:middle;font-size:10px;paint-order:stroke;stroke:#fff;stroke-width:4px}}
.axis{{stroke:{FAINT};stroke-width:1}}.end{{text-anchor:end}}
.rule{{stroke:{RULE};stroke-width:1}}.down{{stroke:#9aa3ad;stroke-width:1.2;stroke-dasharray:1 4}}
.fault{{stroke:{FAULT};stroke-width:1;stroke-dasharray:5 3;opacity:.75}}
.note{{fill:{FAULT};font-weight:600;paint-order:stroke;stroke:#fff;stroke-width:3px}}
.gone{{stroke:{GONE};stroke-width:2.4;stroke-linecap:round;fill:none}}.halt{{fill:{GONE}}}
.band{{fill:#f3f6fa}}.network{{stroke:{NETWORKS};stroke-width:2}}.on{{fill:{NETWORKS}}}
.number{{fill:{NETWORKS};text-anchor:middle;font-size:10px;font-weight:600;paint-order:stroke;stroke:#fff;stroke-width:3px}}
.back{{stroke:{BACK};stroke-width:1.9;stroke-linecap:round;fill:none}}
""".strip()


def draw(timeline: Timeline, notes: Sequence[Note] = (), *, title: str = "") -> str:
    """The drawing of a timeline, as the text of an SVG file."""
    return "\n".join(_Sheet(timeline, sorted(notes), title).lines()) + "\n"


class _Sheet:
    """One drawing: where everything goes, and the strings that put it there."""

    def __init__(self, timeline: Timeline, notes: Sequence[Note], title: str) -> None:
        self.timeline, self.notes, self.title = timeline, notes, title or "What happened"
        self.zero = words.zero(timeline.start_us)
        self.colours = colours(timeline)
        self.left = MARGIN + GUTTER + NETWORK * len(timeline.networks)
        self.x = Scale(self._times(), self.left, NARROWEST, WIDEST)
        self.width = self.x.right + MARGIN + 12
        few = len(timeline.lanes)
        self.pitch = 30.0 if few <= 12 else 22.0 if few <= 30 else 18.0
        self.bar = self.pitch * 0.68
        self._label_notes()
        rows = max((row for row, _ in self.places), default=-1) + 1
        self.axis = NOTES_TOP + rows * ROW + (6 if rows else 0)
        self.top = self.axis + 12
        self.bottom = self.top + self.pitch * few

    def _times(self) -> Iterator[int]:
        yield from (self.timeline.start_us, self.timeline.end_us)
        for lane in self.timeline.lanes:
            for life in lane.lives:
                yield from (life.start_us, life.end_us)
                yield from (segment.start_us for segment in life.segments)
        for time_us, _ in self.notes:
            if self.timeline.start_us <= time_us <= self.timeline.end_us:
                yield time_us

    def _label_notes(self) -> None:
        """Their texts if those find room, else numbers, else numbers on top of each other."""
        self.labels = [text for _, text in self.notes]
        placed = self._place(self.labels)
        self.numbered = placed is None
        if placed is None:
            self.labels = [str(number) for number in range(1, len(self.notes) + 1)]
            placed = self._place(self.labels)
        self.places = placed or [(0, self.x(time_us)) for time_us, _ in self.notes]

    def _place(self, labels: Sequence[str]) -> list[tuple[int, float]] | None:
        """Row and place of every note's label; None if they need too many rows."""
        free_from = [0.0] * NOTE_ROWS
        placed = []
        for (time_us, _), label in zip(self.notes, labels, strict=True):
            width = LETTER * len(label) * 1.08 + 14
            left = min(self.x(time_us), max(MARGIN, self.width - MARGIN - width))
            row = next((row for row, free in enumerate(free_from) if free <= left), None)
            if row is None:
                return None
            free_from[row] = left + width
            placed.append((row, left))
        return placed

    # --- the sheet, part by part ---------------------------------------------------------------

    def lines(self) -> Iterator[str]:
        """The file's lines; the height is known once everything is placed."""
        body = [
            *self._head(),
            *self._bands(),
            *self._ticks(),
            *self._networks(),
            *self._lanes(),
            *self._notes(),
            *self._axis(),
        ]
        self.below = self.bottom + (30 if self._long() else 14)
        body += [*self._signs(), *self._listed_notes(), *self._legend()]
        return sheet(self.width, self.below + MARGIN, self.title, STYLE, body)

    def _head(self) -> Iterator[str]:
        everyone = [segment for lane in self.timeline.lanes for segment in lane.segments()]
        delivered = sum(segment.total for segment in everyone)
        regular = {s.configuration for s in everyone if s.configuration.kind == Kind.REGULAR}
        span = words.duration(self.timeline.end_us - self.timeline.start_us)
        yield self._text(MARGIN, 36, self.title, "title")
        yield self._text(
            MARGIN,
            55,
            f"nodes: {len(self.timeline.lanes)}, time: {span}, regular configurations: {len(regular)}, "
            f"deliveries: {delivered:,}. The time axis is wider where something changes.",
            "faint",
        )

    def _long(self) -> bool:
        return len(self.timeline.lanes) > 15

    def _ticks(self) -> Iterator[str]:
        for x, _ in self.x.ticks(62, self.zero):
            yield _line("rule", x, self.axis + 4, x, self.bottom)

    def _axis(self) -> Iterator[str]:
        """Drawn last, so that no line crosses a label."""
        yield _line("axis", self.left, self.axis + 4, self.x.right, self.axis + 4)
        for x, time_us in self.x.ticks(62, self.zero):
            yield self._text(x, self.axis, _tick(time_us), "tick")
            if self._long():
                yield self._text(x, self.bottom + 14, _tick(time_us), "tick")

    def _middle(self, place: int) -> float:
        """The middle of the lane at a place."""
        return self.top + self.pitch * (place + 0.5)

    def _bands(self) -> Iterator[str]:
        """A ground for the lanes of each network; those of gateways, which are on several, have none."""
        for line in self.timeline.networks:
            for first, last in _stretches(self._alone_on(line)):
                top, bottom = self._middle(first) - self.pitch / 2, self._middle(last) + self.pitch / 2
                yield (
                    f'<rect class="band" x="{MARGIN:.1f}" y="{top + 1:.1f}" '
                    f'width="{self.x.right - MARGIN:.1f}" height="{bottom - top - 2:.1f}" rx="4"/>'
                )

    def _alone_on(self, line: Line) -> list[int]:
        """Places of nodes that are attached to no other network."""
        others = {place for other in self.timeline.networks if other != line for place in other.places}
        return [place for place in line.places if place not in others]

    def _networks(self) -> Iterator[str]:
        """A line down the lanes for each network, with a dot at each node that is attached to it."""
        for at, line in enumerate(self.timeline.networks):
            x = MARGIN + NETWORK * (at + 0.5)
            yield f"<g><title>network {line.number}</title>"
            yield _line("network", x, self._middle(line.places[0]), x, self._middle(line.places[-1]))
            for place in line.places:
                yield f'<circle class="on" cx="{x:.1f}" cy="{self._middle(place):.1f}" r="4"/>'
            yield self._text(x, self._middle(line.places[0]) - 9, str(line.number), "number") + "</g>"

    def _lanes(self) -> Iterator[str]:
        above: Lane | None = None
        for place, lane in enumerate(self.timeline.lanes):
            middle = self._middle(place)
            yield self._text(self.left - 10, middle + 4, str(lane.node), "node")
            gone: float | None = None
            for life in lane.lives:
                if gone is not None:
                    yield _line("down", gone, middle, self.x(life.start_us), middle)
                for number, segment in enumerate(life.segments):
                    after = life.segments[number + 1] if number + 1 < len(life.segments) else None
                    yield from self._segment(lane, life, segment, after, middle, above)
                gone = self.x(life.end_us)
            if gone is not None and lane.lives[-1].ending:
                yield _line("down", gone, middle, self.x.right, middle)
            for life in lane.lives:
                yield from self._glyphs(lane.node, life, middle)
            above = lane

    def _segment(
        self,
        lane: Lane,
        life: Life,
        segment: Segment,
        after: Segment | None,
        middle: float,
        above: Lane | None,
    ) -> Iterator[str]:
        configuration = segment.configuration
        left, right = self.x(segment.start_us), self.x(segment.end_us)
        index = self.colours[configuration]
        top = middle - self.bar / 2
        if configuration.kind == Kind.TRANSITIONAL:
            left = min(left, right - SLIVER)
            shape = f'fill="#ffffff" stroke="{INK[index]}" stroke-width="1.4" stroke-dasharray="3 2"'
        else:
            if after is not None and after.configuration.kind == Kind.TRANSITIONAL:
                right = max(left, min(right, self.x(after.end_us) - SLIVER))
            shape = f'fill="{LIGHT[index]}" stroke="{INK[index]}" stroke-width="0.8"'
        width = max(right - left, 1.0)
        yield (
            f'<g><title>{escape(self._told(lane.node, segment))}</title><rect x="{left:.1f}" y="{top:.1f}" '
            f'width="{width:.1f}" height="{self.bar:.1f}" rx="2" {shape}/></g>'
        )
        if life.incarnation > 0 and segment is life.segments[0]:  # the arrow takes some of the room
            left, width = left + 9, width - 9
        if life.ending and after is None:  # and so does the cross
            width -= 7
        yield from self._labels(segment, left, width, middle, above)

    def _labels(
        self, segment: Segment, left: float, width: float, middle: float, above: Lane | None
    ) -> Iterator[str]:
        """The members, unless the lane above has the same bar; and what was delivered; if they fit."""
        room = int((width - 10) / LETTER)
        delivered = f"{segment.total:,}" if segment.total else ""
        same = above is not None and any(
            other.configuration == segment.configuration and other.start_us <= segment.end_us
            for other in above.segments()
        )
        if segment.configuration.kind == Kind.REGULAR and not same and room >= 3:
            members = words.members(segment.configuration, 400)
            if len(members) > room:
                members = f"{len(segment.configuration.members)} nodes"
            if len(members) <= room:
                yield self._text(left + 5, middle + 4, members)
                room -= len(members) + 2
        if delivered and len(delivered) <= room:
            yield self._text(left + width - 5, middle + 4, delivered, "end")

    def _told(self, node: NodeId, segment: Segment) -> str:
        configuration = segment.configuration
        start, end = (words.clock(time - self.zero) for time in (segment.start_us, segment.end_us))
        members = words.members(configuration, 400)
        ended = segment.ended
        after = f"\nafter {ended.configuration}, up to place {ended.place}" if ended else ""
        return (
            f"node {node}: {words.kind(configuration)} {members}\n{start} to {end}, "
            f"delivered {words.deliveries([segment.delivered])}{after}"
        )

    def _glyphs(self, node: NodeId, life: Life, middle: float) -> Iterator[str]:
        if life.incarnation > 0:
            told = f"node {node} restarts at {words.clock(life.start_us - self.zero)}"
            yield _glyph("restart", self.x(life.start_us), middle, told)
        if life.ending:
            told = f"node {node}: {life.ending.value} at {words.clock(life.end_us - self.zero)}"
            yield _glyph(life.ending.value, self.x(life.end_us), middle, told)

    def _notes(self) -> Iterator[str]:
        """All lines, then all texts: no line crosses a text."""
        texts = []
        for number, (time_us, text) in enumerate(self.notes):
            x = self.x(time_us)
            row, left = self.places[number]
            y = NOTES_TOP + ROW * row
            line = _line("fault", x, y - 10, x, self.bottom)
            yield f"<g><title>{escape(words.clock(time_us - self.zero))}: {escape(text)}</title>{line}</g>"
            texts.append(self._text(left + 4, y, self.labels[number], "note"))
        yield from texts

    # --- below the lanes -----------------------------------------------------------------------

    def _signs(self) -> Iterator[str]:
        self.below += 22
        x, y = self.left, self.below
        for shape, meaning in (
            (f'fill="{LIGHT[1]}" stroke="{INK[1]}"', "regular configuration"),
            (f'fill="#ffffff" stroke="{INK[1]}" stroke-width="1.4" stroke-dasharray="3 2"', "transitional"),
            (f'fill="{LIGHT[0]}" stroke="{INK[0]}"', "alone"),
        ):
            yield f'<rect x="{x:.1f}" y="{y - 10:.1f}" width="18" height="12" rx="2" {shape}/>'
            yield self._text(x + 24, y, meaning)
            x += 44 + LETTER * len(meaning)
        for sign in ("crash", "halt", "restart"):
            yield _glyph(sign, x + 6, y - 4, sign)
            yield self._text(x + 18, y, sign)
            x += 38 + LETTER * len(sign)
        if self.timeline.networks:
            yield _line("network", x, y - 4, x + 22, y - 4)
            yield "".join(f'<circle class="on" cx="{x + dx:.1f}" cy="{y - 4:.1f}" r="4"/>' for dx in (0, 22))
            yield self._text(x + 32, y, "network, and who is attached")
            x += 52 + LETTER * len("network, and who is attached")
        yield self._text(x, y, "figures in the bars: messages delivered", "faint")

    def _listed_notes(self) -> Iterator[str]:
        if not self.numbered:
            return
        self.below += 16
        entries = [f"{n}: {words.clock(t - self.zero)}, {text}" for n, (t, text) in enumerate(self.notes, 1)]
        for x, y, entry in self._columns(entries, max(map(len, entries))):
            yield self._text(x, y, entry, "note")
        yield from self._more(len(entries))

    def _legend(self) -> Iterator[str]:
        """Regular configurations of more than one, by their first install."""
        first: dict[Configuration, int] = {}
        for lane in self.timeline.lanes:
            for segment in lane.segments():
                start_us = first.get(segment.configuration, segment.start_us)
                first[segment.configuration] = min(start_us, segment.start_us)
        several = [
            configuration
            for configuration in self.timeline.configurations()
            if configuration.kind == Kind.REGULAR and len(configuration.members) > 1
        ]
        self.below += 16
        entries = [f"{c.id} {words.members(c, 60)} from {words.clock(first[c] - self.zero)}" for c in several]
        columns = self._columns(entries, max(map(len, entries), default=0) + 4)
        for configuration, (x, y, entry) in zip(several, columns, strict=False):
            index = self.colours[configuration]
            yield (
                f'<rect x="{x:.1f}" y="{y - 9:.1f}" width="14" height="11" rx="2" fill="{LIGHT[index]}" '
                f'stroke="{INK[index]}" stroke-width="0.8"/>'
            )
            yield self._text(x + 20, y, entry)
        yield from self._more(len(several))

    def _more(self, count: int) -> Iterator[str]:
        if count > MOST_LISTED:
            self.below += ROW
            yield self._text(self.left, self.below, f"and {count - MOST_LISTED} more", "faint")

    def _columns(self, entries: Sequence[str], longest: int) -> list[tuple[float, float, str]]:
        """Places for the first entries, in columns read downwards; moves on to below them."""
        shown = entries[:MOST_LISTED]
        wide = LETTER * longest + 24
        across = max(1, int((self.width - MARGIN - self.left) / wide))
        down = -(-len(shown) // across)
        top = self.below + ROW
        self.below += ROW * down
        return [
            (self.left + wide * (place // down), top + ROW * (place % down), entry)
            for place, entry in enumerate(shown)
        ]

    def _text(self, x: float, y: float, text: str, style: str = "") -> str:
        styled = f' class="{style}"' if style else ""
        return f'<text x="{x:.1f}" y="{y:.1f}"{styled}>{escape(text)}</text>'


def _stretches(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Places that follow each other: the first and the last of each stretch."""
    start = None
    for place in places:
        if start is None:
            start = place
        if place + 1 not in places:
            yield start, place
            start = None


def _line(style: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{style}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _tick(time_us: int) -> str:
    if time_us % 1000:
        return f"{time_us / 1000:g} ms"
    return f"{time_us // 1000} ms" if abs(time_us) < 1_000_000 else f"{time_us / 1_000_000:g} s"


def _glyph(sign: str, x: float, y: float, told: str) -> str:
    """A cross for a crash (or a silence), a square for a halt, an arrow turning round for a restart."""
    at = f'transform="translate({x:.1f} {y:.1f})"'
    if sign == Ending.HALT:
        shape = '<rect class="halt" x="-5" y="-5" width="10" height="10"/>'
    elif sign == "restart":
        shape = (
            '<circle r="7" fill="#ffffff"/>'
            '<path class="back" d="M4.6 -1.8A5 5 0 1 0 4.6 1.8M4.9 -5.6V-1.6H0.9"/>'
        )
    else:
        shape = '<path class="gone" d="M-4.5 -4.5L4.5 4.5M-4.5 4.5L4.5 -4.5"/>'
    return f"<g {at}><title>{escape(told)}</title>{shape}</g>"
