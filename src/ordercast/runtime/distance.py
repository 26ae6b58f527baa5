"""How far peers are, and whether the machine has to know: its timeouts may have to be longer for it."""

from __future__ import annotations

import logging

from ordercast.core.protocol import LAN, ROUND_TRIPS_US, WAN


class RoundTrip:
    """Compares the measured round trip to the peers with that which a profile's settings are made for."""

    def __init__(self, profile: str = LAN, *, followed: bool = True) -> None:
        """`profile` is one of `ROUND_TRIPS_US`; with `followed`, the machine's timeouts follow what is
        measured."""
        self.profile = profile
        self.followed = followed
        self._told_us = 0

    @property
    def advice(self) -> str:
        """What to do where peers are further than the profile is made for, and timeouts do not follow."""
        if self.profile != WAN:
            return (
                f'write profile = "{WAN}" at every node, which is made for {ROUND_TRIPS_US[WAN] // 1000} ms'
            )
        return "no profile is made for that: set longer timeouts in the protocol's table at every node"

    def news(self, measured_us: int, anew: bool) -> int | None:
        """The round trip, in microseconds, that the machine should be told now; 0: that of its profile.

        None if it was told already, or nearly the same; one that was told nothing (`anew`) was told 0.
        """
        trip_us = measured_us if measured_us > ROUND_TRIPS_US[self.profile] else 0
        told_us = 0 if anew else self._told_us
        self._told_us = told_us
        if told_us // 2 <= trip_us <= 5 * told_us // 4:
            return None
        self._told_us = trip_us
        return trip_us

    def told(self, trip_us: int) -> tuple[int, str]:
        """What a log should say of peers that are so far away: level and sentence."""
        if self.followed:
            return logging.INFO, (
                f"peers are up to {trip_us // 1000} ms away, there and back: timeouts fit that, and are "
                f'longer than those of profile "{self.profile}"'
            )
        return logging.WARNING, (
            f"peers are {trip_us // 1000} ms away, there and back, and timeouts are those of profile "
            f'"{self.profile}", made for {ROUND_TRIPS_US[self.profile] // 1000} ms: {self.advice}'
        )
