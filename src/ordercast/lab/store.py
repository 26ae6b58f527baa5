"""An experiment's directory: what was asked for, and what came of it so far.

    manifest.json            the runs, what carries them out, and the files of results
    results/<task>.parquet   a row for each run of a task, written by whoever ran it
    traces/<run>.parquet     where traces are kept

A file has its name only once it is whole, and what it holds depends on its runs alone: whoever writes it a
second time writes the same. So what is there was done, whoever was killed in between, and a second
``lab run`` does only what is missing. A result counts by its run's identifier: in whichever file it is.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

import ordercast
from ordercast.core.wire import UNREADABLE
from ordercast.lab.grid import LabError, Outcome, Run

MANIFEST = "manifest.json"
RESULTS = "results"
TRACES = "traces"

SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("protocol", pa.string()),
        ("nodes", pa.int32()),
        ("arrivals", pa.string()),
        ("rate", pa.float64()),
        ("size", pa.int64()),
        ("size_to", pa.int64()),
        ("safe", pa.float64()),
        ("senders", pa.int32()),
        ("messages", pa.int64()),
        ("seconds", pa.float64()),
        ("skip", pa.int64()),
        ("network", pa.string()),
        ("loss", pa.float64()),
        ("seed", pa.int64()),
        ("bucket_us", pa.int64()),
        ("declaration", pa.string()),
        ("labels", pa.map_(pa.string(), pa.string())),
        ("figures", pa.map_(pa.string(), pa.float64())),
        (
            "histograms",
            pa.list_(pa.struct([("name", pa.string()), ("bucket", pa.int64()), ("count", pa.int64())])),
        ),
        ("notes", pa.list_(pa.string())),
        ("error", pa.string()),
        ("took_s", pa.float64()),
        ("code", pa.string()),
    ]
)
"""A row of results. ``declaration`` is the run as JSON; ``error`` is null where it was carried out; ``code``
stands for the program that did so."""


class Task(msgspec.Struct, frozen=True):
    """Runs that are carried out together."""

    runs: tuple[Run, ...]
    cost: float
    """Seconds of one processor that they are expected to take."""

    @property
    def id(self) -> str:
        """Stands for these runs, in whatever order."""
        return hashlib.sha256("".join(sorted(run.id for run in self.runs)).encode()).hexdigest()[:16]


class Manifest(msgspec.Struct, kw_only=True):
    """What a directory holds the results of."""

    experiment: str
    """The experiment's name."""
    quick: bool
    declared: str | None = None
    """The text of the .toml file, where the experiment came from one."""
    options: dict[str, Any] = {}
    """What the experiment was asked for, beside its name."""
    version: str = ordercast.__version__
    code: str = ""
    runs: list[Run] = []
    files: list[str] = []
    """Files of results that hold these runs; filled in when all are there."""


class Done(NamedTuple):
    """A run that was carried out, or tried."""

    file: Path
    code: str
    error: str | None
    took_s: float
    notes: tuple[str, ...]


@lru_cache(maxsize=1)
def code_version() -> str:
    """Stands for the program text that runs here: results of another one may differ."""
    root = Path(ordercast.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        package = path.relative_to(root).parts[0]
        if package in _DECIDES:
            digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


_DECIDES = frozenset(
    {"core", "totem", "rings", "viewsync", "sequencers", "trace", "audit", "sim", "lab", "protocols.py"}
)
"""Packages on which the result of a run depends."""


class Store:
    """The directory of one experiment: its manifest, results and traces."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.results = directory / RESULTS
        self.traces = directory / TRACES

    def prepare(self) -> None:
        """Make the directory, or say why that cannot be."""
        try:
            self.results.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LabError(f"results cannot be kept in {self.directory}: {error.strerror}") from error

    # --- the manifest ---------------------------------------------------------------------------

    def read_manifest(self) -> Manifest | None:
        """What the directory says of itself; None if it is new."""
        path = self.directory / MANIFEST
        try:
            return msgspec.json.decode(path.read_bytes(), type=Manifest)
        except FileNotFoundError:
            return None
        except (OSError, *UNREADABLE) as error:
            raise LabError(
                f"{path} cannot be read ({error}): remove it, or choose another --output"
            ) from error

    def write_manifest(self, manifest: Manifest) -> None:
        """Say what the directory holds."""
        data = msgspec.json.format(msgspec.json.encode(manifest, order="deterministic"), indent=1)
        _put(self.directory / MANIFEST, data)

    # --- results --------------------------------------------------------------------------------

    def path_of(self, task: str) -> Path:
        """Where a task's results are, or will be."""
        return self.results / f"{task}.parquet"

    def write(self, task: str, rows: Sequence[dict[str, Any]]) -> Path:
        """Keep what came of a task's runs."""
        path = self.path_of(task)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        table = pa.Table.from_pylist(list(rows), schema=SCHEMA)
        pq.write_table(table, partial, compression="zstd", write_page_checksum=True)
        partial.replace(path)
        return path

    def done(self) -> dict[str, Done]:
        """Runs of which there is a result, each with the best there is: carried out before failed."""
        found: dict[str, Done] = {}
        for path in sorted(self.results.glob("*.parquet")):
            columns = ["run", "code", "error", "took_s", "notes"]
            for row in _rows(path, columns):
                known = found.get(row["run"])
                if known is None or known.error is not None:
                    notes = tuple(row["notes"] or ())
                    found[row["run"]] = Done(path, row["code"], row["error"], row["took_s"], notes)
        return found

    def clear(self) -> None:
        """Delete all results."""
        for path in self.results.glob("*.p*"):
            path.unlink()


def row_of(run: Run, outcome: Outcome | None, error: str | None, took_s: float) -> dict[str, Any]:
    """A run and what came of it, as `SCHEMA` has it."""
    declared = {name: getattr(run, name) for name in SCHEMA.names[1:16]}
    histograms = outcome.histograms if outcome is not None else {}
    return declared | {
        "run": run.id,
        "declaration": msgspec.json.encode(run, order="deterministic").decode(),
        "labels": [(name, str(value)) for name, value in run.labels.items()],
        "figures": list(outcome.figures.items()) if outcome is not None else [],
        "histograms": [
            {"name": name, "bucket": bucket, "count": count}
            for name, counts in histograms.items()
            for bucket, count in counts.items()
        ],
        "notes": outcome.notes if outcome is not None else [],
        "error": error,
        "took_s": took_s,
        "code": code_version(),
    }


def files_with(done: dict[str, Done], runs: Iterable[Run]) -> list[Path]:
    """The files that hold results of these runs."""
    return sorted({done[run.id].file for run in runs if run.id in done})


def _rows(path: Path, columns: list[str]) -> list[dict[str, Any]]:
    """Some columns of a file of results."""
    try:
        table = pq.read_table(path, columns=columns, schema=SCHEMA, page_checksum_verification=True)
        rows: list[dict[str, Any]] = table.to_pylist()
    except (pa.ArrowException, OSError, UnicodeDecodeError, KeyError) as error:
        raise LabError(
            f"{path} cannot be read as results ({str(error).splitlines()[0]}): take it away, and the same "
            "command carries its runs out again"
        ) from error
    return rows


def _put(path: Path, data: bytes) -> None:
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_bytes(data)
    partial.replace(path)
