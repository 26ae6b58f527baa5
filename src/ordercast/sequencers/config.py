"""The settings of those protocols of the family that have more than all have in common."""

from __future__ import annotations

from typing import ClassVar

from ordercast.viewsync.config import ServerConfig


class TrmpConfig(ServerConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of TRMP: those of the family, and how exactly the schedule is kept.

    The token moves every `hurry_us` while something is on the way. Without anything it moves every
    `silence_us`, or at once when there is a message, if its last move was `hurry_us` ago.
    """

    clock_error_ppm: int = 200
    """By how much the rate of a clock may be wrong, in millionths. What time it shows does not matter."""

    lateness_us: int = 2_000
    """How late an acknowledgement may be because of the network and busy processors; then it is asked for."""

    MAY_BE_ZERO: ClassVar[frozenset[str]] = ServerConfig.MAY_BE_ZERO | {"clock_error_ppm"}
    ORDER: ClassVar[tuple[tuple[str, str, str], ...]] = (
        *ServerConfig.ORDER,
        ("hurry_us", "silence_us", "the token moves more often while something is on the way"),
    )
    RANGES: ClassVar[tuple[tuple[str, int, int], ...]] = (
        *ServerConfig.RANGES,
        ("clock_error_ppm", 0, 500_000),
    )
