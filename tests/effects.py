"""What a machine answered with, in short: for tests of machines."""

from __future__ import annotations

from collections.abc import Iterable

from ordercast.core.contract import CancelTimer, Drop, Effect, SetTimer, Shift


def shifts(effects: Iterable[Effect]) -> list[tuple[str, str]]:
    """The states entered, and why."""
    return [(effect.state, effect.because) for effect in effects if isinstance(effect, Shift)]


def timers(effects: Iterable[Effect]) -> dict[str, int | None]:
    """The timers touched: what each was set to last, None if it was cancelled."""
    last: dict[str, int | None] = {}
    for effect in effects:
        if isinstance(effect, SetTimer):
            last[effect.name] = effect.delay_us
        elif isinstance(effect, CancelTimer):
            last[effect.name] = None
    return last


def drops(effects: Iterable[Effect]) -> list[str]:
    """Why packets were not used."""
    return [effect.reason for effect in effects if isinstance(effect, Drop)]
