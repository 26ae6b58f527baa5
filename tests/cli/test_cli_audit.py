from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from cli_parts import Said, ordercast, process

from ordercast.catalogue import LAB_TOTEM
from ordercast.core.identity import Batch, Configuration, ConfigurationId, Guarantee, Kind
from ordercast.sim.fuzz import plan, run
from ordercast.trace.recorder import Recorder
from ordercast.trace.schema import Row
from ordercast.trace.writer import TraceWriter


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return run(LAB_TOTEM, plan(LAB_TOTEM, 3, (2, 3)))[1].rows


def written(directory: Path, rows: list[Row], about: dict[str, str] | None = None) -> Path:
    with TraceWriter(directory, "spoiled", about or {}) as writer:
        writer.write(rows)
    return directory


def audited(*words: object) -> Said:
    """By the reference, which starts at once; `tests/audit_spark` has the other."""
    return ordercast("audit", *words, "--engine", "reference")


def test_a_clean_trace(tmp_path: Path, rows: list[Row]) -> None:
    directory = written(tmp_path, rows)
    said = audited(directory, "--json")
    assert said.code == 0
    document = said.document
    assert document["events"] == len(rows)
    assert document["violations"] == []
    assert set(document["properties"].values()) == {0}
    assert {"total-order", "virtual-synchrony", "safe"} <= set(document["properties"])
    told = audited(directory)
    assert told.code == 0
    assert f"✓ clean: {len(rows):,} events of 1 run" in told.out


def test_a_violated_one(tmp_path: Path, rows: list[Row]) -> None:
    delivery = next(row for row in rows if row[4] == "deliver")
    again = (*delivery[:2], 10**6, *delivery[3:])
    directory = written(tmp_path, [*rows, again])
    said = audited(directory, "--json")
    assert said.code == 1
    document = said.document
    assert document["properties"]["deliver-once"] == 1
    assert document["violations"][0]["run"] == "spoiled"
    assert document["violations"][0]["sentence"]
    told = audited(directory)
    assert told.code == 1
    assert "deliver-once in spoiled: " in told.out
    assert "✗ violated: " in told.out


def test_one_file_will_do(tmp_path: Path, rows: list[Row]) -> None:
    (file,) = written(tmp_path, rows).iterdir()
    assert audited(file).code == 0


@pytest.mark.parametrize("json", [(), ("--json",)])
def test_what_is_no_trace_is_refused_in_words(tmp_path: Path, rows: list[Row], json: tuple[str, ...]) -> None:
    (file,) = written(tmp_path / "trace", rows).iterdir()
    lacking = tmp_path / "lacking.parquet"
    pq.write_table(pq.read_table(file).drop_columns(["origin"]), lacking)
    nonsense = tmp_path / "nonsense.parquet"
    nonsense.write_text("no Parquet at all")
    empty = tmp_path / "empty"
    empty.mkdir()
    silent = tmp_path / "silent.parquet"
    pq.write_table(pq.read_table(file).slice(0, 0), silent)
    for path, complaint in (
        (silent, "holds no event: there is nothing to audit"),
        (tmp_path / "nowhere", "does not exist: give the directory"),
        (empty, "holds no Parquet file"),
        (nonsense, "cannot be read as Parquet"),
        (lacking, "has no column 'origin'"),
    ):
        said = audited(path, *json)
        assert said.code == 2
        assert complaint in said.sentence
        assert not said.out


def test_exit_codes_of_a_real_process(tmp_path: Path, rows: list[Row]) -> None:
    said = process("audit", written(tmp_path / "trace", rows), "--json", "--engine", "reference")
    assert said.code == 0
    assert said.document["events"] == len(rows)
    refused = process("audit", tmp_path / "nowhere", "--engine", "reference")
    assert refused.code == 2
    assert refused.err.startswith("error: ")
    assert "Traceback" not in refused.err


def test_an_engine_that_is_not_there(tmp_path: Path) -> None:
    said = ordercast("audit", tmp_path, "--engine", "oracle")
    assert said.code == 2
    assert "reference" in said.sentence


def test_of_a_trimmed_trace_what_all_nodes_still_have_is_judged(tmp_path: Path, rows: list[Row]) -> None:
    node = rows[0][0]
    beginning = sorted(row[2] for row in rows if row[0] == node)[: len(rows) // 20]
    directory = written(tmp_path, [row for row in rows if row[0] != node or row[2] not in beginning])
    assert audited(directory, "--json").code == 1, "as a whole, its beginning is missing"
    said = audited(directory, "--trimmed", "--json")
    assert said.code == 0
    assert 0 < said.document["events"] < len(rows)


# --- which set of properties -----------------------------------------------------------------------


def views() -> list[Row]:
    """Two nodes of the sequencer family: a message, and the next view."""
    rows: list[Row] = []
    records = [Recorder(node, rows) for node in (1, 2)]
    sent = Batch(ConfigurationId(1, 1), 0, 0, 1, 0, 1, Guarantee.AGREED, (b"x",))
    for record in records:
        record.install(1, Configuration(ConfigurationId(1, 1), Kind.REGULAR, (1, 2)))
    records[0].originate(2, sent)
    for record in records:
        record.deliver(3, sent._replace(seq=1))
        record.install(4, Configuration(ConfigurationId(2, 1), Kind.REGULAR, (1, 2)))
    return rows


@pytest.mark.parametrize("about", [{}, {"protocol": "total", "promises": "view-synchrony"}])
def test_a_trace_of_the_sequencer_family_is_judged_by_view_synchrony(
    tmp_path: Path, about: dict[str, str]
) -> None:
    directory = written(tmp_path, views(), about)
    said = audited(directory, "--json")
    assert said.code == 0
    assert said.document["promises"] == "view-synchrony"
    assert "uniform-order" in said.document["properties"]
    assert "total-order" not in said.document["properties"]
    assert "judged by what is promised as view-synchrony" in audited(directory).out


@pytest.mark.parametrize("about", [{}, LAB_TOTEM.heading])
def test_a_trace_of_totem_is_judged_by_extended_virtual_synchrony(
    tmp_path: Path, rows: list[Row], about: dict[str, str]
) -> None:
    directory = written(tmp_path, rows, about)
    assert audited(directory, "--json").document["promises"] == "extended-virtual-synchrony"
    assert "promised as extended-virtual-synchrony" in audited(directory).out


def test_what_is_asked_for_goes_before_what_the_trace_says(tmp_path: Path, rows: list[Row]) -> None:
    directory = written(tmp_path, rows, LAB_TOTEM.heading)
    said = audited(directory, "--promises", "view-synchrony", "--json")
    assert said.code == 1
    assert said.document["promises"] == "view-synchrony"
    assert "a view is a regular one" in said.document["violations"][0]["sentence"]


def test_a_trace_without_places_cannot_be_judged_by_extended_virtual_synchrony(tmp_path: Path) -> None:
    said = audited(written(tmp_path, views()), "--promises", "extended-virtual-synchrony")
    assert said.code == 2
    assert "without a value for its seq" in said.sentence


def test_a_promise_that_nobody_knows_is_refused(tmp_path: Path, rows: list[Row]) -> None:
    directory = written(tmp_path, rows, {"promises": "eventual-bliss"})
    said = audited(directory)
    assert said.code == 2
    assert "promises eventual-bliss, which is none of" in said.sentence
    assert audited(directory, "--promises", "extended-virtual-synchrony").code == 0
    assert audited(directory, "--promises", "eventual-bliss").code == 2


def test_runs_of_two_families_are_each_judged_by_their_own(tmp_path: Path, rows: list[Row]) -> None:
    written(tmp_path, rows, LAB_TOTEM.heading)
    with TraceWriter(tmp_path, "views", {"promises": "view-synchrony"}) as writer:
        writer.write(views())
    said = audited(tmp_path, "--json")
    assert said.code == 0
    assert said.document["promises"] == "extended-virtual-synchrony, view-synchrony"
    assert said.document["runs"] == 2
    assert {"uniform-order", "total-order"} <= set(said.document["properties"])


def test_a_trimmed_trace_of_the_sequencer_family_is_judged_as_far_as_all_have_it(tmp_path: Path) -> None:
    rows = views()
    at_two = [row for row in rows if row[0] == 2]
    directory = written(tmp_path, [row for row in rows if row[0] == 1] + at_two[1:])
    assert audited(directory, "--json").code == 1, "as a whole, its beginning is missing"
    said = audited(directory, "--trimmed", "--json")
    assert said.code == 0
    assert said.document["promises"] == "view-synchrony"
    assert said.document["events"] > 0


def test_the_page_tells_everything_by_itself(tmp_path: Path, rows: list[Row]) -> None:
    delivery = next(row for row in rows if row[4] == "deliver")
    again = (*delivery[:2], 10**6, *delivery[3:])
    directory = written(tmp_path / "trace", [*rows, again])
    page = tmp_path / "page.html"
    assert audited(directory, "--report", page).code == 1
    told = page.read_text()
    assert "Violated: " in told
    assert "deliver-once" in told
    assert f"{delivery[11]} of node {delivery[9]}" in told, "the window of events that the violation is about"
    assert "<svg" in told
    for reference in ("<script", "<link", "src=", "@import", "url("):
        assert reference not in told, "nothing is fetched from anywhere"


def test_a_page_that_cannot_be_written_is_the_options_fault(tmp_path: Path, rows: list[Row]) -> None:
    (tmp_path / "file").write_text("no directory")
    said = audited(written(tmp_path / "trace", rows), "--report", tmp_path / "file" / "page.html")
    assert said.code == 2
    assert "--report" in said.sentence


def test_without_spark_the_reference_audits_and_says_so(
    tmp_path: Path, rows: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ordercast.cli.audit.has", lambda extra: False)
    monkeypatch.setattr("ordercast.audit.files.MOST_HERE", len(rows) - 1)
    said = ordercast("audit", written(tmp_path, rows), "--json")
    assert said.code == 0
    assert said.document["engine"] == "reference"
    assert "Spark is not installed" in said.sentence


def test_a_master_is_of_no_use_to_the_reference(tmp_path: Path, rows: list[Row]) -> None:
    said = audited(written(tmp_path, rows), "--master", "local[2]")
    assert said.code == 2
    assert "--master is for Spark" in said.sentence
