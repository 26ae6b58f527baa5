"""``ordercast lake list``: the runs in a lake."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from ordercast.cli.lake import HERE, Where, counted
from ordercast.cli.options import Json
from ordercast.cli.screen import STDOUT, answer
from ordercast.lake import Lake


def list(where: Where = HERE, json: Json = False) -> None:
    """List the runs in a lake, each with the latest verdict on it."""
    runs = Lake(where).runs()
    if json:
        for run in runs:
            run |= {key: run[key] and run[key].isoformat() for key in ("added", "judged")}
        answer({"runs": runs})
        return
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    for column in ("run", "protocol", "events", "nodes", "added", "verdict"):
        table.add_column(column, justify="right" if column in ("events", "nodes") else "left")
    for run in runs:
        verdict = {True: "[green]clean[/]", False: "[bold red]violated[/]", None: "[bright_black]none[/]"}
        by = f" [bright_black]by {run['version']}[/]" if run["version"] else ""
        table.add_row(
            escape(run["run"]),
            run["protocol"] or "",
            f"{run['events']:,}",
            str(run["nodes"]),
            f"{run['added']:%Y-%m-%d %H:%M}",
            verdict[run["clean"]] + by,
        )
    STDOUT.print(table)
    STDOUT.print(f"[bright_black]{counted(len(runs), 'run')}[/]")
