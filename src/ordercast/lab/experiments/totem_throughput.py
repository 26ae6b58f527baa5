"""000 Fig. 9 (left) and 001 Fig. 6: how many messages a second a Totem ring orders."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ordercast.lab.experiment import Claim, Experiment, Figure, Table
from ordercast.lab.figures import lines
from ordercast.lab.grid import Run, product
from ordercast.lab.totem_hosts import ABOUT_HOSTS, EIGHT, FIVE, HOSTS, PAPER, SPARC20, air_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from ordercast.lab.frames import Frames

PACKED, SINGLE = "packed", "one a packet"
ALL, ONE = "all nodes send", "one node sends"
MESSAGE_US = (5, 20)
"""What a message may cost a host to put into a packet, and as much again at each host to deliver, in
microseconds; 001 gives no figure. A packet heard costs 40."""


def costing(message_us: int) -> str:
    """What packing is called where messages cost something."""
    return f"packed, {message_us} µs a message"


def grid(quick: bool) -> list[Run]:
    """Message sizes; on the one network who sends, on the other whether small messages share packets."""
    five = (128, 1024) if quick else (128, 256, 512, 768, 1024, 1300)
    eight = (100, 1000) if quick else (64, 100, 200, 400, 700, 1000, 1300)
    runs = [
        Run(
            protocol="totem",
            arrivals="saturating",
            size=point["size"],
            senders=1 if point["sending"] == ONE else None,
            # messages of one sender come a window at a time, so a second of them is an eighth more or less
            seconds=1.0 if quick and point["sending"] == ALL else 4.0,
            # 000 §9: "window_size and max_messages were adjusted to the maximum values for which message
            # loss is negligible": who sends alone may use the whole window.
            settings={**PAPER, "max_messages": 128 if point["sending"] == ONE else 64},
            bucket_us=1_000,
            labels={"hosts": FIVE, "how": point["sending"]},
            **HOSTS[FIVE],
        )
        for point in product(size=five, sending=(ALL, ONE))
    ]
    runs += [
        Run(
            protocol="totem",
            arrivals="saturating",
            size=point["size"],
            seconds=0.15 if quick else 0.4,
            settings={**PAPER, "packing": point["how"] == PACKED},
            bucket_us=1_000,
            labels={"hosts": EIGHT, "how": point["how"]},
            **HOSTS[EIGHT],
        )
        for point in product(size=eight, how=(PACKED, SINGLE))
    ]
    runs += [
        Run(
            protocol="totem",
            arrivals="saturating",
            size=point["size"],
            seconds=0.1 if quick else 0.2,
            settings={**PAPER, "packing": True},
            bucket_us=1_000,
            labels={"hosts": EIGHT, "how": costing(point["message_us"])},
            nodes=HOSTS[EIGHT]["nodes"],
            network=HOSTS[EIGHT]["network"],
            net={**SPARC20, "message_us": point["message_us"]},
        )
        for point in product(size=eight, message_us=MESSAGE_US[-1:] if quick else MESSAGE_US)
    ]
    return runs


class Throughput:
    """Messages ordered a second, and the medium's utilization, by hosts, manner and size."""

    def __init__(self, frames: Frames) -> None:
        self.mean = frames.mean(
            ["hosts", "how", "size"], ["ordered_per_s", "utilization", "sent/data", "rotation_us"]
        )
        self._of = {
            (row["hosts"], row["how"], int(row["size"])): row for row in self.mean.to_dict(orient="records")
        }

    def sizes(self, hosts: str) -> list[int]:
        """Sizes for which both manners were measured."""
        manners = (ALL, ONE) if hosts == FIVE else (PACKED, SINGLE)
        found = [{size for h, how, size in self._of if (h, how) == (hosts, manner)} for manner in manners]
        return sorted(found[0] & found[1])

    def has(self, hosts: str, how: str, size: int) -> bool:
        """Whether that was measured."""
        return (hosts, how, size) in self._of

    def __call__(self, hosts: str, how: str, size: int, figure: str = "ordered_per_s") -> float:
        """One figure, averaged over its runs."""
        return float(self._of[hosts, how, size][figure])


def claims(frames: Frames) -> list[Claim]:
    """000 §9 and 001 on throughput."""
    t = Throughput(frames)
    five, eight = t.sizes(FIVE), t.sizes(EIGHT)
    found = []
    if 1024 in five:
        found += [_more_than_800(t), _over_1000(t, five)]
    if five:
        found.append(_one_or_all(t, five))
    if eight:
        found += [
            _packing_wins(t, eight),
            _large_alike(t, eight),
            _packing_costs(t, eight),
            _saturated(t, eight),
        ]
    return found


def _more_than_800(t: Throughput) -> Claim:
    rate = t(FIVE, ALL, 1024)
    return Claim(
        says="With messages of 1024 bytes more than 800 are ordered a second",
        where="000 §9, Fig. 9 left",
        measured=f"{rate:.0f}/s, the medium in use for {t(FIVE, ALL, 1024, 'utilization'):.0%} of the time",
        holds=rate > 800,
        note=f"the medium has no collisions here, and could carry {1e6 / air_of(FIVE, 1024):.0f}/s",
    )


def _over_1000(t: Throughput, sizes: list[int]) -> Claim:
    small = [size for size in sizes if size < 1024]
    rates = {size: t(FIVE, ALL, size) for size in small}
    told = ", ".join(f"{rate:.0f}/s of {size} bytes" for size, rate in rates.items())
    return Claim(
        says="Of smaller messages over 1000 are ordered a second",
        where="000 §9, Fig. 9 left",
        measured=told or "this grid has no smaller ones",
        holds=min(rates.values()) > 1000 if rates else None,
        note="for small messages the assumed host cost of a packet decides, which 000 does not give",
    )


def _one_or_all(t: Throughput, sizes: list[int]) -> Claim:
    apart = {size: t(FIVE, ONE, size) / t(FIVE, ALL, size) - 1 for size in sizes}
    size = max(apart, key=lambda each: abs(apart[each]))
    holds = abs(apart[size]) <= 0.15
    return Claim(
        says="There is little difference between all nodes sending and one node sending everything",
        where="000 §9, Fig. 9 left",
        measured=f"one node orders at most {abs(apart[size]):.0%} {'less' if apart[size] < 0 else 'more'}, "
        f"at {size} bytes",
        holds=holds,
        note="little is taken as up to 15%"
        if holds
        else "little is taken as up to 15%; a node that sends "
        "alone sends nothing while the token goes round the others, and with small packets that is a large "
        "part of the rotation",
    )


def _packing_wins(t: Throughput, sizes: list[int]) -> Claim:
    gains = {size: t(EIGHT, PACKED, size) / t(EIGHT, SINGLE, size) for size in sizes}
    small = sizes[0]
    return Claim(
        says="The highest throughput results from packing small messages into larger packets",
        where="001, Fig. 6",
        measured=f"{t(EIGHT, PACKED, small):,.0f}/s of {small} bytes packed, "
        f"{t(EIGHT, SINGLE, small):,.0f}/s otherwise: {gains[small]:.1f} times as many",
        holds=gains[small] > 1.5 and all(gain >= 0.98 for gain in gains.values()),
    )


def _large_alike(t: Throughput, sizes: list[int]) -> Claim:
    gains = {size: t(EIGHT, PACKED, size) / t(EIGHT, SINGLE, size) for size in sizes}
    values = list(gains.values())
    fall = ", ".join(f"{gain:.2f} at {size}" for size, gain in gains.items())
    half = [gain for size, gain in gains.items() if size > 700]
    return Claim(
        says="What packing gains is for small messages: it goes away as they fill a packet",
        where="001, Fig. 6",
        measured=f"packed to single, by size: {fall}",
        holds=max(half) <= 1.25 and values[0] == max(values) if half else None,
        note="messages of more than half a packet share one by being cut, which still gains a little",
    )


def _packing_costs(t: Throughput, sizes: list[int]) -> Claim:
    small, large = sizes[0], max(size for size in sizes if size <= 1000)
    ratios, told = {}, []
    for message_us, how in _packings(t, sizes).items():
        bytes_per_s = [size * t(EIGHT, how, size) / 1e6 for size in (small, large)]
        ratios[message_us] = bytes_per_s[0] / bytes_per_s[1]
        told.append(
            f"{bytes_per_s[0]:.1f} MB/s in messages of {small} bytes and {bytes_per_s[1]:.1f} in messages of "
            f"{large} if a message costs {message_us} µs"
        )
    return Claim(
        says="For small messages the cost of packing decides, rather than that of transmission and ordering: "
        "fewer bytes a second are ordered in small messages than in large ones",
        where="001, Performance",
        measured="; ".join(told),
        holds=ratios[max(ratios)] < 0.67,
        note=COST_IS_OURS,
    )


COST_IS_OURS = (
    f"judged at {MESSAGE_US[-1]} µs a message, which is an assumption: half of what a packet heard costs. "
    "001 says that packing costs, not how much"
)


def _packings(t: Throughput, sizes: list[int]) -> dict[int, str]:
    """What a message costs, and what packing is called then, of those that were measured."""
    found = {0: PACKED, **{message_us: costing(message_us) for message_us in MESSAGE_US}}
    return {cost: how for cost, how in found.items() if all(t.has(EIGHT, how, size) for size in sizes)}


def _saturated(t: Throughput, sizes: list[int]) -> Claim:
    nodes = HOSTS[EIGHT]["nodes"]
    busy, told = {}, []
    for message_us, how in _packings(t, sizes).items():
        size = max(sizes, key=lambda each, how=how: t(EIGHT, how, each))  # type: ignore[misc]
        messages = t(EIGHT, how, size)
        packets = messages * t(EIGHT, how, size, "sent/data")
        packets_us = packets * (SPARC20["receive_us"] * (nodes - 1) + SPARC20["send_us"]) / nodes
        token = (SPARC20["unicast_us"] + SPARC20["send_us"]) / t(EIGHT, how, size, "rotation_us")
        busy[message_us] = token + (packets_us + messages * message_us * (1 + 1 / nodes)) / 1e6
        told.append(
            f"processors are busy for {busy[message_us]:.0%} of the time and {messages:,.0f} messages/s are "
            f"ordered, if a message costs {message_us} µs (medium in use "
            f"{t(EIGHT, how, size, 'utilization'):.0%})"
        )
    return Claim(
        says="At the highest throughput the processors are saturated",
        where="001, Performance",
        measured="; ".join(told),
        holds=busy[max(busy)] > 0.9,
        note=COST_IS_OURS,
    )


def figures(frames: Frames) -> list[Figure]:
    """Throughput against message size."""
    mean = frames.mean(["hosts", "how", "size"], ["ordered_per_s", "utilization"])
    there = set(mean["hosts"])
    return [draw(mean[mean["hosts"] == hosts]) for hosts, draw in _DRAWN.items() if hosts in there]


_USUAL: dict[str, Any] = {
    "x": "size",
    "y": "ordered_per_s",
    "by": "how",
    "x_label": "message size [bytes]",
    "y_label": "messages ordered per second",
}


def _draw_five(mean: pd.DataFrame) -> Figure:
    return Figure(
        name="throughput-10",
        title="Throughput against message size, five nodes on 10 Mb/s (000 Fig. 9 left)",
        caption="Every sender is ready to send at all times; a message a packet. Dashed: what the medium "
        "could carry if it carried nothing but such packets.",
        drawing=lines(mean, decorate=_medium, order=(ALL, ONE), **_USUAL),
    )


def _draw_eight(mean: pd.DataFrame) -> Figure:
    return Figure(
        name="throughput-100",
        title="Throughput with and without packing, eight nodes on 100 Mb/s (001 Fig. 6)",
        caption="All nodes are ready to send at all times. Logarithmic. A message costs a host nothing, or "
        "so many microseconds where it is packed and where it is delivered.",
        drawing=lines(
            mean,
            log_x=True,
            log_y=True,
            decorate=_sizes_as_numbers,
            order=(PACKED, *map(costing, MESSAGE_US), SINGLE),
            **_USUAL,
        ),
    )


_DRAWN: dict[str, Callable[[pd.DataFrame], Figure]] = {FIVE: _draw_five, EIGHT: _draw_eight}


def _medium(axes: Axes, _: Any) -> None:
    sizes = list(range(100, 1301, 2))
    most = [1e6 / air_of(FIVE, size) for size in sizes]
    low, high = axes.get_ylim()
    axes.plot(sizes, most, color="#888888", linestyle="--", linewidth=0.9, zorder=1)
    axes.set_ylim(low, high * 1.15)


def _sizes_as_numbers(axes: Axes, _: Any) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.xaxis.set_major_locator(FixedLocator([64, 128, 256, 512, 1024]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size:.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: f"{rate:,.0f}"))


def tables(frames: Frames) -> list[Table]:
    """Every point, in numbers."""
    mean = frames.mean(
        ["hosts", "how", "size"], ["ordered_per_s", "bytes_per_s", "utilization", "rotation_us"]
    )
    return [
        Table(
            title=f"Saturated: {hosts}",
            columns=("", "bytes", "messages/s", "useful MB/s", "medium in use", "rotation [ms]"),
            rows=[
                (
                    row["how"],
                    int(row["size"]),
                    f"{row['ordered_per_s']:,.0f}",
                    f"{row['bytes_per_s'] / 1e6:.2f}",
                    f"{row['utilization']:.0%}",
                    f"{row['rotation_us'] / 1000:.1f}",
                )
                for row in mean[mean["hosts"] == hosts].to_dict(orient="records")
            ],
        )
        for hosts in HOSTS
        if hosts in set(mean["hosts"])
    ]


EXPERIMENT = Experiment(
    name="totem-throughput",
    title="Throughput of a Totem ring",
    source="Repeats 000 (The Totem single-ring ordering and membership protocol), Fig. 9 left, and 001 "
    "(Totem: "
    "a fault-tolerant multicast group communication system), Fig. 6",
    about=(
        "Every sender is ready to send at all times. Five nodes on an Ethernet of 10 Mb/s, all of them "
        "sending or one alone, a message a packet; and eight nodes on 100 Mb/s, with small messages sharing "
        "packets or not.",
        ABOUT_HOSTS
        + " But on the eight nodes it is also measured with a cost of "
        + " and ".join(map(str, MESSAGE_US))
        + " µs for each message, to the host that packs it and to each "
        "that delivers it: 001 names such a cost, and no figure. Where messages have packets of their own "
        "they cost nothing beside these.",
    ),
    grid=grid,
    claims=claims,
    figures=figures,
    tables=tables,
)
