"""How quick the audit on Spark is: writes a right trace of many million events, and audits it.

    .venv/bin/python bench/audit.py [--millions 50] [--nodes 16] [--master local[2]] [--keep DIR] [--json]

The trace is one run of Totem as the simulator writes it: several rings joined by transitional configurations,
agreed and safe messages, a `submit`, an `originate`, and at every node a `deliver` and a `stable` row of
each. Writing it is not measured; starting Spark is said apart. The audit ends with every property certified.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ordercast.trace.schema import ABOUT, SCHEMA
from ordercast.trace.writer import ROW_GROUP

VISIT = 60
"""Messages that a node originates when it has the token, four to a packet."""

PACKED = 4
ROWS_PER_FILE = 64 * ROW_GROUP
RUN = "bench"
_EVENTS = ["submit", "originate", "deliver", "stable", "install"]
_SUBMIT, _ORIGINATE, _DELIVER, _STABLE, _INSTALL = range(5)
_KINDS = ["regular", "transitional"]
_GUARANTEES = ["agreed", "safe"]
_NONE = -1


class Ring:
    """A run of nodes that do everything right, made ring by ring and visit by visit of the token."""

    def __init__(self, nodes: int) -> None:
        self.nodes = np.arange(1, nodes + 1)
        self.steps = np.zeros(nodes + 1, np.int64)
        self.numbers = np.ones(nodes + 1, np.int64)
        self.now_us = 0

    def installs(self, seq: int, kind: int) -> dict[str, Any]:
        """All nodes install a configuration of all of them."""
        size = len(self.nodes)
        steps = self.steps[self.nodes].copy()
        self.steps[self.nodes] += 1
        return _columns(size, node=self.nodes, step=steps, time_us=self.now_us, event=_INSTALL) | {
            "config_seq": np.full(size, seq),
            "config_kind": np.full(size, kind),
        }

    def visit(self, seq: int, visit: int) -> dict[str, Any]:
        """The token comes to one node; what that node originates is delivered and stable everywhere."""
        nodes = self.nodes
        origin = nodes[visit % len(nodes)]
        each = np.arange(VISIT)
        heard = np.repeat(nodes, VISIT)
        node = np.concatenate([np.full(2 * VISIT, origin), heard, heard])
        event = np.repeat([_SUBMIT, _ORIGINATE, _DELIVER, _STABLE], [VISIT, VISIT, heard.size, heard.size])
        inner = np.concatenate([np.arange(2 * VISIT), *[np.tile(each, len(nodes))] * 2])
        shift = np.where((node == origin) & (event >= _DELIVER), 2 * VISIT, 0) + (event == _STABLE) * VISIT
        step = self.steps[node] + inner + shift
        self.steps[nodes] += 2 * VISIT
        self.steps[origin] += 2 * VISIT
        which = np.concatenate([each, each, *[np.tile(each, len(nodes))] * 2])
        self.now_us += 1_000
        columns = _columns(node.size, node=node, step=step, time_us=self.now_us + 200 * event, event=event)
        placed = event != _SUBMIT
        packets = VISIT // PACKED
        columns |= {
            "config_seq": np.full(node.size, seq),
            "config_kind": np.zeros(node.size, np.int64),
            "origin": np.full(node.size, origin),
            "origin_incarnation": np.zeros(node.size, np.int64),
            "number": self.numbers[origin] + which,
            "origin_config_seq": np.where(placed, seq, _NONE),
            "origin_config_rep": np.where(placed, 1, _NONE),
            "seq": np.where(placed, 1 + visit * packets + which // PACKED, _NONE),
            "slot": np.where(placed, which % PACKED, _NONE),
            "guarantee": (which // PACKED) % 2,
            "size": np.full(node.size, 100),
        }
        self.numbers[origin] += VISIT
        return columns


def _columns(size: int, **known: Any) -> dict[str, Any]:
    names = [name for name in SCHEMA.names if name not in ("run", "members")]
    columns = {name: np.full(size, _NONE, np.int64) for name in names}
    columns |= {name: np.broadcast_to(np.asarray(value), (size,)) for name, value in known.items()}
    return columns | {"incarnation": np.zeros(size, np.int64), "config_rep": np.ones(size, np.int64)}


def blocks(nodes: int, events: int, rings: int) -> Iterator[dict[str, Any]]:
    """The rows of a run of about that many events, in the order in which they happened."""
    ring = Ring(nodes)
    visits = max(1, events // (rings * VISIT * (2 + 2 * nodes)))
    for at in range(rings):
        seq = 4 * (at + 1)
        if at:
            yield ring.installs(seq - 1, 1)
        yield ring.installs(seq, 0)
        for visit in range(visits):
            yield ring.visit(seq, visit)


def _strings(codes: Any, words: list[str | None]) -> pa.Array:
    indices = pa.array(codes.astype(np.int32), mask=codes == _NONE)
    return pa.DictionaryArray.from_arrays(indices, pa.array(words, pa.string())).cast(pa.string())


_WORDS: dict[str, list[str | None]] = {
    "event": [*_EVENTS],
    "config_kind": [*_KINDS],
    "guarantee": [*_GUARANTEES],
    "group": [None],
    "packet": [None],
}


def _table(held: list[dict[str, Any]], members: list[int]) -> pa.Table:
    joined = {name: np.concatenate([block[name] for block in held]) for name in held[0]}
    arrays = []
    for field in SCHEMA:
        if field.name == "run":
            arrays.append(pa.repeat(pa.scalar(RUN), len(joined["node"])))
        elif field.name == "members":
            which = pa.array(np.where(joined["event"] == _INSTALL, 0, 1).astype(np.int32))
            arrays.append(pa.array([members, None], field.type).take(which))
        elif field.name in _WORDS:
            arrays.append(_strings(joined[field.name], _WORDS[field.name]))
        else:
            values = joined[field.name]
            arrays.append(pa.array(values, mask=values == _NONE).cast(field.type))
    return pa.table(arrays, schema=SCHEMA)


def write(directory: Path, nodes: int, events: int, rings: int) -> int:
    """Write the trace; answer with how many events it has."""
    about = {f"{ABOUT}promises": "extended-virtual-synchrony", f"{ABOUT}protocol": "totem"}
    schema = SCHEMA.with_metadata(about)
    rising = ("step", "time_us", "number", "seq")
    options: dict[str, Any] = {
        "compression": "zstd",
        "use_dictionary": [name for name in SCHEMA.names if name not in (*rising, "members")],
        "column_encoding": dict.fromkeys(rising, "DELTA_BINARY_PACKED"),
        "write_statistics": ["run", "node", "step", "time_us", "config_seq"],
    }
    members = list(range(1, nodes + 1))
    directory.mkdir(parents=True, exist_ok=True)
    written = part = 0
    held: list[dict[str, Any]] = []

    def flush() -> None:
        nonlocal part
        name = f"{RUN}-{part:05}.parquet" if part else f"{RUN}.parquet"
        with pq.ParquetWriter(directory / name, schema, **options) as file:
            file.write_table(_table(held, members), row_group_size=ROW_GROUP)
        held.clear()
        part += 1

    size = 0
    for block in blocks(nodes, events, rings):
        held.append(block)
        size += len(block["node"])
        if size >= ROWS_PER_FILE:
            flush()
            written, size = written + size, 0
    if held:
        flush()
    return written + size


def measure(directory: Path, events: int, master: str) -> dict[str, Any]:
    """Audit the trace, and say how long that took."""
    from ordercast.audit.spark import audit_on_spark
    from ordercast.spark.sessions import spark_session

    began = time.perf_counter()
    with spark_session("audit", master) as spark:
        up = time.perf_counter()
        report = audit_on_spark(spark, directory)
        took = time.perf_counter() - up
    assert report.events == events, f"{events} events were written and {report.events} read"
    return {
        "events": events,
        "clean": report.clean,
        "notes": list(report.notes),
        "starting_s": round(up - began, 2),
        "audit_s": round(took, 2),
        "events_per_s": round(events / took),
        "driver_peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main() -> None:
    """Write, audit, tell."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--millions", type=float, default=50.0)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--rings", type=int, default=4)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--keep", type=Path, help="write the trace there and keep it; use it if it is there")
    parser.add_argument("--json", action="store_true", help="one line of JSON only")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        directory = options.keep or Path(scratch)
        events = sum(pq.read_metadata(file).num_rows for file in directory.glob("*.parquet"))
        if not events:
            began = time.perf_counter()
            events = write(directory, options.nodes, int(options.millions * 1e6), options.rings)
            if not options.json:
                took = time.perf_counter() - began
                print(f"wrote {events:,} events in {took:.0f} s", file=sys.stderr)
        print(json.dumps(measure(directory, events, options.master)))


if __name__ == "__main__":
    main()
