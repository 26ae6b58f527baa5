"""``ordercast sql``: a query over a lake."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from ordercast.cli.lake import HERE, Where
from ordercast.cli.options import Json
from ordercast.cli.screen import STDOUT, answer, payload_document, printable, refuse
from ordercast.lake import Lake

_LONGEST = 200
"""Characters of a value that are shown to people; JSON has all."""


def sql(
    query: Annotated[
        str,
        typer.Argument(
            metavar="QUERY",
            help="As DataFusion has SQL. Tables: events, verdicts, results, seeds. Views: runs, "
            "configurations, latency, stability, violations.",
        ),
    ],
    where: Where = HERE,
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="NAME=DIR|URI", help="Another table of Delta; may be repeated."),
    ] = None,
    rows: Annotated[
        int, typer.Option(min=1, metavar="N", help="How many rows are shown to people; JSON has all.")
    ] = 100,
    json: Json = False,
) -> None:
    """Ask a lake in SQL: what happened in its runs, what was broken, how long messages took.

    docs/lake.md says what each table and view has.
    """
    more: dict[str, str] = {}
    for each in tables or ():
        name, equals, place = each.partition("=")
        if not (name.isidentifier() and equals and place):
            refuse(f"--table {each}: write NAME=DIR or NAME=URI, with a name as SQL has names")
        more[name] = place
    found = Lake(where).sql(query, more)
    if json:
        answer({"columns": found.column_names, "rows": [_document(row) for row in found.to_pylist()]})
        return
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    for field in found.schema:
        numeric = str(field.type).startswith(("int", "uint", "float", "double", "decimal"))
        table.add_column(escape(field.name), justify="right" if numeric else "left")
    for row in found.slice(0, rows).to_pylist():
        table.add_row(*(escape(_word(value)) for value in row.values()))
    STDOUT.print(table)
    if found.num_rows > rows:
        STDOUT.print(f"[bright_black]… and {found.num_rows - rows:,} more rows (--rows)[/]")


def _document(value: Any) -> Any:
    """A value for JSON."""
    if isinstance(value, dict):
        return {key: _document(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_document(each) for each in value]
    if isinstance(value, bytes):
        return next(iter(payload_document(value).values()))
    return value if value is None or isinstance(value, str | int | float) else _word(value)


def _word(value: Any) -> str:
    """A value for people."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        value = printable(value)
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
