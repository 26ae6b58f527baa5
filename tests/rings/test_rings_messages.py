"""What nodes tell each other on their rings: read back as written, and nothing else is read at all."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.core.fronted import Fronted
from ordercast.core.identity import ConfigurationId, Guarantee
from ordercast.rings.bundles import BUNDLE_SIZE, MOST_MESSAGES, is_safe, read_bundle, write_bundles
from ordercast.rings.messages import (
    SHARED_SIZE,
    Done,
    Enter,
    Entry,
    Forwarded,
    Note,
    Pause,
    Place,
    Recovered,
    Report,
    Ring,
    Several,
    State,
    Vector,
    read,
    write_forwarded,
    write_note,
    write_recovered,
    write_several,
)

RAW = write_bundles([b"one", b""], 7, Guarantee.SAFE)[0]
BUNDLED = read_bundle(RAW) or pytest.fail("it was written here")
ENTRY = Entry(Place(99, 3, 65_536), 12, 4, BUNDLED)
SHARED = Recovered(b"12345678", ConfigurationId(16, 2), 0, 2, 3, ENTRY)
NOTES: tuple[Note, ...] = (
    Vector(((0, 5, 3), (1, 9, 9))),
    Enter(),
    Pause(3, 8, b"12345678", True),
    Report(3, 9, (Ring(1, 8, 1, (1, 3)), Ring(2, 4, 3, (3,))), 12),
    State(3, 10, b"12345678", (8, 1), (5, 9), 4, (1, 3), ((9, 0, 65_536, 1),)),
    Done(3, 11, b"12345678"),
)
WRITTEN = {
    **{type(note).__name__: write_note(note) for note in NOTES},
    "bundle": RAW,
    "forwarded": write_forwarded(ENTRY, True),
    "several": b"".join(write_several([write_forwarded(ENTRY, True), write_note(Vector(((0, 5, 3),)))])),
    "recovered": write_recovered(SHARED),
    "recovered, nothing": write_recovered(SHARED._replace(entry=None, parts=0)),
}


@pytest.mark.parametrize("note", NOTES, ids=lambda note: type(note).__name__)
def test_a_note_is_read_as_it_was_written(note: Note) -> None:
    assert read(write_note(note)) == note


def test_bundles_are_read_as_they_were_written() -> None:
    assert read(RAW) == BUNDLED
    assert read(write_forwarded(ENTRY, False)) == Forwarded(ENTRY, False)
    assert read(write_recovered(SHARED)) == SHARED
    nothing = SHARED._replace(entry=None, parts=0)
    assert read(write_recovered(nothing)) == nothing


@given(
    st.lists(st.binary(max_size=40) | st.integers(BUNDLE_SIZE - 9, BUNDLE_SIZE + 9).map(bytes), max_size=9),
    st.sampled_from((Guarantee.AGREED, Guarantee.SAFE)),
)
def test_messages_come_out_of_their_bundles_in_order_and_with_their_numbers(
    payloads: list[bytes], guarantee: Guarantee
) -> None:
    found: list[bytes] = []
    for raw in write_bundles(payloads, 5, guarantee):
        bundle = read_bundle(raw)
        assert bundle is not None
        assert bundle.number == 5 + len(found)
        assert bundle.guarantee is guarantee
        assert is_safe(raw) == (guarantee is Guarantee.SAFE)
        found += bundle.payloads
    assert found == payloads


@pytest.mark.parametrize("fronted", [True, False])
def test_a_bundle_has_no_more_messages_than_places_behind_its_own(fronted: bool) -> None:
    """So that the messages of a packet's bundles never share one, and many bundles fit a packet."""
    count = 2 * MOST_MESSAGES + 1
    payloads: Sequence[bytes] = Fronted(b"", [b""] * count) if fronted else [b""] * count
    bundles = [read_bundle(raw) for raw in write_bundles(payloads, 5, Guarantee.AGREED)]
    assert [(bundle.number, len(bundle.payloads)) for bundle in bundles if bundle is not None] == [
        (5, MOST_MESSAGES),
        (5 + MOST_MESSAGES, MOST_MESSAGES),
        (5 + 2 * MOST_MESSAGES, 1),
    ]
    (raw,) = write_bundles([b""] * MOST_MESSAGES, 5, Guarantee.AGREED)
    more = raw[:10] + (MOST_MESSAGES + 1).to_bytes(2, "little") + raw[12:] + b"\0\0"
    assert read_bundle(raw) is not None
    assert read_bundle(more) is None


@given(st.lists(st.integers(0, SHARED_SIZE + 9), max_size=9))
def test_small_messages_share_payloads_and_come_out_in_order(sizes: list[int]) -> None:
    bundles = [read_bundle(write_bundles([bytes(size)], 7, Guarantee.AGREED)[0]) for size in sizes]
    sent = [Forwarded(ENTRY._replace(bundle=bundle), True) for bundle in bundles if bundle is not None]
    alone = [write_forwarded(*forwarded) for forwarded in sent]
    written = list(write_several(alone))
    found: list[object] = []
    for payload in written:
        message = read(payload)
        found += message.messages if isinstance(message, Several) else [message]
        assert len(payload) <= SHARED_SIZE + 3 or payload in alone
    assert found == sent
    assert all(len(a) + len(b) > SHARED_SIZE - 8 for a, b in pairwise(written)), "no payload could take more"


def test_nothing_but_what_gateways_forward_shares_a_payload() -> None:
    vector = write_note(Vector(((0, 5, 3),)))
    for other in (RAW, write_note(Done(3, 11, b"12345678")), write_recovered(SHARED), WRITTEN["several"]):
        (payload,) = write_several([vector, other])
        assert read(payload) is None


@given(st.binary(max_size=200))
def test_anything_at_all_may_be_in_a_payload(payload: bytes) -> None:
    read(payload)


@given(st.sampled_from(sorted(WRITTEN)), st.data())
def test_a_damaged_payload_is_read_within_limits_or_not_at_all(kind: str, data: st.DataObject) -> None:
    raw = bytearray(WRITTEN[kind])
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    del raw[data.draw(st.integers(0, len(raw))) :]
    message = read(bytes(raw))
    if isinstance(message, Forwarded):
        assert read_bundle(message.entry.raw) is not None
        assert message.entry.origin > 0
