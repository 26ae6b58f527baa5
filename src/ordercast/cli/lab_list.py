"""``ordercast lab list``: which experiments there are."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from ordercast.cli.options import Json
from ordercast.cli.screen import STDOUT, answer
from ordercast.lab.campaign.conduct import QUICK, SEEDS
from ordercast.lab.experiment import FUZZ, experiments


def list(json: Json = False) -> None:
    """List the experiments that there are."""
    known = [
        (each.name, each.title, each.source, len(each.grid(False)), len(each.grid(True)))
        for each in experiments()
    ]
    source = "sim fuzz, for very many seeds; takes --protocol, --seeds, --nodes and --rounds"
    known = sorted([*known, (FUZZ, "The fuzzer over Spark", source, len(SEEDS), len(QUICK))])
    if json:
        names = ("name", "title", "source", "runs", "quick_runs")
        answer({"experiments": [dict(zip(names, each, strict=True)) for each in known]})
        return
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    for column in ("name", "what", "runs", "quick"):
        table.add_column(column, justify="right" if column in ("runs", "quick") else "left")
    for name, title, source, runs, quick in known:
        what = escape(title) + (f"\n[bright_black]{escape(source)}[/]" if source else "")
        table.add_row(f"[bold]{name}[/]", what, f"{runs:,}", f"{quick:,}")
    STDOUT.print(table)
    STDOUT.print("\n[bright_black]Write your own as a .toml file: see docs/lab.md[/]")
