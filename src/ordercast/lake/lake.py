"""A lake: the runs of many traces in one table, the verdicts on them, and the results of experiments.

The table `events` has a run whole or not at all, since one commit adds it. Everything that is said of a run
is computed from its rows; so there is no second table of runs that could disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar

import msgspec
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

import ordercast
from ordercast.audit.files import judged
from ordercast.audit.findings import Findings
from ordercast.lab.store import code_version
from ordercast.lake.adding import rows_of, same_rows, tables_of
from ordercast.lake.delta import Added, DeltaFiles, LakeError, Planned, told
from ordercast.lake.results import Kept, kept_in
from ordercast.lake.tables import (
    BUCKETS,
    EVENTS,
    PARTITIONS,
    RESULTS,
    SEEDS,
    VERDICTS,
    Kind,
    bucket_of,
)
from ordercast.lake.views import VIEWS
from ordercast.storage import Location, Where
from ordercast.trace.columns import life_and_step
from ordercast.trace.contents import Contents, contents_of, part_of
from ordercast.trace.reader import runs_in
from ordercast.trace.writer import PARQUET_OF_TRACES

MOST_HELD = 1_000_000
"""Rows that are held before they are written, of all partitions together: some 200 MB."""
KEEP_HOURS = 7 * 24
"""So long a file is kept that nothing names any more: somebody may be reading it, or may yet commit it."""

T = TypeVar("T")


class Addition(NamedTuple):
    """What came of adding something."""

    runs: list[str]
    """Runs that were added."""
    there: list[str]
    """Runs that were there, the same: nothing was done with them."""
    events: int
    """Rows that were added."""
    results: int
    """Results of experiments and of fuzzing that were added."""


class Tidied(NamedTuple):
    """What came of `Lake.compact`."""

    merged: int
    """Files that were merged,"""
    into: int
    """into so many."""
    removed: int
    """Files that nobody needs."""


class Lake:
    """A lake, here or in a store."""

    def __init__(self, where: Where) -> None:
        """A directory or a URI, where there need not be one yet."""
        self.where = Location.of(where)
        self.events = DeltaFiles(self.where / "events", EVENTS, PARTITIONS)
        self.verdicts = DeltaFiles(self.where / "verdicts", VERDICTS)
        self.results = DeltaFiles(self.where / "results", RESULTS)
        self.seeds = DeltaFiles(self.where / "seeds", SEEDS)

    @property
    def _tables(self) -> dict[str, DeltaFiles]:
        return {
            "events": self.events,
            "verdicts": self.verdicts,
            "results": self.results,
            "seeds": self.seeds,
        }

    def exists(self) -> bool:
        """Whether there is a lake. One that is being made has its last table last."""
        return self.seeds.exists()

    def make(self) -> None:
        """Make its tables, unless they are there."""
        if not self.exists():
            for table in self._tables.values():
                table.make()

    # --- adding -----------------------------------------------------------------------------------

    def add(
        self,
        sources: Sequence[Where],
        name: str | None = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Addition:
        """Add the runs of traces, and the results in directories of ``lab run``. Makes the lake, if need be.

        Traces that are given together are one: so parts of a run may lie in several. With `name`, runs are
        called ``NAME/RUN``. A run that is there already, with the same rows, is left as it is. Raises
        `LakeError` if one is there with other rows, and adds nothing then.
        """
        traces: list[Location] = []
        kept: list[Kept] = []
        for source in map(Location.of, sources):
            found = kept_in(source, name)
            kept += found
            if not found:
                traces.append(source)
            elif (source / "traces").is_directory():
                traces.append(source / "traces")
        contents = Contents([part for trace in traces for part in contents_of(trace).parts])
        self.make()
        runs, there, events = self._add_runs(contents, f"{name}/" if name else "", progress)
        tables = {"results": self.results, "seeds": self.seeds}
        results = sum(each.add(tables[each.table], self._query) for each in kept)
        return Addition(runs, there, events, results)

    def _add_runs(
        self, contents: Contents, prefix: str, progress: Callable[[int, int], None]
    ) -> tuple[list[str], list[str], int]:
        about = contents.about()
        kinds = {
            run: Kind(said.get("protocol"), said.get("promises"), said.get("clock"), bucket_of(prefix + run))
            for run in contents.runs
            for said in (about.get(run, {}),)
        }
        while True:
            there = self._there({kind.bucket for kind in kinds.values()})
            old = [run for run in kinds if prefix + run in there]
            self._check_same(contents, old, prefix)
            new = {run: kind for run, kind in kinds.items() if prefix + run not in there}
            files = self._write(contents, new, prefix, progress) if new else []
            try:
                committed = not files or self._commit(files, {prefix + run for run in new}, new.values())
            except BaseException:
                self.events.remove(files)
                raise
            if committed:
                names = [prefix + run for run in new]
                return names, [prefix + run for run in old], sum(file.rows for file in files)
            self.events.remove(files)  # somebody else has added some of these runs meanwhile

    def _commit(self, files: list[Added], names: Collection[str], kinds: Iterable[Kind]) -> bool:
        buckets = {kind.bucket for kind in kinds}

        def plan(table: DeltaTable) -> Planned | None:
            if not self._there(buckets, table).keys().isdisjoint(names):
                return None
            return Planned(files, {"ordercast.runs": str(len(names))})

        return self.events.commit(plan)

    def _write(
        self,
        contents: Contents,
        new: Mapping[str, Kind],
        prefix: str,
        progress: Callable[[int, int], None],
    ) -> list[Added]:
        added = pa.scalar(datetime.now(UTC), EVENTS.field("added").type)
        files: list[Added] = []
        held: dict[Kind, list[pa.Table]] = {}
        rows = done = 0
        total = sum(contents.rows[run] for run in new)

        def flush() -> None:
            for kind, tables in held.items():
                table = pa.concat_tables(tables)
                table = table.append_column("added", pa.repeat(added, table.num_rows))
                files.append(self.events.write(table, kind.values, **PARQUET_OF_TRACES))
            held.clear()

        try:
            for run, table in tables_of(contents, new):
                held.setdefault(new[run], []).append(renamed(table, prefix + run) if prefix else table)
                rows += table.num_rows
                done += table.num_rows
                progress(done, max(done, total))
                if rows >= MOST_HELD:
                    flush()
                    rows = 0
            flush()
        except BaseException:
            self.events.remove(files)
            raise
        return files

    def _there(self, buckets: Collection[int], table: DeltaTable | None = None) -> dict[str, datetime]:
        """The runs in these buckets, and when each was added."""
        if not buckets:
            return {}
        chosen = ", ".join(map(str, sorted(buckets)))
        found = self._query(
            f"SELECT run, max(added) AS added FROM events WHERE bucket IN ({chosen}) GROUP BY run",
            events=table or self.events.newest(),
        )
        return {row["run"]: row["added"] for row in found.to_pylist()}

    def _check_same(self, contents: Contents, runs: Collection[str], prefix: str) -> None:
        if not runs:
            return
        wanted = set(runs)
        mine = Contents([part for part in contents.parts if not wanted.isdisjoint(part.runs)])
        for run, table in rows_of(mine, wanted):
            if not same_rows(self.run(prefix + run), renamed(table, prefix + run)):
                raise LakeError(
                    f"run {prefix + run!r} is in {self.where} with other events than here: remove it there "
                    f"(ordercast lake expire --run {prefix + run!r}), or add this one under another name "
                    "(--name). Nothing was added"
                )

    # --- looking ----------------------------------------------------------------------------------

    def sql(self, query: str, tables: Mapping[str, Where] | None = None) -> pa.Table:
        """The answer to a query over the tables and views; `tables` are others of Delta, by name."""
        there = {name: table.newest() for name, table in self._checked().items()}
        more = {name: DeltaFiles(Location.of(where)).newest() for name, where in (tables or {}).items()}
        return self._query(query, views=True, **there, **more)

    def _checked(self) -> dict[str, DeltaFiles]:
        if not self.exists():
            raise LakeError(f"there is no lake at {self.where}: ordercast lake add makes one")
        return self._tables

    def _query(self, query: str, *, views: bool = False, **tables: DeltaTable) -> pa.Table:
        builder = QueryBuilder()
        for name, table in tables.items():
            builder.register(name, table)
        try:
            for name, view in VIEWS.items() if views else ():
                pa.table(builder.execute(f"CREATE VIEW {name} AS {view}"))
            return plain(pa.table(builder.execute(query)))
        except Exception as error:
            raise LakeError(f"the query fails: {str(error).splitlines()[0]}") from error

    def run(self, run: str) -> pa.Table:
        """The rows of a run, with the columns of a trace; without rows if it is not there."""
        columns = ", ".join(f'"{name}"' for name in EVENTS.names[: EVENTS.names.index("added")])
        return self._query(
            f"SELECT {columns} FROM events WHERE bucket = {bucket_of(run)} AND run = {quoted(run)}",
            events=self.events.newest(),
        )

    def runs(self) -> list[dict[str, Any]]:
        """The runs, each with the latest verdict on it: ``clean`` is None if there is none."""
        found = self.sql("""
            SELECT r.*, v.clean, v.version, v.judged FROM runs r LEFT JOIN (
                SELECT run, added, last_value(clean ORDER BY judged) AS clean,
                       last_value(version ORDER BY judged) AS version, max(judged) AS judged
                FROM verdicts GROUP BY run, added
            ) v ON r.run = v.run AND r.added = v.added ORDER BY r.run
        """)
        rows: list[dict[str, Any]] = found.to_pylist()
        return rows

    # --- judging ----------------------------------------------------------------------------------

    def unjudged(self, *, again: bool = False) -> dict[str, datetime]:
        """Runs without a verdict of this program, or all with `again`; and when each was added."""
        self._checked()
        there = self._there(range(BUCKETS))
        if again:
            return there
        judged = self._query(
            f"SELECT run, added FROM verdicts WHERE code = {quoted(code_version())}",
            verdicts=self.verdicts.newest(),
        )
        known = {(row["run"], row["added"]) for row in judged.to_pylist()}
        return {run: added for run, added in there.items() if (run, added) not in known}

    def contents(self, runs: Collection[str]) -> list[Contents]:
        """Files that hold these runs, and others that lie beside them: bucket by bucket."""
        table = self.events.newest()
        with told(self.events.where):
            files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        by_kind: dict[Kind, list[Location]] = {}
        buckets = {bucket_of(run) for run in runs}
        for file in files:
            kind = Kind(*(file[f"partition.{name}"] for name in PARTITIONS))
            if kind.bucket in buckets:
                by_kind.setdefault(kind, []).append(self.events.where / file["path"])
        found = []
        for kind, places in sorted(by_kind.items(), key=lambda each: tuple(map(str, each[0]))):
            parts = [replace(part_of(place, self.events.where), about=kind.about) for place in places]
            found.append(Contents([part for part in parts if not part.runs.keys().isdisjoint(runs)]))
        return [each for each in found if each.parts]

    def judged(self, contents: Sequence[Contents], runs: Collection[str]) -> Iterator[Findings]:
        """What the reference finds in each of these runs, which lie in these files."""
        for each in contents:
            about = each.about()
            for run, rows in runs_in(each):
                if run in runs:
                    rows.sort(key=life_and_step)
                    yield judged(run, rows, about[run], None, trimmed=False, shown=False)

    def keep(self, findings: Sequence[Findings], added: Mapping[str, datetime]) -> int:
        """Append verdicts of this program; `added` says when the runs were. How many there were not yet."""
        rows = [_verdict(found, added[found.run]) for found in findings]
        if not rows:
            return 0
        file = self.verdicts.write(pa.Table.from_pylist(rows, schema=VERDICTS))
        self.verdicts.commit(lambda _: Planned([file], {"ordercast.verdicts": str(len(rows))}))
        return len(rows)

    # --- upkeep -----------------------------------------------------------------------------------

    def compact(self, keep_hours: int = KEEP_HOURS) -> Tidied:
        """Merge small files, and remove those that nobody needs, or has needed for so many hours."""
        done = [table.tidy(keep_hours) for table in self._checked().values()]
        return Tidied(*map(sum, zip(*done, strict=True)))

    def expire(
        self, older_than: timedelta | None = None, runs: Sequence[str] = (), protocol: str | None = None
    ) -> list[str]:
        """Remove runs that were added longer ago than that, that are called so, of that protocol: those to
        which all applies that is asked. Verdicts stay. The names of the runs that were there."""
        asked = []
        if older_than is not None:
            asked.append(f"added < {moment(datetime.now(UTC) - older_than)}")
        if runs:
            chosen = ", ".join(str(bucket) for bucket in sorted(set(map(bucket_of, runs))))
            asked.append(f"bucket IN ({chosen}) AND run IN ({', '.join(map(quoted, runs))})")
        if protocol is not None:
            asked.append(f"protocol = {quoted(protocol)}")
        if not asked:
            raise LakeError("say which runs are to be removed: by their age, name or protocol")
        self._checked()
        where = " AND ".join(asked)
        found = self._query(f"SELECT DISTINCT run FROM events WHERE {where}", events=self.events.newest())
        gone: list[str] = sorted(found.column("run").to_pylist())
        if gone:
            self.events.change(lambda table: table.delete(where))
        return gone


def _verdict(found: Findings, added: datetime) -> dict[str, Any]:
    report = found.report
    return {
        "run": found.run,
        "added": added,
        "judged": datetime.now(UTC),
        "version": ordercast.__version__,
        "code": code_version(),
        "promises": ", ".join(report.promises),
        "events": report.events,
        "clean": report.clean,
        "properties": list(report.properties.items()),
        "unchecked": list(report.unchecked),
        "found": [
            {
                "property": each.property,
                "nodes": list(each.nodes),
                "culprit": each.culprit,
                "times": each.times,
                "sentence": each.sentence,
                "messages": msgspec.json.encode([message._asdict() for message in each.messages]).decode(),
                "configurations": msgspec.json.encode(
                    [configuration._asdict() for configuration in each.configurations]
                ).decode(),
            }
            for each in report.violations
        ],
    }


def renamed(table: pa.Table, run: str) -> pa.Table:
    """The rows of a run, which is called so now."""
    return table.set_column(0, table.schema.field("run"), pa.repeat(pa.scalar(run), table.num_rows))


def plain(table: pa.Table) -> pa.Table:
    """With strings and bytes as all tools know them, and not as views."""
    return table.cast(pa.schema([(field.name, _plain(field.type)) for field in table.schema]))


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _plain(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _plain(field.type)) for field in kind])
    return kind


def quoted(text: str) -> str:
    """Text in SQL."""
    return "'" + text.replace("'", "''") + "'"


def moment(when: datetime) -> str:
    """A time in SQL."""
    return f"arrow_cast({quoted(when.astimezone(UTC).isoformat())}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
