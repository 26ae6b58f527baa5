from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ordercast.core.checksum import checksum

ROWS = st.lists(st.binary(max_size=20), max_size=10)


@given(ROWS, ROWS)
def test_it_goes_on_where_it_was(one: list[bytes], two: list[bytes]) -> None:
    assert checksum(two, checksum(one)) == checksum(one + two)


def test_where_a_row_ends_and_that_it_is_there_counts() -> None:
    divided = [[], [b""], [b"", b""], [b"ab"], [b"a", b"b"], [b"ab", b""], [b"", b"ab"], [b"b", b"a"]]
    assert len({checksum(rows) for rows in divided}) == len(divided)
