"""Messages into packets and back (001 §4): whole, in order, numbered right, whatever their sizes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ordercast.core.contract import QueueFull
from ordercast.core.identity import Guarantee
from ordercast.core.packing import (
    LENGTH_SIZE,
    MAX_CHUNKS,
    MESSAGE_OVERHEAD,
    NEARLY,
    Packed,
    Reassembly,
    SendQueue,
    join_chunks,
    split_chunks,
)
from ordercast.core.wire import Malformed

AGREED, SAFE = Guarantee.AGREED, Guarantee.SAFE
PLENTY = 1 << 30
MINIMAL_SPACE = LENGTH_SIZE + 1


def examples(most: int) -> settings:
    """So many examples, however busy the machine is."""
    return settings(max_examples=most, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def queue(*payloads: bytes, guarantee: Guarantee = AGREED, limit: int = PLENTY) -> SendQueue:
    made = SendQueue(limit)
    made.accept(payloads, guarantee)
    return made


def packed(made: SendQueue, space: int) -> Packed:
    packet = made.next_packet(space)
    assert packet is not None
    return packet


def all_packets(made: SendQueue, space: int) -> list[Packed]:
    packets = []
    while (packet := made.next_packet(space)) is not None:
        packets.append(packet)
    return packets


def take(reassembly: Reassembly, origin: int, packet: Packed) -> tuple[int, list[bytes]]:
    """What a receiver makes of a packet after it has crossed the wire."""
    chunks = split_chunks(join_chunks(packet.chunks), 0, len(packet.chunks))
    return reassembly.take(origin, packet.number, chunks, packet.continues, packet.continued)


# --- packing ------------------------------------------------------------------------------------


def test_small_messages_share_a_packet() -> None:
    """001 §4: several small messages travel in one packet."""
    packet = packed(queue(b"one", b"two", b"three"), 100)
    assert packet == Packed(1, AGREED, [b"one", b"two", b"three"], [b"one", b"two", b"three"], False, False)


def test_a_large_message_is_cut_into_packets() -> None:
    """001 §4: a message larger than a packet is fragmented; only its last packet ends it."""
    packets = all_packets(queue(b"abcdefgh"), LENGTH_SIZE + 3)
    assert packets == [
        Packed(1, AGREED, [b"abc"], [], False, True),
        Packed(1, AGREED, [b"def"], [], True, True),
        Packed(1, AGREED, [b"gh"], [b"abcdefgh"], True, False),
    ]


def test_a_packet_may_end_one_message_hold_others_and_begin_the_next() -> None:
    made = queue(b"abcdef", b"", b"ghijkl", b"", b"mnopqr")
    assert all_packets(made, 3 * LENGTH_SIZE + 8) == [
        Packed(1, AGREED, [b"abcdef", b"", b"gh"], [b"abcdef", b""], False, True),
        Packed(3, AGREED, [b"ijkl", b"", b"mnop"], [b"ghijkl", b""], True, True),
        Packed(5, AGREED, [b"qr"], [b"mnopqr"], True, False),
    ]


def test_a_message_that_fits_exactly_is_not_cut() -> None:
    assert packed(queue(b"12345"), LENGTH_SIZE + 5) == Packed(1, AGREED, [b"12345"], [b"12345"], False, False)


def test_a_packet_is_agreed_or_safe_as_a_whole() -> None:
    made = queue(b"a1", b"a2")
    made.accept([b"s1"], SAFE)
    made.accept([b"a3"], AGREED)
    assert [(p.number, p.guarantee, p.chunks) for p in all_packets(made, 100)] == [
        (1, AGREED, [b"a1", b"a2"]),
        (3, SAFE, [b"s1"]),
        (4, AGREED, [b"a3"]),
    ]


def test_an_empty_queue_gives_no_packet() -> None:
    assert SendQueue(100).next_packet(100) is None
    assert SendQueue(100).backlog(100) == 0


def test_no_packet_holds_more_chunks_than_its_header_can_count() -> None:
    made = queue(*[b""] * (MAX_CHUNKS + 5))
    counts = [len(packet.chunks) for packet in all_packets(made, 4 * MAX_CHUNKS)]
    assert counts == [MAX_CHUNKS, 5]


def test_where_packets_hold_one_chunk_no_message_shares_one() -> None:
    made = queue(b"a", b"bcdefgh", b"i", b"")
    packets = [made.next_packet(LENGTH_SIZE + 5, 1) for _ in range(5)]
    assert packets == [
        Packed(1, AGREED, [b"a"], [b"a"], False, False),
        Packed(2, AGREED, [b"bcdef"], [], False, True),
        Packed(2, AGREED, [b"gh"], [b"bcdefgh"], True, False),
        Packed(3, AGREED, [b"i"], [b"i"], False, False),
        Packed(4, AGREED, [b""], [b""], False, False),
    ]
    assert made.next_packet(LENGTH_SIZE + 5, 1) is None


def test_rewind_starts_the_partly_packed_message_again() -> None:
    """Its first fragments belong to a ring that ended: nobody on the new one has them."""
    made = queue(b"whole", b"abcdefgh", b"next")
    assert packed(made, 2 * LENGTH_SIZE + 8).continued
    made.rewind()
    assert packed(made, 2 * LENGTH_SIZE + 12) == Packed(
        2, AGREED, [b"abcdefgh", b"next"], [b"abcdefgh", b"next"], False, False
    )


def test_rewind_between_messages_changes_nothing() -> None:
    made = queue(b"one", b"two")
    packed(made, LENGTH_SIZE + 3)
    made.rewind()
    assert packed(made, 100) == Packed(2, AGREED, [b"two"], [b"two"], False, False)


# --- the queue's bounds -------------------------------------------------------------------------


def test_messages_are_numbered_in_the_order_of_acceptance() -> None:
    made = SendQueue(1000)
    assert [made.accept(batch, AGREED) for batch in ([b"1"], [b"2", b"3"], [], [b"4"])] == [1, 2, 4, 4]
    assert (made.accepted, len(made)) == (4, 4)


def test_more_bytes_than_there_is_room_for_are_refused_all_or_none() -> None:
    made = SendQueue(10)
    with pytest.raises(QueueFull, match=r"2 messages of 11 bytes .* 10 bytes of room; wait until .* drains"):
        made.accept([b"12345", b"678901"], AGREED)
    assert (len(made), made.accepted, made.room) == (0, 0, 10)
    assert made.accept([b"1234567890"], AGREED) == 1


def test_a_full_queue_refuses_even_an_empty_message() -> None:
    """Empty messages are bounded too: each counts for its overhead."""
    made = SendQueue(3 * MESSAGE_OVERHEAD)
    for _ in range(3):
        made.accept([b""], AGREED)
    assert made.room == 0
    with pytest.raises(QueueFull):
        made.accept([b""], AGREED)


def test_room_comes_back_when_a_message_is_packed_whole() -> None:
    made = queue(b"abcdef", limit=1000)
    used = 1000 - made.room
    assert used == 6 + MESSAGE_OVERHEAD
    packed(made, LENGTH_SIZE + 4)
    assert 1000 - made.room == used, "a fragment that is out may have to be packed again"
    packed(made, LENGTH_SIZE + 4)
    assert made.room == 1000


def test_room_is_never_negative() -> None:
    assert queue(*[b""] * 100, limit=10).room == 0


def test_backlog_counts_packets_and_shrinks_with_each_fragment() -> None:
    """000 §8.1: my_tbl is the number of messages (here packets) that wait to be transmitted."""
    space = 100
    made = queue(bytes(4 * space - LENGTH_SIZE))
    seen = [made.backlog(space)]
    while made.next_packet(space) is not None:
        seen.append(made.backlog(space))
    assert seen == [4, 4, 3, 2, 1, 0], "each fragment's length costs a little"
    made.accept([bytes(4 * space - LENGTH_SIZE)], AGREED)
    packed(made, space)
    packed(made, space)
    made.rewind()
    assert made.backlog(space) == 4


# --- chunks on the wire -------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 64, 65, 700])
def test_chunks_cross_the_wire(count: int) -> None:
    chunks = [bytes([index % 256]) * (index % 5) for index in range(count)]
    assert split_chunks(b"head" + join_chunks(chunks), 4, count) == chunks


@pytest.mark.parametrize(
    ("data", "count", "reason"),
    [
        (b"", 0, "no chunk"),
        (b"", 1, "chunk lengths do not fit"),
        (b"\x00", 1, "chunk lengths do not fit"),
        (b"\x02\x00a", 1, "chunk lengths do not fit"),
        (b"\x00\x00a", 1, "chunk lengths do not fit"),
        (b"\x00\x01a", 1, "chunk lengths do not fit"),
        (b"\x01\x00\x00", 2, "truncated"),
        (b"", 65_535, "truncated"),
        (b"\x01\x00\x01\x00a", 2, "chunk lengths do not fit"),
        (b"\x01\x00\x01\x00abc", 2, "chunk lengths do not fit"),
        (b"\xff\xff\xff\xff", 2, "chunk lengths do not fit"),
    ],
)
def test_chunks_that_do_not_fill_the_packet_are_refused(data: bytes, count: int, reason: str) -> None:
    with pytest.raises(Malformed, match=f"^{reason}$"):
        split_chunks(data, 0, count)


# --- reassembly ---------------------------------------------------------------------------------


def test_a_message_whose_beginning_was_never_taken_is_left_out() -> None:
    """What follows it in the packet keeps its place: the slot says how many chunks were skipped."""
    reassembly = Reassembly(PLENTY)
    assert reassembly.take(1, 7, [b"end", b"whole"], continues=True, continued=False) == (1, [b"whole"])
    assert reassembly.take(1, 9, [b"middle"], continues=True, continued=True) == (1, [])
    assert reassembly.take(1, 9, [b"end", b"begin"], continues=True, continued=True) == (1, [])
    assert reassembly.take(1, 10, [b"ning"], continues=True, continued=False) == (0, [b"beginning"])


def test_a_message_that_its_sender_gave_up_is_forgotten() -> None:
    reassembly = Reassembly(PLENTY)
    assert reassembly.take(1, 1, [b"abc"], continues=False, continued=True) == (0, [])
    assert reassembly.take(1, 1, [b"abcd"], continues=False, continued=True) == (0, [])
    assert reassembly.take(1, 1, [b"ef"], continues=True, continued=False) == (0, [b"abcdef"])


def test_a_message_is_put_together_once() -> None:
    """000 §4.2: if a processor delivers a message, it delivers it once only."""
    reassembly = Reassembly(PLENTY)
    reassembly.take(1, 1, [b"abc"], continues=False, continued=True)
    assert reassembly.take(1, 1, [b"def"], continues=True, continued=False) == (0, [b"abcdef"])
    assert reassembly.take(1, 1, [b"def"], continues=True, continued=False) == (1, [])


def test_fragments_of_different_messages_are_not_joined() -> None:
    reassembly = Reassembly(PLENTY)
    reassembly.take(1, 1, [b"abc"], continues=False, continued=True)
    assert reassembly.take(1, 2, [b"xyz"], continues=True, continued=False) == (1, [])


def test_fragments_of_different_senders_are_not_joined() -> None:
    reassembly = Reassembly(PLENTY)
    reassembly.take(1, 1, [b"abc"], continues=False, continued=True)
    assert reassembly.take(2, 1, [b"xyz"], continues=True, continued=False) == (1, [])
    assert reassembly.take(1, 1, [b"def"], continues=True, continued=False) == (0, [b"abcdef"])


def test_clear_forgets_what_is_not_whole() -> None:
    reassembly = Reassembly(PLENTY)
    reassembly.take(1, 1, [b"abc"], continues=False, continued=True)
    reassembly.clear()
    assert reassembly.take(1, 1, [b"def"], continues=True, continued=False) == (1, [])


@pytest.mark.parametrize(("size", "arrives"), [(10, True), (11, False)])
def test_fragments_add_up_to_no_more_than_any_sender_may_send(size: int, arrives: bool) -> None:
    """A reassembly is bounded; what comes behind the oversized message is delivered all the same."""
    reassembly = Reassembly(10)
    reassembly.take(1, 1, [bytes(8)], continues=False, continued=True)
    slot, ready = reassembly.take(1, 1, [bytes(size - 8), b"next"], continues=True, continued=False)
    assert (slot, ready) == ((0, [bytes(size), b"next"]) if arrives else (1, [b"next"]))


def test_a_message_that_is_whole_in_its_packet_is_not_measured() -> None:
    """The bound is on what has to be kept: a packet bounds what it holds whole."""
    assert Reassembly(10).take(1, 1, [bytes(11)], continues=False, continued=False) == (0, [bytes(11)])


# --- round trips --------------------------------------------------------------------------------


class Sender(NamedTuple):
    """What one sender has to say, and how its turns fall."""

    messages: list[tuple[bytes, Guarantee]]
    queue: SendQueue


@st.composite
def senders(draw: st.DrawFn, space: int) -> dict[int, Sender]:
    """Up to four senders, each with messages from nothing to many packets."""
    made = {}
    sizes = st.one_of(st.integers(0, space), st.integers(0, 6 * space))
    plan = st.lists(st.tuples(sizes, st.sampled_from(Guarantee)), max_size=12)
    for origin, messages in enumerate(draw(st.lists(plan, min_size=1, max_size=4)), start=1):
        own = SendQueue(PLENTY)
        told = []
        for index, (size, guarantee) in enumerate(messages):
            payload = bytes((origin * 50 + index * 7 + place) % 256 for place in range(size))
            assert own.accept([payload], guarantee) == index + 1
            told.append((payload, guarantee))
        made[origin] = Sender(told, own)
    return made


spaces = st.one_of(st.integers(MINIMAL_SPACE, 12), st.integers(13, 90))


@examples(150)
@given(data=st.data(), space=spaces)
def test_every_message_arrives_whole_once_and_in_order(data: st.DataObject, space: int) -> None:
    """000 §4.2: each message is delivered once, in order; through ring changes that cut one in two.

    Senders take turns as drawn. At a ring change senders rewind and receivers begin afresh, as a
    message belongs to one ring alone (000 §3).
    """
    group = data.draw(senders(space))
    reassembly = Reassembly(PLENTY)
    arrived: dict[int, list[tuple[int, bytes, Guarantee]]] = {origin: [] for origin in group}
    seq = changes = 0
    while any(sender.queue for sender in group.values()):
        waiting = [origin for origin, sender in group.items() if sender.queue]
        turn = data.draw(st.integers(0, len(waiting) if changes < 6 else len(waiting) - 1))
        if turn == len(waiting):
            changes += 1
            for sender in group.values():
                sender.queue.rewind()
            reassembly = Reassembly(PLENTY)
            continue
        origin = waiting[turn]
        own = group[origin].queue
        packet = packed(own, space)
        seq += 1
        assert sum(map(len, packet.chunks)) + LENGTH_SIZE * len(packet.chunks) <= space
        assert packet.chunks[0] or not packet.continues, "an empty fragment would be refused"
        assert packet.chunks[-1] or not packet.continued, "an empty fragment would be refused"
        slot, payloads = take(reassembly, origin, packet)
        assert (slot, payloads) == (0, packet.ends), "a receiver makes of it what its sender says"
        for place, payload in enumerate(payloads):
            arrived[origin].append((packet.number + slot + place, payload, packet.guarantee))
    for origin, sender in group.items():
        expected = [(n, payload, wanted) for n, (payload, wanted) in enumerate(sender.messages, start=1)]
        assert arrived[origin] == expected
        assert sender.queue.room == PLENTY


@examples(100)
@given(data=st.data(), space=spaces)
def test_packets_are_nearly_full_and_backlogs_never_promise_too_many(data: st.DataObject, space: int) -> None:
    """000 §8.1: the backlog tells about how many packets wait: none only if nothing waits."""
    (_, own), *_ = data.draw(senders(space)).values()
    backlogs = [own.backlog(space)]
    packets = []
    while (packet := own.next_packet(space)) is not None:
        packets.append(packet)
        backlogs.append(own.backlog(space))
    for place, backlog in enumerate(backlogs):
        left = len(packets) - place
        assert min(1, left) <= backlog <= left
    for packet, following in pairwise(packets):
        free = space - sum(map(len, packet.chunks)) - LENGTH_SIZE * len(packet.chunks)
        if packet.continued:
            assert free == 0
        elif following.guarantee is packet.guarantee and free > LENGTH_SIZE:
            assert free * NEARLY < space, "nearly full"
            assert not following.continued or len(following.chunks) > 1, "and the next message is whole"


@examples(100)
@given(data=st.data(), space=spaces)
def test_who_starts_in_the_middle_gets_what_begins_after_that(data: st.DataObject, space: int) -> None:
    """A receiver behind a gap gets the later messages, with the numbers and slots that others give them."""
    (_, own), *_ = data.draw(senders(space)).values()
    packets = all_packets(own, space)
    start = data.draw(st.integers(0, len(packets)))
    everything, late = Reassembly(PLENTY), Reassembly(PLENTY)
    begun = packets[start].number + packets[start].continues if start < len(packets) else 0
    for place, packet in enumerate(packets):
        slot, payloads = take(everything, 1, packet)
        numbered = {(packet.number + slot + i, slot + i): payload for i, payload in enumerate(payloads)}
        if place >= start:
            slot, payloads = take(late, 1, packet)
            got = {(packet.number + slot + i, slot + i): payload for i, payload in enumerate(payloads)}
            assert got == {where: payload for where, payload in numbered.items() if where[0] >= begun}


@examples(100)
@given(
    limit=st.integers(0, 40),
    packets=st.lists(
        st.tuples(
            st.integers(1, 2),
            st.integers(1, 4),
            st.lists(st.binary(max_size=12), min_size=1, max_size=3),
            st.booleans(),
            st.booleans(),
        ),
        max_size=30,
    ),
)
def test_no_sequence_of_packets_upsets_a_receiver(
    limit: int, packets: list[tuple[int, int, list[bytes], bool, bool]]
) -> None:
    """Whatever a peer puts into its flags: at most the chunks of a packet are delivered, none twice."""
    reassembly = Reassembly(limit)
    for origin, number, chunks, continues, continued in packets:
        slot, ready = reassembly.take(origin, number, list(chunks), continues, continued)
        assert 0 <= slot <= continues
        assert len(ready) <= len(chunks) - slot
        if slot == 0 and continues and ready:
            assert len(ready[0]) <= limit
            assert ready[0].endswith(chunks[0])


class Counted(bytes):
    """A payload that counts how much is copied of it, and how often pieces of it are put behind others."""

    copied = 0
    added = 0

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        if isinstance(found, int):
            return found
        Counted.copied += len(found)
        return Counted(found)

    def __radd__(self, before: bytes) -> bytes:
        Counted.added += 1
        return bytes(before) + bytes(self)


def test_sixteen_megabytes_cross_in_small_packets_and_each_byte_is_copied_once_a_side(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Work is per packet: the sender never moves what is left, the receiver joins the pieces in the end."""
    monkeypatch.setattr(Counted, "copied", 0)
    monkeypatch.setattr(Counted, "added", 0)
    payload = Counted(bytes(range(256)) * (16 * 1024 * 1024 // 256))
    made = queue(payload)
    reassembly = Reassembly(len(payload))
    arrived: list[bytes] = []
    while (packet := made.next_packet(1400)) is not None:
        chunks = packet.chunks
        assert split_chunks(join_chunks(chunks), 0, len(chunks)) == chunks
        arrived += reassembly.take(1, packet.number, chunks, packet.continues, packet.continued)[1]
    assert arrived == [payload]
    assert Counted.copied == len(payload)
    assert Counted.added == 0
