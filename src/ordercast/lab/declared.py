"""Experiments that users write: a .toml file with a grid, read and checked.

title = "How much does loss cost?"

[grid]                         # every list is an axis: all combinations are run
protocol = ["totem", "dtp"]
nodes = [5, 10, 20]
rate_per_node = 10             # or `rate`, of all nodes together
size = 500
messages = 2000                # or `seconds`
loss = [0, 0.001, 0.01]
seeds = "0:3"                  # one of `seeds` and `seed`
network = "ethernet10"

[grid.net]                     # fields of the network that differ; lists are axes here, too
receive_us = 0

[settings.dtp]                 # settings of one protocol
resilience = 1

[report]
x = "loss"                     # what is on the axis of the figures
by = "protocol"                # what has a line of its own
panel = "nodes"                # what has a panel of its own
figures = ["stability_us", "overhead"]
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ordercast.catalogue import LAB_PROTOCOLS
from ordercast.lab.experiment import Experiment, Figure, Table
from ordercast.lab.figures import lines
from ordercast.lab.grid import GridError, Run, product

if TYPE_CHECKING:
    import pandas as pd

    from ordercast.lab.frames import Frames

MOST_RUNS = 100_000
"""Runs that a file may ask for: more are most likely a mistake."""
QUICK = 4
"""A quick layout has only the first and the last value of each axis, and so many times fewer messages."""

_LATENCIES = {
    "": "",
    "_from_originate": " from its broadcast",
}
_TITLES = {
    "stability_us": "stability time [ms]",
    "stability_sd_us": "spread of the stability time [ms]",
    "delivery_us": "delivery time [ms]",
    "known_us": "until a member knows that all have it [ms]",
    "buffer": "messages held by a member",
    "overhead": "overhead packets per message",
    "membership": "packets of membership per message",
    "packets": "packets per message",
    "load_mean": "overhead packets of a member per message",
    "load_max": "overhead packets of the busiest member per message",
    "load_variation": "variation of the overhead over members",
    "work_variation": "variation of packets sent over members",
    "ordered_per_s": "messages ordered per second",
    "bytes_per_s": "bytes ordered per second",
    "measured": "messages measured",
    "unsettled": "messages not settled at the end",
    "utilization": "share of time the medium is in use",
    "rotation_us": "rotation of the token [ms]",
    **{
        f"latency_{guarantee}{since}{which}_us": f"{word}latency of {guarantee} messages{behind} [ms]"
        for guarantee in ("agreed", "safe")
        for since, behind in _LATENCIES.items()
        for which, word in {"": "", "_p50": "median ", "_p99": "99% of the ", "_max": "largest "}.items()
    },
}
"""Figures that are drawn, and what is written beside their axis."""


class ReportLayout(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What the report of a declared experiment shows."""

    x: str = "nodes"
    by: str = "protocol"
    panel: str | None = None
    figures: tuple[str, ...] = ("delivery_us", "stability_us", "buffer", "overhead")


class Declared(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A file, as it is read."""

    grid: dict[str, Any]
    title: str = ""
    about: str = ""
    settings: dict[str, dict[str, Any]] = {}
    report: ReportLayout = msgspec.field(default_factory=ReportLayout)


def declared(name: str, text: str) -> Experiment:
    """The experiment that a file declares. Raises GridError, which says what is wrong with it."""
    try:
        file = msgspec.convert(tomllib.loads(text), Declared)
    except tomllib.TOMLDecodeError as error:
        raise GridError(f"{name}: this is no TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise GridError(f"{name}: {_plain(error)}") from error
    unknown = sorted(set(file.settings) - set(LAB_PROTOCOLS))
    if unknown:
        raise GridError(
            f"{name}: [settings.{unknown[0]}]: there is no such protocol, only {_list(LAB_PROTOCOLS)}"
        )
    runs = _runs(name, file, quick=False)
    _check_layout(name, file.report, runs)
    return Experiment(
        name=name,
        title=file.title or name,
        about=tuple(part.strip() for part in file.about.split("\n\n") if part.strip()),
        grid=lambda quick: _runs(name, file, quick=True) if quick else runs,
        figures=lambda frames: _figures(frames, file.report),
        tables=lambda frames: _tables(frames, file.report),
    )


# --- the grid ----------------------------------------------------------------------------------


def _runs(name: str, file: Declared, *, quick: bool) -> list[Run]:
    axes = {
        key: _values(value) for key, value in file.grid.items() if key not in ("seeds", "net", "settings")
    }
    axes["seed"] = _seeds(name, file.grid)
    if all(isinstance(fault, str) for fault in axes.get("faults", ())):
        axes["faults"] = [axes.get("faults", [])]  # one run has them all; lists of them are an axis
    for table in ("net", "settings"):
        changes = file.grid.get(table, {})
        if not isinstance(changes, dict):
            raise GridError(f"{name}: {table} is a table: write [grid.{table}] and a field a line")
        axes |= {f"{table}.{key}": _values(value) for key, value in changes.items()}
    for key, values in axes.items():
        if not values:
            raise GridError(f"{name}: {key} is an empty list: every axis needs at least one value")
    if quick:
        axes = {key: [values[0], values[-1]] if len(values) > 2 else values for key, values in axes.items()}
    count = 1
    for values in axes.values():
        count *= len(values)
    if count > MOST_RUNS:
        raise GridError(f"{name}: the grid has {count:,} runs, more than {MOST_RUNS:,}: take values away")
    return [_run(name, point, file.settings, quick) for point in product(**axes)]


def _run(name: str, point: dict[str, Any], settings: Mapping[str, Mapping[str, Any]], quick: bool) -> Run:
    own: dict[str, Any] = {key: value for key, value in point.items() if "." not in key}
    own["net"] = {key[4:]: value for key, value in point.items() if key.startswith("net.")}
    mine = {key[9:]: value for key, value in point.items() if key.startswith("settings.")}
    own["settings"] = {**settings.get(str(point.get("protocol")), {}), **mine}
    own["labels"] = {key: value for key, value in point.items() if "." in key}
    if "rate_per_node" in own:
        if "rate" in own:
            raise GridError(f"{name}: give either rate, of all nodes together, or rate_per_node")
        per_node = own.pop("rate_per_node")
        own["labels"]["rate_per_node"] = per_node
        own["rate"] = _number(name, "rate_per_node", per_node) * _number(name, "nodes", own.get("nodes", 1))
    if quick:
        for key in ("messages", "seconds"):
            if key in own:
                own[key] = max(1, own[key] // QUICK) if key == "messages" else own[key] / QUICK
    try:
        return msgspec.convert(own, Run)
    except msgspec.ValidationError as error:
        raise GridError(f"{name}: [grid]: {_plain(error)}") from error


def _values(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]


def _seeds(name: str, grid: Mapping[str, Any]) -> list[Any]:
    if "seeds" not in grid:
        return _values(grid.get("seed", 0))
    if "seed" in grid:
        raise GridError(f"{name}: give either seed or seeds")
    match = re.fullmatch(r"(\d+):(\d+)", str(grid["seeds"]))
    if match is None or int(match[2]) <= int(match[1]):
        raise GridError(
            f'{name}: seeds is {grid["seeds"]!r}: write a range such as "0:3", which is 0, 1 and 2'
        )
    return list(range(int(match[1]), int(match[2])))


def _number(name: str, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise GridError(f"{name}: {key} is a number, not {value!r}")
    return value


def _plain(error: Exception) -> str:
    """Of what msgspec says, what a writer of TOML can use; and the fields there are."""
    text = str(error).replace(" - at `$.", " - at `").replace(" - at `$`", "")
    if "unknown field" in text:
        text += f"; a grid has {_list([*Run.__struct_fields__, 'rate_per_node', 'seeds'])}"
    return text


def _list(names: Any) -> str:
    return ", ".join(names)


# --- the report ---------------------------------------------------------------------------------


def _check_layout(name: str, layout: ReportLayout, runs: Sequence[Run]) -> None:
    columns = {*Run.__struct_fields__, *(label for run in runs for label in run.labels)}
    for key in (layout.x, layout.by, layout.panel):
        if key is not None and key not in columns:
            raise GridError(
                f"{name}: [report]: {key!r} is nothing that runs differ in: choose one of the axes"
            )
    for figure in layout.figures:
        if figure not in _TITLES:
            raise GridError(f"{name}: [report]: no figure {figure!r}; there are {_list(_TITLES)}")


def _figures(frames: Frames, layout: ReportLayout) -> list[Figure]:
    by = _columns(layout)
    mean = frames.mean(by, layout.figures)
    return [
        Figure(
            name=figure,
            title=_TITLES[figure],
            caption=f"{_captioned(frames, layout, mean)} One line for each {named(layout.by)}.",
            drawing=lines(
                mean,
                x=layout.x,
                y=figure,
                by=layout.by,
                panel=layout.panel,
                x_label=named(layout.x),
                y_label=_TITLES[figure],
                scale=1e-3 if figure.endswith("_us") else 1.0,
                panel_title=lambda value: f"{named(layout.panel or '')} = {value}",
            ),
        )
        for figure in layout.figures
        if mean[figure].notna().any()
    ]


def named(axis: str) -> str:
    """An axis as people read it."""
    return axis.replace("_", " ")


def _captioned(frames: Frames, layout: ReportLayout, mean: pd.DataFrame) -> str:
    """What is averaged in a point: seeds, and axes that the figure does not show."""
    shown = {*_columns(layout), "rate"} if "rate_per_node" in _columns(layout) else {*_columns(layout)}
    hidden = [axis for axis in _axes(frames.runs) if axis not in shown and axis != "seed"]
    fewest, most = int(mean["runs"].min()), int(mean["runs"].max())
    if most == 1:
        return "Each point is one run."
    of = f"{most}" if fewest == most else f"{fewest} to {most}"
    return f"Each point is the mean of {of} runs" + (
        f", of all values of {' and '.join(map(named, hidden))} together."
        if hidden
        else ", of as many seeds."
    )


def _axes(runs: Sequence[Run]) -> list[str]:
    """In what runs differ: fields of the grid, and labels."""
    fields = [name for name in Run.__struct_fields__ if name not in ("labels", "net", "settings", "faults")]
    axes = [name for name in fields if len({str(getattr(run, name)) for run in runs}) > 1]
    labels = dict.fromkeys(label for run in runs for label in run.labels)
    return axes + [name for name in labels if len({run.labels.get(name) for run in runs}) > 1]


def _tables(frames: Frames, layout: ReportLayout) -> list[Table]:
    by = _columns(layout)
    mean = frames.mean(by, layout.figures)
    rows = [
        (
            *(row[key] for key in by),
            *(_shown(row[figure], figure) for figure in layout.figures),
            int(row["runs"]),
        )
        for row in mean.to_dict(orient="records")
    ]
    titles = [_TITLES[figure] for figure in layout.figures]
    lacking = [_TITLES[figure] for figure in layout.figures if not mean[figure].notna().any()]
    note = f"Nothing to measure in these runs: {'; '.join(lacking)}." if lacking else ""
    columns = (*map(named, by), *titles, "runs")
    return [Table(title="Means of all points", columns=columns, rows=rows, note=note)]


def _columns(layout: ReportLayout) -> list[str]:
    return [*([layout.panel] if layout.panel else []), layout.x, layout.by]


def _shown(value: Any, figure: str) -> str:
    if value is None or value != value:
        return ""
    return f"{value / 1000:.3f}" if figure.endswith("_us") else f"{value:.3f}"
