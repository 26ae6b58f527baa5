"""An experiment's directory, here or in a store: what was asked for, and what came of it so far.

    manifest.json                    the runs, what carries them out, and the files of results
    results/<task>-<round>.parquet   a row for each run of a task, written by whoever ran it
    commits/<round>.parquet          what came of the runs of a round in short, and which file has each
    traces/<run>.parquet             where traces are kept

A *round* is one ``lab run``. A file is there whole or not at all, and is never written over. What a round has
committed is known from its commit; what one that was killed has left is read from its files, and committed
by the next; a file of it that cannot be read is as good as none. So nothing is done twice that was done,
whoever was killed in between; and if a store's listing lags behind, at most something is done again. A result
counts by its run's identifier: in whichever file it is.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

import ordercast
from ordercast.core.wire import UNREADABLE
from ordercast.lab.grid import LabError, Outcome, Run
from ordercast.storage import Location, Where

MANIFEST = "manifest.json"
RESULTS = "results"
COMMITS = "commits"
BEGUN = "begun"
TRACES = "traces"
PARQUET = ".parquet"

Rows: TypeAlias = list[dict[str, Any]]

_AT_A_TIME = 16
"""Files that are read together: in a store, each is a request or two, for which one waits."""

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

COMMITTED = pa.schema(
    [
        ("run", pa.string()),
        ("file", pa.string()),
        ("code", pa.string()),
        ("error", pa.string()),
        ("took_s", pa.float64()),
        ("notes", pa.list_(pa.string())),
    ]
)
"""A row of a commit: a run, the name of the file of results that has it, and what the driver has to know."""


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

    file: Location
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

    def __init__(self, directory: Where) -> None:
        """A directory, here or in a store, that need not be there yet."""
        self.directory = Location.of(directory)
        self.results = self.directory / RESULTS
        self.commits = self.directory / COMMITS
        self.begun = self.directory / BEGUN
        self.traces = self.directory / TRACES

    def prepare(self) -> None:
        """Make the directory, or say why that cannot be."""
        try:
            self.results.make()
        except OSError as error:
            raise LabError(f"results cannot be kept in {self.directory}: {error.strerror}") from error

    # --- the manifest ---------------------------------------------------------------------------

    def read_manifest(self) -> Manifest | None:
        """What the directory says of itself; None if it is new."""
        path = self.directory / MANIFEST
        try:
            return msgspec.json.decode(path.read(), type=Manifest)
        except FileNotFoundError:
            return None
        except (OSError, *UNREADABLE) as error:
            raise LabError(
                f"{path} cannot be read ({error}): remove it, or choose another --output"
            ) from error

    def write_manifest(self, manifest: Manifest) -> None:
        """Say what the directory holds."""
        data = msgspec.json.format(msgspec.json.encode(manifest, order="deterministic"), indent=1)
        (self.directory / MANIFEST).put(data)

    # --- results --------------------------------------------------------------------------------

    def file_of(self, task: str, round_: str) -> Location:
        """Where a task's results are, or will be."""
        return self.results / f"{task}-{round_}{PARQUET}"

    def write(self, task: str, round_: str, rows: Sequence[dict[str, Any]]) -> Location:
        """Keep what came of a task's runs."""
        file = self.file_of(task, round_)
        _write(file, rows, SCHEMA)
        return file

    def commit(self, round_: str, rows: Sequence[dict[str, Any]]) -> None:
        """Keep what came of a round's runs in short: rows of `COMMITTED`."""
        if rows:
            _write(self.commits / f"{round_}{PARQUET}", rows, COMMITTED)

    def done(self) -> dict[str, Done]:
        """Runs of which there is a result, each with the best there is: carried out before failed."""
        rows, uncommitted = self._committed()
        return self._best([*rows, *self._left(uncommitted)])

    def settle(self) -> dict[str, Done]:
        """Runs of which there is a result, as `done`, after what a killed round has left behind has been
        committed."""
        rows, uncommitted = self._committed()
        left = list(self._left(uncommitted))
        self.commit(new_round(), left)
        for entry in self.begun.entries():
            entry.location.remove()
        return self._best([*rows, *left])

    def clear(self) -> None:
        """Delete all results."""
        for directory in (self.commits, self.results, self.begun):
            for entry in directory.entries():
                entry.location.remove()

    def _best(self, rows: Iterable[dict[str, Any]]) -> dict[str, Done]:
        found: dict[str, Done] = {}
        for row in rows:
            known = found.get(row["run"])
            if known is None or known.error is not None:
                file, notes = self.results / row["file"], tuple(row["notes"] or ())
                found[row["run"]] = Done(file, row["code"], row["error"], row["took_s"], notes)
        return found

    def _committed(self) -> tuple[list[dict[str, Any]], list[str]]:
        """What commits tell of files that are there, and the names of files of which they tell nothing."""
        commits = sorted(name for name in self.commits.names() if name.endswith(PARQUET))
        rows = [
            row
            for its in _together(lambda name: _rows(self.commits / name, COMMITTED), commits)
            for row in its
        ]
        told = {row["file"] for row in rows}
        there = {name for name in self.results.names() if name.endswith(PARQUET)}
        # What is not in the listing of a store may be there, and what somebody took away is not.
        gone = {name for name in told - there if not (self.results / name).is_file()}
        return [row for row in rows if row["file"] not in gone], sorted(there - told)

    def _left(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """The same of files that no commit tells of."""

        def read(name: str) -> Rows:
            try:
                return rows_in(self.results / name)
            except LabError:  # whoever wrote it was killed, where stores show what is half written
                return []

        for name, rows in zip(names, _together(read, names), strict=True):
            for row in rows:
                yield row | {"file": name}


def new_round() -> str:
    """A name for what is done now: later ones come later."""
    return f"{time.time_ns():020}"


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


def files_with(done: dict[str, Done], runs: Iterable[Run]) -> list[Location]:
    """The files that hold results of these runs."""
    return sorted({done[run.id].file for run in runs if run.id in done})


def read_results(file: Location, schema: pa.Schema = SCHEMA) -> pa.Table:
    """Some columns of a file. Raises `LabError` if it cannot be read."""
    try:
        with file.open() as opened:
            table = pq.read_table(
                opened, columns=schema.names, schema=schema, page_checksum_verification=True
            )
    except (pa.ArrowException, OSError, UnicodeDecodeError, KeyError) as error:
        raise LabError(
            f"{file} cannot be read as results ({str(error).splitlines()[0]}): take it away, and the same "
            "command carries its runs out again"
        ) from error
    return table


def rows_in(file: Location) -> Rows:
    """Rows of a file of results, with the columns of `COMMITTED` that it has."""
    return _rows(file, pa.schema([field for field in COMMITTED if field.name != "file"]))


def _rows(file: Location, schema: pa.Schema) -> Rows:
    rows: Rows = read_results(file, schema).to_pylist()
    return rows


def _write(file: Location, rows: Sequence[dict[str, Any]], schema: pa.Schema) -> None:
    held = pa.BufferOutputStream()
    table = pa.Table.from_pylist(list(rows), schema=schema)
    pq.write_table(table, held, compression="zstd", write_page_checksum=True)
    file.put(memoryview(held.getvalue()))


def _together(read: Callable[[str], Rows], names: Sequence[str]) -> list[Rows]:
    """Read several files at once."""
    with ThreadPoolExecutor(_AT_A_TIME) as threads:
        return list(threads.map(read, names))
