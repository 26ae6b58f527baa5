"""The wire: every length and count is checked, and every refusal has a reason to count it under."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordercast.core.identity import MAX_NODE_ID, ConfigurationId
from ordercast.core.wire import (
    MAX_COUNT,
    MAX_PACKET,
    PREFIX_SIZE,
    Malformed,
    Reader,
    check_count,
    check_node,
    kind_of,
    pack_nodes,
    pack_ring,
    prefix,
)


def reader(fields: bytes) -> Reader:
    return Reader(prefix(1) + fields)


def test_a_prefix_says_its_kind() -> None:
    assert len(prefix(9)) == PREFIX_SIZE
    assert kind_of(prefix(9)) == 9


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "too short"),
        (b"OC\x01", "too short"),
        (b"XC\x01\x01", "not ordercast"),
        (b"OX\x01\x01", "not ordercast"),
        (b"OC\x00\x01", "unknown version"),
        (b"OC\x02\x01", "unknown version"),
        (prefix(1) + bytes(MAX_PACKET - PREFIX_SIZE + 1), "too long"),
    ],
)
def test_what_is_not_ours_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(Malformed, match=f"^{reason}$"):
        kind_of(data)


def test_the_largest_datagram_is_not_too_long() -> None:
    assert kind_of(prefix(7) + bytes(MAX_PACKET - PREFIX_SIZE)) == 7


@pytest.mark.parametrize("node", [1, 2, MAX_NODE_ID])
def test_node_identifiers_are_positive_and_have_31_bits(node: int) -> None:
    assert check_node(node) == node


@pytest.mark.parametrize("node", [0, -1, MAX_NODE_ID + 1])
def test_other_node_identifiers_are_refused(node: int) -> None:
    with pytest.raises(Malformed, match="bad node id"):
        check_node(node)


@pytest.mark.parametrize(("number", "lowest"), [(0, 0), (1, 1), (MAX_COUNT - 1, 0), (MAX_COUNT - 1, 1)])
def test_counters_are_not_negative_and_can_be_counted_up(number: int, lowest: int) -> None:
    assert check_count(number, lowest) == number
    assert reader(struct.pack("<q", number)).count() == number


@pytest.mark.parametrize(("number", "lowest"), [(-1, 0), (0, 1), (MAX_COUNT, 0), (2**63 - 1, 1)])
def test_other_counters_are_refused(number: int, lowest: int) -> None:
    with pytest.raises(Malformed, match=r"^bad number$"):
        check_count(number, lowest)


def test_fields_are_read_one_behind_the_other() -> None:
    fields = struct.pack("<BHIqI", 200, 60_000, 4_000_000_000, 2**40, 17) + pack_ring(ConfigurationId(8, 3))
    made = reader(fields + pack_nodes((5, 2)) + b"rest")
    assert (made.u8(), made.u16(), made.u32(), made.count(), made.node()) == (
        200,
        60_000,
        4_000_000_000,
        2**40,
        17,
    )
    assert made.ring() == ConfigurationId(8, 3)
    assert made.nodes(2) == (2, 5)
    assert made.rest() == b"rest"
    made.end()


@pytest.mark.parametrize("size", range(12))
def test_nothing_is_read_past_the_end(size: int) -> None:
    with pytest.raises(Malformed, match="truncated"):
        reader(bytes(size)).ring()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (struct.pack("<qi", -1, 1), "bad number"),
        (struct.pack("<qi", MAX_COUNT, 1), "bad number"),
        (struct.pack("<qi", 4, 0), "bad node id"),
        (struct.pack("<qi", 4, -1), "bad node id"),
    ],
)
def test_a_ring_without_number_or_representative_is_refused(fields: bytes, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        reader(fields).ring()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (struct.pack("<HI", 2, 1), "truncated"),
        (struct.pack("<H4I", 4, 1, 2, 3, 4), "too many members"),
        (struct.pack("<H", 65_535), "too many members"),
        (struct.pack("<H2I", 2, 1, 1), "members not ascending"),
        (struct.pack("<H2I", 2, 2, 1), "members not ascending"),
        (struct.pack("<HI", 1, 0), "bad node id"),
        (struct.pack("<HI", 1, 2**31), "bad node id"),
    ],
)
def test_a_list_of_nodes_is_bounded_and_ascending(fields: bytes, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        reader(fields).nodes(3)


def test_trailing_bytes_are_refused() -> None:
    with pytest.raises(Malformed, match="trailing bytes"):
        reader(b"x").end()


@settings(deadline=None)
@given(st.sets(st.integers(1, MAX_NODE_ID), max_size=50))
def test_any_set_of_nodes_crosses_the_wire_in_ascending_order(nodes: set[int]) -> None:
    made = reader(pack_nodes(tuple(nodes)))
    assert made.nodes(50) == tuple(sorted(nodes))
    made.end()
