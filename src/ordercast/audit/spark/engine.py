"""The audit of a trace on Spark: certified by a few passes, and judged by the reference where it cannot be.

Small runs are judged by the reference, each as a whole and many in a task (`whole_runs`). Every
other run is laid out by its configurations (`membership_history`), and what a pass over the events says of
each stay is held against what `rings` or `primary` ask for. A run about which nothing is in doubt is right,
if the reference finds nothing in its tail. Any other is handed to the reference: as a whole, if it is of a
size for that, so that the report is the reference's to the letter; otherwise those messages of it that are
in doubt (`narrow`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from ordercast.audit.explain import Report, Violation, merge, told_once
from ordercast.audit.files import promises_by_name
from ordercast.audit.findings import Findings
from ordercast.audit.properties import (
    EXTENDED_VIRTUAL_SYNCHRONY,
    PROCESS_GROUPS,
    PROMISES,
    VIEW_SYNCHRONY,
    Promises,
    audit,
    unjudged,
)
from ordercast.audit.spark import passes, plans, primary, rings, whole_runs
from ordercast.audit.spark.cut import from_common_point
from ordercast.audit.spark.events import Events, open_events
from ordercast.audit.spark.membership_history import Run
from ordercast.audit.spark.narrow import narrowed
from ordercast.audit.spark.plans import RunKey
from ordercast.audit.spark.rows import MOST_ROWS, in_batches, of_runs, rows_by_run
from ordercast.audit.views import Views
from ordercast.spark.progress import watched
from ordercast.storage import Where
from ordercast.trace.contents import Contents, contents_of
from ordercast.trace.schema import Row, TraceError
from ordercast.trace.trimmed import common_part

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def audit_on_spark(
    spark: SparkSession, trace: Where | Contents, checks: Promises | None = None, *, trimmed: bool = False
) -> Report:
    """What `ordercast.audit.files.audit_trace` answers, for traces of any size."""
    return merge(each.report for each in audited_on_spark(spark, trace, checks, trimmed=trimmed))


def audited_on_spark(
    spark: SparkSession,
    trace: Where | Contents,
    checks: Promises | None = None,
    *,
    trimmed: bool = False,
    shown: bool = False,
) -> Iterator[Findings]:
    """Check the runs of a trace one by one, as `ordercast.audit.files.audited_runs` does."""
    contents = trace if isinstance(trace, Contents) else contents_of(trace)
    whole = _judged_whole(contents, checks)
    found: dict[str, Findings] = {}
    with watched(spark, "checking the trace"):
        for each in whole_runs.in_tasks(spark, contents, whole, checks, trimmed=trimmed, shown=shown):
            found[each.run] = each
        large = [run for run in contents.runs if run not in whole]
        if large:
            with open_events(spark, contents, large, promises=checks is None) as events:
                audit_ = _Audit(spark, events, trimmed=trimmed, shown=shown)
                found |= {each.run: each for _, each in audit_.judged(checks)}
    yield from (found[run] for run in contents.runs if run in found)


def _judged_whole(contents: Contents, checks: Promises | None) -> set[str]:
    """The runs that are given to the reference as they are: small ones, and those with process groups."""
    about = contents.about()

    def most(run: str) -> int:
        promises = checks or promises_by_name(run, about.get(run, {}))
        of_groups = promises is not None and PROCESS_GROUPS.keys() <= promises.keys()
        return MOST_ROWS if of_groups else whole_runs.SMALL_RUN

    return {run for run, rows in contents.rows.items() if rows <= most(run)}


class _Audit:
    """One audit, while it goes on."""

    def __init__(self, spark: SparkSession, events: Events, *, trimmed: bool, shown: bool) -> None:
        self._spark = spark
        self._events = events
        self._trimmed = trimmed
        self._shown = shown

    def judged(self, checks: Promises | None) -> Iterator[tuple[RunKey, Findings]]:
        """Every run that has rows, in no order."""
        promised = {key: checks or its for key, its in self._events.promised.items()}
        self._find_out(promised)
        for promises in PROMISES.values():
            keys = [key for key, its in promised.items() if its is promises]
            if not keys:
                continue
            table = self._events.table
            every = len(keys) == len(promised) and not self._events.others
            control = self._events.control
            if not every:
                table, control = (of_runs(self._spark, each, keys) for each in (table, control))
            wanted = frozenset(self._events.runs[key] for key in keys)
            alone = every and len(keys) == 1
            views = issubclass(promises.history, Views)
            timed = not views and any(key in self._events.one_clock for key in keys)
            source = passes.Source(self._events.files, wanted, alone, views, timed)
            yield from self._judge(table, control, source, promises)

    def _find_out(self, promised: dict[RunKey, Promises | None]) -> None:
        """Where no file says what was promised, look for what only Totem writes: see `promised`."""
        unknown = [key for key, its in promised.items() if its is None]
        if not unknown:
            return
        telling = fn.expr("config_kind <=> 'transitional' OR (event <=> 'originate' AND seq IS NOT NULL)")
        table = of_runs(self._spark, self._events.table, unknown).where(telling)
        totem = {row[0] for row in table.select("run_key").distinct().collect()}
        for key in unknown:
            promised[key] = EXTENDED_VIRTUAL_SYNCHRONY if key in totem else VIEW_SYNCHRONY

    # --- one set of properties ------------------------------------------------------------------

    def _judge(
        self, table: DataFrame, control: DataFrame, source: passes.Source, promises: Promises
    ) -> Iterator[tuple[RunKey, Findings]]:
        whole = table
        notes: dict[RunKey, str] = {}
        if self._trimmed:
            table, source, notes = from_common_point(
                self._spark, table, source, self._events.scratch, MOST_ROWS
            )
            control = plans.control_rows(table)
        runs = self._laid_out(control, source, promises, notes)
        if self._trimmed:
            for key, run in runs.items():
                if key not in notes:
                    run.doubt("its beginning is missing")
        self._look(table, source, runs)
        doubtful = {key: run for key, run in runs.items() if run.doubts}
        for key, run in runs.items():
            if key not in doubtful:
                yield key, self._clean(run, notes.get(key))
        small = {key: run.events for key, run in doubtful.items() if run.events <= MOST_ROWS}
        for source_table, its in ((whole, small.keys() - notes), (table, small.keys() & notes)):
            for batch in in_batches({key: small[key] for key in small if key in its}):
                rows = rows_by_run(of_runs(self._spark, source_table, batch))
                for key in batch:
                    yield key, self._by_reference(runs[key], rows[runs[key].name], notes.get(key))
        for key, run in doubtful.items():
            if key not in small:
                yield key, self._in_part(table, run, source.views)

    def _laid_out(
        self, told: DataFrame, source: passes.Source, promises: Promises, cut: Collection[RunKey]
    ) -> dict[RunKey, Run]:
        """The runs by their configurations; `cut` are those whose beginnings were left out."""
        control = rows_by_run(told)
        by_run: dict[str, list[passes.Piece]] = {}
        for piece in passes.pieces(self._spark, source):
            by_run.setdefault(piece.run, []).append(piece)
        return {
            key: Run(
                key, name, promises, control.get(name, []), its, key not in cut, key in self._events.one_clock
            )
            for key, name in self._events.runs.items()
            if (its := by_run.get(name))
        }

    def _look(self, table: DataFrame, source: passes.Source, runs: dict[RunKey, Run]) -> None:
        """Find out what is in doubt about each run."""
        scattered = [key for key, run in runs.items() if run.scattered]
        if scattered:
            of_them = of_runs(self._spark, table, scattered)
            for each in plans.going_back(of_them, source.views):
                runs[each.run].goes_back(each)
        for run in runs.values():
            if source.views:
                primary.look_at(run)
            else:
                rings.look_at(run)
        if source.views:
            self._judge_tails(table, runs, self._compare_views(source, runs))
        else:
            self._compare_rings(source, runs)
            self._judge_tails(table, runs, None)

    def _compare_rings(self, source: passes.Source, runs: dict[RunKey, Run]) -> None:
        wanted = {place: cuts for run in _certain(runs) for place, cuts in rings.boundaries(run).items()}
        found = _by_run(passes.buckets(self._spark, source, wanted))
        for run in _certain(runs):
            rings.compare(run, wanted, found.get(run.name, ()))

    def _compare_views(self, source: passes.Source, runs: dict[RunKey, Run]) -> plans.Limits:
        wanted = {place: cuts for run in _certain(runs) for place, cuts in primary.boundaries(run).items()}
        found = _by_run(passes.buckets(self._spark, source, wanted))
        limits: dict[tuple[plans.Ring, int, int], int] = {}
        senders = {run.key: primary.compare(run, wanted, found.get(run.name, ())) for run in _certain(runs)}
        asked = {who: last for its in senders.values() for who, (last, _) in its.items()}
        originated = passes.originated(self._spark, source, asked)
        for run in _certain(runs):
            primary.compare_with_originations(run, senders[run.key], originated)
            for ((_, seq, rep), node, life), (last, _) in senders[run.key].items():
                limits[(run.key, seq, rep), node, life] = last
        return limits

    # --- tails ---------------------------------------------------------------------------------

    def _judge_tails(self, table: DataFrame, runs: dict[RunKey, Run], limits: plans.Limits | None) -> None:
        """Let the reference look at what lies beyond the part that is certified."""
        cuts = {run.ring(at): cut for run in _certain(runs) for at, cut in run.cuts.items()}
        if not cuts:
            return
        if limits is None:
            tails = plans.tails_of_rings(self._spark, table, cuts)
        else:
            tails = plans.tails_of_views(self._spark, table, cuts, limits)
        tails = tails.persist()
        try:
            sizes: dict[RunKey, int] = dict(tails.groupBy("run_key").count().collect())
            for key in [key for key, size in sizes.items() if size > MOST_ROWS]:
                runs[key].doubt("too much was in flight when its configurations ended", *runs[key].cuts)
                del sizes[key]
            for batch in in_batches(sizes):
                found = rows_by_run(of_runs(self._spark, tails, batch) if len(sizes) > 1 else tails)
                for key in batch:
                    self._judge_tail(runs[key], found[runs[key].name])
        finally:
            tails.unpersist()

    def _judge_tail(self, run: Run, rows: list[Row]) -> None:
        report = audit([*run.control, *rows], None, run.promises, whole=False, one_clock=run.one_clock)
        for found in report.violations:
            run.doubt(found.sentence, *found.configurations)
        run.tail = len(rows)

    # --- findings ------------------------------------------------------------------------------

    def _clean(self, run: Run, note: str | None) -> Findings:
        counts = dict.fromkeys(run.promises, 0)
        notes = () if note is None else (note,)
        report = Report(
            run.events, counts, (), unjudged(run.promises, every_row=False), (run.promises.name,), notes=notes
        )
        how = f"certified, {run.tail} rows looked at" if run.tail else "certified"
        return Findings.of(run.name, report, run.control, shown=self._shown, how=how, delivered=run.counted)

    def _by_reference(self, run: Run, rows: list[Row], note: str | None) -> Findings:
        """With a note, its rows have been cut already where its nodes have a point in common."""
        judged = common_part(rows) if self._trimmed and note is None else rows
        report = audit(judged, None, run.promises, whole=not self._trimmed, one_clock=run.one_clock)
        if note is not None:
            report = replace(report, notes=(note,))
        return Findings.of(run.name, report, judged, shown=self._shown, how="judged row by row")

    def _in_part(self, table: DataFrame, run: Run, views: bool) -> Findings:
        rows, note = narrowed(self._spark, table, run, views)
        absent = tuple(run.history.absent)
        found = audit(rows, None, run.promises, whole=False, one_clock=run.one_clock, absent=absent)
        found = _with(found, "config-ends", run.misnamed)
        if found.clean:
            raise TraceError(
                f"run {run.name!r} is too large to be judged row by row, and something is in doubt about it "
                f"that the rows picked out do not show ({run.doubts[0].why}): use --engine reference."
            )
        report = Report(
            run.events, found.properties, found.violations, found.unchecked, found.promises, notes=(note,)
        )
        return Findings.of(
            run.name, report, rows, shown=self._shown, how="judged in part", delivered=run.counted
        )


def _with(report: Report, code: str, found: Sequence[Violation]) -> Report:
    """The report with what was found of one property in place of what it says of that."""
    others = tuple(each for each in report.violations if each.property != code)
    counts = report.properties | {code: len(found)}
    return replace(report, properties=counts, violations=(*told_once(found), *others))


def _by_run(buckets: Iterable[passes.Bucket]) -> dict[str, list[passes.Bucket]]:
    found: dict[str, list[passes.Bucket]] = {}
    for bucket in buckets:
        found.setdefault(bucket.place[0], []).append(bucket)
    return found


def _certain(runs: dict[RunKey, Run]) -> Sequence[Run]:
    """The runs about which nothing is in doubt yet."""
    return [run for run in runs.values() if not run.doubts]
