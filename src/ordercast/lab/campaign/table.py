"""The directory of a campaign, here or in a store: one table of results, a row a seed.

    campaign.json                                    what was asked for, and which programs have run
    results/<protocol>-<round>-<first>-<end>.parquet a row for each of these seeds
    rounds/<round>.json                              where a later round looks, and why there
    smaller/<protocol>-<round>-<seed>.json           a seed that failed, made smaller

A file is there whole or not at all, its name says which seeds it has, and whoever makes it makes the same
one: so that what is done is known by listing names, and whoever was killed has left nothing to mend.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

import ordercast
from ordercast.core.wire import UNREADABLE
from ordercast.lab.campaign.blocks import Block, Done, left
from ordercast.lab.grid import LabError
from ordercast.storage import Location, Where

MANIFEST = "campaign.json"
PARQUET = ".parquet"

SCHEMA = pa.schema(
    [
        ("protocol", pa.string()),
        ("round", pa.int32()),
        ("seed", pa.int64()),
        ("near", pa.int64()),
        ("nodes", pa.int32()),
        ("property", pa.string()),
        ("sentence", pa.string()),
        ("broken", pa.list_(pa.string())),
        ("converged", pa.bool_()),
        ("events", pa.int64()),
        ("receptions", pa.int64()),
        ("rows", pa.int64()),
        ("cpu_s", pa.float64()),
        ("faults", pa.list_(pa.string())),
        ("coverage", pa.map_(pa.string(), pa.int64())),
        ("replay", pa.string()),
        ("code", pa.string()),
    ]
)
"""A row of results. ``near`` is null in round 0; ``property``, ``sentence`` and ``replay`` are null where
nothing failed; ``coverage`` is what happened, and how often."""

_NAMED = re.compile(r"(.+)-(\d+)-(\d+)-(\d+)\.parquet")
T = TypeVar("T", bound=msgspec.Struct)


class Manifest(msgspec.Struct, kw_only=True):
    """What a directory holds the results of."""

    protocols: list[str]
    seeds: tuple[int, int]
    nodes: tuple[int, int] | None
    """None: as many as each protocol usually has."""
    rounds: int
    """How many rounds follow that of the seeds."""
    programs: list[str] = []
    """Versions of the program that have fuzzed here."""
    version: str = ordercast.__version__


class Look(msgspec.Struct, frozen=True):
    """Where a round looks for one protocol."""

    protocol: str
    seeds: tuple[int, int]
    near: tuple[int, ...]
    rare: dict[str, int]
    """What was rare until then, and in how many runs it happened."""


class Round(msgspec.Struct, frozen=True):
    """Where a round looks."""

    asked: tuple[int, int]
    """The seeds that were asked for."""
    looks: list[Look]


class Smaller(msgspec.Struct, frozen=True, kw_only=True):
    """A seed that failed, made smaller."""

    protocol: str
    round: int
    seed: int
    property: str
    replay: str
    runs: int
    """How many cases were tried."""


class File(NamedTuple):
    """A file of results."""

    protocol: str
    round: int
    seeds: range
    location: Location


class CampaignStore:
    """The directory of one campaign."""

    def __init__(self, directory: Where) -> None:
        """A directory, here or in a store, that need not be there yet."""
        self.directory = Location.of(directory)
        self.results = self.directory / "results"
        self.rounds = self.directory / "rounds"
        self.smaller = self.directory / "smaller"
        self.begun = self.directory / "begun"

    def prepare(self) -> None:
        """Make the directory, or say why that cannot be."""
        try:
            self.results.make()
        except OSError as error:
            raise LabError(f"results cannot be kept in {self.directory}: {error.strerror}") from error

    def clear(self) -> None:
        """Delete all results."""
        for directory in (self.results, self.rounds, self.smaller, self.begun):
            for entry in directory.entries():
                entry.location.remove()
        (self.directory / MANIFEST).remove()

    # --- what was asked for -----------------------------------------------------------------------

    def manifest(self) -> Manifest | None:
        """What the directory says of itself; None if it is new."""
        return _read(self.directory / MANIFEST, Manifest)

    def round(self, number: int) -> Round | None:
        """Where a round looks; None if it was not begun."""
        return _read(self.rounds / f"{number}.json", Round)

    def keep(self, what: Manifest | Smaller | Round, number: int = 0) -> None:
        """Write one of these down."""
        if isinstance(what, Manifest):
            file = self.directory / MANIFEST
        elif isinstance(what, Round):
            file = self.rounds / f"{number}.json"
        else:
            file = self.smaller / f"{what.protocol}-{what.round}-{what.seed}.json"
        file.put(msgspec.json.format(msgspec.json.encode(what, order="deterministic"), indent=1))

    def made_smaller(self) -> list[Smaller]:
        """The seeds that were made smaller."""
        files = (self.smaller / name for name in sorted(self.smaller.names()) if name.endswith(".json"))
        return [found for file in files if (found := _read(file, Smaller)) is not None]

    # --- results ----------------------------------------------------------------------------------

    def file_of(self, block: Block) -> Location:
        """Where the results of a block are, or will be."""
        stage, seeds = block
        return self.results / f"{stage.protocol}-{stage.round}-{seeds.start}-{seeds.stop}{PARQUET}"

    def files(self) -> list[File]:
        """The files that there are, by protocol, round and seeds."""
        found = []
        for name in self.results.names():
            named = _NAMED.fullmatch(name)
            if named is not None:
                seeds = range(int(named[3]), int(named[4]))
                found.append(File(named[1], int(named[2]), seeds, self.results / name))
        return sorted(found, key=lambda file: (file.protocol, file.round, file.seeds.start, -file.seeds.stop))

    def done(self) -> list[Done]:
        """Which seeds have results."""
        return [(file.protocol, file.round, file.seeds) for file in self.files()]

    def write(self, block: Block, rows: Sequence[dict[str, Any]]) -> Location:
        """Keep the results of a block."""
        held = pa.BufferOutputStream()
        table = pa.Table.from_pylist(list(rows), schema=SCHEMA)
        pq.write_table(table, held, compression="zstd", write_page_checksum=True)
        file = self.file_of(block)
        file.put(memoryview(held.getvalue()))
        return file

    def rows(self) -> Iterator[list[dict[str, Any]]]:
        """All results, file by file, each seed once though several files may have it."""
        counted: dict[tuple[str, int], int] = {}
        for file in self.files():
            whose = (file.protocol, file.round)
            fresh = left(file.seeds, [range(counted.get(whose, 0))])
            if fresh:
                counted[whose] = file.seeds.stop
                yield [row for row in _rows(file.location) if row["seed"] in fresh[0]]


def _rows(file: Location) -> list[dict[str, Any]]:
    try:
        with file.open() as opened:
            table = pq.read_table(opened, schema=SCHEMA, page_checksum_verification=True)
    except (pa.ArrowException, OSError, UnicodeDecodeError, KeyError) as error:
        raise LabError(
            f"{file} cannot be read as results ({str(error).splitlines()[0]}): take it away, and the same "
            "command fuzzes its seeds again"
        ) from error
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def _read(file: Location, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(file.read(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, *UNREADABLE) as error:
        raise LabError(f"{file} cannot be read ({error}): remove it, or choose another --output") from error
