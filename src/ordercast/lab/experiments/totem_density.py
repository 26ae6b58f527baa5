"""001 Fig. 7: the density of the latency to agreed delivery, for Poisson and for deterministic arrivals.

The paper's densities come from an analytic model; here they are simulated, and a model of our own
(`ordercast.lab.totem_model`, docs/lab-model.md) stands beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ordercast.lab.experiment import Claim, Experiment, Figure, Table
from ordercast.lab.figures import lines
from ordercast.lab.grid import Run, product
from ordercast.lab.totem_hosts import ABOUT_HOSTS, EIGHT, HOSTS, MESSAGE, PAPER, SPARC20, model_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from ordercast.lab.frames import Frames
    from ordercast.lab.totem_model import Density

Arrivals = Literal["poisson", "deterministic"]

RATE = 1000
LOSSES = (0.0, 1e-5, 1e-4, 1e-3, 1e-2)
USUAL = 1e-5
"""001: the probability of loss is "typically less than r = 0.00001"."""
ARRIVALS: tuple[Arrivals, ...] = ("poisson", "deterministic")
MESSAGES, TOKENS = "messages", "messages and tokens"
BUCKET_US = 25
SHOWN_US = 8_000
"""Where figures end."""
RARE = (0.99, 0.999)
NOT_REACHED = "this grid has no such loss"


def grid(quick: bool) -> list[Run]:
    """Arrivals and losses; and, with Poisson arrivals, what it is like if tokens are lost as often."""
    seeds = (0,) if quick else (0, 1, 2)
    points = [
        (arrivals, loss, MESSAGES, seed)
        for arrivals in ARRIVALS
        for loss in ((0.0, 1e-2) if quick else LOSSES)
        for seed in (seeds if loss or arrivals == "poisson" else (0,))  # else nothing is left to chance
    ]
    if not quick:
        points += [("poisson", loss, TOKENS, seed) for loss, seed in _pairs((1e-3, 1e-2), seeds[:1])]
    return [
        Run(
            protocol="totem",
            arrivals=arrivals,
            rate=RATE,
            size=MESSAGE[EIGHT],
            loss=loss,
            seconds=2.0 if quick else 20.0,
            settings=PAPER,
            bucket_us=BUCKET_US,
            seed=seed,
            labels={"lost": lost},
            nodes=HOSTS[EIGHT]["nodes"],
            network=HOSTS[EIGHT]["network"],
            net={**SPARC20, "unicast_loss": loss if lost == TOKENS else 0.0},
        )
        for arrivals, loss, lost, seed in points
    ]


def _pairs(losses: Sequence[float], seeds: Sequence[int]) -> list[tuple[float, int]]:
    return [(point["loss"], point["seed"]) for point in product(loss=losses, seed=seeds)]


# --- what came of it -----------------------------------------------------------------------------


class Case(NamedTuple):
    """Which distribution a curve shows: arrivals, loss, and what is lost."""

    arrivals: Arrivals
    loss: float
    lost: str = MESSAGES

    def __str__(self) -> str:
        return f"{self.arrivals.capitalize()}, r = {self.loss:g}" + (
            ", tokens too" if self.lost == TOKENS else ""
        )


class Histogram:
    """A simulated distribution: the share of deliveries in each bucket of `BUCKET_US`."""

    def __init__(self, shares: NDArray[Any]) -> None:
        self.shares = shares

    @property
    def mean_us(self) -> float:
        """The mean, each value taken to be in the middle of its bucket."""
        return float(sum((bucket + 0.5) * share for bucket, share in enumerate(self.shares)) * BUCKET_US)

    def quantile_us(self, share: float) -> float:
        """What so large a share does not exceed."""
        reached = self.shares.cumsum()
        return float((int((reached < share * reached[-1]).sum()) + 1) * BUCKET_US)

    def above(self, time_us: float) -> float:
        """The share of more than this."""
        return float(self.shares[int(time_us // BUCKET_US) + 1 :].sum())


def histograms(frames: Frames) -> dict[Case, Histogram]:
    """The curves that were simulated."""
    import numpy as np

    by = ["arrivals", "loss", "lost"]
    found: dict[Case, Histogram] = {}
    for (arrivals, loss, lost), part in frames.density(by, "agreed").groupby(by):
        shares = np.zeros(int(part["to_us"].max() // BUCKET_US))
        shares[(part["from_us"] // BUCKET_US).astype(int)] = part["density"] * BUCKET_US
        found[Case(arrivals, float(loss), lost)] = Histogram(shares)
    return dict(sorted(found.items(), reverse=True))


@cache
def modelled(arrivals: Arrivals, loss: float, rate: float = RATE) -> Density:
    """What the model says."""
    from ordercast.lab.totem_model import latency

    return latency(model_of(EIGHT, rate, arrivals, loss))


class Fit(NamedTuple):
    """How far the model is from what was simulated."""

    kolmogorov: float
    mean: float
    """Relative error."""
    p99: float


def fit(case: Case, simulated: Histogram) -> Fit:
    """Compare a curve with the model's."""
    from ordercast.lab.totem_model import distance

    model = modelled(case.arrivals, case.loss)
    buckets = max(len(simulated.shares), int(model.times_us[-1] // BUCKET_US) + 2)
    return Fit(
        distance(simulated.shares, model.buckets(BUCKET_US, buckets)),
        model.mean_us / simulated.mean_us - 1,
        model.quantile_us(0.99) / simulated.quantile_us(0.99) - 1,
    )


def claims(frames: Frames) -> list[Claim]:
    """What 001 says of Fig. 7, and how well our model does."""
    found = histograms(frames)
    rotations = {
        row["arrivals"]: row["rotation_us"]
        for row in frames.mean(["arrivals", "loss", "lost"], ["rotation_us"]).to_dict(orient="records")
        if row["loss"] == 0
    }
    made = []
    if {Case(arrivals, 0.0) for arrivals in ARRIVALS} <= set(found):
        made += [_deterministic_is_shorter(found), _bunching(found, rotations), _lower_rates(found)]
    if any(case.loss for case in found):
        made += [_loss_lengthens(found), _next_rotation(found)]
    made.append(_usual_loss(found))
    fits = {case: fit(case, curve) for case, curve in found.items() if case.lost == MESSAGES}
    return [*made, *([_fits(fits, frames.quick)] if fits else [])]


def _deterministic_is_shorter(found: dict[Case, Histogram]) -> Claim:
    low = [loss for loss in LOSSES if loss <= 1e-3 and Case("deterministic", loss) in found]
    low = [loss for loss in low if Case("poisson", loss) in found]
    wrong, told = [], []
    for loss in low:
        fixed, poisson = found[Case("deterministic", loss)], found[Case("poisson", loss)]
        told.append(
            f"r = {loss:g}: " + " and ".join(f"{fixed.quantile_us(q) / 1000:.2f} against "
            f"{poisson.quantile_us(q) / 1000:.2f} ms" for q in RARE)
        )  # fmt: skip
        if any(fixed.quantile_us(q) >= poisson.quantile_us(q) for q in RARE):
            wrong.append(loss)
    return Claim(
        says="For low loss, deterministic arrivals have a lower probability of a longer latency than "
        "Poisson's",
        where="001, Fig. 7",
        measured="what 99% and 99.9% of deliveries do not exceed, deterministic against Poisson: "
        + "; ".join(told),
        holds=not wrong,
    )


def _bunching(found: dict[Case, Histogram], rotations: dict[str, float]) -> Claim:
    fixed, poisson = found[Case("deterministic", 0.0)], found[Case("poisson", 0.0)]
    longest = fixed.quantile_us(0.9999)
    beyond = poisson.above(longest)
    means = " and ".join(f"{rotations[arrivals] / 1000:.2f} ms ({arrivals})" for arrivals in ARRIVALS)
    return Claim(
        says="Poisson arrivals let messages bunch together, which slows the token and makes all of the "
        "bunch late",
        where="001, Fig. 7",
        measured=f"{beyond:.1%} of deliveries take longer than with deterministic arrivals any does "
        f"({longest / 1000:.2f} ms); the mean rotation is {means}",
        holds=beyond > 0.01,
        note="it is single rotations that are slow: the mean rotation depends on the rate alone",
    )


def _lower_rates(found: dict[Case, Histogram]) -> Claim:
    wanted = found[Case("deterministic", 0.0)].quantile_us(0.99)
    least, most = 1.0, float(RATE)
    while most - least > 1:
        rate = (least + most) / 2
        least, most = (
            (rate, most) if modelled("poisson", 0.0, rate).quantile_us(0.99) <= wanted else (least, rate)
        )
    return Claim(
        says="Where arrivals are Poisson's, one has to operate at lower rates to avoid high latencies",
        where="001, Fig. 7",
        measured=f"for 99% within the {wanted / 1000:.2f} ms of {RATE} deterministic messages a second, "
        f"Poisson's may be {least:.0f} a second, by our model",
        holds=least < 0.95 * RATE,
    )


def _loss_lengthens(found: dict[Case, Histogram]) -> Claim:
    told, holds = [], True
    for arrivals in ARRIVALS:
        curves = {
            case.loss: curve for case, curve in sorted(found.items()) if case[::2] == (arrivals, MESSAGES)
        }
        if len(curves) < 2:
            continue
        longest = {loss: curve.quantile_us(0.999) for loss, curve in curves.items()}
        told.append(
            f"{arrivals} " + ", ".join(f"{value / 1000:.2f} ms at r = {r:g}" for r, value in longest.items())
        )
        values = list(longest.values())
        holds = holds and values[-1] > 1.2 * values[0] and all(b >= 0.99 * a for a, b in pairwise(values))
    return Claim(
        says="The more messages are lost, the more probable are long latencies",
        where="001, Fig. 7",
        measured="what 99.9% do not exceed: " + "; ".join(told),
        holds=holds if told else None,
    )


def _usual_loss(found: dict[Case, Histogram]) -> Claim:
    told, apart = [], []
    for arrivals in ARRIVALS:
        usual, calm = found.get(Case(arrivals, USUAL)), found.get(Case(arrivals, 0.0))
        if usual is None or calm is None:
            continue
        longest = calm.quantile_us(0.9999)
        rare = modelled(arrivals, USUAL).above(longest) - modelled(arrivals, 0.0).above(longest)
        apart.append(abs(usual.quantile_us(0.999) / calm.quantile_us(0.999) - 1))
        told.append(
            f"{arrivals} {usual.quantile_us(0.999) / 1000:.2f} against {calm.quantile_us(0.999) / 1000:.2f} "
            f"ms; by our model {rare:.0e} of deliveries are late because of it"
        )
    return Claim(
        says="With the loss that is usual on a modern LAN (r = 10⁻⁵) the density is that without loss",
        where="001, Fig. 7",
        measured="what 99.9% do not exceed, with it and without: " + ("; ".join(told) or NOT_REACHED),
        holds=max(apart) <= 0.02 if apart else None,
        note="taken as within 2%",
    )


def _next_rotation(found: dict[Case, Histogram]) -> Claim:
    case = Case("poisson", max(case.loss for case in found if case.lost == MESSAGES))
    rotation = model_of(EIGHT, RATE, "poisson", case.loss).rotation_us
    reached = found[case].quantile_us(0.999) if case in found else 0.0
    lossless = found[Case("poisson", 0.0)].quantile_us(0.999) if Case("poisson", 0.0) in found else 0.0
    return Claim(
        says="A lost message is recovered with the token: it costs about a rotation, not a timeout",
        where="000 §5.2",
        measured=f"at r = {case.loss:g} the latency that 99.9% do not exceed is "
        f"{(reached - lossless) / 1000:.2f} ms "
        f"longer than without loss; a rotation takes {rotation / 1000:.2f} ms",
        holds=0 < reached - lossless < 1.5 * rotation if reached and lossless else None,
    )


def _fits(fits: dict[Case, Fit], quick: bool) -> Claim:
    far = max(fits, key=lambda case: fits[case].kolmogorov)
    wrong = [
        str(case)
        for case, each in fits.items()
        if each.kolmogorov > 0.02 or abs(each.mean) > 0.02 or abs(each.p99) > 0.06
    ]
    return Claim(
        says="Our own model fits: Kolmogorov's distance is at most 0.02, its mean within 2%, its 99% "
        "within 6%",
        where="docs/lab-model.md",
        measured=f"largest distance {fits[far].kolmogorov:.4f} ({far}); means within "
        f"{max(abs(each.mean) for each in fits.values()):.1%}, 99% within "
        f"{max(abs(each.p99) for each in fits.values()):.1%}",
        holds=None if quick and wrong else not wrong,
        note=f"not: {'; '.join(wrong)}" if wrong else "",
    )


# --- figures and tables --------------------------------------------------------------------------


def figures(frames: Frames) -> list[Figure]:
    """The densities, and the tails."""
    found = histograms(frames)
    usual: dict[str, Any] = {
        "x": "time_ms",
        "by": "loss",
        "panel": "arrivals",
        "x_label": "latency [ms]",
        "panel_title": lambda arrivals: f"{arrivals.capitalize()} arrivals",
        "label": lambda loss: f"r = {loss:g}" if loss else "no loss",
        "markers": False,
        "shared_y": True,
    }
    return [
        Figure(
            name="density",
            title="Density of the latency to agreed delivery (001 Fig. 7)",
            caption="Simulated, with r the probability that a message is lost at a receiver; eight nodes, a "
            "thousand messages of 1000 bytes a second. Thin black lines: our model.",
            drawing=lines(
                _curves(found, 4, "density"),
                y="density",
                y_label="probability per ms",
                decorate=_model_density,
                **usual,
            ),
        ),
        Figure(
            name="tail",
            title="Probability of a longer latency",
            caption="The same on a logarithmic scale, so that what loss does can be seen. Thin black "
            "lines: our model.",
            drawing=lines(
                _curves(found, 4, "above"),
                y="above",
                y_label="probability of more",
                log_y=True,
                decorate=_model_tail,
                **usual,
            ),
        ),
    ]


def _curves(found: dict[Case, Histogram], together: int, figure: str) -> pd.DataFrame:
    """A row for every point of each curve, of so many buckets together."""
    import pandas as pd

    rows = []
    for case, curve in found.items():
        if case.lost != MESSAGES:
            continue
        width = together * BUCKET_US
        for start in range(0, min(len(curve.shares), SHOWN_US // BUCKET_US), together):
            share = float(curve.shares[start : start + together].sum())
            above = float(curve.shares[start:].sum())
            if share or figure == "above":
                middle = start * BUCKET_US + (width / 2 if figure == "density" else 0)
                rows.append((case.arrivals, case.loss, middle / 1000, share / width * 1000, above))
    return pd.DataFrame(rows, columns=["arrivals", "loss", "time_ms", "density", "above"])


def _model_density(axes: Axes, arrivals: Any) -> None:
    width = 4 * BUCKET_US
    times = [(bucket + 0.5) * width / 1000 for bucket in range(SHOWN_US // width)]
    for loss in (0.0, LOSSES[-1]):
        shares = modelled(arrivals, loss).buckets(width, len(times))
        axes.plot(times, shares / width * 1000, color="black", linewidth=0.7, label="model")
    axes.set_xlim(0, SHOWN_US / 2000)


def _model_tail(axes: Axes, arrivals: Any) -> None:
    times = range(0, SHOWN_US, 4 * BUCKET_US)
    for loss in LOSSES:
        density = modelled(arrivals, loss)
        axes.plot(
            [time / 1000 for time in times],
            [density.above(time) or float("nan") for time in times],
            color="black",
            linewidth=0.7,
            label="model",
        )
    axes.set_ylim(1e-6, 1.5)
    axes.set_xlim(0, SHOWN_US / 1000)


def tables(frames: Frames) -> list[Table]:
    """Simulation and model, in numbers."""
    found = histograms(frames)
    rows = []
    for case, curve in found.items():
        model = modelled(case.arrivals, case.loss) if case.lost == MESSAGES else None
        own = fit(case, curve) if model else None
        rows.append(
            (
                str(case),
                f"{curve.mean_us / 1000:.3f}",
                f"{model.mean_us / 1000:.3f}" if model else "",
                *(
                    text
                    for share in RARE
                    for text in (
                        f"{curve.quantile_us(share) / 1000:.2f}",
                        f"{model.quantile_us(share) / 1000:.2f}" if model else "",
                    )
                ),
                f"{own.kolmogorov:.4f}" if own else "",
            )
        )
    return [
        Table(
            title="Latency to agreed delivery in milliseconds: simulated, and by our model",
            columns=("", "mean", "model", "99%", "model", "99.9%", "model", "Kolmogorov's distance"),
            rows=rows,
            note="Where tokens are lost as well, a lost one costs the token retransmission timeout, 30 ms "
            "here, "
            "which the model leaves out.",
        )
    ]


EXPERIMENT = Experiment(
    name="totem-density",
    title="Density of the latency on a Totem ring",
    source="Repeats 001 (Totem: a fault-tolerant multicast group communication system), Fig. 7",
    about=(
        "Eight nodes on 100 Mb/s, a thousand messages of 1000 bytes a second in all, a message a packet. "
        "Poisson "
        "arrivals are independent at each node; with deterministic ones the nodes take turns, at equal "
        "distances. "
        "A message is lost at each receiver with probability r; tokens are not, except where it says so. The "
        "paper's curves are those of an analytic model that it does not state; ours is in docs/lab-model.md.",
        ABOUT_HOSTS,
    ),
    grid=grid,
    claims=claims,
    figures=figures,
    tables=tables,
)
