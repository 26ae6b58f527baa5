"""How long a group takes to notice that its membership has changed, and to go on.

A member crashes, or a partition heals, while messages are being ordered. From the run's rows and changes of
state four times are taken, all from the fault on:

- *detected*: the first machine leaves the state in which it orders messages (or, after a heal, the first of
  those that were cut off ends its life, to come back as a new one);
- *installed*: the last of the members that should be there has installed the configuration of exactly these;
- *resumed*: the last of them has delivered a message in it;
- *silence*: the longest time for which a member that was never cut off delivered nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ordercast.catalogue import LAB_PROTOCOLS
from ordercast.catalogue import lab_protocol as protocol_called
from ordercast.lab.change_meter import ChangeMeter
from ordercast.lab.experiment import Claim, Experiment, Figure, Table
from ordercast.lab.figures import PROTOCOL_NAMES, lines
from ordercast.lab.grid import Method, Outcome, Run, Settings, product
from ordercast.lab.totem_hosts import EIGHT, FIVE, HOSTS, MESSAGE
from ordercast.sim.faults import At, Crash, Partition, schedule
from ordercast.sim.fuzz import without_garbage_collection
from ordercast.sim.workload import drive
from ordercast.trace.writer import TraceWriter

if TYPE_CHECKING:
    import pandas as pd

    from ordercast.lab.frames import Frames

FIRST, OTHER, HEAL = "crash of the first member", "crash of another member", "heal of a partition"
EVENTS = (FIRST, OTHER, HEAL)
USUAL, SUNS, SPARCS = "all protocols", "000 §9", "001"
"""Points of the grid: what all protocols are compared by, and what the papers report on Totem."""
TYPICAL_MS, TYPICAL_NODES = 100, 5
LOAD_US = 1_000_000
"""When the load begins."""
FAULT_US = 1_300_000
SLICE_US = 10_000
TIMES = ("detected_us", "installed_us", "resumed_us", "silence_us")


def settings_of(protocol: str, timeout_ms: int) -> Settings:
    """A protocol's timeouts, in proportion to the one after which it suspects a member.

    Totem's is the Token Loss timeout; how often a ring shows itself, by which healed parts find each other,
    is as long. The family suspects who is waited for after the aggressive timeout, anybody after three of
    them (the conservative one), and shows that it lives three times in the aggressive one.
    """
    timeout_us = timeout_ms * 1_000
    if protocol == "totem":
        return {
            "token_loss_us": timeout_us,
            "token_retransmission_us": timeout_us // 4,
            "hold_us": min(10_000, timeout_us // 8),
            "announce_us": timeout_us,
        }
    return {
        "aggressive_us": timeout_us,
        "conservative_us": 3 * timeout_us,
        "heartbeat_us": timeout_us // 3,
    }


def _faults(event: str, nodes: int, timeout_ms: int, seed: int) -> tuple[str, ...]:
    """What happens, and when: not at the same place of a rotation in every run."""
    at_us = FAULT_US + 7_770 * seed
    if event == HEAL:
        most = nodes // 2 + 1
        parts = " | ".join(
            " ".join(map(str, part)) for part in (range(1, most + 1), range(most + 1, nodes + 1))
        )
        healed_us = at_us + 5_000 * timeout_ms + 300_000
        return f"at {at_us}us partition {parts}", f"at {healed_us}us heal"
    victim = 1 if event == FIRST else nodes // 2 + 1
    return (f"at {at_us}us crash {victim}",)


def _run(protocol: str, event: str, nodes: int, timeout_ms: int, seed: int, about: str, **more: Any) -> Run:
    return Run(
        protocol=protocol,
        nodes=nodes,
        seconds=3.0,
        settings=settings_of(protocol, timeout_ms),
        faults=_faults(event, nodes, timeout_ms, seed),
        seed=seed,
        labels={"event": event, "timeout_ms": timeout_ms, "about": about},
        method=__name__,
        **more,
    )


def grid(quick: bool) -> list[Run]:
    """Group sizes at one timeout, and timeouts at one group size; and the papers' two laboratories."""
    seeds = range(1 if quick else 3)
    sizes = (3, 5) if quick else (3, 5, 8, 12, 16)
    timeouts = (TYPICAL_MS,) if quick else (50, TYPICAL_MS, 200, 400)
    points = {(nodes, TYPICAL_MS) for nodes in sizes} | {(TYPICAL_NODES, timeout) for timeout in timeouts}
    usual: dict[str, Any] = {"network": "ethernet100", "rate": 500.0, "size": 200}
    runs = [
        _run(each["protocol"], each["event"], nodes, timeout_ms, each["seed"], USUAL, **usual)
        for nodes, timeout_ms in sorted(points)
        for each in product(protocol=list(LAB_PROTOCOLS), event=EVENTS, seed=seeds)
    ]
    papers = ((SUNS, FIVE, 400.0, 100), (SPARCS, EIGHT, 1000.0, 45))
    for about, hosts, rate, timeout_ms in papers:
        for event, seed in ((event, seed) for event in (FIRST, OTHER) for seed in range(2 if quick else 5)):
            nodes = HOSTS[hosts]["nodes"]
            there = {name: value for name, value in HOSTS[hosts].items() if name != "nodes"}
            more = {"rate": rate, "size": MESSAGE[hosts], **there}
            runs.append(_run("totem", event, nodes, timeout_ms, seed, about, **more))
    return runs


# --- carrying a run out --------------------------------------------------------------------------


def _story(run: Run) -> ChangeMeter:
    everybody = frozenset(range(1, run.nodes + 1))
    expected = steady = everybody
    fault_us = 0
    for fault in run.parsed_faults:
        assert isinstance(fault, At), "faults of this experiment happen at a time"
        fault_us = max(fault_us, fault.at_us)
        if isinstance(fault.do, Crash):
            expected = steady = everybody - {fault.do.node}
        elif isinstance(fault.do, Partition):
            steady = frozenset(fault.do.groups[0])
    return ChangeMeter(expected, steady, fault_us)


def conduct(run: Run, trace: TraceWriter | None = None) -> Outcome:
    """Let the event of a run happen, until everybody delivers again or `Run.seconds` after it."""
    import msgspec

    protocol = protocol_called(run.protocol)
    story = _story(run)
    with without_garbage_collection():
        world = protocol.world(run.settings, range(1, run.nodes + 1), run.network_config, run.seed)
        schedule(world, run.parsed_faults)
        drive(world, msgspec.structs.replace(run.workload, start_us=LOAD_US))
        world.at(0, world.start)
        end_us = story.fault_us + int((run.seconds or 0.0) * 1_000_000)
        while world.now < end_us and not story.over:
            world.run_until(world.now + SLICE_US)
            story.take(world.rows)
            if trace is not None:
                trace.write(world.rows)
            world.rows.clear()
    for change in world.changes:
        if change.state != protocol.product.settled and change.node in story.expected:
            story.notice(change.time_us)
    formed = world.changes and any(change.time_us < story.fault_us for change in world.changes)
    notes = [] if story.over else [f"not over {run.seconds:g} s after the fault"]
    if not formed:
        notes.append("the group had not formed before the fault")
    notes += [f"damaged on its way: {damage}" for damage in world.applications.corrupt[:3]]
    return Outcome(figures=story.figures(), notes=notes)


def cost(run: Run) -> float:
    """Seconds of one processor, from what was seen of such runs."""
    return 0.05 * run.nodes * (2.0 if run.labels.get("event") == HEAL else 1.0)


METHOD = Method(conduct, cost)


# --- what came of it -----------------------------------------------------------------------------


class Times:
    """Mean times, in milliseconds, by what the point is about, protocol, event, group size and timeout."""

    def __init__(self, frames: Frames) -> None:
        by = ["about", "protocol", "event", "nodes", "timeout_ms"]
        self.mean = frames.mean(by, [*TIMES, "recovered"])
        self._of = {
            (r["about"], r["protocol"], r["event"], int(r["nodes"]), int(r["timeout_ms"])): r
            for r in self.mean.to_dict(orient="records")
        }

    def points(self, about: str = USUAL, event: str | None = None) -> list[tuple[str, str, str, int, int]]:
        """The points there are."""
        return [point for point in self._of if point[0] == about and event in (None, point[2])]

    def __call__(self, figure: str, point: tuple[str, str, str, int, int]) -> float:
        """The mean of one figure."""
        value = float(self._of[point][figure])
        return value / 1000 if figure.endswith("_us") else value


def claims(frames: Frames) -> list[Claim]:
    """What the papers say of failures, and what is to be expected of timeouts."""
    times = Times(frames)
    made = [_recovered(times)]
    if times.points(SUNS):
        made.append(_reformed(times))
    if times.points(SPARCS):
        made += [_detected_in_50(times), _recovered_in_20(times)]
    if times.points():
        made.append(_by_timeout(times))
    if {"rbp", "cm"} <= {point[1] for point in times.points()}:
        made.append(_reformation(times))
    if "irbp" in {point[1] for point in times.points()}:
        made.append(_i_views(times))
    return made


def _recovered(times: Times) -> Claim:
    every = [point for about in (USUAL, SUNS, SPARCS) for point in times.points(about)]
    wrong = [point for point in every if times("recovered", point) < 1]
    told = ", ".join(f"{p[1]} of {p[3]} ({p[2]}, {p[4]} ms)" for p in wrong[:5])
    return Claim(
        says="After a crash or a heal a group of those that are there is installed, and goes on",
        where="000 §4.1 (termination), 004 §4.3",
        measured=f"at {len(every) - len(wrong)} of {len(every)} points, in every run",
        holds=not wrong,
        note=f"not always: {told}" if wrong else "",
    )


def _mean(times: Times, figure: str, about: str) -> float:
    values = [times(figure, point) for point in times.points(about)]
    return sum(values) / len(values)


def _reformed(times: Times) -> Claim:
    took = _mean(times, "resumed_us", SUNS)
    return Claim(
        says="To form a new ring and return to normal takes, on average, the Token Loss timeout and 40 ms; "
        "the "
        "timeout is 100 ms, and five nodes are on 10 Mb/s",
        where="000 §9",
        measured=f"{took:.0f} ms from the crash to the last node's first delivery, on average",
        holds=took <= 140,
        note="read as: no longer than that. Our Join and consensus timeouts, which the paper does not "
        "give, are "
        "1.5 and 6.5 ms",
    )


def _detected_in_50(times: Times) -> Claim:
    took = max(times("detected_us", point) for point in times.points(SPARCS))
    return Claim(
        says="A crash is detected within 50 ms, in a group of eight on 100 Mb/s",
        where="001, Performance",
        measured=f"{took:.0f} ms, with the Token Loss timeout set to 45 ms",
        holds=took <= 50,
        note="it is the timeout that decides, and that is chosen; 45 ms are some seventeen rotations",
    )


def _recovered_in_20(times: Times) -> Claim:
    took = [times("resumed_us", p) - times("detected_us", p) for p in times.points(SPARCS)]
    return Claim(
        says="Recovery after detection typically takes less than 20 ms, in a group of eight",
        where="001, Performance",
        measured=f"{min(took):.0f} to {max(took):.0f} ms from there to the last node's first delivery",
        holds=max(took) < 20,
    )


def _by_timeout(times: Times) -> Claim:
    crashes = [*times.points(USUAL, FIRST), *times.points(USUAL, OTHER)]
    ratios = {point: times("detected_us", point) / point[4] for point in crashes}
    low, high = min(ratios, key=lambda p: ratios[p]), max(ratios, key=lambda p: ratios[p])
    off = [point for point, ratio in ratios.items() if not 0.6 <= ratio <= 1.5]
    told = ", ".join(f"{p[1]} of {p[3]}: {ratios[p]:.2f}" for p in off[:6])
    return Claim(
        says="How long a crash goes unnoticed is a matter of the timeout, not of the protocol or the "
        "group's size",
        where="000 §6.2.1, 004 §4.1",
        measured=f"detected after {ratios[low]:.2f} ({low[1]}, {low[3]} nodes, {low[4]} ms) to "
        f"{ratios[high]:.2f} timeouts ({high[1]}, {high[3]} nodes, {high[4]} ms)",
        holds=not off,
        note=f"outside of 0.6 to 1.5: {told}" if off else "",
    )


def _after(times: Times, protocol: str) -> list[float]:
    crashes = [*times.points(USUAL, FIRST), *times.points(USUAL, OTHER)]
    return [times("installed_us", p) - times("detected_us", p) for p in crashes if p[1] == protocol]


def _reformation(times: Times) -> Claim:
    rbp, cm = _after(times, "rbp"), _after(times, "cm")
    return Claim(
        says="Where several notice a failure, RBP's Reformation takes much longer than a view change by "
        "consensus",
        where="004 §3.2.3, §4.4",
        measured=f"from detection to installation {min(rbp):.0f} to {max(rbp):.0f} ms, and {min(cm):.1f} to "
        f"{max(cm):.1f} ms with CM, whose views are agreed on by consensus",
        holds=sum(rbp) / len(rbp) > 2 * sum(cm) / len(cm),
        note="the originators of several Reformations give way to each other, and wait before they try again",
    )


def _i_views(times: Times) -> Claim:
    crashes = [
        p for event in (FIRST, OTHER) for p in times.points(USUAL, event) if p[1] == "irbp" and p[3] > 3
    ]
    silence = [times("silence_us", p) / p[4] for p in crashes]
    installed = [times("installed_us", p) / p[4] for p in crashes]
    if not crashes:
        return Claim(
            says=_I_VIEWS, where="004 §4.3, §4.4.3", measured="no such group in this grid", holds=None
        )
    return Claim(
        says=_I_VIEWS,
        where="004 §4.3, §4.4.3",
        measured=f"nothing is delivered for at most {max(silence):.2f} aggressive timeouts; the view "
        f"without the "
        f"crashed member is installed after {min(installed):.2f} to {max(installed):.2f} (the conservative "
        f"one "
        "is three)",
        holds=max(silence) < 2 and min(installed) > 2,
        note="an aggressive suspicion takes a member off the token list, not out of the view",
    )


_I_VIEWS = (
    "With i-views an aggressive timeout ends the blocking, and only a conservative one excludes: ordering "
    "goes on "
    "long before the view changes"
)


# --- figures and tables --------------------------------------------------------------------------


def figures(frames: Frames) -> list[Figure]:
    """Time to recover against group size, and against the timeout."""
    mean = Times(frames).mean
    mean = mean[mean["about"] == USUAL]
    order = [protocol for protocol in LAB_PROTOCOLS if protocol in set(mean["protocol"])]
    usual: dict[str, Any] = {"by": "protocol", "scale": 1e-3, "order": order, "panel_title": str.capitalize}

    def drawn(frame: pd.DataFrame, **more: Any) -> Any:
        return lines(frame, panel="event", y_label="time [ms]", **usual, **more)

    axes = (
        (
            ("size", mean[mean["timeout_ms"] == TYPICAL_MS], "group size"),
            {"x": "nodes", "x_label": "group size"},
            f"From the fault on; timeouts of {TYPICAL_MS} ms; means of the runs, with their spread.",
        ),
        (
            ("timeout", mean[mean["nodes"] == TYPICAL_NODES], "the timeout"),
            {"x": "timeout_ms", "x_label": "timeout [ms]"},
            f"Groups of {TYPICAL_NODES}. The timeout is Totem's Token Loss timeout, and the aggressive one "
            f"of the "
            "others; their conservative one is three times that.",
        ),
    )
    return [
        Figure(
            name=f"{name}-{short}",
            title=f"Time {what}, against {long}",
            caption=caption,
            drawing=drawn(frame, y=f"{name}_us", **axis),
        )
        for name, what in (
            ("installed", "until all have installed the new configuration"),
            ("silence", "for which a member that stayed delivered nothing"),
        )
        for (short, frame, long), axis, caption in axes
        if len(frame)
    ]


def tables(frames: Frames) -> list[Table]:
    """Every point, in numbers."""
    times = Times(frames)
    columns = ("protocol", "nodes", "timeout [ms]", "detected", "installed", "resumed", "silence")
    made = []
    for about in (USUAL, SUNS, SPARCS):
        for event in EVENTS:
            points = times.points(about, event)
            if points:
                rows = [
                    (PROTOCOL_NAMES[p[1]], p[3], p[4], *(f"{times(figure, p):.1f}" for figure in TIMES))
                    for p in sorted(points)
                ]
                title = f"{event}, ms from the fault" + ("" if about == USUAL else f" ({about})")
                made.append(Table(title=title[0].upper() + title[1:], columns=columns, rows=rows))
    return made


EXPERIMENT = Experiment(
    name="reconfiguration",
    title="How long it takes to notice a failure, and to go on",
    source="All protocols; what 000 §9, 001 and 004 report on reconfiguration",
    about=(
        "A group orders 500 messages of 200 bytes a second on 100 Mb/s when its first member crashes (the "
        "representative, or the sequencer), or another one, or when a partition heals that had cut off all "
        "but a "
        "majority. Timeouts are in proportion to one: Totem's Token Loss timeout, and the timeout after "
        "which the "
        "others suspect who is waited for (the aggressive one; the conservative one is three times as long).",
        "After a heal Totem's rings merge; members of the other protocols that had been excluded end their "
        "life "
        "and come back as new ones, which a supervisor begins after 20 ms. Two more points are the papers' "
        "laboratories: five nodes on 10 Mb/s (000 §9), eight on 100 Mb/s (001).",
    ),
    grid=grid,
    claims=claims,
    figures=figures,
    tables=tables,
)
