"""Results of runs of the fuzzer, as a test wants them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ordercast.sim.fuzz import Result


def result(
    seed: int = 0,
    violations: Mapping[str, int] = {},
    sentences: Sequence[str] = (),
    *,
    converged: bool = True,
    coverage: Mapping[str, int] = {},
) -> Result:
    """A run in which so much was wrong."""
    return Result(
        seed=seed,
        violations=dict(violations),
        sentences=list(sentences),
        converged=converged,
        events=10,
        receptions=5,
        rows=3,
        coverage=dict(coverage),
    )
