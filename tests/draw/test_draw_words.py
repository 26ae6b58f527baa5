from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.draw import words


@pytest.mark.parametrize(
    ("of", "text"),
    [
        ([], ""),
        ([3, 1, 2], "1 2 3"),
        (range(1, 41), "1–40"),
        ([1, 2, 3, 5, 8, 9, 11], "1–3 5 8 9 11"),
        (range(1, 400, 2), "1 3 5 7 9 11 13 15 17 19 21 23 25 27 29 … of 200"),
    ],
)
def test_nodes(of: list[int], text: str) -> None:
    assert words.nodes(of) == text


@given(st.sets(st.integers(1, 2**31 - 1), max_size=80), st.integers(16, 60))
def test_nodes_are_never_longer_than_asked_for(of: set[int], longest: int) -> None:
    assert len(words.nodes(of, longest)) <= longest


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (9_999, "9999"), (10_000, "10k"), (999_999, "999k"), (1_250_000, "1.2M"), (10**13, "lots")],
)
def test_counts_have_four_characters(number: int, text: str) -> None:
    assert words.count(number) == text


@given(st.integers(0, 10**15))
def test_no_count_has_more_than_four_characters(number: int) -> None:
    assert len(words.count(number)) <= 4


@pytest.mark.parametrize(
    ("time_us", "text"),
    [(0, "0.0 ms"), (123_400, "123.4 ms"), (9_999_900, "9,999.9 ms"), (12_345_000, "12.345 s")],
)
def test_clock(time_us: int, text: str) -> None:
    assert words.clock(time_us) == text


@pytest.mark.parametrize(
    ("time_us", "text"), [(250, "250 µs"), (1_500, "1.5 ms"), (450_000, "450 ms"), (2_500_000, "2.5 s")]
)
def test_duration(time_us: int, text: str) -> None:
    assert words.duration(time_us) == text


def test_deliveries_show_where_nodes_differ() -> None:
    assert words.deliveries([{"agreed": 1200, "safe": 3}, {"agreed": 1190, "safe": 3}]) == (
        "1,190–1,200 agreed + 3 safe"
    )
    assert words.deliveries([{}, {"safe": 2}]) == "0–2 safe"
    assert words.deliveries([]) == "nothing"
