"""What a node broadcasts on one of its rings."""

from __future__ import annotations

from ordercast.core.contract import Effect, Originate
from ordercast.core.identity import ConfigurationId
from ordercast.rings.messages import write_several
from ordercast.rings.outbox import RingOutbox
from ordercast.totem.config import TotemConfig
from ordercast.totem.ordering import Ring

CONFIG = TotemConfig()
RING = Ring(ConfigurationId(4, 1), (1, 2), 1, CONFIG)


def test_a_guarantee_vector_is_written_when_it_is_broadcast_and_behind_what_waits() -> None:
    """001: it must not say less than the gateway knows by then, nor come before what it speaks of."""
    outbox = RingOutbox(CONFIG)
    outbox.open = True
    known = [b"known when it was due"]
    outbox.put(b"a forwarded message")
    outbox.vector = lambda: known[-1]
    known.append(b"known when the token came")
    effects: list[Effect] = []
    packets: list[bytes] = []
    while outbox.waiting:
        packet = outbox.next_packet(RING, len(packets) + 1, 1, effects)
        assert packet is not None
        packets.append(packet.raw)
    told = b"".join(packets)
    assert told.index(b"a forwarded message") < told.index(b"known when the token came")
    assert b"known when it was due" not in told


def broadcast(outbox: RingOutbox) -> list[bytes]:
    """The payloads of all that waits, and it fits into one packet."""
    effects: list[Effect] = []
    assert outbox.next_packet(RING, 1, 1, effects) is not None
    assert not outbox.waiting
    (originated,) = effects
    assert isinstance(originated, Originate)
    return list(originated.batch.payloads)


def test_places_wait_for_the_vector_and_share_its_payload() -> None:
    outbox = RingOutbox(CONFIG)
    outbox.open = True
    outbox.put_place(b"first place")
    outbox.put_place(b"second place")
    assert outbox.traffic_bytes == len(b"first placesecond place")
    assert outbox.next_packet(RING, 1, 1, []) is None
    outbox.vector = lambda: b"vector"
    assert broadcast(outbox) == [*write_several([b"first place", b"second place", b"vector"])]
    assert outbox.traffic_bytes == 0


def test_contents_do_not_come_before_the_places_that_were_forwarded_before_them() -> None:
    """001 Fig. 3: gateways forward in order; so a forwarded message says that all before it is there."""
    outbox = RingOutbox(CONFIG)
    outbox.open = True
    outbox.put_place(b"before")
    outbox.put_behind(b"contents")
    outbox.put_place(b"behind")
    outbox.vector = lambda: b"vector"
    assert broadcast(outbox) == [
        *write_several([b"before", b"contents"]),
        *write_several([b"behind", b"vector"]),
    ]


def test_many_places_are_known_to_take_many_packets() -> None:
    outbox = RingOutbox(CONFIG)
    outbox.open = True
    outbox.vector = lambda: b"vector"
    few = outbox.backlog
    for _ in range(1000):
        outbox.put_place(bytes(50))
    assert outbox.backlog >= few + 1000 * 50 // CONFIG.packet_size


def test_a_vector_of_a_configuration_that_was_given_up_is_never_written() -> None:
    outbox = RingOutbox(CONFIG)
    outbox.open = True
    outbox.put_place(b"place of another configuration")
    outbox.vector = lambda: b"of another configuration"
    assert outbox.waiting
    assert outbox.backlog == 1
    outbox.close()
    assert not outbox.waiting
    assert outbox.traffic_bytes == 0
    outbox.open = True
    assert outbox.next_packet(RING, 1, 1, []) is None
