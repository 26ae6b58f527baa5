"""Makes the faults of a failing run fewer and shorter, as long as it fails in the same way."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence

from ordercast.testing.faults import Chosen, Fault

MOST_RUNS = 60
SHORTEST_S = 0.001


def shrink(
    faults: Sequence[Fault], run: Callable[[Chosen], BaseException | None], error: BaseException
) -> tuple[Chosen, int]:
    """The smallest choice of these faults that was found, and how many runs that took. `run` runs the test;
    `error` is what it raised with all of them."""
    search = _Search(run, _kind(error), Chosen.of(faults))
    search.fewer()
    search.shorter(faults)
    search.fewer()
    return search.best, search.runs


def _kind(error: BaseException) -> tuple[object, ...]:
    """Two failures are the same if they raise the same at the same place."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1] if frames else None
    return type(error), last and last.filename, last and last.lineno


class _Search:
    """Tries one choice after another."""

    def __init__(
        self, run: Callable[[Chosen], BaseException | None], wanted: tuple[object, ...], all: Chosen
    ) -> None:
        self.best = all
        self.runs = 0
        self._run = run
        self._wanted = wanted
        self._tried = {str(all)}

    def _fails(self, some: Chosen) -> bool:
        if str(some) in self._tried or self.runs >= MOST_RUNS:
            return False
        self._tried.add(str(some))
        self.runs += 1
        error = self._run(some)
        if error is None or _kind(error) != self._wanted:
            return False
        self.best = some
        return True

    def fewer(self) -> None:
        """Leave out all, then halves, quarters and so on, down to single ones; later ones first."""
        size = len(self.best.lasts_s)
        while size:
            stop = len(self.best.lasts_s)
            while stop > 0:
                numbers = sorted(self.best.lasts_s)
                start = max(0, stop - size)
                kept = [*numbers[:start], *numbers[stop:]]
                self._fails(Chosen({number: self.best.lasts_s[number] for number in kept}))
                stop = start
            size //= 2

    def shorter(self, faults: Sequence[Fault]) -> None:
        """A tenth of the time, a third, a half."""
        for number in sorted(self.best.lasts_s):
            drawn_s = faults[number - 1].lasts_s
            for part in (0.01, 0.1, 0.3, 0.6):
                lasts_s = float(f"{drawn_s * part:.2g}")
                if lasts_s >= SHORTEST_S and self._fails(Chosen({**self.best.lasts_s, number: lasts_s})):
                    break
