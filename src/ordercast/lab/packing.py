"""Which runs go together: tasks long enough to be worth one, and the longest first.

A task costs Spark about a tenth of a second, so short runs are packed until a task takes `LEAST_S`. Long
tasks come first, so that the last to end are short and no processor waits long for another. A run is never
split. How runs are packed leaves no mark on what comes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ordercast.lab.grid import Run
from ordercast.lab.store import Task

LEAST_S = 2.0
MOST_S = 20.0
"""Short runs are packed up to this at most: so much is lost if somebody pulls the plug."""
SHARES = 8
"""Tasks that each processor should have, if there is enough to do."""


def pack(runs: Iterable[Run], cost: Callable[[Run], float], processors: int) -> list[Task]:
    """Tasks that hold each of the runs once, the most expensive first."""
    priced = sorted(((cost(run), run.id, run) for run in runs), key=lambda each: (-each[0], each[1]))
    total = sum(price for price, _, _ in priced)
    target = min(MOST_S, max(LEAST_S, total / (max(1, processors) * SHARES)))
    tasks: list[Task] = []
    held: list[Run] = []
    held_s = 0.0
    for price, _, run in priced:
        held.append(run)
        held_s += price
        if held_s >= target:
            tasks.append(Task(tuple(held), held_s))
            held, held_s = [], 0.0
    if held:
        tasks.append(Task(tuple(held), held_s))
    return sorted(tasks, key=lambda task: -task.cost)
