"""What a node broadcasts on one of its rings."""

from __future__ import annotations

from ordercast.core.contract import Effect
from ordercast.core.identity import ConfigurationId
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


def test_a_vector_of_a_configuration_that_was_given_up_is_never_written() -> None:
    outbox = RingOutbox(CONFIG)
    outbox.open = True
    outbox.vector = lambda: b"of another configuration"
    assert outbox.waiting
    assert outbox.backlog == 1
    outbox.close()
    assert not outbox.waiting
    outbox.open = True
    assert outbox.next_packet(RING, 1, 1, []) is None
