"""Results of ``lab run``, of experiments and of fuzzing, as rows of a lake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from ordercast.lab.campaign.table import SCHEMA as OF_CAMPAIGN
from ordercast.lab.campaign.table import CampaignStore
from ordercast.lab.store import SCHEMA as OF_EXPERIMENT
from ordercast.lab.store import Store, read_results
from ordercast.lake.delta import DeltaFiles, Planned
from ordercast.lake.tables import RESULTS, SEEDS
from ordercast.storage import Location


@dataclass(frozen=True)
class Kept:
    """Files of results in a directory, all of one experiment or campaign."""

    table: str
    """Of the lake."""
    name: str
    """What the experiment or campaign is called there."""
    files: list[Location]

    @property
    def _of(self) -> tuple[pa.Schema, pa.Schema, tuple[str, ...]]:
        """The columns in the files and in the lake, and those that say which row it is."""
        if self.table == "seeds":
            return OF_CAMPAIGN, SEEDS, ("protocol", "round", "seed", "code")
        return OF_EXPERIMENT, RESULTS, ("run", "code", "error")

    def add(self, table: DeltaFiles, query: Callable[..., pa.Table]) -> int:
        """Add those that the lake has not yet. How many those were."""
        _, _, key = self._of
        named, columns = SEEDS.names[0] if self.table == "seeds" else RESULTS.names[0], ", ".join(key)
        added: list[int] = [0]

        def plan(there: DeltaTable) -> Planned | None:
            name = self.name.replace("'", "''")
            known = query(f"SELECT {columns} FROM t WHERE {named} = '{name}'", t=there)
            fresh = self._fresh(set(zip(*(known.column(each).to_pylist() for each in key), strict=True)))
            added[0] = fresh.num_rows
            if not fresh.num_rows:
                return None
            return Planned([table.write(fresh)], {"ordercast.results": str(fresh.num_rows)})

        table.commit(plan)
        return added[0]

    def _fresh(self, known: set[tuple[Any, ...]]) -> pa.Table:
        """The rows that are not known, each once, as the lake has them."""
        schema, wanted, key = self._of
        now = pa.scalar(datetime.now(UTC), wanted.field("added").type)
        found = [wanted.empty_table()]
        for file in self.files:
            table = read_results(file, schema)
            new = []
            for row in zip(*(table.column(each).to_pylist() for each in key), strict=True):
                new.append(row not in known)
                known.add(row)
            table = table.filter(pa.array(new, pa.bool_()))
            columns = [pa.repeat(pa.scalar(self.name), table.num_rows), *table.columns]
            found.append(pa.table([*columns, pa.repeat(now, table.num_rows)], schema=wanted))
        return pa.concat_tables(found)


def kept_in(directory: Location, name: str | None) -> list[Kept]:
    """The results in a directory of ``lab run``; none if it is not one. `name` stands for the directory's."""
    campaign = CampaignStore(directory)
    if campaign.manifest() is not None:
        return [Kept("seeds", name or directory.name, [file.location for file in campaign.files()])]
    store = Store(directory)
    manifest = store.read_manifest()
    if manifest is None:
        return []
    files = sorted(store.results / each for each in store.results.names() if each.endswith(".parquet"))
    return [Kept("results", name or manifest.experiment, files)]
