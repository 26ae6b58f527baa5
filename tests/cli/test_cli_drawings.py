"""``ordercast sim scenario --svg``, and the drawings of the protocols' pages, which it makes."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli_parts import ordercast

DOCS = Path(__file__).parent.parent.parent / "docs"
RUNS = sorted((DOCS / "img" / "protocols").glob("*.txt"))
FIGURES = Path(__file__).parent.parent / "scenarios"


def texts(file: Path) -> list[str]:
    root = ElementTree.fromstring(file.read_text(encoding="utf-8"))
    return [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]


def test_packets_are_drawn_with_what_they_say(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "fig.svg"
    scenario = FIGURES / "rbp_fig_11_number_lost.txt"
    said = ordercast("sim", "scenario", scenario, "--svg", file, "--packets", "200ms:212ms")
    assert said.code == 0, said
    told = texts(file)
    assert {"p", "q", "r", "s", "msg m", "msg m2", "ack 2=m → r", "ack 3=m2 → s", "copy 2=m"} <= set(told)
    assert any(text.startswith("req 2") for text in told)
    assert not any(text.startswith("heartbeat") for text in told)
    assert "m m2" in told or {"m", "m2"} <= set(told)
    assert '<line class="lost"' in file.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "span", "expected"),
    [
        (
            "rbp_fig_22_reformation",
            "200ms:212ms",
            {"collect", "estimate", "propose", "accepted", "decide", "crash"},
        ),
        ("total_sequencer_fails", "299ms:316ms", {"request a", "bcast 1=a", "cum-seq-ack 1", "crash"}),
        ("section_7_3_example", "600ms:602ms", {"data 4=c", "token seq=5 aru=5"}),
    ],
)
def test_so_are_those_of_other_protocols(name: str, span: str, expected: set[str], tmp_path: Path) -> None:
    file = tmp_path / "drawing.svg"
    assert ordercast("sim", "scenario", FIGURES / f"{name}.txt", "--svg", file, "--packets", span).code == 0
    assert expected <= set(texts(file)), sorted(set(texts(file)))


def test_without_a_span_lives_and_configurations_are_drawn(tmp_path: Path) -> None:
    file = tmp_path / "lives.svg"
    assert (
        ordercast("sim", "scenario", FIGURES / "rbp_fig_18_next_sequencer_fails.txt", "--svg", file).code == 0
    )
    assert any("regular configurations" in text for text in texts(file))
    assert any("crash 3 (1 sent ack)" in text for text in texts(file))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--packets", "1ms:2ms"), "is for --svg FILE"),
        (("--svg", "x.svg", "--packets", "1ms"), "write two times, as in 300ms:310ms"),
        (("--svg", "x.svg", "--packets", "2ms:1ms"), "write two times, as in 300ms:310ms"),
        (("--svg", "x.svg", "--packets", "soon:later"), "expected a time such as 20ms"),
        ((str(FIGURES / "start_alone.txt"), "--svg", "x.svg"), "draws one scenario: name one file"),
    ],
)
def test_what_cannot_be_drawn_is_refused(words: tuple[str, ...], complaint: str) -> None:
    said = ordercast("sim", "scenario", FIGURES / "start_alone.txt", *words)
    assert said.code == 2
    assert complaint in said.sentence


# --- the pages -------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.stem)
def test_the_drawing_of_a_page_is_made_from_a_run_that_goes_as_it_should(run: Path, tmp_path: Path) -> None:
    text = run.read_text(encoding="utf-8")
    [span] = re.findall(r"^# draw (\S+)$", text, re.M)
    said = ordercast("sim", "scenario", run, "--svg", tmp_path / "new.svg", "--packets", span)
    assert said.code == 0, said.out
    kinds = {word.split()[0] for word in texts(tmp_path / "new.svg") if word}
    assert {word.split()[0] for word in texts(run.with_suffix(".svg")) if word} <= kinds, "draw it anew"


def test_every_protocol_has_a_page_with_its_drawing() -> None:
    from ordercast.catalogue import LAB_PROTOCOLS

    for name in LAB_PROTOCOLS:
        page = (DOCS / "protocols" / f"{name}.md").read_text(encoding="utf-8")
        assert f"../img/protocols/{name}.svg" in page
        for heading in ("## How it works", "## What it promises", "## What it costs", "## When to choose it"):
            assert heading in page, f"{name}.md has no {heading!r}"
        assert f"sim run --protocol {name}" in page
    index = (DOCS / "protocols" / "README.md").read_text(encoding="utf-8")
    assert all(f"({name}.md)" in index for name in LAB_PROTOCOLS)
