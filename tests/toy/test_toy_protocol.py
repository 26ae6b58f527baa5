"""What `docs/adding-a-protocol.md` shows: a new protocol is one module, and one line that registers it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lowest import Lowest

from ordercast.catalogue import LAB_PROTOCOLS, sequenced_in_lab
from ordercast.sequencers.member import OrdererOf
from ordercast.sim.fuzz import plan, run
from ordercast.sim.scenario import parse
from ordercast.sim.scenario import run as play
from ordercast.viewsync.protocol import sequenced

HERE = Path(__file__).parent
DOC = HERE.parent.parent / "docs" / "adding-a-protocol.md"

TOY = sequenced(OrdererOf(Lowest), ordered="the lowest member", hops="3", choose="to read how it is done")
LAB_TOY = sequenced_in_lab(TOY, hits=())


@pytest.mark.parametrize("seed", range(12))
def test_the_toy_keeps_what_the_family_promises_in_fuzzed_runs(seed: int) -> None:
    result, _ = run(LAB_TOY, plan(LAB_TOY, seed, (2, 6)))
    assert result.failed is None, f"seed {seed}: {result.failed}\n" + "\n".join(result.sentences)


def test_the_toy_runs_in_scenarios() -> None:
    text = (HERE / "lowest_of_five.txt").read_text(encoding="utf-8")
    report = play(parse(text), {**LAB_PROTOCOLS, LAB_TOY.name: LAB_TOY})
    assert report.ok, str(report)


def test_it_takes_one_module_of_at_most_a_hundred_lines_of_code() -> None:
    lines = (HERE / "lowest.py").read_text(encoding="utf-8").splitlines()
    code = [line for line in lines if line.strip() and not line.strip().startswith(('"""', "#"))]
    assert len(code) <= 110


def test_what_the_page_shows_of_the_toy_is_what_the_toy_is() -> None:
    """Every piece of Python on the page is in the module, or in this one, word for word."""
    files = [(HERE / name).read_text(encoding="utf-8") for name in ("lowest.py", "test_toy_protocol.py")]
    shown = re.findall(r"```python\n(.*?)```", DOC.read_text(encoding="utf-8"), re.S)
    assert len(shown) >= 4
    for piece in shown:
        assert any(piece.strip() in file for file in files), f"this is nowhere in the toy:\n{piece}"
