"""Writes a run's trace: Parquet, zstd, row groups of equal size, the same bytes for the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from ordercast.trace.files import file_stem, partial
from ordercast.trace.schema import ABOUT, SCHEMA, About, Row

ROW_GROUP = 65_536
"""Rows of a row group. Cut by count alone, so that how rows were handed over leaves no mark."""

BATCH = 4_096
"""Rows turned into Arrow arrays at a time: few enough to stay in the processor's cache."""

_TYPES = SCHEMA.types[1:]

_RISING = ("step", "time_us", "number", "seq")
"""Columns of which most values are new: differences pack well, a dictionary does not."""

_PARQUET: dict[str, Any] = {
    "compression": "zstd",
    "write_page_checksum": True,
    "use_dictionary": [name for name in SCHEMA.names if name not in (*_RISING, "members")],
    "column_encoding": dict.fromkeys(_RISING, "DELTA_BINARY_PACKED"),
    "write_statistics": ["run", "node", "step", "time_us", "config_seq"],
}


class TraceWriter:
    """Appends the rows of one run to ``<run>.parquet``, and ``<run>-00001.parquet`` and on if asked.

    A file has its name only once it is whole: until then it ends in ``.partial``, which no reader
    looks at. Leaving the ``with`` block by an exception keeps what was written: the trace of a run
    that went wrong is the one that is wanted.
    """

    def __init__(
        self,
        directory: Path,
        run: str,
        about: About = MappingProxyType({}),
        *,
        stem: str | None = None,
        rows_per_file: int | None = None,
    ) -> None:
        """Write into `directory`, made if need be; each file says what `about` does.

        `stem` names the files where several writers share a run (one a node); it is the run's name
        otherwise. `rows_per_file` starts a new file after that many rows, rounded up to row groups,
        so that a process that is killed loses the last file alone.
        """
        if not run:
            raise ValueError("a run needs a name: it is how a trace tells its runs apart")
        directory.mkdir(parents=True, exist_ok=True)
        self.run = run
        self.paths: list[Path] = []
        """The finished files."""
        self._schema = SCHEMA.with_metadata({f"{ABOUT}{key}": about[key] for key in sorted(about)} or None)
        self._directory = directory
        self._stem = file_stem(stem or run)
        self._groups_per_file = None if rows_per_file is None else max(1, -(-rows_per_file // ROW_GROUP))
        self._rows: list[Row] = []
        self._batches: list[pa.RecordBatch] = []
        self._groups = 0
        self._file: pq.ParquetWriter | None = None
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, rows: Sequence[Row]) -> None:
        """Append rows, in the order given."""
        if self._closed:
            raise ValueError(f"the trace of run {self.run!r} is closed: open another TraceWriter")
        held = self._rows
        held += rows
        if len(held) < BATCH:
            return
        whole = len(held) - len(held) % BATCH
        for start in range(0, whole, BATCH):
            self._encode(held[start : start + BATCH])
        del held[:whole]

    def close(self) -> None:
        """Write what is held and give the last file its name. Closing again does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._rows:
            self._encode(self._rows)
        if self._batches or not self.paths:
            self._write_group()
        self._finish_file()
        self._remove_files_of_an_earlier_trace()

    # --- rows to arrays, arrays to row groups, row groups to files ------------------------------

    def _encode(self, rows: Sequence[Row]) -> None:
        self._batches.append(record_batch(self.run, rows))
        if len(self._batches) * BATCH >= ROW_GROUP:
            self._write_group()

    def _write_group(self) -> None:
        if self._file is None:
            self._file = pq.ParquetWriter(partial(self._path(len(self.paths))), self._schema, **_PARQUET)
        table = pa.Table.from_batches(self._batches, schema=SCHEMA)
        self._file.write_table(table.combine_chunks(), row_group_size=ROW_GROUP)
        self._batches.clear()
        self._groups += 1
        if self._groups == self._groups_per_file:
            self._finish_file()

    def _finish_file(self) -> None:
        if self._file is None:
            return
        self._file.close()
        path = self._path(len(self.paths))
        partial(path).replace(path)
        self.paths.append(path)
        self._file = None
        self._groups = 0

    def _path(self, part: int) -> Path:
        return self._directory / (f"{self._stem}-{part:05}.parquet" if part else f"{self._stem}.parquet")

    def _remove_files_of_an_earlier_trace(self) -> None:
        """A longer trace under the same name left files that would read as part of this one."""
        for part in count(len(self.paths)):
            try:
                self._path(part).unlink()
            except FileNotFoundError:
                return


def record_batch(run: str, rows: Sequence[Row]) -> pa.RecordBatch:
    """Rows of a run as Arrow has them. There has to be one."""
    # Laid end to end and picked out again by stride: twice as fast as zip(*rows).
    width = len(_TYPES)
    values = list(chain.from_iterable(rows))
    if len(values) != width * len(rows):
        raise ValueError(f"a trace row has {width} columns: see ordercast.trace.schema.Row")
    arrays = [pa.repeat(pa.scalar(run, pa.string()), len(rows))]
    arrays += [_array(values[column::width], kind) for column, kind in enumerate(_TYPES)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Many columns hold one value throughout, most of them null: that is cheap to see and to say."""
    first = values[0]
    if first != values[-1] or values.count(first) != len(values):
        return pa.array(values, kind)
    if first is None:
        return pa.nulls(len(values), kind)
    return pa.repeat(pa.scalar(first, kind), len(values))
