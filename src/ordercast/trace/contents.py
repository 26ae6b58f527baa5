"""What a trace consists of: its files, found once and looked at once, and what each says of its rows.

A trace is a directory of Parquet files and journals, or one such file, on this machine or in a store
(`ordercast.storage`). Directories below it that are called ``name=value``, as tables are partitioned, belong
to it; a column of the schema that is named so has that value in all rows of the files there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ordercast.storage import Location, Where
from ordercast.trace.blocks import open_journal
from ordercast.trace.files import JOURNAL, PARQUET
from ordercast.trace.schema import ABOUT, OPTIONAL, SCHEMA, VERSION, VERSION_KEY, TraceError
from ordercast.trace.seal import Seal, seal_of

ALWAYS = ("run", "node", "incarnation", "step", "time_us", "event")
"""Columns that every row has a value in."""

DAMAGED = (pa.ArrowException, UnicodeDecodeError)
"""What reading a file raises that is no Parquet, or not what was written."""

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"

_JOURNAL_ROW = 80
"""Bytes that a row takes in a journal, about."""

_AT_A_TIME = 16
"""Files of a store that are looked at together: each is a request or two, for which one waits."""


@dataclass(frozen=True)
class Part:
    """A file of a trace, and what is known of it without its rows."""

    file: Location
    about: Mapping[str, str]
    """What it says of all its rows: see `ordercast.trace.schema.About`."""
    groups: tuple[Mapping[str, int], ...]
    """Rows of each run, by row group; of a journal an estimate."""
    given: Mapping[str, str | None]
    """Columns of the schema that it lacks, and whose value the directories say."""
    plain: bool
    """Whether it is Parquet with the schema's own columns and types, and no row is known to lack a value
    that every event has."""

    @property
    def runs(self) -> dict[str, int]:
        """Rows of each run."""
        found: dict[str, int] = {}
        for group in self.groups:
            for run, rows in group.items():
                found[run] = found.get(run, 0) + rows
        return found


class Contents:
    """The parts of a trace, and its runs."""

    def __init__(self, parts: list[Part]) -> None:
        self.parts = parts
        found: dict[str, list[Part]] = {}
        last: dict[str, int] = {}
        for at, part in enumerate(parts):
            for run in part.runs:
                found.setdefault(run, []).append(part)
                last[run] = at
        self.runs = {run: found[run] for run in sorted(found, key=last.__getitem__)}
        """The parts of each run; runs in the order in which their last ones come."""

    @property
    def rows(self) -> dict[str, int]:
        """How many rows each run has; where there are journals, about."""
        found = dict.fromkeys(self.runs, 0)
        for part in self.parts:
            for run, rows in part.runs.items():
                found[run] += rows
        return found

    def about(self) -> dict[str, dict[str, str]]:
        """What the files say of each run beside its rows. Raises `TraceError` if they do not agree."""
        known: dict[str, dict[str, str]] = {}
        for part in self.parts:
            about = dict(part.about)
            for run in part.runs if about else ():
                its = known.setdefault(run, about)
                if its != about:
                    raise TraceError(
                        f"{part.file}: run {run!r} is said to be {_told(about)}, and elsewhere {_told(its)}: "
                        "give the files of one run only."
                    )
        return known


def _told(about: Mapping[str, str]) -> str:
    return ", ".join(f"{key} {value}" for key, value in about.items())


def contents_of(path: Where) -> Contents:
    """Look at every file of a trace once. Raises `TraceError` if it is none."""
    root = Location.of(path)
    files = trace_files(root)
    if root.store:
        with ThreadPoolExecutor(_AT_A_TIME) as threads:
            return Contents(list(threads.map(lambda file: part_of(file, root), files)))
    return Contents([part_of(file, root) for file in files])


# --- files -------------------------------------------------------------------------------------


def trace_files(path: Where) -> list[Location]:
    """The files of a trace, each part once, in the order in which they are read."""
    root = Location.of(path)
    try:
        return _files(root)
    except OSError as error:
        raise unreadable(root, error) from error


def _files(root: Location) -> list[Location]:
    if root.is_file():
        return [root]
    if not root.exists():
        raise TraceError(f"{root} does not exist: give the directory that holds the trace's Parquet files.")
    files = found_files(root)
    if files:
        return [files[key] for key in sorted(files)]
    if any(entry.location.name.endswith(".parquet.partial") for entry in root.entries()):
        raise TraceError(
            f"{root} holds only unfinished files (*.parquet.partial): "
            "end the run, which closes them, and read the trace then."
        )
    raise TraceError(
        f"{root} holds no Parquet file: give the directory that the run wrote its trace to "
        "(the files end in .parquet or .journal)."
    )


def found_files(root: Location) -> dict[str, Location]:
    """The files of a trace, by part: what a directory holds by now."""
    # Journals first: one that becomes Parquet between the two looks is seen twice, and not never.
    journals = {_key(root, file): file for file in _found(root, JOURNAL)}
    converted = {_key(root, file): file for file in _found(root, PARQUET)}
    return journals | converted


def _found(directory: Location, suffix: str) -> Iterator[Location]:
    for entry in directory.entries():
        if entry.location.suffix == suffix:
            yield entry.location
        elif entry.is_directory and "=" in entry.location.name:
            yield from _found(entry.location, suffix)


def _key(root: Location, file: Location) -> str:
    """The file's name below the directory, without its suffix: both forms of a part have the same."""
    return file.path[len(root.path) :].removesuffix(file.suffix)


def _given(file: Location, root: Location) -> dict[str, str | None]:
    """Columns of the schema that directories between the two tell."""
    below = file.path[len(root.path) :].strip("/").split("/")[:-1]
    named = (each.partition("=") for each in below)
    told = {name: unquote(value) for name, equals, value in named if equals and name in SCHEMA.names}
    return {name: None if value == _NO_VALUE else value for name, value in told.items()}


# --- a look at a file --------------------------------------------------------------------------


def part_of(file: Location, root: Location) -> Part:
    """Check a file's columns and say whose rows it holds, without reading the rest of it."""
    if file.suffix == JOURNAL:
        try:
            with open_journal(file) as journal:
                rows = max(1, file_size(file) // _JOURNAL_ROW)
                its = () if journal.run is None else ({journal.run: rows},)
                return Part(file, dict(journal.about), its, {}, False)
        except FileNotFoundError:
            other = converted(file)
            return Part(file, {}, (), {}, False) if other is None else part_of(other, root)
        except OSError as error:
            raise unreadable(file, error) from error
    try:
        with opened_parquet(file) as (parquet, _):
            schema = parquet.schema_arrow
            given = {name: value for name, value in _given(file, root).items() if name not in schema.names}
            _check_columns(file, schema, given)
            about = _about(file, schema)
            groups = tuple(_runs_of_group(parquet, at, given) for at in range(parquet.num_row_groups))
            return Part(file, about, groups, given, not given and _is_plain(parquet))
    except (*DAMAGED, OSError) as error:
        raise not_parquet(file, error) from error


def file_size(file: Location) -> int:
    """Bytes of a file."""
    with file.open() as opened:
        return int(opened.size())


@contextmanager
def opened_parquet(file: Location, **how: Any) -> Iterator[tuple[pq.ParquetFile, Seal | None]]:
    """A file whose pages are checked as they are read, and its seal: damage is an error, never other data."""
    with file.open() as source:
        seal = seal_of(source, file)
        source.seek(0)
        with pq.ParquetFile(source, page_checksum_verification=True, **how) as parquet:
            yield parquet, seal


def _about(file: Location, schema: pa.Schema) -> dict[str, str]:
    metadata = schema.metadata or {}
    words = {key.decode(): value.decode() for key, value in metadata.items()}
    about = {key.removeprefix(ABOUT): value for key, value in words.items() if key.startswith(ABOUT)}
    version = about.pop(VERSION_KEY, "1")
    if not version.isdecimal() or int(version) > VERSION:
        raise TraceError(
            f"{file} has version {version} of the schema, and this ordercast knows up to {VERSION}: read it "
            "with a newer one."
        )
    return about


def _runs_of_group(parquet: pq.ParquetFile, group: int, given: Mapping[str, str | None]) -> dict[str, int]:
    """Whose rows a row group holds: mostly one run's, as its statistics say."""
    about = parquet.metadata.row_group(group)
    if "run" in given:
        return {str(given["run"]): about.num_rows}
    told = about.column(parquet.schema_arrow.get_field_index("run")).statistics
    if told is not None and told.has_min_max and told.min == told.max and told.null_count == 0:
        return {str(told.min): about.num_rows}
    counts = pc.value_counts(parquet.read_row_group(group, ["run"]).column("run"))
    return {str(each["values"]): each["counts"] for each in counts.to_pylist()}


def _is_plain(parquet: pq.ParquetFile) -> bool:
    schema = parquet.schema_arrow
    there = [field for field in SCHEMA if field.name not in OPTIONAL or field.name in schema.names]
    if any(schema.field(field.name).type != field.type for field in there):
        return False
    return not any(map(_lacks_values, map(parquet.metadata.row_group, range(parquet.num_row_groups))))


def _lacks_values(group: pq.RowGroupMetaData) -> bool:
    """Whether a column that needs a value in every row is known to lack some: the reader says so then."""
    told = {
        column.path_in_schema: column.statistics for column in map(group.column, range(group.num_columns))
    }
    return any(
        statistics is not None and statistics.null_count for name in ALWAYS if (statistics := told.get(name))
    )


def converted(journal: Location) -> Location | None:
    """What a journal that is gone became; None if it held no row, or was too old to be kept."""
    parquet = Location(journal.store, journal.path.removesuffix(JOURNAL) + PARQUET)
    return parquet if parquet.is_file() else None


def _check_columns(file: Location, schema: pa.Schema, given: Mapping[str, str | None]) -> None:
    for field in SCHEMA:
        if schema.get_field_index(field.name) < 0:
            if field.name in OPTIONAL or field.name in given:
                continue
            raise TraceError(
                f"{file} has no column {field.name!r}: a trace has the columns "
                f"{', '.join(SCHEMA.names)}. Write it with ordercast.trace.writer, or add the column."
            )
        found = schema.field(field.name).type
        if not _same_sort(found, field.type):
            raise TraceError(
                f"{file}: column {field.name!r} should be {field.type} and is {found}: "
                "write it with the type of ordercast.trace.schema.SCHEMA."
            )


def _same_sort(found: pa.DataType, expected: pa.DataType) -> bool:
    """Whether a cast can be without loss: it still fails if a value does not fit."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_null(found):
        return True
    if pa.types.is_integer(expected):
        return bool(pa.types.is_integer(found))
    if pa.types.is_string(expected):
        strings = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
        return any(kind(found) for kind in strings)
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(kind(found) for kind in lists) and _same_sort(found.value_type, expected.value_type)


def unreadable(file: Location, error: OSError) -> TraceError:
    """What is said of a file that the system does not give."""
    said = error.strerror or str(error)
    return TraceError(f"{file} cannot be read ({said}): see that the file is there and may be read.")


def not_parquet(file: Location, error: Exception) -> TraceError:
    """What is said of a file that Arrow cannot read."""
    return TraceError(
        f"{file} cannot be read as Parquet ({str(error).splitlines()[0]}): "
        "take it away if it is no part of the trace; write the trace again if it is cut off."
    )
