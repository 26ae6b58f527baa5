"""000 §8: whom the token visits how often, where members do not broadcast alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ordercast.lab.experiment import Claim, Experiment, Figure, Table
from ordercast.lab.figures import lines
from ordercast.lab.grid import Run, product

if TYPE_CHECKING:
    from ordercast.lab.frames import Frames

SPREAD, HOT, ALIKE = "three, 1 : 4 : 16", "one hot of eight", "eight alike"
LOADS: dict[str, tuple[float, ...]] = {
    SPREAD: (1.0, 4.0, 16.0),
    HOT: (16.0, *7 * (1.0,)),
    ALIKE: 8 * (1.0,),
}
"""How much each member broadcasts, in proportion."""
RULES = ("equal", "square-root", "proportional")
"""What the setting `visits` may be."""
MEASURED_US = 2_000_000
"""Rates are measured over so long: half of that is without load, the first time."""
SETTLED_S = 2
"""Messages of so many seconds are not measured: the rates have to be known first."""
_FIGURES = ("latency_agreed_us", "latency_safe_us", "rotation_us")


def grid(quick: bool) -> list[Run]:
    """Every load at every rate with every rule."""
    rates = (500,) if quick else (500, 1000, 2000, 4000)
    return [
        Run(
            protocol="totem",
            nodes=len(LOADS[point["load"]]),
            rate=point["rate"],
            size=100,
            safe=point["safe"],
            shares=LOADS[point["load"]],
            skip=SETTLED_S * point["rate"],
            messages=2_000 if quick else 10_000,
            settings={"visits": point["visits"], "visits_us": MEASURED_US, "hold_us": 0},
            seed=point["seed"],
            labels={"load": point["load"], "visits": point["visits"]},
        )
        for point in product(
            load=tuple(LOADS),
            rate=rates,
            visits=RULES,
            safe=(0.0, 1.0),
            seed=(0,) if quick else (0, 1, 2),
        )
    ]


class Latencies:
    """Mean latencies, in microseconds, by load, rate and rule."""

    def __init__(self, frames: Frames) -> None:
        self._of = {
            (row["load"], int(row["rate"]), row["visits"], "safe" if row["safe"] else "agreed"): row
            for row in frames.mean(["load", "rate", "visits", "safe"], _FIGURES).to_dict(orient="records")
        }

    def rates(self, load: str) -> list[int]:
        """Rates at which all rules were measured."""
        rates = {rate for known, rate, _, _ in self._of if known == load}
        asked = [(rule, guarantee) for rule in RULES for guarantee in ("agreed", "safe")]
        return sorted(rate for rate in rates if all((load, rate, *each) in self._of for each in asked))

    def __call__(self, load: str, rate: int, rule: str, guarantee: str = "agreed") -> float:
        """The mean latency where all messages ask for that guarantee."""
        return float(self._of[load, rate, rule, guarantee][f"latency_{guarantee}_us"])

    def cycle(self, load: str, rate: int, rule: str) -> float:
        """The mean time that the token takes for a cycle."""
        return float(self._of[load, rate, rule, "agreed"]["rotation_us"])


def claims(frames: Frames) -> list[Claim]:
    """The square root is best, and costs nothing where all broadcast alike."""
    latencies = Latencies(frames)
    found = [_lowest(latencies, load) for load in (SPREAD, HOT) if latencies.rates(load)]
    return [*found, _unchanged(latencies)] if latencies.rates(ALIKE) else found


def _lowest(latencies: Latencies, load: str) -> Claim:
    told, holds = [], True
    for rate in latencies.rates(load):
        took = {rule: latencies(load, rate, rule) for rule in RULES}
        told.append(f"{' / '.join(f'{took[rule]:.0f}' for rule in RULES)} µs at {rate}/s")
        holds &= min(took, key=took.__getitem__) == "square-root"
    return Claim(
        says="To minimize the latency, the rate of visits is to be proportional to the square root of the "
        f"rate of broadcasts ({load})",
        where="000 §8",
        measured=f"{' / '.join(RULES)}: " + "; ".join(told),
        holds=holds,
        note="mean latency to agreed delivery, from submission",
    )


def _unchanged(latencies: Latencies) -> Claim:
    rates = latencies.rates(ALIKE)
    off = max(
        abs(latencies(ALIKE, rate, "square-root") / latencies(ALIKE, rate, "equal") - 1) for rate in rates
    )
    return Claim(
        says="Where all broadcast alike, the square root changes nothing",
        where="000 §8",
        measured=f"farthest off: {off:.2%}, at {rates[0]} to {rates[-1]} messages/s",
        holds=off <= 0.005,
        note="within 0.5%",
    )


def figures(frames: Frames) -> list[Figure]:
    """Mean latency against load."""
    frame = frames.mean(["load", "rate", "visits", "safe"], _FIGURES)
    return [
        Figure(
            name="visits",
            title="Mean latency to agreed delivery, by how often members are visited (000 §8)",
            caption="From submission to delivery, over all nodes and messages; Poisson arrivals, 100 bytes, "
            "on a LAN without loss.",
            drawing=lines(
                frame[frame["safe"] == 0],
                x="rate",
                y="latency_agreed_us",
                by="visits",
                panel="load",
                x_label="messages per second",
                y_label="mean latency [µs]",
                order=RULES,
            ),
        )
    ]


def tables(frames: Frames) -> list[Table]:
    """Every point, in numbers."""
    latencies = Latencies(frames)
    columns = ("messages/s", "visits", "agreed [µs]", "safe [µs]", "cycle [µs]")
    return [
        Table(
            title=f"Mean latencies: {load}",
            columns=columns,
            rows=[
                (
                    rate,
                    rule,
                    f"{latencies(load, rate, rule):.0f}",
                    f"{latencies(load, rate, rule, 'safe'):.0f}",
                    f"{latencies.cycle(load, rate, rule):.0f}",
                )
                for rate in latencies.rates(load)
                for rule in RULES
            ],
            note="A safe message waits for two cycles, which are longer the more often some are visited.",
        )
        for load in LOADS
        if latencies.rates(load)
    ]


EXPERIMENT = Experiment(
    name="totem-visits",
    title="Whom the token visits how often",
    source="000 (The Totem single-ring ordering and membership protocol), §8: the square-root rule",
    about=(
        "Three loads, each with the token visiting all members alike, in proportion to the square root of "
        "the rate at which they broadcast, and in proportion to that rate. Rates are measured as the ring "
        "runs, which takes the schedule that follows from them. All messages are agreed, or all are safe.",
    ),
    grid=grid,
    claims=claims,
    figures=figures,
    tables=tables,
)
