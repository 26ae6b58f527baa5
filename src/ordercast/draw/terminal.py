"""A run as a space-time drawing in the terminal: nodes side by side, time downwards.

One row a moment, not one row a millisecond: the quiet between two changes is told by what was delivered
in it. The drawing fits itself to the terminal: lanes grow narrow as nodes grow many, and text that finds
no room beside them is wrapped while the lanes run on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from ordercast.core.identity import Configuration, Kind, NodeId
from ordercast.draw import words
from ordercast.draw.networks import joined
from ordercast.draw.palette import INK, colours
from ordercast.draw.spacetime import NEAR_US, Moment, MomentKind, Note, Segment, Timeline, moments

CELLS = (7, 6, 5, 4, 3, 2, 1)
"""Widths a lane may have, best first; from `COUNTED` on it has room for a count."""
COUNTED = 6
ROOMY = 36
"""Columns the text beside the lanes should have; with less, lanes become narrower."""
NARROWEST = 20
"""With less than this left beside the narrowest lanes, the last lanes are left out."""
MANY = 6
"""More nodes than this are not named twice in a sentence."""
WORTH_SAYING_US = 3000
"""A moment that took longer says how long."""
MOST_ROWS = 1000
"""Moments drawn; the rest of a longer timeline is counted, not drawn."""

NETWORK = "●"
REGULAR, DASHED, DOWN, WAITING = "┃", "╏", "·", "╷"
GLYPHS = {MomentKind.RESTART: "↻", MomentKind.CRASH: "✗", MomentKind.HALT: "■", MomentKind.SILENCE: "✗"}
STYLES = {
    MomentKind.RESTART: "bold green",
    MomentKind.CRASH: "bold red",
    MomentKind.HALT: "bold red",
    MomentKind.SILENCE: "bold red",
}
INSTALLS = {Kind.REGULAR: "●", Kind.TRANSITIONAL: "◌"}
NOTE_STYLE = "bold yellow"
FAINT = "bright_black"

VERBS = {
    MomentKind.RESTART: ("restarts", "restart"),
    MomentKind.INSTALL: ("installs", "install"),
    MomentKind.CRASH: ("crashes", "crash"),
    MomentKind.HALT: ("halts", "halt"),
    MomentKind.SILENCE: ("falls silent", "fall silent"),
}


def sentence(moment: Moment) -> str:
    """A moment in words: ``1 2 3 install {1 2 3} (transitional 6.1) after place 17``."""
    who = moment.nodes
    verb = VERBS[moment.what][len(who) > 1]
    configuration = moment.configuration
    if configuration is not None and len(who) > MANY and tuple(who) == configuration.members:
        text = f"all of {words.members(configuration)} install it ({words.kind(configuration)})"
    elif configuration is not None:
        text = f"{words.nodes(who)} {verb} {words.members(configuration)} ({words.kind(configuration)})"
    elif moment.alone is not None:
        text = f"{words.nodes(who)} each {verb} only themselves ({moment.alone})"
    else:
        text = f"{words.nodes(who)} {verb}"
    if moment.place is not None:
        text = f"{text} after place {moment.place}"
    took_us = moment.end_us - moment.start_us
    return f"{text} within {words.duration(took_us)}" if took_us >= WORTH_SAYING_US else text


class Drawing:
    """A timeline to be printed by a rich console, with notes from outside the trace drawn across it."""

    def __init__(
        self,
        timeline: Timeline,
        notes: Sequence[Note] = (),
        *,
        near_us: int = NEAR_US,
        most_rows: int = MOST_ROWS,
    ) -> None:
        self.timeline = timeline
        self.notes = sorted(notes)
        self.moments = moments(timeline, near_us)
        self.most_rows = most_rows
        self.colours = colours(timeline)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _Page(self, options.max_width).lines()


class _Page:
    """One drawing at one width: knows where each lane stands as it goes down the page."""

    def __init__(self, drawing: Drawing, width: int) -> None:
        self.drawing = drawing
        self.zero = words.zero(drawing.timeline.start_us)
        self.clock_width = max(10, len(words.clock(drawing.timeline.end_us - self.zero))) + 2
        every = [lane.node for lane in drawing.timeline.lanes]
        most = max(1, width - self.clock_width - NARROWEST)
        self.nodes = every[:most]
        self.left_out = every[most:]
        self.cell = next((cell for cell in CELLS if self._fits(cell, width)), CELLS[-1])
        self.text_width = max(NARROWEST, width - self.clock_width - self.cell * len(self.nodes) - 1)
        self.current: dict[NodeId, Segment | None] = dict.fromkeys(self.nodes)
        self.down: dict[NodeId, str] = dict.fromkeys(self.nodes, " ")
        """What a lane shows where no configuration is installed."""
        self.clock_shown_us = -1

    def _fits(self, cell: int, width: int) -> bool:
        return self.clock_width + cell * len(self.nodes) + 1 + ROOMY <= width

    # --- the page, from top to bottom ----------------------------------------------------------

    def lines(self) -> Iterator[Text]:
        """Heading, moments and notes by time, the end, and what the signs mean."""
        yield from self._heading()
        waiting = list(self.drawing.notes)
        shown = self.drawing.moments[: self.drawing.most_rows]
        for moment in shown:
            while waiting and waiting[0][0] <= moment.start_us:
                yield from self._note(*waiting.pop(0))
            yield from self._moment(moment)
        hidden = len(self.drawing.moments) - len(shown)
        if hidden:
            yield from self._row(None, {}, f"… and {hidden:,} further moments", FAINT)
            return
        for note in waiting:
            yield from self._note(*note)
        yield from self._delivered(self.nodes)
        yield from self._row(self.drawing.timeline.end_us, {}, "end of the trace", FAINT)
        yield from self._legend()

    def _networks(self) -> Iterator[Text]:
        """A line for each network that joins its nodes."""
        for line in self.drawing.timeline.networks:
            label = f"network {line.number}"
            text = Text(
                f"{label[-self.clock_width + 2 :]:>{self.clock_width - 2}}  ", style=FAINT, no_wrap=True
            )
            for place in range(len(self.nodes)):
                on = "─" if joined(line, place) else " "
                text.append(NETWORK if place in line.places else on).append(on * (self.cell - 1))
            text.rstrip()
            yield text

    def _heading(self) -> Iterator[Text]:
        yield from self._networks()
        names = [str(node) for node in self.nodes]
        longest = max(map(len, names), default=1)
        if longest < self.cell or longest == 1:
            stack = ["".join(f"{name:<{self.cell}}" for name in names)]
        else:  # too narrow to write side by side: digits downwards
            names = [name.rjust(longest) for name in names]
            stack = ["".join(f"{name[row]:<{self.cell}}" for name in names) for row in range(longest)]
        for row, line in enumerate(stack):
            label = "node" if row == len(stack) - 1 else ""
            yield Text(f"{label:>{self.clock_width - 2}}  {line}".rstrip(), style="bold")
        if self.left_out:
            yield Text(f"no room for {words.nodes(self.left_out)}: widen the terminal", style=FAINT)

    def _moment(self, moment: Moment) -> Iterator[Text]:
        everyone = moment.nodes
        drawn = [node for node in everyone if node in self.current]
        if moment.what != MomentKind.RESTART:
            yield from self._delivered(drawn)
        marks = {}
        style = STYLES.get(moment.what, "")
        for node in drawn:
            segment = moment.segments[node]
            self.current[node] = segment
            self.down[node] = WAITING if moment.what == MomentKind.RESTART else DOWN
            if segment is None:
                marks[node] = (GLYPHS[moment.what], style)
            else:
                style = f"bold {self._ink(segment.configuration)}"
                marks[node] = (INSTALLS[segment.configuration.kind], style)
        yield from self._row(moment.start_us, marks, sentence(moment), style)

    def _delivered(self, nodes: Sequence[NodeId]) -> Iterator[Text]:
        """What these nodes delivered in the configurations that they are about to leave."""
        groups: dict[Configuration, list[NodeId]] = {}
        for node in nodes:
            segment = self.current[node]
            if segment is not None and segment.total:
                groups.setdefault(segment.configuration, []).append(node)
        for configuration, inside in groups.items():
            segments = {node: segment for node in inside if (segment := self.current[node])}
            text = words.deliveries([segment.delivered for segment in segments.values()])
            each = " each" if len(inside) > 1 else ""
            counts = {node: words.count(segment.total) for node, segment in segments.items()}
            style = f"italic {self._ink(configuration)}"
            yield from self._row(None, {}, f"delivered {text}{each}", style, counts)

    def _note(self, time_us: int, text: str) -> Iterator[Text]:
        """A line across all lanes."""
        line = self._clock(time_us)
        for node in self.nodes:
            sign, style = self._lane(node)
            crossing = "┿" if sign in (REGULAR, DASHED) else "━"
            line.append(crossing, NOTE_STYLE if crossing == "━" else style)
            line.append("━" * (self.cell - 1), NOTE_STYLE)
        yield from self._beside(line, text, NOTE_STYLE)

    def _legend(self) -> Iterator[Text]:
        yield Text("")
        signs = [
            (f"{INSTALLS[Kind.REGULAR]} {REGULAR}", "regular configuration", "bold"),
            (f"{INSTALLS[Kind.TRANSITIONAL]} {DASHED}", "transitional", "bold"),
            *(
                (GLYPHS[what], what.value, STYLES[what])
                for what in (MomentKind.CRASH, MomentKind.RESTART, MomentKind.HALT)
            ),
        ]
        legend = Text()
        for sign, meaning, style in signs:
            legend.append(f"{sign} ", style).append(f"{meaning}   ", FAINT)
        yield legend
        yield Text("one colour, one configuration; grey: alone", FAINT)

    # --- a row ---------------------------------------------------------------------------------

    def _row(
        self,
        time_us: int | None,
        marks: Mapping[NodeId, tuple[str, str]],
        text: str,
        style: str,
        counts: Mapping[NodeId, str] | None = None,
    ) -> Iterator[Text]:
        line = self._clock(time_us)
        for node in self.nodes:
            sign, colour = marks.get(node) or self._lane(node)
            line.append(sign, colour)
            beside = (counts or {}).get(node, "") if self.cell >= COUNTED else ""
            line.append(f"{beside:<{self.cell - 1}}"[: self.cell - 1], f"italic {colour}")
        yield from self._beside(line, text, style)

    def _beside(self, line: Text, text: str, style: str) -> Iterator[Text]:
        """The text at the right of the lanes, over as many lines as it needs."""
        first, *rest = wrap(text, self.text_width, subsequent_indent="  ") or [""]
        yield line.append(" ").append(first, style)
        for part in rest:
            line = self._clock(None)
            for node in self.nodes:
                sign, colour = self._lane(node)
                line.append(f"{sign:<{self.cell}}", colour)
            yield line.append(" ").append(part, style)

    def _clock(self, time_us: int | None) -> Text:
        """The time, unless the row above said it: what happens in one instant has one time."""
        shown = ""
        if time_us is not None and time_us > self.clock_shown_us:
            before = words.clock(self.clock_shown_us - self.zero)
            shown = words.clock(time_us - self.zero)
            shown = "" if shown == before else shown
            self.clock_shown_us = time_us
        return Text(f"{shown:>{self.clock_width - 2}}  ", style=FAINT, no_wrap=True, end="\n")

    def _lane(self, node: NodeId) -> tuple[str, str]:
        segment = self.current[node]
        if segment is None:
            return self.down[node], FAINT
        sign = REGULAR if segment.configuration.kind == Kind.REGULAR else DASHED
        return sign, self._ink(segment.configuration)

    def _ink(self, configuration: Configuration) -> str:
        return INK[self.drawing.colours[configuration]]
