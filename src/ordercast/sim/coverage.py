"""What a fuzzer made happen, counted: crashes by role and state, changes of state, remerges, and the like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from ordercast.core.identity import NodeId
from ordercast.sim.network_coverage import REMERGE, over_networks
from ordercast.sim.world import World
from ordercast.trace.columns import (
    CONFIG_KIND,
    CONFIG_REP,
    CONFIG_SEQ,
    EVENT,
    GUARANTEE,
    MEMBERS,
    NODE,
    ORIGIN,
)
from ordercast.trace.schema import Row

FAILED_RECOVERY = "recovery that failed"
ARROW = " -> "
"""Stands between the states of a change."""
WRONG_SUSPICION = "wrong suspicion"
"""A node found itself excluded, and it had not crashed."""
LOST = {
    "sequencer": "sequencer lost",
    "next": "next sequencer lost",
    "member": "simple member lost",
    "external": "external lost",
}
"""What it is called when a machine of that role crashes (004 §3.2.1)."""


def coverage(world: World, hits: Collection[str] = ()) -> Counter[str]:
    """What happened in a run that a fuzzer has to make happen.

    Of `hits` each is listed, also if it never happened: the crash of a machine by its role (`LOST`), a
    `WRONG_SUSPICION`, reasons of changes of state, whatever the states, and what happens to networks.
    """
    seen: Counter[str] = Counter(dict.fromkeys(hits, 0))
    for role, count in world.roles_lost.items():
        seen[LOST.get(role, f"{role} lost")] += count
    if WRONG_SUSPICION in hits:
        seen[WRONG_SUSPICION] += world.halt_reasons["excluded"]
    if world.applications.above is not None:
        seen.update(world.applications.above.counts)
    for state, count in world.crashes.items():
        seen[f"crash in {state or 'no state'}"] += count
    before: dict[NodeId, str] = {}
    for change in world.changes:
        was = before.get(change.node)
        if was is not None and change.because != "started":
            seen[f"{was}{ARROW}{change.state}: {change.because}"] += 1
        if change.because in hits:
            seen[change.because] += 1
        before[change.node] = change.state
    roads: dict[tuple[int | None, int | None], set[tuple[int | None, int | None]]] = {}
    last: dict[NodeId, Row] = {}
    for row in world.rows:
        event = row[EVENT]
        if event == "install":
            came = last.get(row[NODE])
            if row[CONFIG_KIND] == "regular" and came is not None and came[CONFIG_KIND] == "transitional":
                roads.setdefault((row[CONFIG_SEQ], row[CONFIG_REP]), set()).add(
                    (came[CONFIG_SEQ], came[CONFIG_REP])
                )
            last[row[NODE]] = row
        elif event == "deliver":
            if row[CONFIG_KIND] == "transitional":
                seen[f"{row[GUARANTEE]} message in a transitional configuration"] += 1
                came = last.get(row[NODE])
                if came is not None and row[ORIGIN] not in (came[MEMBERS] or ()):
                    seen["message of a node outside the transitional configuration"] += 1
        elif event in ("crash", "restart", "halt"):
            seen[event] += 1
            last.pop(row[NODE], None)
    if len(world.networks) > 1:
        seen.update(over_networks(world))
    remerges = sum(len(ways) > 1 for ways in roads.values())
    if remerges or not hits:  # what a primary partition cannot have is not missed
        seen[REMERGE] += remerges
    return seen


def with_sums(counts: Mapping[str, int]) -> dict[str, int]:
    """The counts in alphabetical order, and `FAILED_RECOVERY`, the sum of all ways in which Totem's fails."""
    failed = sum(
        count
        for name, count in counts.items()
        if name.startswith(f"recovery{ARROW}") and not name.startswith(f"recovery{ARROW}operational")
    )
    sums = {FAILED_RECOVERY: failed} if any(name.startswith("recovery") for name in counts) else {}
    return dict(sorted({**counts, **sums}.items()))


def grouped(counts: Mapping[str, int], hits: Collection[str]) -> dict[str, dict[str, int]]:
    """The counts `with_sums`, by group, without groups that are empty; `hits` are kinds of failure."""
    groups: dict[str, dict[str, int]] = {
        "nodes": {},
        "kinds of failure": {},
        "configurations": {},
        "changes of state": {},
    }
    for name, count in with_sums(counts).items():
        if ARROW in name:
            group = "changes of state"
        elif name in hits:
            group = "kinds of failure"
        elif name.startswith(("crash", "restart", "halt")):
            group = "nodes"
        else:
            group = "configurations"
        groups[group][name] = count
    return {group: members for group, members in groups.items() if members}
