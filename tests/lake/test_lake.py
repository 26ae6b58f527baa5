"""A lake keeps each run once and whole, here and in a store, whoever else writes and whoever dies."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable
from planting import broken, drop_an_install, right_runs, swap_deliveries, write_runs

from ordercast.audit.files import audited_runs
from ordercast.audit.findings import Findings
from ordercast.audit.properties import PROMISES
from ordercast.lake import Lake, LakeError
from ordercast.lake import lake as module
from ordercast.lake.delta import DeltaFiles, delta_place
from ordercast.lake.tables import BUCKETS, bucket_of
from ordercast.storage import Location
from ordercast.trace.metrics import measure
from ordercast.trace.reader import read_runs
from ordercast.trace.schema import SCHEMA, Row
from ordercast.trace.writer import TraceWriter, record_batch


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of both families, with crashes in them, right and broken."""
    directory = tmp_path_factory.mktemp("lake-traces")
    right = list(right_runs([5, 6], ["totem", "cm"]))
    rng = Random("lake")
    runs = list(right)
    for name, promises, rows in right[::2]:
        for plant in (swap_deliveries, drop_an_install):
            found = broken(rng, rows, plant)
            assert found is not None
            runs.append((f"{name}-{plant.__name__}", promises, found))
    write_runs(directory, runs)
    return directory


@pytest.fixture(params=["here", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    if request.param == "here":
        return Location.of(tmp_path / "a lake")
    return Location.of(request.getfixturevalue("store").format(f"{tmp_path.name}/lake"))


def names_in(trace: Path) -> list[str]:
    return sorted(run for run, _ in read_runs(trace))


def names(lake: Lake) -> list[str]:
    return [run["run"] for run in lake.runs()]


def judge(lake: Lake, *, again: bool = False) -> list[Findings]:
    wanted = lake.unjudged(again=again)
    found = list(lake.judged(lake.contents(wanted), wanted))
    lake.keep(found, wanted)
    return sorted(found, key=lambda each: each.run)


def one_run(directory: Path, name: str, rows: Sequence[Row], **about: str) -> Path:
    with TraceWriter(directory, name, about) as writer:
        writer.write(rows)
    return directory


def test_a_run_comes_back_as_it_was_and_is_there_once(trace: Path, place: Location) -> None:
    lake = Lake(place)
    added = lake.add([trace])
    assert (sorted(added.runs), added.there) == (names_in(trace), [])
    assert added.events == sum(len(rows) for _, rows in read_runs(trace))
    again = lake.add([trace])
    assert (again.runs, sorted(again.there), again.events) == ([], names_in(trace), 0)
    lake.compact(0)
    for run, rows in read_runs(trace):
        table = lake.run(run).cast(SCHEMA)
        its = record_batch(run, rows)
        assert sorted(map(repr, table.to_pylist())) == sorted(map(repr, its.to_pylist()))


def test_a_run_with_other_events_is_refused_and_nothing_is_added(trace: Path, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.add([trace])
    run, rows = next(iter(read_runs(trace)))
    other = one_run(tmp_path / "other", "a new one", rows)
    one_run(other, run, [*rows[:-1], (*rows[-1][:3], rows[-1][3] + 1, *rows[-1][4:])])
    with pytest.raises(LakeError, match=f"run '{run}' is in .* with other events .* Nothing was added"):
        lake.add([other])
    assert names(lake) == names_in(trace)
    assert sorted(lake.add([other], "later").runs) == ["later/a new one", f"later/{run}"]
    assert lake.expire(runs=[run]) == [run]
    assert sorted(lake.add([other]).runs) == ["a new one", run]


def test_parts_of_a_run_that_are_given_together_are_one(trace: Path, tmp_path: Path) -> None:
    run, rows = next(iter(read_runs(trace)))
    nodes = sorted({row[0] for row in rows})
    parts = [
        one_run(tmp_path / str(node), run, [row for row in rows if row[0] == node], protocol="x")
        for node in nodes
    ]
    lake = Lake(tmp_path / "lake")
    assert lake.add(parts).runs == [run]
    assert lake.run(run).num_rows == len(rows)
    with pytest.raises(LakeError, match="with other events"):
        lake.add(parts[:1])


def test_large_runs_are_written_piece_by_piece(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_HELD", 500)
    lake = Lake(tmp_path / "lake")
    told: list[tuple[int, int]] = []
    added = lake.add([trace], progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (added.events, added.events)
    files = len(list((tmp_path / "lake" / "events").glob("*.parquet")))
    assert files > len({(bucket_of(run), run[:2]) for run in added.runs})
    tidied = lake.compact(0)
    assert tidied.merged > tidied.into > 0
    assert tidied.removed >= tidied.merged
    assert lake.add([trace]).there


# --- others who write -----------------------------------------------------------------------------


def test_of_two_that_add_the_same_runs_one_does(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the first has written its files and not committed them, another adds one of the runs."""
    run, rows = next(iter(read_runs(trace)))
    mine = one_run(tmp_path / "mine", run, rows, promises="view-synchrony")
    commit = DeltaFiles.commit
    between: list[str] = []

    def late(self: DeltaFiles, plan: Any) -> bool:
        def planned(table: DeltaTable) -> Any:
            made = plan(table)
            if not between:
                between.append(run)
                Lake(tmp_path / "lake").add([mine])
            return made

        return commit(self, planned)

    monkeypatch.setattr(DeltaFiles, "commit", late)
    lake = Lake(tmp_path / "lake")
    added = lake.add([trace])
    assert added.there == between
    assert names(lake) == names_in(trace)
    named = {Path(uri).name for uri in lake.events.newest().file_uris()}
    assert {path.name for path in (tmp_path / "lake" / "events").glob("*.parquet")} == named


def test_of_two_that_add_different_runs_both_do(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit of the first fails, since another was quicker; its files are committed as they are."""
    (run, rows), (other, its) = list(read_runs(trace))[:2]
    mine, yours = one_run(tmp_path / "mine", run, rows), one_run(tmp_path / "yours", other, its)
    commit, write = DeltaFiles.commit, DeltaFiles.write
    plans: list[Any] = []
    written: list[Any] = []

    def late(self: DeltaFiles, plan: Any) -> bool:
        def planned(table: DeltaTable) -> Any:
            made = plan(table)
            plans.append(made)
            if len(plans) == 1:
                assert Lake(tmp_path / "lake").add([yours]).runs == [other]
            return made

        return commit(self, planned)

    def counted(self: DeltaFiles, *args: Any, **how: Any) -> Any:
        written.append(write(self, *args, **how))
        return written[-1]

    monkeypatch.setattr(DeltaFiles, "commit", late)
    monkeypatch.setattr(DeltaFiles, "write", counted)
    assert Lake(tmp_path / "lake").add([mine]).runs == [run]
    assert names(Lake(tmp_path / "lake")) == sorted([run, other])
    assert (len(plans), len(written)) == (3, 2)


KILLED = """
import os, signal, sys
from ordercast.lake import Lake
from ordercast.lake.delta import DeltaFiles
DeltaFiles.commit = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
Lake(sys.argv[1]).add([sys.argv[2]])
"""


def test_a_writer_that_is_killed_leaves_nothing_that_counts(trace: Path, place: Location) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, place.uri, str(trace)], check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    lake = Lake(place)
    assert names(lake) == []
    left = {name for name in (place / "events").names() if name.endswith(".parquet")}
    assert left
    lake.add([trace])
    assert names(lake) == names_in(trace)
    lake.compact()
    assert left < (place / "events").names(), "somebody may yet commit them"
    lake.compact(0)
    assert left.isdisjoint((place / "events").names())
    assert names(lake) == names_in(trace)


def test_somebody_who_fails_takes_its_files_away(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_HELD", 500)
    lake = Lake(tmp_path / "lake")

    def fail(done: int, _: int) -> None:
        if done > 2_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lake.add([trace], progress=fail)
    assert not list((tmp_path / "lake" / "events").glob("*.parquet*"))


# --- verdicts -------------------------------------------------------------------------------------


def test_verdicts_are_those_of_the_trace_and_those_of_earlier_versions_stay(
    trace: Path, place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(place)
    lake.add([trace])
    expected = sorted(audited_runs(trace), key=lambda each: each.run)
    assert {each.report.clean for each in expected} == {True, False}
    assert [each.report for each in judge(lake)] == [each.report for each in expected]
    assert judge(lake) == []
    assert {run["run"]: run["clean"] for run in lake.runs()} == {
        each.run: each.report.clean for each in expected
    }
    first = rows_of(lake, "SELECT run, property, nodes, sentence, times FROM violations")
    told = [
        {
            "run": each.run,
            "property": violation.property,
            "nodes": list(violation.nodes),
            "sentence": violation.sentence,
            "times": violation.times,
        }
        for each in expected
        for violation in each.report.violations
    ]
    assert sorted(map(repr, first)) == sorted(map(repr, told))

    monkeypatch.setattr(module, "code_version", lambda: "another")
    lake.compact(0)
    assert [each.report.properties for each in judge(lake)] == [each.report.properties for each in expected]
    history = rows_of(lake, "SELECT code, count(*) AS n FROM verdicts GROUP BY code")
    assert [row["n"] for row in history] == [len(expected)] * 2
    assert {row["code"] for row in history} > {"another"}


def test_a_run_that_took_the_place_of_another_has_no_verdict(trace: Path, tmp_path: Path) -> None:
    run, rows = next(iter(read_runs(trace)))
    lake = Lake(tmp_path / "lake")
    lake.add([one_run(tmp_path / "one", run, rows, promises=next(iter(PROMISES)))])
    judge(lake)
    lake.expire(runs=[run])
    lake.add([one_run(tmp_path / "two", run, rows[:-1], promises=next(iter(PROMISES)))])
    assert [run["clean"] for run in lake.runs()] == [None]
    assert list(lake.unjudged()) == [run]


def rows_of(lake: Lake, query: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lake.sql(query).to_pylist()
    return rows


# --- views ----------------------------------------------------------------------------------------


def test_views_say_what_the_figures_of_each_run_say(trace: Path, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.add([trace])
    for run, figures in ((run, measure(rows)) for run, rows in read_runs(trace)):
        where = f"WHERE run = '{run}'"
        for column, its in (
            ("from_submit_us", figures.from_submit),
            ("from_originate_us", figures.from_originate),
        ):
            found = rows_of(
                lake,
                f"SELECT guarantee, count({column}) AS n, avg({column}) AS mean, "
                f"max({column}) AS most FROM latency {where} GROUP BY guarantee HAVING count({column}) > 0",
            )
            assert {row["guarantee"]: (row["n"], row["most"]) for row in found} == {
                guarantee: (each.count, each.max_us) for guarantee, each in its.items()
            }
            for row in found:
                assert row["mean"] == pytest.approx(its[row["guarantee"]].mean_us)
        kinds = rows_of(
            lake,
            f"SELECT kind, count(*) AS n, sum(installs) AS installs, sum(deliveries) AS d "
            f"FROM configurations {where} GROUP BY kind",
        )
        counted = {row["kind"]: row for row in kinds}
        assert {kind: row["n"] for kind, row in counted.items()} == {
            kind: n for kind, n in (("regular", figures.regular), ("transitional", figures.transitional)) if n
        }
        nodes = figures.nodes.values()
        assert counted["regular"]["installs"] == sum(each.regular for each in nodes)
        assert rows_of(lake, f"SELECT count(*) AS n FROM stability {where}") == [
            {"n": sum(each.stable for each in nodes)}
        ]
        [about] = rows_of(lake, f"SELECT events, nodes FROM runs {where}")
        assert about == {"events": figures.events, "nodes": len(figures.nodes)}


def test_stability_counts_from_delivery_and_origination(tmp_path: Path) -> None:
    def row(node: int, step: int, time_us: int, event: str) -> Row:
        said = (4, 1, "regular", None, 1, 0, 7, 4, 1, 3, 0, "safe", "g", 10)
        return (node, 0, step, time_us, event, *said, *[None] * 7)  # type: ignore[return-value]

    rows = [
        row(1, 1, 100, "submit"),
        row(1, 2, 150, "originate"),
        row(1, 3, 400, "deliver"),
        row(1, 4, 900, "stable"),
        row(2, 1, 450, "deliver"),
        row(2, 2, 1_000, "stable"),
    ]
    lake = Lake(tmp_path / "lake")
    lake.add([one_run(tmp_path / "trace", "one", rows)])
    query = "SELECT node, from_deliver_us, from_originate_us, size, guarantee FROM stability ORDER BY node"
    assert [tuple(row.values()) for row in rows_of(lake, query)] == [
        (1, 500, 750, 10, "safe"),
        (2, 550, 850, 10, "safe"),
    ]
    query = "SELECT node, from_submit_us, from_originate_us FROM latency ORDER BY node"
    assert [tuple(row.values()) for row in rows_of(lake, query)] == [(1, 300, 250), (2, 350, 300)]


def test_answers_have_types_that_all_tools_know(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.make()
    answer = lake.sql("""
        SELECT arrow_cast('x', 'BinaryView') AS b, named_struct('s', arrow_cast('y', 'Utf8View')) AS s,
               make_array(arrow_cast('z', 'Utf8View')) AS l
    """)
    assert answer.to_pylist() == [{"b": b"x", "s": {"s": "y"}, "l": ["z"]}]
    assert "view" not in str(answer.schema)


# --- upkeep ---------------------------------------------------------------------------------------


def test_runs_are_removed_by_age_name_and_protocol(trace: Path, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.add([trace])
    assert lake.expire(timedelta(hours=1)) == []
    gone = names_in(trace)[0]
    assert lake.expire(runs=[gone, "nobody's"]) == [gone]
    assert names(lake) == names_in(trace)[1:]
    protocols = {run["protocol"] for run in lake.runs()}
    assert protocols == {None}, "these files do not say theirs"
    one_run(
        tmp_path / "dtp",
        "one's",
        [row for _, rows in read_runs(trace) for row in rows[:3]][:3],
        protocol="dtp",
    )
    lake.add([tmp_path / "dtp"])
    assert lake.expire(protocol="dtp") == ["one's"]
    assert lake.expire(timedelta(0)) == names_in(trace)[1:]
    assert lake.runs() == []
    with pytest.raises(LakeError, match=r"say which runs are to be removed"):
        lake.expire()


def test_buckets_stay_what_they_are() -> None:
    """Runs of lakes that are there are found in their bucket alone."""
    assert [bucket_of(run) for run in ("totem-0", "totem-1", "cm-17")] == [7, 1, 0]
    assert BUCKETS == 16


# --- what cannot be -------------------------------------------------------------------------------


def test_mistakes_are_told_in_a_sentence(tmp_path: Path, store: str) -> None:
    with pytest.raises(LakeError, match=r"there is no lake at .*: ordercast lake add makes one"):
        Lake(tmp_path / "none").runs()
    away = store.replace("@lake/", "@nowhere/").format("lake")
    with pytest.raises(LakeError, match=r"^s3://nowhere/lake/seeds cannot be used as a table: .*") as told:
        Lake(away).runs()
    assert "secret" not in str(told.value)
    lake = Lake(tmp_path / "lake")
    lake.make()
    for query, sentence in (
        ("SELEC 1", "the query fails: SQL error: .*"),
        ("SELECT x FROM events", "the query fails: .*No field named x"),
        ("SELECT 1 FROM nobody", "the query fails: .*nobody"),
    ):
        with pytest.raises(LakeError, match=sentence):
            lake.sql(query)


@pytest.mark.parametrize(
    ("uri", "place", "options"),
    [
        ("s3a://bucket/a/b", "s3://bucket/a/b", {}),
        (
            "s3://k%2F:s%2Fs@bucket/a?region=eu-1&scheme=http&endpoint_override=host:9000",
            "s3://bucket/a",
            {
                "AWS_ACCESS_KEY_ID": "k/",
                "AWS_SECRET_ACCESS_KEY": "s/s",
                "AWS_REGION": "eu-1",
                "AWS_ENDPOINT_URL": "http://host:9000",
                "AWS_ALLOW_HTTP": "true",
            },
        ),
        (
            "s3://bucket/a?endpoint_override=https://host",
            "s3://bucket/a",
            {"AWS_ENDPOINT_URL": "https://host"},
        ),
        ("gs://bucket/a", "gs://bucket/a", {}),
        ("abfs://box@account.dfs.core.windows.net/a", "abfss://box@account.dfs.core.windows.net/a", {}),
    ],
)
def test_credentials_and_endpoint_are_taken_from_the_uri(
    uri: str, place: str, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    assert delta_place(Location.of(uri)) == (place, options)


def test_an_endpoint_of_the_environment_may_be_without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    assert delta_place(Location.of("s3://bucket/a")) == ("s3://bucket/a", {"AWS_ALLOW_HTTP": "true"})
