"""The properties that protocols promise, by code, and the audit that checks them all.

This is the reference: plain Python, one function a property, about linear in the trace. Each function
says what it asks for, and where the paper does. There are two sets: Totem promises extended virtual
synchrony, and the sequencer family view synchrony with uniform total order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeAlias

from ordercast.audit.agreement import causal, gap_free, safe, self_delivery, virtual_synchrony
from ordercast.audit.delivery import deliver_once, deliver_originated, deliver_place, seq_unique
from ordercast.audit.explain import Report, Violation, merge, told_once
from ordercast.audit.followers import FollowedViews, follower_order, live_followers
from ordercast.audit.history import Expectation, History
from ordercast.audit.liveness import live_delivery, live_membership
from ordercast.audit.membership import (
    config_chain,
    config_consistent,
    config_ends,
    config_member,
    config_unique,
    members_traced,
)
from ordercast.audit.order import born_ordered, global_order, total_order
from ordercast.audit.process_groups import (
    group_once,
    group_one_view,
    group_order,
    group_queue,
    group_receivers,
    group_self_inclusion,
    group_synchrony,
    group_views,
    live_group_delivery,
    live_groups,
)
from ordercast.audit.same_contents import same_contents
from ordercast.audit.synchrony import sending_view, validity, view_agreement, view_synchrony
from ordercast.audit.uniform import uniform_agreement, uniform_integrity, uniform_order
from ordercast.audit.views import TokenListViews, Views
from ordercast.core.identity import NodeId
from ordercast.core.protocol import GROUPS
from ordercast.trace.columns import CONFIG_KIND, EVENT, SEQ
from ordercast.trace.schema import Row

__all__ = [
    "EXTENDED_VIRTUAL_SYNCHRONY",
    "PROMISES",
    "VIEW_SYNCHRONY",
    "Check",
    "Expectation",
    "History",
    "Promises",
    "Report",
    "Violation",
    "audit",
    "audit_runs",
    "promised",
    "unjudged",
]

Check: TypeAlias = Callable[[Any], list[Violation]]
"""From a history, of the sort that the check's set is read off, to what is wrong with it."""


class Promises(dict[str, Check]):
    """A set of properties by code, in the order in which reports tell of them."""

    def __init__(self, name: str, history: type[History], *checks: Check) -> None:
        """`history` is what its checks read the properties off."""
        super().__init__({check.__name__.replace("_", "-"): check for check in checks})
        self.name = name
        self.history = history


EXTENDED_VIRTUAL_SYNCHRONY = Promises(
    "extended-virtual-synchrony",
    History,
    config_unique,
    config_member,
    config_chain,
    config_consistent,
    config_ends,
    members_traced,
    deliver_once,
    deliver_originated,
    deliver_place,
    same_contents,
    seq_unique,
    total_order,
    global_order,
    born_ordered,
    gap_free,
    causal,
    self_delivery,
    virtual_synchrony,
    safe,
    live_membership,
    live_delivery,
)
"""What Totem promises on one ring and on several (000 §3, §4; 001)."""

_OF_VIEWS = (
    uniform_agreement,
    uniform_integrity,
    same_contents,
    uniform_order,
    view_synchrony,
    sending_view,
    view_agreement,
    config_ends,
    members_traced,
    validity,
    live_membership,
)

VIEW_SYNCHRONY = Promises("view-synchrony", Views, *_OF_VIEWS)
"""What the sequencer family promises (004 §2.1, §4.3.2)."""

TOKEN_LIST_VIEW_SYNCHRONY = Promises("token-list-view-synchrony", TokenListViews, *_OF_VIEWS)
"""The same, where levels of resilience count the members of a token list that may be shorter than the view
(004 §4.4.3)."""

FOLLOWED_VIEW_SYNCHRONY = Promises(
    "followed-view-synchrony", FollowedViews, *_OF_VIEWS, follower_order, live_followers
)
"""View synchrony among members, and what those are promised who follow their order (004 §3.3.2)."""

_OF_PROCESS_GROUPS = (
    group_views,
    group_self_inclusion,
    group_receivers,
    group_once,
    group_order,
    group_synchrony,
    group_one_view,
    group_queue,
    live_groups,
    live_group_delivery,
)

PROCESS_GROUPS = Promises("process-groups", History, *_OF_PROCESS_GROUPS)
"""What process groups promise over any ordering protocol (001, "The Totem Process Group Interface")."""

_ORDERED = (EXTENDED_VIRTUAL_SYNCHRONY, VIEW_SYNCHRONY, TOKEN_LIST_VIEW_SYNCHRONY, FOLLOWED_VIEW_SYNCHRONY)

PROMISES: Mapping[str, Promises] = {
    each.name: each
    for each in (
        *_ORDERED,
        *(
            Promises(each.name + GROUPS, each.history, *each.values(), *_OF_PROCESS_GROUPS)
            for each in _ORDERED
        ),
    )
}
"""The sets there are, by name."""


def promised(rows: Iterable[Row]) -> Promises:
    """The set that a run has to keep, by its rows, where nobody says which.

    Totem's rings are joined by transitional configurations, and a message has its place when it is
    originated; in the sequencer family there are no such configurations, and somebody gives the place later.
    """
    for row in rows:
        if row[CONFIG_KIND] == "transitional" or (row[EVENT] == "originate" and row[SEQ] is not None):
            return EXTENDED_VIRTUAL_SYNCHRONY
    return VIEW_SYNCHRONY


_NEED_EXPECTATION = (
    *("live-membership", "live-delivery", "live-groups", "live-group-delivery"),
    "live-followers",
)


def audit(
    rows: Iterable[Row],
    expectation: Expectation | None = None,
    checks: Mapping[str, Check] = EXTENDED_VIRTUAL_SYNCHRONY,
    *,
    whole: bool = True,
    one_clock: bool = False,
    absent: Collection[NodeId] | None = None,
) -> Report:
    """Check one run, in any order of rows. Without an expectation, liveness is not judged.

    Without `whole`, rows are known to be missing: beginnings of nodes, or all rows of some messages; then
    `absent` says of which nodes there is no row anywhere. With
    `one_clock`, one clock told the times of all nodes, and what depends on times is judged too. Checks that
    are no set of `PROMISES` are given a `History`.
    """
    promises = checks if isinstance(checks, Promises) else None
    reads = History if promises is None else promises.history
    history = reads(rows, expectation, whole=whole, one_clock=one_clock, absent=absent)
    counts: dict[str, int] = {}
    kept: list[Violation] = []
    for code, check in checks.items():
        found = check(history)
        counts[code] = len(found)
        kept += told_once(found)
    unchecked = unjudged(checks, expected=expectation is not None, every_row=whole)
    names = () if promises is None else (promises.name,)
    return Report(history.events, counts, tuple(kept), unchecked, names)


def unjudged(
    checks: Mapping[str, Check], *, expected: bool = False, every_row: bool = True
) -> tuple[str, ...]:
    """The properties that cannot be judged by a trace alone, unless it is said what is `expected`.

    Without `every_row`, rows are missing or were not looked at one by one: then what processes are told is
    not judged either.
    """
    codes = () if expected else _NEED_EXPECTATION
    unseen = () if every_row else ("follower-order", *PROCESS_GROUPS)
    return tuple(code for code in checks if code in codes or code in unseen)


def audit_runs(
    runs: Iterable[tuple[str, Iterable[Row]]], checks: Mapping[str, Check] = EXTENDED_VIRTUAL_SYNCHRONY
) -> Report:
    """Check each run by itself, as `ordercast.trace.reader.read_runs` yields them, and add up."""
    return merge(audit(rows, None, checks).of_run(run) for run, rows in runs)
