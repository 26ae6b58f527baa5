"""``ordercast lab list``: which experiments there are."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from ordercast.cli.options import Json
from ordercast.cli.screen import SAY, answer
from ordercast.lab.experiment import experiments


def list(json: Json = False) -> None:
    """List the experiments that there are."""
    known = [(each, each.grid(False), each.grid(True)) for each in experiments()]
    if json:
        answer(
            {
                "experiments": [
                    {
                        "name": each.name,
                        "title": each.title,
                        "source": each.source,
                        "runs": len(full),
                        "quick_runs": len(quick),
                    }
                    for each, full, quick in known
                ]
            }
        )
        return
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    for column in ("name", "what", "runs", "quick"):
        table.add_column(column, justify="right" if column in ("runs", "quick") else "left")
    for each, full, quick in known:
        what = escape(each.title) + (f"\n[bright_black]{escape(each.source)}[/]" if each.source else "")
        table.add_row(f"[bold]{each.name}[/]", what, f"{len(full):,}", f"{len(quick):,}")
    SAY.print(table)
    SAY.print("\n[bright_black]Write your own as a .toml file: see docs/lab.md[/]")
