"""The tables of a lake, and their columns."""

from __future__ import annotations

import zlib
from typing import NamedTuple

import pyarrow as pa

from ordercast.lab.campaign.table import SCHEMA as SEEDS_OF_CAMPAIGN
from ordercast.lab.store import SCHEMA as RESULTS_OF_EXPERIMENT
from ordercast.trace.schema import SCHEMA

BUCKETS = 16
"""Buckets that runs are spread over, by name. In a lake that is there it cannot change."""

_TIME = pa.timestamp("us", tz="UTC")

ADDED = pa.field("added", _TIME)
"""When a row was added; all rows of a run have the same."""


class Kind(NamedTuple):
    """What a run has in common with others: the lake is partitioned by it."""

    protocol: str | None
    promises: str | None
    """The set of properties that it promises; None, as above, if its files do not say so."""
    clock: str | None
    bucket: int

    @property
    def about(self) -> dict[str, str]:
        """The same as files of a trace say it."""
        return {name: value for name in ABOUT if (value := getattr(self, name)) is not None}

    @property
    def values(self) -> dict[str, str | None]:
        """The same as Delta's log says it."""
        return {
            "protocol": self.protocol,
            "promises": self.promises,
            "clock": self.clock,
            "bucket": str(self.bucket),
        }


ABOUT = ("protocol", "promises", "clock")
PARTITIONS = list(Kind._fields)

EVENTS = pa.schema([*SCHEMA, ADDED, *((name, pa.string()) for name in ABOUT), ("bucket", pa.int32())])
"""The rows of traces, as `ordercast.trace.schema.COLUMNS` describes them, and behind them what is the same in
all rows of a run."""

VERDICTS = pa.schema(
    [
        ("run", pa.string()),
        ("added", _TIME),
        ("protocol", pa.string()),
        ("judged", _TIME),
        ("version", pa.string()),
        ("code", pa.string()),
        ("promises", pa.string()),
        ("events", pa.int64()),
        ("clean", pa.bool_()),
        ("properties", pa.map_(pa.string(), pa.int64())),
        ("unchecked", pa.list_(pa.string())),
        (
            "found",
            pa.list_(
                pa.struct(
                    [
                        ("property", pa.string()),
                        ("nodes", pa.list_(pa.int32())),
                        ("culprit", pa.int32()),
                        ("times", pa.int64()),
                        ("sentence", pa.string()),
                        ("messages", pa.string()),
                        ("configurations", pa.string()),
                    ]
                )
            ),
        ),
    ]
)
"""A verdict on a run, by one version of ordercast. ``code`` stands for its program text, ``added`` says which
run of that name was judged; ``properties`` says how often each was broken; ``found`` is what is told of it,
with ``messages`` and ``configurations`` as JSON."""

SEEDS = pa.schema([("campaign", pa.string()), *SEEDS_OF_CAMPAIGN, ADDED])
"""Results of fuzzing, a row a seed."""

RESULTS = pa.schema([("experiment", pa.string()), *RESULTS_OF_EXPERIMENT, ADDED])
"""Results of experiments, a row a run."""


def bucket_of(run: str) -> int:
    """In which bucket a run is."""
    return zlib.crc32(run.encode()) % BUCKETS
