"""``ordercast lake`` and ``ordercast sql``, as people and programs use them."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_parts import ordercast

from ordercast.catalogue import lab_protocol
from ordercast.sim.fuzz import plan, run
from ordercast.trace.writer import TraceWriter


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of one protocol, of which the second lost a row."""
    directory = tmp_path_factory.mktemp("traces")
    which = lab_protocol("cm")
    _, world = run(which, plan(which, 3, (3, 3)))
    install = next(at for at, row in enumerate(world.rows) if row[4] == "install")
    about = {"protocol": "cm", "promises": which.product.promises, "clock": "one"}
    for name, rows in (("right", world.rows), ("wrong", world.rows[:install] + world.rows[install + 1 :])):
        with TraceWriter(directory, name, about) as writer:
            writer.write(rows)
    return directory


def test_the_story_of_a_lake(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERCAST_LAKE", str(tmp_path / "lake"))
    added = ordercast("lake", "add", trace, "--json")
    assert (added.code, added.document["runs"], added.document["there"]) == (0, ["right", "wrong"], [])
    assert added.document["events"] > 100
    again = ordercast("lake", "add", trace)
    assert again.code == 0
    said = " ".join(again.out.split())
    assert "0 runs, 0 events" in said
    assert "there already, and left as they are: right, wrong" in said

    judged = ordercast("lake", "audit", "--json", "--engine", "reference")
    assert (judged.code, judged.document["runs"], judged.document["clean"]) == (1, 2, False)
    assert {each["run"] for each in judged.document["violations"]} == {"wrong"}
    nothing = ordercast("lake", "audit")
    assert (nothing.code, nothing.out.strip()) == (
        0,
        "nothing to judge: this program has judged all of them (--again: once more)",
    )
    once_more = ordercast("lake", "audit", "--again", "--run", "right")
    assert once_more.code == 0
    assert "✓ clean" in once_more.out

    listed = ordercast("lake", "list")
    assert "violated by" in listed.out
    assert "2 runs" in listed.out
    documents = ordercast("lake", "list", "--json").document["runs"]
    assert [(each["run"], each["protocol"], each["clean"]) for each in documents] == [
        ("right", "cm", True),
        ("wrong", "cm", False),
    ]

    told = ordercast("sql", "SELECT DISTINCT run FROM violations", "--json")
    assert told.document == {"columns": ["run"], "rows": [{"run": "wrong"}]}
    history = ordercast(
        "sql", "SELECT run, count(*) AS times FROM verdicts GROUP BY run ORDER BY run", "--json"
    )
    assert history.document["rows"] == [{"run": "right", "times": 2}, {"run": "wrong", "times": 1}]
    few = ordercast("sql", "SELECT run, added, members FROM events WHERE event = 'install'", "--rows", "1")
    assert "more rows (--rows)" in few.out

    removed = ordercast("lake", "expire", "--run", "wrong", "--json")
    assert removed.document == {"removed": ["wrong"]}
    tidied = ordercast("lake", "compact", "--keep", "0h", "--json")
    assert tidied.document["removed"] > 0
    assert "removed: 1 run (right)" in ordercast("lake", "expire", "--older-than", "0s").out
    assert "0 runs" in ordercast("lake", "list").out


def test_another_table_can_be_named_in_a_query(trace: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        ordercast("lake", "add", trace, "--name", name, "--lake", tmp_path / name)
    query = "SELECT (SELECT min(run) FROM events) AS a, (SELECT min(run) FROM others) AS b"
    other = f"others={tmp_path / 'two' / 'events'}"
    said = ordercast("sql", query, "--lake", tmp_path / "one", "--table", other, "--json")
    [row] = said.document["rows"]
    assert row["a"].startswith("one/")
    assert row["b"].startswith("two/")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("lake", "add", "nowhere"), "nowhere does not exist: give the directory"),
        (("lake", "list"), "there is no lake at lake: ordercast lake add makes one"),
        (("lake", "audit"), "there is no lake at lake: ordercast lake add makes one"),
        (("lake", "audit", "--engine", "reference", "--master", "local"), "--master is for Spark"),
        (("lake", "compact", "--keep", "3y"), "'3y' is no time: write a number and a unit, as in 12h"),
        (("lake", "compact"), "there is no lake at lake"),
        (("lake", "expire"), "say which runs are to be removed: --older-than, --run or --protocol"),
        (("lake", "expire", "--run", "x"), "there is no lake at lake"),
        (("sql", "SELECT 1"), "there is no lake at lake"),
        (("sql", "SELECT 1", "--table", "x"), "--table x: write NAME=DIR or NAME=URI"),
        (("lake", "list", "--lake", "ftp://x/y"), "nothing is known of ftp"),
    ],
    ids=lambda told: told if isinstance(told, str) else " ".join(told),
)
def test_mistakes_are_told(
    words: tuple[str, ...], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ORDERCAST_LAKE", raising=False)
    said = ordercast(*words)
    assert said.code == 2
    assert sentence in said.sentence


def test_a_run_that_is_not_there_cannot_be_judged(trace: Path, tmp_path: Path) -> None:
    ordercast("lake", "add", trace, "--lake", tmp_path)
    said = ordercast("lake", "audit", "--run", "other", "--lake", tmp_path)
    assert said.code == 2
    assert "there is no run other in" in said.sentence
