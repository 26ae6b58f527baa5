"""The page of an audit: one HTML file that needs no other, with what was judged, and what was found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import zip_longest

from ordercast.audit.explain import Report, Violation
from ordercast.audit.findings import Findings
from ordercast.core.identity import ConfigurationId
from ordercast.draw.spacetime import timeline_of
from ordercast.draw.svg import draw
from ordercast.storage import Location, Where
from ordercast.trace.columns import (
    CONFIG_KIND,
    CONFIG_REP,
    CONFIG_SEQ,
    ENDED_CONFIG_REP,
    ENDED_CONFIG_SEQ,
    ENDED_PLACE,
    EVENT,
    GUARANTEE,
    INCARNATION,
    MEMBERS,
    NODE,
    NUMBER,
    ORIGIN,
    ORIGIN_CONFIG_REP,
    ORIGIN_CONFIG_SEQ,
    ORIGIN_INCARNATION,
    SEQ,
    SLOT,
    TIME_US,
)
from ordercast.trace.schema import Row

MOST_RUNS = 500
"""Rows of the table of runs; broken ones come first."""

MOST_DRAWN = 3
"""Runs whose configurations are drawn."""

MOST_INSTALLED = 2_000
"""A run with more installs than these is not drawn: nobody could tell anything apart."""

MOST_TOLD = 60
"""Violations that are told."""

_STYLE = """
body{font:15px/1.5 ui-sans-serif,system-ui,"Helvetica Neue",Arial,sans-serif;color:#1b1f24;background:#fff;
max-width:1100px;margin:2.5rem auto;padding:0 1.5rem}
h1{font-size:1.6rem;margin:0 0 .3rem}h2{font-size:1.15rem;margin:2.2rem 0 .6rem}
.verdict{font-size:1.1rem;font-weight:600;padding:.7rem 1rem;border-radius:6px;margin:1rem 0}
.good{background:#e7f6ec;color:#14532d}.bad{background:#fdecea;color:#8a1c13}
.faint{color:#5b6470}table{border-collapse:collapse;width:100%;font-size:.92rem}
th{text-align:left;color:#5b6470;font-weight:500;border-bottom:1px solid #d5d9de;
padding:.25rem .6rem .25rem 0}
td{padding:.22rem .6rem .22rem 0;border-bottom:1px solid #eef0f2;vertical-align:top}
td.count,th.count{text-align:right;font-variant-numeric:tabular-nums}
.broken{color:#b42318;font-weight:600}.kept{color:#15803d}
.violation{border-left:3px solid #c1121f;padding:.1rem 0 .4rem .9rem;margin:1.1rem 0}
.violation p{margin:.2rem 0 .5rem}.window{font:12px/1.45 ui-monospace,Menlo,Consolas,monospace}
.window td,.window th{white-space:nowrap;padding:.1rem .9rem .1rem 0}
.wide{overflow-x:auto}svg{max-width:none}
""".strip()


def write_page(file: Where, what: str, report: Report, runs: Sequence[Findings], engine: str) -> None:
    """Write the page about the audit of `what`. Raises `OSError` if it cannot be written."""
    body = [
        f"<h1>Audit of {escape(what)}</h1>",
        _facts(report, engine),
        _verdict(report),
        *(f'<p class="faint">{escape(note)}</p>' for note in report.notes),
        "<h2>Properties</h2>",
        _properties(report),
        *_violations(runs, report),
        "<h2>Runs</h2>",
        _runs(runs),
        *_drawings(runs),
    ]
    title = f"Audit of {escape(what)}"
    page = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )
    Location.of(file).put(page.encode())


def _facts(report: Report, engine: str) -> str:
    runs = "1 run" if report.runs == 1 else f"{report.runs:,} runs"
    promises = " and ".join(report.promises)
    told = f"{report.events:,} events of {runs}, judged by what is promised as {promises}; auditor: {engine}."
    return f'<p class="faint">{escape(told)}</p>'


def _verdict(report: Report) -> str:
    if report.clean:
        return '<p class="verdict good">Clean: every property that was judged is kept.</p>'
    broken = sum(1 for count in report.properties.values() if count)
    properties = "1 property is" if broken == 1 else f"{broken} properties are"
    return f'<p class="verdict bad">Violated: {properties} broken.</p>'


def _properties(report: Report) -> str:
    rows = []
    for code, count in report.properties.items():
        if code in report.unchecked:
            cell = '<td class="count faint">not judged</td>'
        elif count:
            cell = f'<td class="count broken">{count:,}</td>'
        else:
            cell = '<td class="count kept">none</td>'
        rows.append(f"<tr><td>{escape(code)}</td>{cell}</tr>")
    note = ""
    if report.unchecked:
        told = "Not judged: a trace does not tell when faults stopped, after which these are due."
        note = f'<p class="faint">{told}</p>'
    head = '<tr><th>property</th><th class="count">violations</th></tr>'
    return f"<table>{head}{''.join(rows)}</table>{note}"


# --- violations --------------------------------------------------------------------------------


def _violations(runs: Sequence[Findings], report: Report) -> Iterable[str]:
    if report.clean:
        return
    yield "<h2>Violations</h2>"
    told = counted = 0
    for findings in runs:
        for violation, window in zip_longest(findings.report.violations, findings.windows, fillvalue=()):
            if told == MOST_TOLD or not isinstance(violation, Violation):
                break
            told += 1
            counted += violation.times
            yield _violation(violation, window)
    total = sum(report.properties.values())
    if total > counted:
        yield f'<p class="faint">… and {total - counted:,} more.</p>'


def _violation(violation: Violation, window: Sequence[Row]) -> str:
    where = f" in {violation.run}" if violation.run else ""
    head = f'<b class="broken">{escape(violation.property)}</b>{escape(where)}'
    return f'<div class="violation"><p>{head}: {escape(violation.told())}</p>{_window(window)}</div>'


def _window(rows: Sequence[Row]) -> str:
    """The events that a violation is about, in the order of their time."""
    if not rows:
        return ""
    head = (
        "<tr><th>time</th><th>node</th><th>event</th><th>in</th><th>message</th><th>place</th><th></th></tr>"
    )
    return f'<div class="wide"><table class="window">{head}{"".join(map(_event, rows))}</table></div>'


def _event(row: Row) -> str:
    node = str(row[NODE]) if not row[INCARNATION] else f"{row[NODE]} (life {row[INCARNATION]})"
    here = (
        ""
        if row[CONFIG_SEQ] is None or row[CONFIG_REP] is None
        else f"{row[CONFIG_KIND]} {ConfigurationId(row[CONFIG_SEQ], row[CONFIG_REP])}"
    )
    message = place = rest = ""
    if row[ORIGIN] is not None:
        life = f" (life {row[ORIGIN_INCARNATION]})" if row[ORIGIN_INCARNATION] else ""
        message = f"{row[NUMBER]} of node {row[ORIGIN]}{life}"
        of = (
            ""
            if row[ORIGIN_CONFIG_SEQ] is None or row[ORIGIN_CONFIG_REP] is None
            else f" of {ConfigurationId(row[ORIGIN_CONFIG_SEQ], row[ORIGIN_CONFIG_REP])}"
        )
        place = "" if row[SEQ] is None else f"{row[SEQ]}/{row[SLOT]}{of}"
        rest = row[GUARANTEE] or ""
    elif row[MEMBERS] is not None:
        rest = f"{{{', '.join(map(str, row[MEMBERS]))}}}"
        if row[ENDED_CONFIG_SEQ] is not None and row[ENDED_CONFIG_REP] is not None:
            place = (
                f"after {row[ENDED_PLACE]} of {ConfigurationId(row[ENDED_CONFIG_SEQ], row[ENDED_CONFIG_REP])}"
            )
    cells = (f"{row[TIME_US]:,} µs", node, row[EVENT], here, message, place, rest)
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


# --- runs --------------------------------------------------------------------------------------


def _runs(runs: Sequence[Findings]) -> str:
    shown = sorted(runs, key=lambda findings: findings.report.clean)[:MOST_RUNS]
    rows = "".join(
        f'<tr><td>{escape(each.run)}</td><td class="count">{each.report.events:,}</td>'
        f"<td>{_broken(each.report)}</td><td>{escape(each.how)}</td></tr>"
        for each in shown
    )
    head = '<tr><th>run</th><th class="count">events</th><th>broken</th><th>how it was judged</th></tr>'
    more = f'<p class="faint">… and {len(runs) - len(shown):,} more.</p>' if len(runs) > len(shown) else ""
    return f"<table>{head}{rows}</table>{more}"


def _broken(report: Report) -> str:
    broken = [f"{code} ({count:,})" for code, count in report.properties.items() if count]
    return (
        f'<span class="broken">{escape(", ".join(broken))}</span>'
        if broken
        else '<span class="kept">nothing</span>'
    )


def _drawings(runs: Sequence[Findings]) -> Iterable[str]:
    """The configurations of the first runs, broken ones first."""
    drawable = [each for each in runs if each.control and len(each.control) <= MOST_INSTALLED]
    drawable.sort(key=lambda findings: findings.report.clean)
    if drawable:
        yield "<h2>Configurations</h2>"
    for each in drawable[:MOST_DRAWN]:
        svg = draw(timeline_of(each.control, delivered=each.delivered), title=each.run)
        yield f'<div class="wide">{svg[svg.index("<svg") :]}</div>'
