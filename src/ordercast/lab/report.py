"""One page that says what was done and what came of it: verdicts, figures, tables; and PNGs beside it.

The page stands alone: figures are inside, nothing is loaded from anywhere.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from typing import Any

from ordercast.lab.experiment import VERDICTS, Advice, Claim, Figure, Table, counted
from ordercast.storage import Location

PAGE = "report.html"
FIGURES = "figures"

_STYLE = """
:root { color-scheme: light; --ink: #1d2733; --quiet: #5d6b7a; --line: #dfe4ea; --good: #00735a;
        --bad: #b4480a; --open: #6b7280; --accent: #0072b2; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1080px; padding: 2.2rem 1.6rem 4rem; color: var(--ink); background: #fff;
       font: 16px/1.55 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .3rem; letter-spacing: -.01em; }
h2 { font-size: 1.15rem; margin: 2.6rem 0 .8rem;
     padding-bottom: .3rem; border-bottom: 2px solid var(--line); }
h3 { font-size: 1rem; margin: 1.6rem 0 .4rem; }
p { margin: .5rem 0; max-width: 46rem; }
.source { color: var(--quiet); margin: 0 0 1.1rem; }
.score { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1rem 0; }
.score span { border: 1px solid var(--line); border-radius: 999px; padding: .15rem .8rem; font-size: .92rem; }
.score b { font-variant-numeric: tabular-nums; }
table { border-collapse: collapse; width: 100%; font-size: .93rem; }
th { text-align: left; color: var(--quiet); font-weight: 600; border-bottom: 1px solid var(--line);
     padding: .35rem .6rem; vertical-align: bottom; }
td { padding: .5rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
table.numbers td, table.numbers th { text-align: right; font-variant-numeric: tabular-nums;
     padding: .22rem .6rem; }
table.numbers td:first-child, table.numbers th:first-child { text-align: left; }
.claims td:nth-child(1) { width: 36%; }
.claims td:nth-child(3) { white-space: nowrap; }
.where, .note { color: var(--quiet); font-size: .86rem; }
.note { margin-top: .25rem; }
.verdict { font-weight: 650; }
.verdict.holds { color: var(--good); } .verdict.not { color: var(--bad); }
.verdict.open { color: var(--open); }
figure { margin: 1.6rem 0 2rem; } figure img { max-width: 100%; height: auto; }
figcaption { color: var(--quiet); font-size: .92rem; max-width: 46rem; }
figcaption b { color: var(--ink); }
.scroll { overflow-x: auto; } code { font: .88em ui-monospace, Menlo, Consolas, monospace; }
.advice { border-left: 4px solid var(--good); padding: .3rem 1.1rem; background: #f3faf7; margin: 1.2rem 0; }
pre { font: .88em/1.5 ui-monospace, Menlo, Consolas, monospace; background: #fff; overflow-x: auto;
      border: 1px solid var(--line); padding: .6rem .9rem; }
.warning { border-left: 4px solid var(--accent); padding: .3rem .9rem; background: #f1f7fb; }
.failed { border-left: 4px solid var(--bad); padding: .3rem .9rem; background: #fdf6f1; }
@media print { body { max-width: none; padding: 0; } }
"""

_VERDICT = {
    True: ("holds", "✓ holds"),
    False: ("not", "✗ does not hold"),
    None: ("open", "– cannot be decided"),
}


def write_report(
    directory: Location,
    *,
    title: str,
    source: str = "",
    about: Sequence[str] = (),
    claims: Sequence[Claim],
    advice: Advice | None = None,
    figures: Sequence[Figure],
    tables: Sequence[Table],
    facts: Sequence[tuple[str, str]],
    failed: Sequence[tuple[str, str]] = (),
    warning: str = "",
) -> Location:
    """Write the page and its PNGs; `facts` are names and values, `failed` commands and what they raised.
    `warning`: what a reader has to know before anything else."""
    images = [_image(directory, figure) for figure in figures]
    body = [
        f"<h1>{_text(title)}</h1>",
        f'<p class="source">{_text(source)}</p>' if source else "",
        f'<p class="warning">{_text(warning)}</p>' if warning else "",
        _score(claims),
        _advice(advice),
        *(f"<p>{_text(paragraph)}</p>" for paragraph in about),
        _failures(failed),
        _claims(claims),
        _section("Figures", [_figure(figure, image) for figure, image in zip(figures, images, strict=True)]),
        _section("Tables", [_table(table) for table in tables]),
        _section("How this was made", [_facts(facts)]),
    ]
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in body if part)
        + "\n</body>\n</html>\n"
    )
    path = directory / PAGE
    path.put(page.encode())
    return path


def _image(directory: Location, figure: Figure) -> bytes:
    """The figure as PNG, also kept as a file."""
    held = io.BytesIO()
    figure.drawing.savefig(held, format="png", dpi=150, bbox_inches="tight", metadata={"Software": None})
    (directory / FIGURES / f"{figure.name}.png").put(held.getvalue())
    return held.getvalue()


def _score(claims: Sequence[Claim]) -> str:
    if not claims:
        return ""
    shown = [
        f'<span class="verdict {_VERDICT[VERDICTS[word]][0]}"><b>{count}</b> {word}</span>'
        for word, count in counted(claims).items()
        if count
    ]
    return f'<div class="score"><span><b>{len(claims)}</b> claims</span>{"".join(shown)}</div>'


def _advice(advice: Advice | None) -> str:
    if advice is None:
        return ""
    first, *others = advice.says
    rest = "".join(f"<p>{_text(sentence)}</p>\n" for sentence in others)
    return (
        f'<div class="advice"><p><b>{_text(first)}</b></p>\n{rest}'
        f"<pre>{_text(advice.configuration)}</pre></div>\n{_table(advice.ranking)}"
    )


def _claims(claims: Sequence[Claim]) -> str:
    if not claims:
        return ""
    rows = "".join(
        f'<tr><td>{_text(claim.says)}<div class="where">{_text(claim.where)}</div></td>'
        f"<td>{_text(claim.measured)}{_note(claim.note)}{_undecided(claim)}</td>"
        f'<td class="verdict {_VERDICT[claim.holds][0]}">{_VERDICT[claim.holds][1]}</td></tr>\n'
        for claim in claims
    )
    head = "<tr><th>The paper says</th><th>Measured here</th><th>Verdict</th></tr>"
    return f'<h2>Claims</h2>\n<table class="claims">\n{head}\n{rows}</table>'


def _undecided(claim: Claim) -> str:
    return (
        _note("this grid is too small to decide it, whatever its numbers are") if claim.holds is None else ""
    )


def _figure(figure: Figure, image: bytes) -> str:
    data = base64.b64encode(image).decode()
    return (
        f'<figure id="{_text(figure.name)}"><img alt="{_text(figure.title)}" '
        f'style="width: {figure.drawing.get_figwidth() * 96:.0f}px" src="data:image/png;base64,{data}">'
        f"<figcaption><b>{_text(figure.title)}.</b> {_text(figure.caption)}{_single(figure)}</figcaption>"
        "</figure>"
    )


def _single(figure: Figure) -> str:
    """Says so where points are not joined, since there is one only."""
    lines = [line for axes in figure.drawing.axes for line in axes.get_lines()]
    lengths = [len(line.get_xdata()) for line in lines if not str(line.get_label()).startswith("_")]  # type: ignore[arg-type]
    if 1 not in lengths:
        return ""
    return " There are lines of a single point: this grid has only one value there."


def _table(table: Table) -> str:
    head = "".join(f"<th>{_text(name)}</th>" for name in table.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{_text(value)}</td>" for value in row) + "</tr>\n" for row in table.rows
    )
    return (
        f"<h3>{_text(table.title)}</h3>{_note(table.note)}\n"
        f'<div class="scroll"><table class="numbers"><tr>{head}</tr>\n{rows}</table></div>'
    )


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    rows = "".join(f"<tr><td>{_text(name)}</td><td>{_text(value)}</td></tr>\n" for name, value in facts)
    return f"<table>{rows}</table>"


def _failures(failed: Sequence[tuple[str, str]]) -> str:
    if not failed:
        return ""
    each = "".join(
        f"<p><code>{_text(command)}</code><br>{_text(error.strip().splitlines()[-1])}</p>"
        for command, error in failed
    )
    head = f"<p><b>{len(failed)} runs failed.</b> Each can be repeated alone:</p>"
    return f'<div class="failed">{head}{each}</div>'


def _section(title: str, parts: Sequence[str]) -> str:
    return f"<h2>{title}</h2>\n" + "\n".join(parts) if any(parts) else ""


def _note(note: str) -> str:
    return f'<div class="note">{_text(note)}</div>' if note else ""


def _text(value: Any) -> str:
    return html.escape(str(value))
