"""docs/papers.md: every row of what the papers describe says what shows it, and that is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from ordercast.lab.experiment import names
from ordercast.lab.experiments.papers import PARTS

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "papers.md"
PAPERS = ("000", "001", "002", "003", "004")
VERDICTS = ("holds", "does not hold", "in part", "not simulated", "")


class Row(NamedTuple):
    """A line of one of the page's tables."""

    paper: str
    where: str
    what: str
    shown: str
    verdict: str


def rows() -> list[Row]:
    """All rows, by paper: headings of the second level begin with the number of one."""
    found, paper = [], ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"## (\d{3})\b", line):
            paper = heading[1]
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|") or set(line) <= set("|- ") or cells[0] == "§":
            continue
        assert len(cells) == 4, f"not four cells: {line}"
        found.append(Row(paper, *cells))
    return found


ROWS = rows()


def shown_by(row: Row) -> list[str]:
    """What the row points to: links, paths with or without the name of a test, experiments."""
    return re.findall(r"\]\(([^)\s]+)\)", row.shown) + re.findall(r"`([^`]+)`", row.shown)


def missing(target: str) -> str:
    """What is wrong with a thing that a row points to; nothing if it is there."""
    if experiment := re.fullmatch(r"lab run ([\w-]+)", target):
        return "" if experiment[1] in names() else "no such experiment"
    if re.fullmatch(r"(src|tests)/[\w./-]+(::\w+)?", target):
        path, _, name = target.partition("::")
        if not (ROOT / path).exists():
            return "no such file"
        defined = rf"^\s*(?:async )?(?:def|class) {name}\b|^{name}\b.* = "
        if name and not re.search(defined, (ROOT / path).read_text(encoding="utf-8"), re.M):
            return "nothing of that name in it"
        return ""
    if re.fullmatch(r"[\w./-]+\.md(#[\w-]+)?", target):  # whose heading tests/test_docs.py looks for
        return "" if (PAGE.parent / target.partition("#")[0]).exists() else "no such page"
    return "neither a page, a file, a test nor an experiment"


def test_every_paper_has_rows() -> None:
    assert {row.paper for row in ROWS} == set(PAPERS)
    assert len(ROWS) > 120


@pytest.mark.parametrize("paper", PAPERS)
def test_every_row_points_to_what_shows_it(paper: str) -> None:
    for row in (row for row in ROWS if row.paper == paper):
        found = shown_by(row)
        assert found, f"{paper} {row.where}, {row.what}: nothing shows it"
        wrong = {target: problem for target in found if (problem := missing(target))}
        assert not wrong, f"{paper} {row.where}, {row.what}: {wrong}"


def test_what_was_measured_has_a_verdict_and_the_other_way_round() -> None:
    for row in ROWS:
        assert row.verdict.partition(":")[0] in VERDICTS, f"{row.paper} {row.where}: {row.verdict}"
        measured = any(target.startswith("lab run ") for target in shown_by(row))
        assert bool(row.verdict) or not measured, f"{row.paper} {row.where}, {row.what}: no verdict"


def test_every_experiment_on_a_paper_shows_something() -> None:
    shown = {target.removeprefix("lab run ") for row in ROWS for target in shown_by(row)}
    assert set(PARTS) - {"rings-faults"} <= shown


@pytest.mark.parametrize(
    "target",
    [
        "lab run nonesuch",
        "src/ordercast/nowhere.py",
        "tests/test_papers.py::test_that_there_is_none_of",
        "nowhere.md",
        "ordercast",
    ],
)
def test_what_is_not_there_is_noticed(target: str) -> None:
    assert missing(target)
