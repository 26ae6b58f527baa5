"""Messages with one address that follow each other are found together."""

from __future__ import annotations

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from ordercast.core.addresses import LOOK, address, address_of, runs_of
from ordercast.core.fronted import FEWEST, put_in_front

FRONTS = (address(0, ("a",)), address(1, ("a",)), address(0, ("a", "b")))


@given(st.lists(st.tuples(st.sampled_from((*FRONTS, b"", b"\x00")), st.sampled_from((1, 2, LOOK, LOOK + 1)))))
def test_runs_are_as_long_as_the_address_is_the_same(parts: list[tuple[bytes, int]]) -> None:
    payloads = [front + b"x" for front, count in parts for _ in range(count)]
    found = list(runs_of(payloads))
    assert [place for run in found for place in run] == list(range(len(payloads)))
    expected = []
    for same, run in groupby(payloads, address_of):
        count = len(list(run))
        expected += [1] * count if same is None else [count]
    assert list(map(len, found)) == expected


def test_messages_with_one_front_are_one_run() -> None:
    payloads = put_in_front(FRONTS[0], [b"x"] * FEWEST)
    assert list(runs_of(payloads)) == [range(FEWEST)]
