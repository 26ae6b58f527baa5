"""What a campaign made happen, as a table for people."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from ordercast.catalogue import LAB_PROTOCOLS

GROUPS = ("nodes", "kinds of failure", "configurations", "changes of state")
_ARROW = " -> "
FAILED_RECOVERY = "recovery that failed"


_HITS = frozenset(hit for protocol in LAB_PROTOCOLS.values() for hit in protocol.hits)


def with_sums(coverage: Mapping[str, int]) -> dict[str, int]:
    """The counts, and those that are sums of others: a recovery fails in several ways."""
    failed = sum(
        count
        for name, count in coverage.items()
        if name.startswith(f"recovery{_ARROW}") and not name.startswith(f"recovery{_ARROW}operational")
    )
    sums = {FAILED_RECOVERY: failed} if any(name.startswith("recovery") for name in coverage) else {}
    return dict(sorted({**coverage, **sums}.items()))


def coverage_table(coverage: Mapping[str, int]) -> Table:
    """How often what happened, grouped."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(overflow="fold")
    table.add_column(justify="right", no_wrap=True)
    for group in GROUPS:
        members = {name: count for name, count in with_sums(coverage).items() if _group(name) == group}
        if not members:
            continue
        table.add_row(f"[bold]{group}[/]", "")
        for name, count in members.items():
            table.add_row(f"  {name.replace(_ARROW, ' → ')}", f"{count:,}" if count else "[red]never[/]")
    return table


def _group(name: str) -> str:
    if _ARROW in name:
        return "changes of state"
    if name in _HITS:
        return "kinds of failure"
    if name.startswith(("crash", "restart", "halt")):
        return "nodes"
    return "configurations"
