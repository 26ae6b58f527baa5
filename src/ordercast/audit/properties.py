"""The properties of extended virtual synchrony, by code, and the audit that checks them all.

This is the reference: plain Python, one function a property, about linear in the trace. Each function
says what it asks for, and where the paper does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from ordercast.audit.agreement import causal, gap_free, safe, self_delivery, virtual_synchrony
from ordercast.audit.delivery import deliver_once, deliver_originated, deliver_place, seq_unique
from ordercast.audit.explain import KEPT, Report, Violation, merge
from ordercast.audit.history import Expectation, History
from ordercast.audit.liveness import live_delivery, live_membership
from ordercast.audit.membership import config_chain, config_consistent, config_member, config_unique
from ordercast.audit.order import global_order, total_order
from ordercast.trace.schema import Row

__all__ = [
    "EXTENDED_VIRTUAL_SYNCHRONY",
    "Check",
    "Expectation",
    "History",
    "Report",
    "Violation",
    "audit",
    "audit_runs",
]

Check: TypeAlias = Callable[[History], list[Violation]]

EXTENDED_VIRTUAL_SYNCHRONY: Mapping[str, Check] = {
    check.__name__.replace("_", "-"): check
    for check in (
        config_unique,
        config_member,
        config_chain,
        config_consistent,
        deliver_once,
        deliver_originated,
        deliver_place,
        seq_unique,
        total_order,
        global_order,
        gap_free,
        causal,
        self_delivery,
        virtual_synchrony,
        safe,
        live_membership,
        live_delivery,
    )
}
"""Every property of the family, by its code."""

_NEED_EXPECTATION = ("live-membership", "live-delivery")


def audit(
    rows: Iterable[Row],
    expectation: Expectation | None = None,
    checks: Mapping[str, Check] = EXTENDED_VIRTUAL_SYNCHRONY,
) -> Report:
    """Check one run, in any order of rows. Without an expectation, liveness is not judged."""
    history = History(rows, expectation)
    counts: dict[str, int] = {}
    kept: list[Violation] = []
    for code, check in checks.items():
        found = check(history)
        counts[code] = len(found)
        kept += found[:KEPT]
    unchecked = [code for code in _NEED_EXPECTATION if expectation is None and code in checks]
    return Report(history.events, counts, tuple(kept), tuple(unchecked))


def audit_runs(runs: Iterable[tuple[str, Iterable[Row]]]) -> Report:
    """Check each run by itself, as `ordercast.trace.reader.read_runs` yields them, and add up."""
    return merge(audit(rows).of_run(run) for run, rows in runs)
