"""Figures in one style: few colours that everybody can tell apart, quiet axes, values readable in print.

Colours are those of Okabe and Ito, chosen for colour-blind readers; each protocol has its own in all figures,
and a marker beside, so that a figure can be read without colour, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#999999")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

PROTOCOL_STYLE: Mapping[str, tuple[str, str]] = {
    "dtp": (COLOURS[0], "o"),
    "pinwheel": (COLOURS[1], "s"),
    "cm": (COLOURS[2], "^"),
    "totem": (COLOURS[3], "D"),
    "total": (COLOURS[4], "v"),
    "rbp": (COLOURS[5], "P"),
    "irbp": (COLOURS[6], "X"),
    "primary-backup": (COLOURS[7], "*"),
    "trmp": ("#882255", "<"),
}
"""Colour and marker of each protocol."""

PROTOCOL_NAMES: Mapping[str, str] = {
    "dtp": "DTP",
    "pinwheel": "Pinwheel",
    "cm": "CM",
    "totem": "Totem",
    "total": "Total",
    "rbp": "RBP",
    "irbp": "iRBP",
    "primary-backup": "Primary-backup",
    "trmp": "TRMP",
}
"""Protocols as people write them."""

_STYLE: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#666666",
    "axes.labelcolor": "#333333",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "xtick.color": "#666666",
    "ytick.color": "#666666",
    "xtick.labelcolor": "#333333",
    "ytick.labelcolor": "#333333",
    "lines.linewidth": 1.7,
    "lines.markersize": 5,
    "legend.frameon": False,
    "figure.dpi": 110,
    "savefig.bbox": "tight",
    "svg.hashsalt": "ordercast",
}

Decorate = Callable[["Axes", Any], None]
"""Adds to a panel: its axes, and the value that the panel is for."""


@contextmanager
def style() -> Iterator[None]:
    """Whatever is drawn inside looks like the other figures. Nothing is shown on a screen."""
    import matplotlib as mpl

    mpl.use("agg")
    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]
        yield


def lines(
    frame: pd.DataFrame,
    *,
    x: str,
    y: str,
    by: str,
    panel: str | None = None,
    x_label: str,
    y_label: str,
    scale: float = 1.0,
    panel_title: Callable[[Any], str] = str,
    log_x: bool = False,
    log_y: bool = False,
    shared_y: bool = False,
    markers: bool = True,
    label: Callable[[Any], str] = lambda value: PROTOCOL_NAMES.get(value, str(value)),
    decorate: Decorate = lambda axes, panel: None,
    order: Sequence[Any] | None = None,
) -> Drawing:
    """A line for each value of `by`, over `x`; a panel beside the other for each value of `panel`.

    Values of `y` are multiplied by `scale`. A column ``…_sd`` beside `y` is drawn as a band, where it
    is not 0. `order` says in which order the lines are named.
    """
    import matplotlib.pyplot as plt

    panels = [None] if panel is None else sorted(frame[panel].unique())
    keys = list(order) if order is not None else sorted(frame[by].unique())
    styles = styles_of(keys)
    with style():
        figure, grid = plt.subplots(
            1, len(panels), figsize=(max(5.6, 3.7 * len(panels)), 3.5), squeeze=False, sharey=shared_y
        )
        for axes, value in zip(grid[0], panels, strict=True):
            part = frame if panel is None else frame[frame[panel] == value]
            for place, key in enumerate(keys):
                own = part[part[by] == key].sort_values(x)
                if len(own):
                    size = max(4.0, 8.0 - 1.2 * place) if markers else 0.0  # so that equal lines show
                    _line(axes, own, x, y, scale, styles[key], label(key), size)
            _scales(axes, log_x, log_y)
            _ticks(axes, sorted(part[x].unique()))
            axes.set_xlabel(x_label)
            decorate(axes, value)
            if panel is not None:
                axes.set_title(panel_title(value))
        grid[0][0].set_ylabel(y_label)
        _legend(figure, grid[0])
        plt.close(figure)
    return figure


def styles_of(keys: Sequence[Any]) -> dict[Any, tuple[str, str]]:
    """Colour and marker for each of these: protocols have theirs, others take what comes."""
    free = itertools.cycle(zip(COLOURS, MARKERS, strict=True))
    return {key: PROTOCOL_STYLE[key] if key in PROTOCOL_STYLE else next(free) for key in keys}


def _line(
    axes: Axes,
    own: pd.DataFrame,
    x: str,
    y: str,
    scale: float,
    look: tuple[str, str],
    name: str,
    size: float,
) -> None:
    colour, marker = look
    axes.plot(
        own[x], own[y] * scale, color=colour, marker=marker if size else "", markersize=size, label=name
    )
    spread = f"{y}_sd"
    if spread in own and (own[spread].fillna(0) > 0).any():
        low, high = (own[y] - own[spread]) * scale, (own[y] + own[spread]) * scale
        axes.fill_between(own[x], low, high, color=colour, alpha=0.15, linewidth=0)


def _scales(axes: Axes, log_x: bool, log_y: bool) -> None:
    if log_x:
        axes.set_xscale("log")
    if log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, place: f"{value:g}")
        axes.yaxis.set_minor_formatter(lambda value, place: f"{value:g}" if f"{value:e}"[0] in "25" else "")
    else:
        axes.set_ylim(bottom=0)


def _ticks(axes: Axes, values: Sequence[Any]) -> None:
    """Marks at the points that there are, where they are few."""
    if 1 < len(values) <= 9:
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.xaxis.minorticks_off()


def _legend(figure: Drawing, grid: Sequence[Axes]) -> None:
    """One legend for all panels, above them."""
    named: dict[str, Any] = {}
    for axes in grid:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(name, handle)
    figure.tight_layout(rect=(0, 0, 1, 0.92))
    if named:
        figure.legend(named.values(), named.keys(), loc="upper center", ncols=min(7, len(named)))
