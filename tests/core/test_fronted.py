"""Messages with one front are a sequence like any other, however their rests are kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.core.addresses import address
from ordercast.core.fronted import FEWEST, Fronted, bytes_of, longest_of, put_in_front, whole
from ordercast.core.identity import Guarantee
from ordercast.core.packing import MOST_EQUAL, check_chunks, join_chunks
from ordercast.core.wire import Malformed
from ordercast.rings.bundles import read_bundle, write_bundles

FRONT = address(3, ("orders",))
RESTS = st.lists(st.binary(max_size=9), min_size=FEWEST, max_size=30) | st.integers(0, 9).map(
    lambda length: [bytes([at % 256]) * length for at in range(MOST_EQUAL + 5)]
)


@given(RESTS)
def test_messages_are_the_same_from_a_list_and_from_a_bundle(rests: list[bytes]) -> None:
    messages = [FRONT + rest for rest in rests]
    (raw,) = write_bundles(messages, 1, Guarantee.AGREED, addressed=True)
    bundle = read_bundle(raw)
    assert bundle is not None
    assert write_bundles(Fronted(FRONT, rests), 1, Guarantee.AGREED, addressed=True) == [raw]
    for made in (Fronted(FRONT, rests), bundle.payloads):
        assert type(made) is Fronted
        assert (made.front, list(made.rests())) == (FRONT, rests)
        assert made == messages
        assert (len(made), bytes_of(made)) == (len(messages), sum(map(len, messages)))
        assert longest_of(made) == max(map(len, messages))
        assert made[2] == messages[2]
        assert made[1:4] == messages[1:4]
        assert list(whole(made)) == list(made) == messages


def test_messages_of_which_nothing_is_behind_the_front() -> None:
    made = Fronted.alone(FRONT, 3)
    assert made == [FRONT] * 3
    assert bytes_of(made) == 3 * len(FRONT)


def test_what_is_not_bytes_is_refused_at_once() -> None:
    few = [b"x"] * (FEWEST - 1)
    assert type(put_in_front(FRONT, [*few, b"y"])) is Fronted
    assert type(put_in_front(FRONT, few)) is list
    odd = [*few, bytearray(b"y")]
    assert put_in_front(FRONT, odd) == [FRONT + b"x"] * len(few) + [FRONT + b"y"]  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        put_in_front(FRONT, [*few, "y"])  # type: ignore[list-item]


def test_parts_of_messages_and_lists_that_are_alike() -> None:
    made = put_in_front(FRONT, [b"%d" % at for at in range(FEWEST)])
    assert made[-1] == FRONT + b"%d" % (FEWEST - 1)
    assert list(made[2:4]) == [FRONT + b"2", FRONT + b"3"]
    other: object = 3
    assert made != other
    plain = [FRONT + b"%d" % at for at in range(FEWEST)]
    for payloads in (made, plain):
        assert list(whole(payloads)) == plain
        assert bytes_of(payloads) == sum(map(len, plain))
        assert longest_of(payloads) == max(map(len, plain))
    assert longest_of([]) == 0


@pytest.mark.parametrize("rests", [[b"1", b"22", b"333"], [b"%03d" % at for at in range(MOST_EQUAL + 1)]])
def test_rests_are_read_from_where_they_were_packed(rests: list[bytes]) -> None:
    equal = len(set(map(len, rests))) == 1
    data = b"head" + (b"".join(rests) if equal else join_chunks(rests))
    made = Fronted.read(FRONT, data, 4, len(rests), len(rests[0]) if equal else None)
    assert list(made.rests()) == rests
    assert made.size == bytes_of([FRONT + rest for rest in rests])


def test_chunks_that_do_not_fill_a_packet_are_refused() -> None:
    data = join_chunks([b"1", b"22"])
    check_chunks(data, 0, 2)
    for wrong, count in ((data + b"x", 2), (data, 0), (data[:3], 2), (data, 3)):
        with pytest.raises(Malformed):
            check_chunks(wrong, 0, count)
