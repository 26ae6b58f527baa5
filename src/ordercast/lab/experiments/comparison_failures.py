"""RBP beside other protocols when members fail, or seem to: the other half of the comparison of 004 §6.

A member crashes under load and comes back; or nobody hears of a member for longer than who is waited for may
be silent, and for less than a member may be gone (004 §4.3.5: the aggressive and the conservative timeout).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ordercast.lab.experiment import Claim, Experiment, Figure, Table
from ordercast.lab.experiments.comparison import BESIDE, NETWORK, PROTOCOLS, SIZE
from ordercast.lab.experiments.reconfiguration import settings_of
from ordercast.lab.figures import PROTOCOL_NAMES, lines
from ordercast.lab.grid import Run, product

if TYPE_CHECKING:
    from ordercast.lab.frames import Frames

CRASH, AWAY = "a crash", "a member that is not heard"
FIRST, OTHER = "the first member", "another member"
TYPICAL = 5
RATE = 500
TIMEOUT_MS, AWAY_MS = 100, 150
"""The aggressive timeout, a third of the conservative one; and how long a member is not heard."""
I_VIEWS = ("irbp", "primary-backup")
"""Those that take whom they suspect off the token list first."""


def _run(protocol: str, about: str, nodes: int, who: str, seed: int, method: str, **more: Any) -> Run:
    labels: dict[str, Any] = {
        "about": about,
        "who": who,
        "victim": 1 if who == FIRST else nodes // 2 + 1,
        "keep": "usual",
    }
    settings = {**settings_of(protocol, TIMEOUT_MS), **more.pop("settings", {})}
    labels |= more.pop("labels", {})
    return Run(
        protocol=protocol,
        nodes=nodes,
        rate=RATE,
        size=SIZE,
        seconds=1.0,
        network=NETWORK,
        settings=settings,
        seed=seed,
        labels=labels,
        method=method,
    )


def grid(quick: bool) -> list[Run]:
    """Crashes by group size, and members that are not heard."""
    sizes = (3, TYPICAL) if quick else (3, TYPICAL, 8, 12)
    seeds = range(2 if quick else 6)
    runs = [
        _run(**point, about=CRASH, method="ordercast.lab.outage")
        for point in product(nodes=sizes, protocol=BESIDE, who=(FIRST, OTHER), seed=seeds)
    ]
    usual: dict[str, Any] = {"about": AWAY, "method": "ordercast.lab.absence", "labels": {"away_ms": AWAY_MS}}
    runs += [
        _run(**point, **usual)
        for point in product(nodes=(TYPICAL,), protocol=PROTOCOLS, who=(FIRST, OTHER), seed=seeds)
    ]
    forgets: dict[str, Any] = {
        "labels": {"away_ms": AWAY_MS, "keep": "nothing"},
        "settings": {"keep_bytes": 0},
    }
    return runs + [
        _run(**point, **{**usual, **forgets})
        for point in product(nodes=(TYPICAL,), protocol=I_VIEWS, who=(FIRST, OTHER), seed=seeds)
    ]


# --- what came of it -----------------------------------------------------------------------------


class Means:
    """Mean figures over all seeds, for each point of the grid; times are milliseconds."""

    def __init__(self, frames: Frames) -> None:
        figures = ["crash_silence_us", "return_silence_us", "return_recovered", "killed", "silence_us"]
        self.mean = frames.mean(["about", "protocol", "nodes", "who", "keep"], figures)
        self._of = {
            (r["about"], r["protocol"], int(r["nodes"]), r["who"], r["keep"]): r
            for r in self.mean.to_dict(orient="records")
        }
        self.sizes = sorted({key[2] for key in self._of if key[0] == CRASH})
        self.protocols = [p for p in BESIDE if any(key[:2] == (CRASH, p) for key in self._of)]

    def crash(self, protocol: str, nodes: int, who: str, figure: str = "crash_silence_us") -> float:
        """How long nothing is delivered when a member crashes, or comes back."""
        value = float(self._of[CRASH, protocol, nodes, who, "usual"][figure])
        return value / 1000 if figure.endswith("_us") else value

    def away(self, protocol: str, figure: str, keep: str = "usual") -> float:
        """What it costs that a member is not heard for a while, whichever it is."""
        both = [float(self._of[AWAY, protocol, TYPICAL, who, keep][figure]) for who in (FIRST, OTHER)]
        return sum(both) / 2 / (1000 if figure.endswith("_us") else 1)


def claims(frames: Frames) -> list[Claim]:
    """What 004 and 002 say of failures, of real ones and of wrong suspicions."""
    found = Means(frames)
    if found.protocols != list(BESIDE) or TYPICAL not in found.sizes:
        return []
    return [_catastrophic(found), _delayed(found), _killed(found), _kept(found), _not_blocked(found)]


def _outages(found: Means, protocol: str) -> str:
    first, other = (found.crash(protocol, TYPICAL, who) for who in (FIRST, OTHER))
    return f"{PROTOCOL_NAMES[protocol]} {first:.0f} and {other:.0f}"


def _catastrophic(found: Means) -> Claim:
    fixed = found.crash("total", TYPICAL, FIRST)
    moving = max(found.crash(p, TYPICAL, who) for p in ("cm", "irbp") for who in (FIRST, OTHER))
    return Claim(
        says="In sequencer-based protocols the failure of the sequencer is catastrophic",
        where="002 §1",
        measured=f"nothing is delivered for so many ms when the first of {TYPICAL} crashes, and another: "
        + ", ".join(_outages(found, p) for p in ("total", "cm", "irbp")),
        holds=fixed > 2 * moving,
        note="judged as twice as long as any crash takes where the token moves. With a view change the next "
        "member goes on as sequencer; and there the crash of another member stops nobody",
    )


def _delayed(found: Means) -> Claim:
    backup, primary = (found.crash("primary-backup", TYPICAL, who) for who in (OTHER, FIRST))
    return Claim(
        says="If a backup fails, primary-backup can delay the view change indefinitely; in RBP any failure "
        "blocks the token",
        where="004 §4.4.1",
        measured=f"nothing is delivered for so many ms when the first of {TYPICAL} crashes, and another: "
        + ", ".join(_outages(found, p) for p in ("primary-backup", "total", "rbp", "cm")),
        holds=backup < primary / 4 and found.crash("cm", TYPICAL, OTHER) > 0.5 * TIMEOUT_MS,
        note="by §4.3.1 the primary waits for all acknowledgements before it answers, so that a "
        "failed backup "
        "stops it until it is off the list. What is said is so with a fixed sequencer that waits for a "
        "majority (TOTAL)",
    )


def _killed(found: Means) -> Claim:
    told = ", ".join(f"{PROTOCOL_NAMES[p]} {found.away(p, 'killed'):.1f}" for p in PROTOCOLS)
    one_view = [found.away(p, "killed") for p in ("cm", "total", "trmp")]
    return Claim(
        says="Two views keep wrong suspicions from killing members that are correct",
        where="004 §4.3.5, §5",
        measured=f"lives that end when one of {TYPICAL} is not heard for {AWAY_MS} ms, the "
        "aggressive timeout "
        f"being {TIMEOUT_MS} ms: {told}",
        holds=all(found.away(p, "killed") == 0 for p in I_VIEWS) and min(one_view) > 0,
        note="members that are taken off the token list stay in the view, fetch what they missed "
        "and come back",
    )


def _kept(found: Means) -> Claim:
    told = ", ".join(
        f"{PROTOCOL_NAMES[p]} {found.away(p, 'killed', 'nothing'):.1f} against {found.away(p, 'killed'):.1f}"
        for p in I_VIEWS
    )
    return Claim(
        says="Aggressive garbage collection cancels what i-views are for: who was off the list is forced to "
        "end its life, unless messages are kept for it",
        where="004 §4.4.3",
        measured=f"lives that end when one of {TYPICAL} is not heard for {AWAY_MS} ms, if nothing is kept "
        f"against 16 MiB: {told}",
        holds=all(found.away(p, "killed", "nothing") > 0.5 > found.away(p, "killed") for p in I_VIEWS),
    )


def _not_blocked(found: Means) -> Claim:
    told = ", ".join(f"{PROTOCOL_NAMES[p]} {found.away(p, 'silence_us'):.0f}" for p in PROTOCOLS)
    return Claim(
        says="I-views contribute to avoid blocking: a wrong suspicion stops the others for no longer than an "
        "aggressive timeout",
        where="004 §4.3.5",
        measured="longest time without a delivery at a member that was always heard, in ms, the aggressive "
        f"timeout being {TIMEOUT_MS}: {told}",
        holds=all(found.away(p, "silence_us") < 1.5 * TIMEOUT_MS for p in I_VIEWS),
        note="judged as less than one and a half of them",
    )


# --- figures and tables --------------------------------------------------------------------------


def figures(frames: Frames) -> list[Figure]:
    """Outages by group size."""
    found = Means(frames)
    frame = found.mean[found.mean["about"] == CRASH]
    if not len(frame):
        return []
    usual: dict[str, Any] = {
        "x": "nodes",
        "by": "protocol",
        "panel": "who",
        "x_label": "nodes",
        "y_label": "time without a delivery [ms]",
        "scale": 1e-3,
        "order": found.protocols,
        "shared_y": True,
    }
    return [
        Figure(
            name="crash",
            title="Outage when a member crashes",
            caption=f"The longest time for which a member that stayed delivered nothing, at {RATE} "
            "messages/s. "
            f"Who is waited for is suspected after {TIMEOUT_MS} ms; Totem's Token Loss timeout is as long.",
            drawing=lines(frame, y="crash_silence_us", panel_title=lambda who: f"Crash of {who}", **usual),
        ),
        Figure(
            name="return",
            title="Outage when it comes back",
            caption="The same when the next life of that member is let in, a second later.",
            drawing=lines(frame, y="return_silence_us", panel_title=lambda who: f"Return of {who}", **usual),
        ),
    ]


def tables(frames: Frames) -> list[Table]:
    """Every point, in numbers."""
    found = Means(frames)
    return [
        Table(
            title="Time without a delivery [ms]",
            columns=("protocol", "nodes", "first crashes", "returns", "another crashes", "returns"),
            rows=[
                (
                    PROTOCOL_NAMES[p],
                    nodes,
                    *(
                        f"{found.crash(p, nodes, who, figure):.0f}"
                        for who in (FIRST, OTHER)
                        for figure in ("crash_silence_us", "return_silence_us")
                    ),
                )
                for p in found.protocols
                for nodes in found.sizes
            ],
        ),
        Table(
            title=f"One of {TYPICAL} is not heard for {AWAY_MS} ms",
            columns=("protocol", "lives that end", "the same if nothing is kept", "without a delivery [ms]"),
            rows=[
                (
                    PROTOCOL_NAMES[p],
                    f"{found.away(p, 'killed'):.1f}",
                    f"{found.away(p, 'killed', 'nothing'):.1f}" if p in I_VIEWS else "",
                    f"{found.away(p, 'silence_us'):.0f}",
                )
                for p in found.protocols
                if p in PROTOCOLS
            ],
        ),
    ]


EXPERIMENT = Experiment(
    name="comparison-failures",
    title="RBP beside other protocols when members fail, or seem to",
    source="The comparison that 004 §6 names as the next work, with failures",
    about=(
        f"Groups order {RATE} messages of {SIZE} bytes a second on 100 Mb/s when a member crashes, and comes "
        "back a second after the others go on without it. Timeouts are in proportion to one, as in "
        "reconfiguration: the aggressive one is 100 ms, the conservative one 300.",
        f"And a member of five is cut off for {AWAY_MS} ms: longer than the aggressive timeout, "
        "and shorter than "
        "the conservative one. Who suspects it is wrong. Lives that end are those of members that have to "
        "begin anew, knowing nothing: the price of program-controlled crash.",
    ),
    grid=grid,
    claims=claims,
    figures=figures,
    tables=tables,
)
