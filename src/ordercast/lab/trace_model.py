"""A model of the machines and the network behind a trace, estimated from every other block of it.

The model is a network with measured delays (`ordercast.sim.network.Measured`), and one number for how
applications get to submit. What is estimated from what:

- *Totem, the token*: a visit at a node shows as rows ``originate`` or ``stable``. From one that is followed
  by one at the ring's next member: how long the token takes, where the first node had messages
  (`behind_delays_us`) and where it had none (`unicast_delays_us`). Of these those count that the next node
  shows by ``stable``, whether it had messages or not: what is stable there was sent rotations ago, while a
  message may just have come because the token took long.
- *Totem, messages*: from ``originate`` to ``deliver`` at the others, by their distance on the ring
  (`multicast_delays_us`). Safe messages do not show it; then a message
  takes as long as a token of a node that had none.
- *Other protocols* show no single way of a packet. The distribution has the form of the times from
  ``originate`` to ``deliver`` at others; its mean is chosen so that the simulated mean of these is that of
  the trace, in these blocks.
- *Late applications*: in a node on a busy machine an application runs right after its node has handled a
  packet, and then waits for the token longer than at a random time. The share of messages for which that is
  so is chosen so that the simulated mean from ``submit`` to ``originate`` is that of the trace, in these
  blocks.

All of these are taken in the order in which they were seen, a stretch at a time: what delays one packet, as a
machine that is busy, delays the next ones, too.

No percentile is fitted, and nothing is taken from the blocks that are predicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ordercast.catalogue import LAB_PROTOCOLS
from ordercast.core.protocol import SIM
from ordercast.lab import replay
from ordercast.lab.candidates import Candidate, settings_of_a_node
from ordercast.lab.grid import GridError, LabError, Run, Settings
from ordercast.lab.traced import (
    ORIGINATE,
    STABLE,
    SUBMIT,
    Rows,
    Stretch,
    arrivals,
    in_tested,
    latencies,
    nodes_of,
    rows_of,
    stretch_of,
)
from ordercast.lab.traced_facts import Shown, Traced, labels_of
from ordercast.sim.network import MEASURED

if TYPE_CHECKING:
    from ordercast.lab.traced import Numbers

MOST_MESSAGES, MOST_QUICKLY = 60_000, 20_000
"""Messages of a trace that are sent again."""
FEWEST = 100
"""Samples that a table of delays is made from, at least."""
MOST_DELAYS, RUN = 10_000, 100
"""Delays in a table, at most, and how many of them a simulation takes in a row: where one packet is late, so
are the next ones, and one message in a hundred waits for several of them."""
SHARES = (0.25, 0.5, 0.75, 1.0)
"""Shares of late applications that are tried, besides none."""
ROUNDS = 4
"""Simulations by which the delays of a protocol without a ring are found."""


def traced(path: Path, settings: Mapping[str, Any], most: int) -> Traced:
    """Read a trace, and estimate what made it. `settings` are those of its nodes that are not the
    defaults."""
    stretch, protocol = stretch_of(path, most)
    if protocol not in LAB_PROTOCOLS:
        raise GridError(
            f"--like {path}: it was made by {protocol}, whose networks are not in a trace; traces of "
            f"{', '.join(LAB_PROTOCOLS)} can be repeated"
        )
    made_by = Candidate(protocol, checked_settings(protocol, settings), "")
    rows, coming = rows_of(stretch), arrivals(stretch)
    nodes = nodes_of(rows)
    if len(nodes) < 2:
        raise GridError(f"--like {path}: it is of one node: give the directory with the traces of all nodes")
    if len(coming) < 2 * FEWEST:
        raise GridError(
            f"--like {path}: it has {len(coming)} messages; a model of its machine needs {2 * FEWEST} at "
            "least"
        )
    known = rows.where(in_tested(rows.time_us, stretch, tested=False) | (rows.time_us >= stretch.to_us))
    _require_one_clock(path, rows)
    safe = sum(each.safe for each in coming) * 2 > len(coming)
    seconds = (stretch.to_us - stretch.from_us) / 1e6
    made = _Model(stretch, made_by, len(nodes), len(coming) / seconds)
    net, late = made.ring(known, nodes, safe) if protocol == "totem" else made.scaled(rows)
    return Traced(
        path=str(path),
        run=stretch.run,
        protocol=protocol,
        settings=made_by.changes,
        from_us=stretch.from_us,
        to_us=stretch.to_us,
        nodes=len(nodes),
        messages=len(coming),
        rate=round(len(coming) / seconds, 3),
        size=round(sum(each.size for each in coming) / len(coming)),
        safe=safe,
        net=net,
        late=round(late, 3),
        tested=_shown(rows, in_tested(rows.time_us, stretch, tested=True)),
        whole=_shown(rows, rows.time_us < stretch.to_us),
    )


def checked_settings(protocol: str, settings: Mapping[str, Any]) -> Settings:
    """Settings as a user writes them, with the types that the protocol's have."""
    product = LAB_PROTOCOLS[protocol].product
    try:
        config = product.configure({**settings_of_a_node(protocol), **settings}, SIM)
    except ValueError as error:
        raise GridError(f"--set: {error}") from error
    return {name: getattr(config, name) for name in settings}


def _require_one_clock(path: Path, rows: Rows) -> None:
    import numpy as np

    took_us, _ = latencies(rows, ORIGINATE)
    early = int(np.count_nonzero(took_us < 0))
    if early * 1_000 > len(took_us):
        raise LabError(
            f"--like {path}: {early:,} deliveries come before their messages were sent: the clocks of "
            "these nodes differ by "
            "more than a packet takes, and how long packets take cannot be seen; synchronise the clocks "
            "(PTP), or take a "
            "trace of nodes on one machine"
        )


def _shown(rows: Rows, mask: Any) -> dict[str, Shown]:
    import numpy as np

    took_us, delivered = latencies(rows, SUBMIT, mask)
    found = {}
    for name, safe in (("agreed", 0), ("safe", 1)):
        own = took_us[delivered.safe == safe]
        if len(own):
            found[name] = Shown(
                deliveries=len(own),
                mean_us=round(float(own.mean()), 1),
                p99_us=round(float(np.percentile(own, 99)), 1),
                quantiles_us=table(own, 1_000),
            )
    return found


def in_order(samples: Numbers) -> list[int]:
    """The samples, in their order; of many only stretches, evenly spread, which have as many as are taken in
    a row."""
    import numpy as np

    if len(samples) <= MOST_DELAYS:
        return [int(each) for each in samples]
    begins = np.linspace(0, len(samples) - RUN, MOST_DELAYS // RUN).astype(np.int64)
    return [int(each) for begin in begins for each in samples[begin : begin + RUN]]


def table(samples: Numbers, most: int) -> list[int]:
    """Means of equal shares of the samples, by size: as many as there are samples, at most `most`."""
    import numpy as np

    ordered = np.sort(samples)
    return [round(float(part.mean())) for part in np.array_split(ordered, min(most, len(ordered)))]


def token_hops(rows: Rows, nodes: list[int]) -> tuple[Numbers, Numbers, Numbers]:
    """From one visit of the token that shows to the next, where that is at the ring's next member:
    microseconds, whether the first node had messages, and whether anything became stable at the second."""
    import numpy as np

    visit = rows.where((rows.event == ORIGINATE) | (rows.event == STABLE))
    place = np.searchsorted(np.array(nodes), visit.node)
    key = visit.time_us * len(nodes) + place
    instants, at = np.unique(key, return_inverse=True)
    had, stable = (np.zeros(len(instants), dtype=np.int64) for _ in range(2))
    np.maximum.at(had, at, (visit.event == ORIGINATE).astype(np.int64))
    np.maximum.at(stable, at, (visit.event == STABLE).astype(np.int64))
    time_us, where = instants // len(nodes), instants % len(nodes)
    next_one = (where[:-1] + 1) % len(nodes) == where[1:]
    return np.diff(time_us)[next_one], had[:-1][next_one], stable[1:][next_one]


class _Model:
    """What is estimated of one trace."""

    def __init__(self, stretch: Stretch, made_by: Candidate, nodes: int, rate: float) -> None:
        self._stretch = stretch
        self._run = Run(
            protocol=made_by.protocol,
            nodes=nodes,
            rate=rate,
            seconds=(stretch.to_us - stretch.from_us) / 1e6,
            network=MEASURED,
            settings=made_by.settings,
            bucket_us=10,
            method=replay.__name__,
        )

    def _simulated(self, net: Mapping[str, Any], late: float) -> Mapping[str, float]:
        """What a simulation of the blocks shows that the model is estimated from."""
        labels = labels_of(self._stretch, late, "known")
        run = msgspec.structs.replace(self._run, net=dict(net), labels=labels)
        return replay.conduct(run).figures

    # --- a ring with a token --------------------------------------------------------------------

    def ring(self, known: Rows, nodes: list[int], safe: bool) -> tuple[dict[str, Any], float]:
        """From the visits of the token."""

        in_block = in_tested(known.time_us, self._stretch, tested=False)
        took_us, had, shown = token_hops(known.where(in_block), nodes)
        took_us, had, shown = _within_blocks(took_us, had, shown, self._stretch.block_us)
        behind, alone = took_us[(had == 1) & (shown == 1)], took_us[(had == 0) & (shown == 1)]
        if len(behind) < FEWEST:  # under little load nothing is stable where a message has just been sent
            behind = took_us[had == 1]
        if len(behind) < FEWEST:
            raise LabError(
                f"--like {self._stretch.path}: only {len(behind)} times a token shows on its way from one "
                "node to the next, "
                f"in half of {self._stretch.to_us - self._stretch.from_us:,} µs; {FEWEST} are needed"
            )
        alone = alone if len(alone) >= FEWEST else behind
        net: dict[str, Any] = {"behind_delays_us": in_order(behind), "unicast_delays_us": in_order(alone)}
        net["multicast_delays_us"] = [in_order(alone)] if safe else self._by_distance(known, nodes)
        net["run"] = RUN
        return net, self._late(net, known)

    def _by_distance(self, known: Rows, nodes: list[int]) -> list[list[int]]:
        import numpy as np

        took_us, delivered = latencies(
            known, ORIGINATE, in_tested(known.time_us, self._stretch, tested=False)
        )
        ring = np.array(nodes)
        away = (np.searchsorted(ring, delivered.node) - np.searchsorted(ring, delivered.origin)) % len(nodes)
        return [in_order(took_us[away == k]) for k in range(1, len(nodes)) if (away == k).any()]

    def _late(self, net: Mapping[str, Any], known: Rows) -> float:
        """The least share of late applications with which messages wait as long, between those tried; where
        none is enough, the one with which they wait longest.

        Who is late again and again has several messages sent together, so that they wait less again: with
        many messages half of them late may wait longer than all.
        """
        since_submit = _mean(known, self._stretch, SUBMIT)
        waited_us = since_submit - _mean(known, self._stretch, ORIGINATE)
        tried = [(_waited(self._simulated(net, 0.0)), 0.0)]
        for share in SHARES:
            before_us, before = tried[-1]
            if before_us >= waited_us:
                break
            after_us = _waited(self._simulated(net, share))
            if after_us >= waited_us:
                return before + (share - before) * (waited_us - before_us) / (after_us - before_us)
            tried.append((after_us, share))
        return max(tried)[1]

    # --- others ---------------------------------------------------------------------------------

    def scaled(self, rows: Rows) -> tuple[dict[str, Any], float]:
        """One distribution for all packets: its form is seen, its mean is found."""
        took_us, delivered = latencies(rows, ORIGINATE, in_tested(rows.time_us, self._stretch, tested=False))
        others = took_us[delivered.node != delivered.origin]
        if len(others) < FEWEST:
            raise LabError(
                f"--like {self._stretch.path}: only {len(others)} deliveries at other nodes to learn from"
            )
        form, wanted_us = in_order(others), float(took_us.mean())
        scale = 0.4
        for _ in range(ROUNDS):
            figures = self._simulated(_at_scale(form, scale), 0.0)
            scale *= wanted_us / _since_originate(figures)
        return _at_scale(form, scale), 0.0


def _at_scale(form: list[int], scale: float) -> dict[str, Any]:
    delays = [round(scale * each) for each in form]
    tables = {"behind_delays_us": delays, "unicast_delays_us": delays, "multicast_delays_us": [delays]}
    return {**tables, "run": RUN}


def _within_blocks(
    took_us: Numbers, had: Numbers, shown: Numbers, block_us: int
) -> tuple[Numbers, Numbers, Numbers]:
    """Without those from the end of one block to the beginning of the next but one."""
    inside = took_us < block_us
    return took_us[inside], had[inside], shown[inside]


def _mean(rows: Rows, stretch: Stretch, since: int) -> float:
    """Mean time to a delivery of the messages of the known blocks."""
    took_us, _ = latencies(rows, since, in_tested(rows.time_us, stretch, tested=False))
    return float(took_us.mean())


def _since_originate(figures: Mapping[str, float]) -> float:
    found = [
        figures[name]
        for name in ("latency_agreed_from_originate_us", "latency_safe_from_originate_us")
        if name in figures
    ]
    return sum(found) / len(found)


def _waited(figures: Mapping[str, float]) -> float:
    """Mean time from submission to the first broadcast."""
    found = [
        figures[f"latency_{name}_us"] - figures[f"latency_{name}_from_originate_us"]
        for name in ("agreed", "safe")
        if f"latency_{name}_us" in figures
    ]
    return sum(found) / len(found)
