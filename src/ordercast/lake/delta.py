"""A table in a lake: Parquet files, and a log whose commits say which of them count (Delta Lake).

A file is written under a name that nobody else has, and counts from the commit on that names it: whoever is
killed before has left a file that nobody reads, and `DeltaFiles.tidy` removes it. Commits are numbered, and
a store gives each number to one writer only. Files are written through Arrow (`ordercast.storage`), by this
process or by many; deltalake reads and writes the log, and merges files.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from ordercast.errors import OrdercastError
from ordercast.storage import Location
from ordercast.trace.writer import ROW_GROUP, SealedParquet

WRITER = "ordercast"
"""All that adds to a table is one application to Delta: of two commits that were made on the same state of
the table, one fails."""
TRIES = 20
"""So often something is tried again because somebody else has committed meanwhile."""
_PARQUET: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}
_DECORATION = re.compile(r"\x1b\[[0-9;]*m|↳")
"""Colours and arrows in what deltalake says."""
_BOUNDED = (pa.types.is_integer, pa.types.is_string)
"""Kinds of columns of which the log says the least and the greatest value in each file."""


class LakeError(OrdercastError):
    """Something is wrong with a lake, or with what it is asked for. The message says what to do."""


class Added(NamedTuple):
    """A file that was written, and is in no commit yet. It can be sent from one process to another."""

    path: str
    size: int
    rows: int
    values: Mapping[str, str | None]
    """Of the columns that the table is partitioned by."""
    bounds: str
    """Statistics, as the log has them."""

    def action(self) -> AddAction:
        """What the log says of it."""
        return AddAction(self.path, self.size, dict(self.values), time.time_ns() // 10**6, True, self.bounds)


class Planned(NamedTuple):
    """What is to be committed."""

    files: Sequence[Added]
    told: Mapping[str, str]
    """What the commit says beside them."""


class DeltaFiles:
    """A table, whether it is there or not."""

    def __init__(
        self, where: Location, schema: pa.Schema | None = None, partitions: Sequence[str] = ()
    ) -> None:
        """`schema` and `partitions` are those that the table gets when it is made."""
        self.where = where
        self.schema = schema
        self.partitions = list(partitions)
        self._uri, self._options = delta_place(where)

    def make(self) -> None:
        """Make the table, unless it is there."""
        assert self.schema is not None
        if not self.where.store:
            self.where.make()
        with told(self.where):
            try:
                DeltaTable.create(
                    self._uri, self.schema, "error", self.partitions or None, storage_options=self._options
                )
            except DeltaError:
                if not self.exists():  # else somebody was quicker, or it was there
                    raise

    def exists(self) -> bool:
        """Whether the table is there."""
        return self._now() is not None

    def newest(self) -> DeltaTable:
        """The table as it is now. Raises `LakeError` if there is none."""
        table = self._now()
        if table is None:
            raise LakeError(f"there is no table at {self.where}")
        return table

    def _now(self) -> DeltaTable | None:
        # Not `DeltaTable.is_deltatable`: all threads would stand still until the store answers.
        with told(self.where):
            try:
                return DeltaTable(self._uri, storage_options=self._options)
            except TableNotFoundError:
                return None

    def commits(self, table: DeltaTable) -> Iterator[dict[str, Any]]:
        """What each commit up to this state of the table says, the last one first, as far as the log goes
        back. (Delta's own call lets all threads stand still until the store answers.)"""
        for version in range(table.version(), -1, -1):
            try:
                lines = (self.where / f"_delta_log/{version:020}.json").read().splitlines()
            except FileNotFoundError:
                return
            yield from (found["commitInfo"] for found in map(json.loads, lines) if "commitInfo" in found)

    def commit(self, plan: Callable[[DeltaTable], Planned | None]) -> bool:
        """Commit what `plan` makes of the newest state of the table; it is asked anew as often as others
        commit at the same time. False if it has nothing to commit."""
        for _ in range(TRIES):
            table = self.newest()
            planned = plan(table)
            if planned is None:
                return False
            count = (table.transaction_version(WRITER) or 0) + 1
            properties = CommitProperties(dict(planned.told), app_transactions=[Transaction(WRITER, count)])
            with told(self.where):
                try:
                    table.create_write_transaction(
                        [file.action() for file in planned.files],
                        "append",
                        Schema.from_arrow(table.schema()),
                        self.partitions or None,
                        commit_properties=properties,
                    )
                except CommitFailedError:
                    continue
            return True
        raise self._beaten()

    def change(self, what: Callable[[DeltaTable], Any]) -> Any:
        """Change the newest state of the table, again if somebody else has changed the same files."""
        for _ in range(TRIES):
            table = self.newest()
            with told(self.where):
                try:
                    return what(table)
                except CommitFailedError:
                    continue
        raise self._beaten()

    def _beaten(self) -> LakeError:
        return LakeError(f"{self.where}: others commit all the time, {TRIES} attempts failed: try it again")

    def tidy(self, keep_hours: int) -> tuple[int, int, int]:
        """Merge small files, and remove those that no commit names, or none since so many hours.

        How many files were merged, into how many, and how many were removed.
        """
        merged = self.change(lambda table: table.optimize.compact())
        table = self.newest()
        with told(self.where):
            table.create_checkpoint()
            removed = table.vacuum(keep_hours, dry_run=False, enforce_retention_duration=False, full=True)
        return int(merged["numFilesRemoved"]), int(merged["numFilesAdded"]), len(removed)

    # --- files ------------------------------------------------------------------------------------

    def write(self, table: pa.Table, values: Mapping[str, str | None] | None = None, **how: Any) -> Added:
        """Write a file, without the columns that the table is partitioned by: `values` are theirs."""
        return write_file(self.where, table, values or {}, **how)

    def remove(self, files: Sequence[Added]) -> None:
        """Remove files that were not committed."""
        for file in files:
            (self.where / file.path).remove()


def write_file(where: Location, table: pa.Table, values: Mapping[str, str | None], **how: Any) -> Added:
    """Write a file of a table, in any process."""
    path = f"{uuid4().hex}.parquet"
    file = where / path
    where.make()
    parquet = SealedParquet(file, table.schema, **(how or _PARQUET))
    for start in range(0, max(1, table.num_rows), ROW_GROUP):
        parquet.write(table.slice(start, ROW_GROUP).combine_chunks())
    return Added(path, parquet.close(), table.num_rows, values, json.dumps(_bounds(table)))


def _bounds(table: pa.Table) -> dict[str, Any]:
    least, greatest, without = {}, {}, {}
    for field in table.schema:
        if not any(kind(field.type) for kind in _BOUNDED):
            continue
        column = table.column(field.name)
        found = pc.min_max(column).as_py()
        without[field.name] = column.null_count
        if found["min"] is not None:
            least[field.name], greatest[field.name] = found["min"], found["max"]
    return {"numRecords": table.num_rows, "minValues": least, "maxValues": greatest, "nullCount": without}


# --- stores --------------------------------------------------------------------------------------


def delta_place(where: Location) -> tuple[str, dict[str, str]]:
    """Where a table is, as deltalake wants it, with credentials and endpoint apart."""
    if not where.store:
        return os.path.abspath(where.path), {}
    parts = urlsplit(where.store)
    uri = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/{where.path}"
    if parts.scheme != "s3":
        return (f"{parts.scheme}://{parts.netloc}/{where.path}", {})
    said = {key: values[-1] for key, values in parse_qs(parts.query).items()}
    options: dict[str, str] = {}
    if parts.username:
        options["AWS_ACCESS_KEY_ID"] = unquote(parts.username)
        options["AWS_SECRET_ACCESS_KEY"] = unquote(parts.password or "")
    if "region" in said:
        options["AWS_REGION"] = said["region"]
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    if "endpoint_override" in said:
        host = said["endpoint_override"]
        endpoint = host if "://" in host else f"{said.get('scheme', 'https')}://{host}"
        options["AWS_ENDPOINT_URL"] = endpoint
    if endpoint.startswith("http:"):
        options["AWS_ALLOW_HTTP"] = "true"
    return uri, options


@contextmanager
def told(where: Location) -> Iterator[None]:
    """What deltalake raises becomes a sentence; but for a commit that failed because of another."""
    try:
        yield
    except CommitFailedError:
        raise
    except (DeltaError, OSError) as error:
        raise LakeError(f"{where} cannot be used as a table: {_gist(error)}") from error


def _gist(error: Exception) -> str:
    """Of a chain of causes, the first and the last: what was tried, and what happened."""
    lines = [_DECORATION.sub("", line).strip() for line in str(error).splitlines()]
    said = [line for line in lines if line]
    return said[0] if len(said) < 2 else f"{said[0]}: {said[-1]}"
