"""What an audit found in one run, with the few rows that show it: what a page about it is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter

from ordercast.audit.explain import Report, Violation
from ordercast.draw.spacetime import Where
from ordercast.trace.columns import (
    CONFIG_KIND,
    CONFIG_SEQ,
    EVENT,
    NODE,
    STEP,
    TIME_US,
    configuration_of,
    life_of,
    message_of,
)
from ordercast.trace.schema import Row

SHOWN = 30
"""Rows that are kept of what a violation is about."""

EXPLAINED = 20
"""Violations of a run of which such rows are kept."""

CONTROL = ("install", "crash", "restart", "halt")
"""Events that make up a node's configurations and lives."""

_BY_TIME = itemgetter(TIME_US, NODE, STEP)


@dataclass(frozen=True)
class Findings:
    """The report on one run, with the rows that its page shows."""

    run: str
    report: Report
    """What was found; each violation names the run."""
    control: tuple[Row, ...] = ()
    """Every configuration that was installed, and every life's beginning and end."""
    windows: tuple[tuple[Row, ...], ...] = ()
    """For the first violations of the report, the smallest window of rows that shows each."""
    how: str = "judged row by row"
    """How the auditor came to it."""
    delivered: Mapping[Where, int] = field(default_factory=dict)
    """How many messages were delivered in each stay of a node."""

    @classmethod
    def of(
        cls,
        run: str,
        report: Report,
        rows: list[Row],
        *,
        shown: bool,
        how: str = "judged row by row",
        delivered: Mapping[Where, int] | None = None,
    ) -> Findings:
        """With `shown`, pick from the rows that were judged what there is to show.

        `delivered` is counted from the rows, unless it is said.
        """
        report = report.of_run(run)
        if not shown:
            return cls(run, report, how=how)
        control = tuple(sorted((row for row in rows if row[EVENT] in CONTROL), key=_BY_TIME))
        windows = tuple(window(rows, each) for each in report.violations[:EXPLAINED])
        if delivered is None:
            told = (row for row in rows if row[EVENT] == "deliver")
            delivered = Counter((*life_of(row), *row[CONFIG_SEQ : CONFIG_KIND + 1]) for row in told)
        return cls(run, report, control, windows, how, dict(delivered))


def window(rows: Iterable[Row], violation: Violation) -> tuple[Row, ...]:
    """The rows that a violation is about: of its messages, and of its configurations, at its nodes.

    What happened to a message at its origin belongs to it, too.
    """
    nodes = {*violation.nodes, *(message.origin for message in violation.messages)}
    messages = set(violation.messages)
    configurations = set(violation.configurations)
    told = [
        row
        for row in rows
        if row[NODE] in nodes
        and (
            (row[EVENT] in ("originate", "deliver") and message_of(row) in messages)
            or (row[EVENT] == "install" and configuration_of(row) in configurations)
            or (row[EVENT] in ("crash", "halt", "restart") and not messages)
        )
    ]
    return tuple(sorted(told, key=_BY_TIME)[:SHOWN])
