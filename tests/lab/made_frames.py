"""Results that nobody measured, for verdicts that have to be able to go either way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import pandas as pd

from ordercast.lab.experiment import Claim
from ordercast.lab.frames import Frames


class _Made:
    def __init__(
        self, rows: Iterable[Mapping[str, Any]], densities: pd.DataFrame | None, quick: bool
    ) -> None:
        self.rows = pd.DataFrame(rows)
        self.densities = densities
        self.quick = quick

    def mean(self, by: Sequence[str], figures: Sequence[str]) -> pd.DataFrame:
        rows = self.rows.reindex(columns=[*by, *figures])
        grouped = rows.groupby(list(by), as_index=False, dropna=False)
        spread = grouped[list(figures)].std(ddof=0).add_suffix("_sd")
        return grouped[list(figures)].mean().join(spread[[f"{name}_sd" for name in figures]])

    def density(self, by: Sequence[str], name: str) -> pd.DataFrame:
        assert self.densities is not None
        return self.densities


def made(
    rows: Iterable[Mapping[str, Any]], densities: pd.DataFrame | None = None, quick: bool = False
) -> Frames:
    """Frames of these rows: each a run, with all that it was declared by and all that came of it."""
    return cast(Frames, _Made(rows, densities, quick))


def verdict(claims: Sequence[Claim], about: str) -> bool | None:
    """The verdict on the one claim that speaks of this."""
    (found,) = (claim for claim in claims if about in claim.says)
    return found.holds
