"""Writes a run's trace: Parquet, zstd, row groups of equal size, the same bytes for the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from ordercast.storage import Location, Where
from ordercast.trace.files import file_stem, partial
from ordercast.trace.schema import ABOUT, SCHEMA, VERSION, VERSION_KEY, About, Row
from ordercast.trace.seal import SealedFile

ROW_GROUP = 65_536
"""Rows of a row group. Cut by count alone, so that how rows were handed over leaves no mark."""

BATCH = 4_096
"""Rows turned into Arrow arrays at a time: few enough to stay in the processor's cache."""

_TYPES = SCHEMA.types[1:]

_RISING = ("step", "time_us", "number", "seq")
"""Columns of which most values are new: differences pack well, a dictionary does not."""

PARQUET_OF_TRACES: dict[str, Any] = {
    "compression": "zstd",
    "write_page_checksum": True,
    "use_dictionary": [name for name in SCHEMA.names if name not in (*_RISING, "members", "checksum")],
    "column_encoding": dict.fromkeys(_RISING, "DELTA_BINARY_PACKED"),
    "write_statistics": ["run", "node", "step", "time_us", "config_seq"],
}


class TraceWriter:
    """Appends the rows of one run to ``<run>.parquet``, and ``<run>-00001.parquet`` and on if asked.

    A file has its name only once it is whole: until then it ends in ``.partial``, which no reader
    looks at; in a store it is not there before. Leaving the ``with`` block by an exception keeps what
    was written: the trace of a run that went wrong is the one that is wanted.
    """

    def __init__(
        self,
        directory: Where,
        run: str,
        about: About = MappingProxyType({}),
        *,
        stem: str | None = None,
        rows_per_file: int | None = None,
    ) -> None:
        """Write into `directory`, here or in a store, made if need be; each file says what `about` does.

        `stem` names the files where several writers share a run (one a node); it is the run's name
        otherwise. `rows_per_file` starts a new file after that many rows, rounded up to row groups,
        so that a process that is killed loses the last file alone.
        """
        if not run:
            raise ValueError("a run needs a name: it is how a trace tells its runs apart")
        self._directory = Location.of(directory)
        self._directory.make()
        self.run = run
        self.files: list[Location] = []
        """The finished files."""
        said = {**about, VERSION_KEY: str(VERSION)}
        self._schema = SCHEMA.with_metadata({f"{ABOUT}{key}": said[key] for key in sorted(said)})
        self._stem = file_stem(stem or run)
        self._groups_per_file = None if rows_per_file is None else max(1, -(-rows_per_file // ROW_GROUP))
        self._rows: list[Row] = []
        self._batches: list[pa.RecordBatch] = []
        self._groups = 0
        self._open: SealedParquet | None = None
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
        if self._batches or not self.files:
            self._write_group()
        self._finish_file()
        self._remove_files_of_an_earlier_trace()

    # --- rows to arrays, arrays to row groups, row groups to files ------------------------------

    def _encode(self, rows: Sequence[Row]) -> None:
        self._batches.append(record_batch(self.run, rows))
        if len(self._batches) * BATCH >= ROW_GROUP:
            self._write_group()

    def _write_group(self) -> None:
        if self._open is None:
            self._open = SealedParquet(self._file(len(self.files)), self._schema, **PARQUET_OF_TRACES)
        table = pa.Table.from_batches(self._batches, schema=SCHEMA)
        self._open.write(table.combine_chunks())
        self._batches.clear()
        self._groups += 1
        if self._groups == self._groups_per_file:
            self._finish_file()

    def _finish_file(self) -> None:
        if self._open is None:
            return
        self._open.close()
        self.files.append(self._file(len(self.files)))
        self._open = None
        self._groups = 0

    @property
    def paths(self) -> list[Path]:
        """The finished files, where they are on this machine."""
        return [file.local for file in self.files if file.local is not None]

    def _file(self, part: int) -> Location:
        return self._directory / (f"{self._stem}-{part:05}.parquet" if part else f"{self._stem}.parquet")

    def _remove_files_of_an_earlier_trace(self) -> None:
        """A longer trace under the same name left files that would read as part of this one."""
        for part in count(len(self.files)):
            file = self._file(part)
            if not file.is_file():
                return
            file.remove()


class SealedParquet:
    """A Parquet file that is being written, row group by row group, with checksums over all of its bytes.

    It has its name once it is closed.
    """

    def __init__(self, file: Location, schema: pa.Schema, **how: Any) -> None:
        """`how` is as `pyarrow.parquet.ParquetWriter` has it."""
        self._path = file.local
        self._file = file.create() if self._path is None else partial(self._path).open("wb")
        self._sealed = SealedFile(self._file)
        self._parquet = pq.ParquetWriter(self._sealed, schema, **how)

    def write(self, table: pa.Table) -> None:
        """A row group."""
        self._parquet.write_table(table, row_group_size=max(1, table.num_rows))
        self._sealed.end_piece()

    def close(self) -> int:
        """Write what stands behind the row groups. How many bytes the file has."""
        with self._file:
            self._sealed.begin_footer()
            self._parquet.close()
            size = self._sealed.finish()
        if self._path is not None:
            partial(self._path).replace(self._path)
        return size


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
