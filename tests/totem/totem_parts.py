"""Parts of a ring for tests: its packets, tokens and members in one line each."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import HealthCheck, settings

from ordercast.core.contract import Deliver, Effect, Install
from ordercast.core.identity import Configuration, ConfigurationId, NodeId
from ordercast.totem.config import TotemConfig
from ordercast.totem.ordering import Ring
from ordercast.totem.packets import NOBODY, SAFE, Data, Token, encode_data

RING = ConfigurationId(8, 1)
CONFIG = TotemConfig()


def examples(most: int) -> settings:
    """So many examples, however busy the machine is."""
    return settings(max_examples=most, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def data(
    seq: int,
    *payloads: bytes,
    origin: NodeId = 3,
    number: int = 1,
    flags: int = 0,
    safe: bool = False,
    ring: ConfigurationId = RING,
) -> Data:
    """A regular message; without payloads it holds its own sequence number."""
    chunks = list(payloads) or [b"%d" % seq]
    return encode_data(ring, seq, origin, 0, number, flags | SAFE * safe, chunks)


def token(
    *,
    ring: ConfigurationId = RING,
    token_seq: int = 1,
    seq: int = 0,
    aru: int | None = None,
    aru_id: NodeId = NOBODY,
    rtr: Iterable[int] = (),
    fcc: int = 0,
    backlog: int = 0,
    entitled: int = 0,
    retrans_flg: bool = False,
    brake: NodeId = NOBODY,
    holds: Iterable[int] = (),
) -> Token:
    """A regular token on which, unless told otherwise, everyone has everything."""
    made = Token(ring)
    made.token_seq = token_seq
    made.seq = seq
    made.aru = seq if aru is None else aru
    made.aru_id = aru_id
    made.rtr = list(rtr)
    made.fcc = fcc
    made.backlog = backlog
    made.entitled = entitled
    made.retrans_flg = retrans_flg
    made.brake = brake
    made.holds = list(holds)
    return made


def ring(
    *packets: Data,
    me: NodeId = 1,
    members: tuple[NodeId, ...] = (1, 2, 3),
    id: ConfigurationId = RING,
    config: TotemConfig = CONFIG,
) -> Ring:
    """A ring as one member sees it, who has received these packets."""
    made = Ring(id, members, me, config)
    for packet in packets:
        assert made.window.add(packet.seq, packet)
    return made


def delivered(effects: Iterable[Effect]) -> list[bytes]:
    """The payloads handed to the application, in order."""
    return [payload for effect in effects if isinstance(effect, Deliver) for payload in effect.batch.payloads]


def story(effects: Iterable[Effect]) -> list[bytes | Configuration]:
    """Payloads and configurations in the order in which the application is told of them."""
    told: list[bytes | Configuration] = []
    for effect in effects:
        if isinstance(effect, Deliver):
            told.extend(effect.batch.payloads)
        elif isinstance(effect, Install):
            told.append(effect.configuration)
    return told
