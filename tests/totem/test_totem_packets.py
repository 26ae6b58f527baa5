"""Totem's packets on the wire: what is sent is what arrives, and nothing else gets in (000 §5.1, §6.1)."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from totem_parts import RING, data, examples, token

from ordercast.core.identity import MAX_NODE_ID, ConfigurationId, Guarantee
from ordercast.core.packing import SendQueue
from ordercast.core.wire import MAX_COUNT, Malformed, pack_nodes, pack_ring, prefix
from ordercast.totem.config import TotemConfig
from ordercast.totem.flow import FlowControl
from ordercast.totem.limits import Limits
from ordercast.totem.ordering import Ring
from ordercast.totem.packets import (
    ANNOUNCE,
    COMMIT,
    CONTINUED,
    CONTINUES,
    DATA,
    HURRY,
    JOIN,
    KINDS,
    LONGEST_HOLD_US,
    MAX_MEMBERS,
    MAX_REQUESTS,
    PART,
    RECOVERED,
    SAFE,
    TOKEN,
    Announce,
    AnyPacket,
    Commit,
    Data,
    Entry,
    Hurry,
    Join,
    Part,
    Recovered,
    Token,
    decode,
    decode_data,
    decode_token,
    encode_data,
    encode_recovered,
)
from ordercast.totem.protocol import TOTEM
from ordercast.totem.visits import schedule

MOST = MAX_COUNT - 1
MOST_FLOW = 2**31 - 1

# --- any packet ---------------------------------------------------------------------------------

nodes = st.integers(1, MAX_NODE_ID)
counts = st.integers(0, MOST)
positive = st.integers(1, MOST)
rings = st.builds(ConfigurationId, counts, nodes)
lives = st.integers(0, 2**32 - 1)
members = st.sets(nodes, min_size=1, max_size=8).map(lambda found: tuple(sorted(found)))


def no_empty_fragment(packet: Data) -> bool:
    first, last = packet.chunks[0], packet.chunks[-1]
    return bool((first or not packet.flags & CONTINUES) and (last or not packet.flags & CONTINUED))


data_packets = st.builds(
    encode_data,
    rings,
    positive,
    nodes,
    st.integers(0, 2**31 - 1),
    positive,
    st.integers(0, 7),
    st.lists(st.binary(max_size=20), min_size=1, max_size=5),
).filter(no_empty_fragment)
recovered_packets = st.builds(encode_recovered, rings, positive, nodes, data_packets)


@st.composite
def tokens(draw: st.DrawFn) -> Token:
    made = Token(draw(rings))
    made.token_seq = draw(positive)
    made.seq = draw(counts)
    made.aru = draw(st.integers(0, made.seq))
    made.aru_id = draw(st.integers(0, MAX_NODE_ID))
    made.fcc = draw(st.integers(0, MOST_FLOW))
    made.backlog = draw(st.integers(0, MOST_FLOW))
    made.retrans_flg = draw(st.booleans())
    made.idle = draw(st.booleans())
    made.brake = draw(st.integers(0, MAX_NODE_ID))
    made.holds = draw(st.lists(st.integers(0, LONGEST_HOLD_US), max_size=8))
    if made.seq:
        first = draw(st.integers(1, made.seq))
        near = st.integers(first, min(made.seq, first + 2**32 - 1))
        made.rtr = [first, *draw(st.lists(near, max_size=4))]
        asked = st.sampled_from(made.rtr)
        made.parts = draw(st.dictionaries(asked, st.integers(1, 2**64 - 2), max_size=2))
    made.merge = tuple(draw(st.lists(nodes, max_size=5)))
    made.visits = tuple(draw(st.lists(st.integers(-(2**15), 2**15 - 1), max_size=8)))
    made.visit = draw(st.integers(0, len(made.visits) - 1)) if made.visits else 0
    return made


@st.composite
def commits(draw: st.DrawFn) -> Commit:
    group = draw(members)
    memb_index = draw(st.integers(1, 2 * len(group)))
    entries = []
    for node in group[:memb_index]:
        aru = draw(counts)
        limits = Limits(*(draw(st.integers(256, 2**31 - 1)) for _ in range(3)))
        told = draw(rings), aru, draw(st.integers(0, aru)), draw(st.booleans())
        entries.append(Entry(node, *told, limits, draw(st.sampled_from((0, 0, 1, 2**32 - 1)))))
    drawn_lives = tuple(draw(lives) for _ in group)
    ring = draw(rings)._replace(rep=group[0])
    visits = schedule([draw(st.integers(0, 50)) for _ in group], "square-root")
    return Commit(ring, group, memb_index, tuple(entries), drawn_lives, visits)


@st.composite
def joins(draw: st.DrawFn) -> Join:
    proc_set = draw(members)
    fail_set = tuple(sorted(draw(st.sets(st.sampled_from(proc_set)))))
    sender = draw(st.sampled_from(proc_set))
    flags = draw(st.booleans()), draw(st.booleans())
    return Join(sender, draw(counts), proc_set, fail_set, *flags, life=draw(lives))


@st.composite
def announces(draw: st.DrawFn) -> Announce:
    group = draw(members)
    heard = tuple(sorted(draw(st.sets(nodes, max_size=5))))
    return Announce(draw(st.sampled_from(group)), draw(rings), group, heard, draw(lives))


any_packet: st.SearchStrategy[AnyPacket] = st.one_of(
    data_packets, recovered_packets, tokens(), commits(), joins(), announces(), st.builds(Hurry, rings)
)


def on_the_wire(packet: AnyPacket) -> bytes:
    """The bytes of a packet, made from its fields alone."""
    if isinstance(packet, Data):
        return encode_data(
            ConfigurationId(packet.ring_seq, packet.ring_rep),
            packet.seq,
            packet.origin,
            packet.incarnation,
            packet.number,
            packet.flags,
            packet.chunks,
            packet.timestamp,
        ).raw
    if isinstance(packet, Recovered):
        ring = ConfigurationId(packet.ring_seq, packet.ring_rep)
        return encode_recovered(ring, packet.seq, packet.sender, packet.old).raw
    return packet.encode()


def fields(packet: AnyPacket) -> object:
    """Something to compare: a token has no equality of its own."""
    if isinstance(packet, Token):
        return {name: getattr(packet, name) for name in Token.__slots__}
    return packet


def accepted(raw: bytes) -> bool:
    """Whether it decodes. Whatever does is written back to the same bytes: nothing is read two ways."""
    try:
        packet = decode(raw)
    except Malformed:
        return False
    assert on_the_wire(packet) == raw
    return True


def asking_for_parts() -> Token:
    made = token(seq=9, rtr=[4, 6, 8])
    made.parts = {4: 1, 8: 2**63}
    return made


def timed_token() -> Token:
    made = token(seq=9, rtr=[4, 6], holds=[200, 0])
    made.timestamp = 1_000
    return made


def weighted_token() -> Token:
    made = token(token_seq=9, seq=7, rtr=[4], holds=[200, 0])
    made.visits, made.visit = (0, ~2, 1, 2, ~1, ~2), 4
    return made


LIMITS = Limits(212_992, 17_000, 1_400)

SAMPLES: dict[str, bytes] = {
    "part": Part(8, 1, 5, 3_000, 1_400, 2, bytes(200)).encode(),
    "token that asks for parts": asking_for_parts().encode(),
    "data": data(5, b"one", b"", b"three", flags=SAFE | CONTINUED).raw,
    "data of one chunk": data(5, b"one message", flags=CONTINUES).raw,
    "data with a timestamp": encode_data(RING, 5, 3, 0, 1, CONTINUED, [b"one", b"two"], 77).raw,
    "token with a timestamp": timed_token().encode(),
    "token of a ring with a schedule": weighted_token().encode(),
    "recovered": encode_recovered(RING, 2, 3, data(5, b"one", b"two", ring=ConfigurationId(4, 2))).raw,
    "token": token(token_seq=9, seq=7, aru=3, aru_id=2, rtr=[4, 6], fcc=3, backlog=1).encode(),
    "idle token": token().encode(),
    "token of a slow ring": token(seq=7, rtr=[4], brake=3, holds=[200, 0, LONGEST_HOLD_US]).encode(),
    "commit": Commit(
        ConfigurationId(12, 1),
        (1, 2, 3),
        2,
        (Entry(1, RING, 7, 5, True, LIMITS), Entry(2, ConfigurationId(4, 2), 0, 0, False, LIMITS)),
    ).encode(),
    "commit with rates": Commit(
        ConfigurationId(12, 1), (1, 2), 1, (Entry(1, RING, 7, 5, True, LIMITS, 1_000),)
    ).encode(),
    "commit with a schedule": Commit(
        ConfigurationId(12, 1),
        (1, 2, 3),
        4,
        tuple(Entry(node, RING, 7, 5, True, LIMITS, 100 * node) for node in (1, 2, 3)),
        visits=(0, 1, 2, ~0, ~2, ~1),
    ).encode(),
    "commit, second rotation": Commit(
        ConfigurationId(12, 1), (1,), 2, (Entry(1, RING, 7, 5, True, LIMITS),)
    ).encode(),
    "join": Join(2, 8, (1, 2, 3), (3,), merge=True).encode(),
    "farewell": Join(2, 8, (2,), (), leave=True).encode(),
    "announce": Announce(2, RING, (1, 2), (7, 9)).encode(),
    "hurry": Hurry(RING).encode(),
}
each_sample = pytest.mark.parametrize("raw", SAMPLES.values(), ids=SAMPLES.keys())


def test_there_is_a_sample_of_every_kind() -> None:
    assert {raw[3] for raw in SAMPLES.values()} == set(KINDS)
    assert list(KINDS) == [DATA, RECOVERED, TOKEN, COMMIT, JOIN, ANNOUNCE, HURRY, PART]


@examples(300)
@given(any_packet)
def test_what_is_encoded_is_what_is_decoded(packet: AnyPacket) -> None:
    """000 §5.1, §6.1, §7.1: every field of every message and token arrives as it was sent."""
    assert fields(decode(on_the_wire(packet))) == fields(packet)


def test_a_data_packet_keeps_its_bytes_for_retransmission() -> None:
    """000 §5.2: a processor that has received a requested message retransmits it, as it was."""
    sent = data(5, b"payload")
    arrived = decode_data(sent.raw)
    assert arrived.raw is sent.raw
    assert arrived == sent


def test_a_recovered_packet_encapsulates_the_old_one_unchanged() -> None:
    """000 §7.2: each message encapsulates the old ring message with its old ring identifier."""
    old = data(5, b"payload", ring=ConfigurationId(4, 2))
    arrived = decode(encode_recovered(RING, 1, 3, old).raw)
    assert isinstance(arrived, Recovered)
    assert arrived.old == old
    assert (arrived.ring_seq, arrived.ring_rep, arrived.seq, arrived.sender) == (*RING, 1, 3)


# --- what no correct peer sends -----------------------------------------------------------------


@examples(300)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_as_malformed(raw: bytes) -> None:
    accepted(raw)


@examples(600)
@given(st.sampled_from(sorted(KINDS)), st.binary(max_size=200))
def test_arbitrary_bytes_behind_a_right_prefix_are_refused_or_read_one_way(kind: int, tail: bytes) -> None:
    accepted(prefix(kind) + tail)


@each_sample
def test_every_truncation_is_refused(raw: bytes) -> None:
    assert accepted(raw)
    for length in range(len(raw)):
        assert not accepted(raw[:length]), f"accepted {length} of {len(raw)} bytes"


@each_sample
def test_every_extension_is_refused(raw: bytes) -> None:
    for tail in (b"\0", b"\xff", bytes(8)):
        assert not accepted(raw + tail)


@pytest.mark.untraced
@each_sample
def test_every_changed_byte_is_refused_or_read_one_way(raw: bytes) -> None:
    changed = bytearray(raw)
    for place, right in enumerate(raw):
        for wrong in range(256):
            changed[place] = wrong
            accepted(bytes(changed))
        changed[place] = right


def extremes(raw: bytes) -> Iterator[bytes]:
    """The packet with every one, two, four and eight bytes of it set to the values that break readers."""
    for width in (1, 2, 4, 8):
        top = 1 << (8 * width)
        for value in (0, 1, top // 2 - 1, top // 2, top - 1):
            patch = value.to_bytes(width, "little")
            for place in range(4, len(raw) - width + 1):
                yield raw[:place] + patch + raw[place + width :]


@pytest.mark.untraced
@each_sample
def test_extreme_lengths_and_counts_are_refused_without_allocating(raw: bytes) -> None:
    """Everything is bounded: a short packet that claims to be huge costs no more than a short packet."""
    for changed in extremes(raw):  # caches of the struct module are filled here
        accepted(changed)
    tracemalloc.start()
    try:
        for changed in extremes(raw):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            accepted(changed)
            peak = tracemalloc.get_traced_memory()[1] - before
            assert peak < 32_768, changed.hex()
    finally:
        tracemalloc.stop()


@each_sample
def test_reasons_are_few_enough_to_be_counted(raw: bytes) -> None:
    """A reason is a name to count under: no packet's content shows in it."""
    reasons = set()
    for changed in extremes(raw):
        try:
            decode(changed)
        except Malformed as bad:
            reasons.add(str(bad))
    assert len(reasons) <= 10
    assert all(reason and reason.replace(" ", "").isalpha() for reason in reasons)


def test_an_unknown_kind_is_refused() -> None:
    for kind in {*range(256)} - set(KINDS):
        with pytest.raises(Malformed, match="unknown kind"):
            decode(prefix(kind) + bytes(100))


_DATA_TAIL = struct.pack("<H", 1) + struct.pack("<H", 1) + b"x"


def data_bytes(
    flags: int = 0,
    ring_seq: int = 8,
    ring_rep: int = 1,
    seq: int = 1,
    origin: int = 2,
    incarnation: int = 0,
    number: int = 1,
) -> bytes:
    head = struct.pack("<Bqiqiiq", flags, ring_seq, ring_rep, seq, origin, incarnation, number)
    return prefix(DATA) + head + _DATA_TAIL


@pytest.mark.parametrize(
    "raw",
    [
        data_bytes(ring_seq=-1),
        data_bytes(ring_rep=0),
        data_bytes(ring_rep=-1),
        data_bytes(seq=0),
        data_bytes(origin=0),
        data_bytes(origin=-1),
        data_bytes(incarnation=-1),
        data_bytes(number=0),
        data_bytes(ring_seq=MAX_COUNT),
        data_bytes(seq=MAX_COUNT),
        data_bytes(number=MAX_COUNT),
    ],
)
def test_a_message_with_an_impossible_number_is_refused(raw: bytes) -> None:
    """Sequence numbers, message numbers and node identifiers start at 1 (000 §5.1)."""
    decode(data_bytes())
    decode(data_bytes(ring_seq=MOST, seq=MOST, number=MOST))
    with pytest.raises(Malformed, match="bad number"):
        decode(raw)


def test_a_message_with_unknown_flags_is_refused() -> None:
    decode(data_bytes(flags=7))
    with pytest.raises(Malformed, match="unknown flags"):
        decode(data_bytes(flags=16))


@pytest.mark.parametrize(
    ("flags", "chunks"),
    [
        (CONTINUES, [b""]),
        (CONTINUED, [b""]),
        (CONTINUES | CONTINUED, [b""]),
        (CONTINUES, [b"", b"x"]),
        (CONTINUED, [b"x", b""]),
        (CONTINUES | CONTINUED, [b"", b"x"]),
        (CONTINUES | CONTINUED, [b"x", b""]),
    ],
)
def test_an_empty_fragment_is_refused(flags: int, chunks: list[bytes]) -> None:
    """It would cost its receivers a place in their lists, and bring no message nearer to its end."""
    with pytest.raises(Malformed, match=r"^empty fragment$"):
        decode(data(1, *chunks, flags=flags).raw)
    with pytest.raises(Malformed, match=r"^empty fragment$"):
        decode(encode_recovered(RING, 1, 1, data(1, *chunks, flags=flags)).raw)


@pytest.mark.parametrize(
    ("flags", "chunks"),
    [
        (0, [b""]),
        (SAFE, [b"", b""]),
        (CONTINUES, [b"x", b""]),
        (CONTINUED, [b"", b"x"]),
        (CONTINUES | CONTINUED, [b"x", b"", b"x"]),
    ],
)
def test_an_empty_message_is_no_empty_fragment(flags: int, chunks: list[bytes]) -> None:
    assert decode_data(data(1, *chunks, flags=flags).raw).chunks == chunks


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (prefix(RECOVERED) + struct.pack("<qiqi", -1, 1, 1, 1) + data(1).raw, "bad number"),
        (prefix(RECOVERED) + struct.pack("<qiqi", MAX_COUNT, 1, 1, 1) + data(1).raw, "bad number"),
        (prefix(RECOVERED) + struct.pack("<qiqi", 8, 1, MAX_COUNT, 1) + data(1).raw, "bad number"),
        (prefix(RECOVERED) + struct.pack("<qiqi", 8, 0, 1, 1) + data(1).raw, "bad node id"),
        (prefix(RECOVERED) + struct.pack("<qiqi", 8, 1, 0, 1) + data(1).raw, "bad number"),
        (prefix(RECOVERED) + struct.pack("<qiqi", 8, 1, 1, 0) + data(1).raw, "bad node id"),
        (prefix(RECOVERED) + struct.pack("<qiqi", 8, 1, 1, 1), "too short"),
        (prefix(RECOVERED) + struct.pack("<qiqi", 8, 1, 1, 1) + token().encode(), "envelope without data"),
    ],
)
def test_an_envelope_holds_a_data_packet_and_nothing_else(raw: bytes, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        decode(raw)


def test_an_envelope_within_an_envelope_is_refused() -> None:
    inner = encode_recovered(RING, 1, 1, data(1))
    with pytest.raises(Malformed, match="envelope without data"):
        decode(prefix(RECOVERED) + struct.pack("<qiqi", 8, 1, 1, 1) + inner.raw)


def token_bytes(
    ring_seq: int = 8,
    rep: int = 1,
    token_seq: int = 1,
    seq: int = 3,
    aru: int = 3,
    aru_id: int = 0,
    fcc: int = 0,
    backlog: int = 0,
    entitled: int = 0,
    flags: int = 0,
    brake: int = 0,
    holds: int = 0,
    requests: int = 0,
    partial: int = 0,
    strangers: int = 0,
    lists: bytes = b"",
) -> bytes:
    head = struct.pack(
        "<qiqqqiIIIBiHHHH",
        ring_seq,
        rep,
        token_seq,
        seq,
        aru,
        aru_id,
        fcc,
        backlog,
        entitled,
        flags,
        brake,
        holds,
        requests,
        partial,
        strangers,
    )
    return prefix(TOKEN) + head + lists


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (token_bytes(ring_seq=-1), "bad number"),
        (token_bytes(rep=0), "bad number"),
        (token_bytes(token_seq=0), "bad number"),
        (token_bytes(aru=4), "bad number"),
        (token_bytes(aru=-1), "bad number"),
        (token_bytes(seq=-1, aru=-1), "bad number"),
        (token_bytes(aru_id=-1), "bad number"),
        (token_bytes(flags=16), "bad number"),
        (token_bytes(flags=8), "truncated"),
        (token_bytes(flags=8, lists=struct.pack("<HH", 0, 0)), "bad schedule"),
        (token_bytes(flags=8, lists=struct.pack("<HH3h", 3, 3, 0, 1, 2)), "bad schedule"),
        (token_bytes(flags=8, lists=struct.pack("<HH3h", 0, 4, 0, 1, 2)), "bad schedule"),
        (token_bytes(brake=-1), "bad number"),
        (token_bytes(ring_seq=MAX_COUNT), "bad number"),
        (token_bytes(token_seq=MAX_COUNT), "bad number"),
        (token_bytes(seq=MAX_COUNT), "bad number"),
        (token_bytes(fcc=MOST_FLOW + 1), "bad number"),
        (token_bytes(backlog=MOST_FLOW + 1), "bad number"),
        (token_bytes(fcc=2**32 - 1, backlog=2**32 - 1), "bad number"),
        (token_bytes(holds=1), "lists do not fit"),
        (token_bytes(requests=1), "lists do not fit"),
        (token_bytes(lists=bytes(4)), "lists do not fit"),
        (token_bytes(requests=1, lists=struct.pack("<qI", 0, 0)), "bad request"),
        (token_bytes(requests=1, lists=struct.pack("<qI", 4, 0)), "bad request"),
        (token_bytes(requests=1, lists=struct.pack("<qI", 3, 1)), "bad request"),
        (token_bytes(requests=1, lists=struct.pack("<qI", 2, 1)), "bad request"),
        (token_bytes(requests=1, partial=1, lists=struct.pack("<qIIQ", 2, 0, 1, 1)), "bad request"),
        (token_bytes(requests=1, partial=1, lists=struct.pack("<qIIQ", 2, 0, 0, 0)), "bad request"),
        (token_bytes(requests=1, partial=2, lists=bytes(36)), "too many entries"),
        (token_bytes(entitled=MOST_FLOW + 1), "bad number"),
        (token_bytes(strangers=1, lists=struct.pack("<i", 0)), "bad node id"),
        (token_bytes(strangers=1, lists=struct.pack("<i", -5)), "bad node id"),
        (token_bytes(requests=MAX_REQUESTS + 1, lists=bytes(4 * MAX_REQUESTS + 12)), "too many entries"),
        (token_bytes(holds=MAX_MEMBERS + 1, lists=bytes(4 * MAX_MEMBERS + 4)), "too many entries"),
        (token_bytes(strangers=MAX_MEMBERS + 1, lists=bytes(4 * MAX_MEMBERS + 4)), "too many entries"),
    ],
)
def test_a_token_no_holder_forwards_is_refused(raw: bytes, reason: str) -> None:
    """000 §5.1: seq is a high-water mark, aru a low-water mark, rtr asks for what was broadcast."""
    decode_token(token_bytes())
    with pytest.raises(Malformed, match=reason):
        decode(raw)


def test_the_fullest_token_fits_a_datagram() -> None:
    full = token(seq=MAX_REQUESTS, rtr=range(1, MAX_REQUESTS + 1))
    full.merge = tuple(range(1, MAX_MEMBERS + 1))
    full.holds = [LONGEST_HOLD_US] * MAX_MEMBERS
    assert fields(decode(full.encode())) == fields(full)


ENTRY = struct.Struct("<iqiqqBIII")


def commit_bytes(group: tuple[int, ...], memb_index: int, count: int, *lines: tuple[int, ...]) -> bytes:
    lives = struct.pack(f"<{len(group)}I", *range(len(group)))
    head = (
        prefix(COMMIT) + pack_ring(RING) + pack_nodes(group) + lives + struct.pack("<HH", memb_index, count)
    )
    return head + b"".join(ENTRY.pack(*line[:6], *(line[6:] or LIMITS)) for line in lines)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (commit_bytes((), 0, 0), "bad commit$"),
        (commit_bytes((1, 2), 0, 0), "bad commit$"),
        (commit_bytes((2, 3), 1, 1, (2, 4, 1, 0, 0, 0)), "bad commit$"),
        (commit_bytes((1, 2), 5, 2, (1, 4, 1, 0, 0, 0), (2, 4, 1, 0, 0, 0)), "bad commit$"),
        (commit_bytes((1, 2), 1, 0), "bad commit$"),
        (commit_bytes((1, 2), 1, 2, (1, 4, 1, 0, 0, 0), (2, 4, 1, 0, 0, 0)), "bad commit$"),
        (commit_bytes((1, 2), 2, 2, (1, 4, 1, 0, 0, 0)), "lists do not fit"),
        (commit_bytes((1, 2), 1, 1, (2, 4, 1, 0, 0, 0)), "bad commit entry"),
        (commit_bytes((1, 2), 1, 1, (1, -4, 1, 0, 0, 0)), "bad commit entry"),
        (commit_bytes((1, 2), 1, 1, (1, 4, 0, 0, 0, 0)), "bad commit entry"),
        (commit_bytes((1, 2), 1, 1, (1, 4, 1, 5, 6, 0)), "bad commit entry"),
        (commit_bytes((1, 2), 1, 1, (1, 4, 1, -1, -1, 0)), "bad commit entry"),
        (commit_bytes((1, 2), 1, 1, (1, 4, 1, 0, 0, 2)), "bad commit entry"),
        (commit_bytes((1, 2), 1, 1, (1, MAX_COUNT, 1, 0, 0, 0)), "bad commit entry"),
        (commit_bytes((1, 2), 1, 1, (1, 4, 1, MAX_COUNT, 0, 0)), "bad commit entry"),
        (commit_bytes((1, 2), 1, 1, (1, 4, 1, 0, 0, 0, 0, 1_400, 1_400)), "bad commit entry"),
        (commit_bytes((1, 2), 1, 1, (1, 4, 1, 0, 0, 0, 2**31, 1_400, 1_400)), "bad commit entry"),
        (prefix(COMMIT) + pack_ring(RING) + struct.pack("<H", MAX_MEMBERS + 1), "too many members"),
    ],
)
def test_a_commit_token_no_member_forwards_is_refused(raw: bytes, reason: str) -> None:
    """000 §6.1: memb_list is filled in the order of the ring, an entry by each that forwards it."""
    decode(commit_bytes((1, 2), 1, 1, (1, 4, 1, 6, 5, 1)))
    with pytest.raises(Malformed, match=reason):
        decode(raw)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (Join(4, 8, (1, 2), ()).encode(), "bad join"),
        (Join(1, 8, (1, 2), (3,)).encode(), "bad join"),
        (Join(0, 8, (1, 2), ()).encode(), "bad node id"),
        (Join(1, -1, (1, 2), ()).encode(), "bad number"),
        (Join(1, MAX_COUNT, (1, 2), ()).encode(), "bad number"),
        (Join(1, 8, (1, 2), ()).encode() + b"x", "trailing bytes"),
        (
            prefix(JOIN) + struct.pack("<IIqB", 1, 7, 8, 4) + pack_nodes((1,)) + pack_nodes(()),
            "unknown flags",
        ),
    ],
)
def test_a_join_no_gatherer_broadcasts_is_refused(raw: bytes, reason: str) -> None:
    """000 §6.1: the fail_set is a subset of the proc_set, which holds the sender."""
    with pytest.raises(Malformed, match=reason):
        decode(raw)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (Announce(4, RING, (1, 2), ()).encode(), "bad announce"),
        (Announce(1, RING, (1, 2), ()).encode() + b"x", "trailing bytes"),
        (Hurry(RING).encode() + b"x", "trailing bytes"),
    ],
)
def test_announcements_and_wake_ups_are_exact(raw: bytes, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        decode(raw)


def test_packets_are_encoded_with_their_members_in_ascending_order() -> None:
    assert Join(2, 8, (3, 1, 2), ()).encode() == Join(2, 8, (1, 2, 3), ()).encode()


# --- what is accepted can be passed on ----------------------------------------------------------


def visit(raw: bytes) -> bytes:
    """What any holder does with a token: enter its own packets and backlog, count the hop, send it."""
    arrived = decode_token(raw)
    config = TotemConfig()
    own = Ring(arrived.ring, (1, 2), 1, config)
    arrived.seq += 1
    own.flow.settle(arrived, 1, 1)
    own.forward(arrived, arrived.seq)
    return arrived.encode()


def changed_token(**values: int) -> bytes:
    made = token()
    for name, value in values.items():
        setattr(made, name, value)
    return made.encode()


def test_an_ordinary_token_can_be_passed_on() -> None:
    assert accepted(visit(changed_token(token_seq=2**61, seq=2**61, aru=2**61, fcc=2**30, backlog=2**30)))


@pytest.mark.parametrize(
    ("most", "names"),
    [(MOST, ("token_seq",)), (MOST, ("seq", "aru")), (MOST_FLOW, ("fcc",)), (MOST_FLOW, ("backlog",))],
    ids=["token_seq", "seq", "fcc", "backlog"],
)
def test_a_token_that_was_accepted_can_be_passed_on(most: int, names: tuple[str, ...]) -> None:
    """Contract: anything may be in a packet, and a machine never raises because of one."""
    raw = changed_token(**dict.fromkeys(names, most))
    assert accepted(raw)
    visit(raw)
    assert not accepted(changed_token(**dict.fromkeys(names, most + 1)))


def test_a_ring_can_be_formed_from_any_join_that_was_accepted() -> None:
    """000 §6.2.2: the new ring's number is four plus the maximum of the numbers in the Joins."""
    join = decode(Join(2, MOST, (1, 2), ()).encode())
    assert isinstance(join, Join)
    Commit(ConfigurationId(join.ring_seq + 4, 1), (1, 2), 0, ()).encode()
    assert not accepted(Join(2, MOST + 1, (1, 2), ()).encode())


def test_every_message_of_an_accepted_packet_has_a_64_bit_number() -> None:
    arrived = decode_data(data(1, *[b""] * 30_000, number=MOST).raw)
    assert arrived.number + len(arrived.chunks) - 1 < 2**63
    assert not accepted(data(1, number=MOST + 1).raw)


def test_a_fresh_account_takes_any_token() -> None:
    """A token may claim less than this node remembers of it; its fields never turn negative."""
    flow = FlowControl(TotemConfig(), 3, LIMITS)
    flow.settle(token(), 5, 7)
    low = token(fcc=2, backlog=3)
    flow.settle(low, 0, 0)
    assert (low.fcc, low.backlog) == (0, 0)


# --- sizes --------------------------------------------------------------------------------------


@examples(60)
@given(
    packet_size=st.integers(256, 3000),
    messages=st.lists(st.tuples(st.integers(0, 4000), st.sampled_from(Guarantee)), max_size=12),
)
def test_no_packet_of_messages_is_larger_than_packet_size(
    packet_size: int, messages: list[tuple[int, Guarantee]]
) -> None:
    """Nor is it in the envelope of a recovery; and every packet a sender packs is accepted."""
    config = TotemConfig(packet_size=packet_size)
    queue = SendQueue(config.send_queue)
    for size, guarantee in messages:
        queue.accept([bytes(size)], guarantee)
    seq = 0
    while (packed := queue.next_packet(config.chunk_space)) is not None:
        seq += 1
        flags = CONTINUES * packed.continues | CONTINUED * packed.continued
        enveloped = encode_recovered(RING, seq, 1, data(seq, *packed.chunks, flags=flags))
        assert len(enveloped.raw) <= packet_size
        assert accepted(enveloped.raw)


def test_with_the_defaults_tokens_are_smaller_than_packet_size() -> None:
    """Except for what TotemConfig.packet_size names: many members, or very many requests."""
    config = TotemConfig()
    full = token(seq=config.max_requests, rtr=range(1, config.max_requests + 1))
    full.holds = [LONGEST_HOLD_US] * 25
    assert len(full.encode()) <= config.packet_size
    group = tuple(range(1, 26))
    entries = tuple(Entry(node, RING, 0, 0, False, LIMITS) for node in group)
    assert len(Commit(RING, group, len(group), entries).encode()) <= config.packet_size


def test_every_packet_has_a_name() -> None:
    assert {TOTEM.kind_of(raw) for raw in SAMPLES.values()} == {kind.name for kind in KINDS.values()}
    assert [TOTEM.kind_of(raw) for raw in (b"", b"OC\x01", b"OC\x01\x00")] == [None, None, None]
