"""Whether a configuration can ask for a primary partition as it does."""

from __future__ import annotations

from ordercast.core.identity import MAX_NODE_ID
from ordercast.errors import ConfigProblem

MAJORITY = "majority"
"""The one primary partition that can be asked for."""


def check_primary(primary: str | None, voters: tuple[int, ...], protocol: str) -> None:
    """Raise what is wrong with these fields of a configuration."""
    built_in = protocol not in ("totem", "rings")
    if primary is None:
        if voters and not built_in:
            raise ConfigProblem(
                'voters are given, but no primary partition is asked for: write primary = "majority"'
            )
        if voters:
            _check_voters(voters)
        return
    if primary != MAJORITY:
        others = ", dynamic-linear is not offered" if primary == "dynamic-linear" else ""
        raise ConfigProblem(f'primary is {primary!r}{others}: write primary = "majority", or leave it out')
    if built_in:
        raise ConfigProblem(
            f"primary is for totem and rings, and protocol is {protocol!r}, which has a primary partition of "
            "its own: leave primary out"
        )
    _check_voters(voters)


def _check_voters(voters: tuple[int, ...]) -> None:
    if not voters or len(set(voters)) < len(voters) or not all(1 <= id <= MAX_NODE_ID for id in voters):
        raise ConfigProblem(
            f"voters is {list(voters)}: list the id of each node that counts, once, as in voters = [1, 2, 3]"
        )
