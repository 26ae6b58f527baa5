"""A small message, a burst and a large one on every orderer, and what each keeps afterwards."""

from __future__ import annotations

import pytest
from shuffler import ALL, Shuffler, check_same

from ordercast.core.contract import QueueFull
from ordercast.core.identity import Guarantee
from ordercast.sequencers.cm import Cm
from ordercast.sequencers.declared import KINDS
from ordercast.sequencers.member import Member, RulesClass
from ordercast.sequencers.packets import decode
from ordercast.viewsync.config import GroupConfig

every = pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.NAME)


def group(kind: RulesClass, config: GroupConfig | None = None, **network: float) -> Shuffler:
    run = Shuffler(kind, 3, config, **network)  # type: ignore[arg-type]
    run.install(run.nodes)
    return run


def finish(run: Shuffler) -> list[bytes]:
    run.run()
    run.loss = 0
    run.run(1_000_000)
    check_same(run.nodes.values())
    for node in run.nodes.values():
        assert node.orderer.order is not None
        assert not node.orderer.order.BUF
    return [heard.payload for heard in run.nodes[1].heard]


@every
def test_a_small_message_and_an_empty_one(kind: RulesClass) -> None:
    run = group(kind)
    run.submit(1, b"")
    run.submit(2, b"x", guarantee=Guarantee.SAFE)
    run.submit(3, b"", b"", guarantee=Guarantee.K1)
    assert sorted(finish(run)) == [b"", b"", b"", b"x"]


@pytest.mark.untraced
@every
def test_a_burst(kind: RulesClass) -> None:
    run = group(kind, loss=0.01)
    for node in run.nodes:
        run.submit(node, *[b"%d %d" % (node, n) for n in range(5_000)])
    heard = finish(run)
    assert len(heard) == 15_000
    for node in run.nodes:
        mine = [payload for payload in heard if payload.startswith(b"%d " % node)]
        assert mine == [b"%d %d" % (node, n) for n in range(5_000)]
    packets = run.nodes[1].orderer.stats["packets"]
    assert packets < 150, "many messages travel in one packet"


@pytest.mark.untraced
@every
def test_a_message_of_16_mebibytes(kind: RulesClass) -> None:
    run = group(kind, GroupConfig(packet_size=60_000), loss=0.005)
    large = bytes(range(256)) * (16 * 4096)
    run.submit(2, b"before", large, b"after")
    run.submit(3, b"meanwhile")
    heard = finish(run)
    assert [payload for payload in heard if payload != b"meanwhile"] == [b"before", large, b"after"]


def test_what_waits_is_bounded() -> None:
    run = group(Cm, GroupConfig(send_queue=10_000, max_message_size=8_000))
    run.nodes[2].orderer.closed = True
    run.submit(2, bytes(6_000))
    assert run.nodes[2].orderer.room < 4_000
    with pytest.raises(QueueFull):
        run.submit(2, bytes(6_000))


def test_before_a_life_begins_there_is_no_room() -> None:
    assert Member(Cm, 1, GroupConfig()).room == 0


@every
def test_every_orderer_says_what_it_is(kind: RulesClass) -> None:
    assert isinstance(kind, type)
    assert kind.__name__.lower() == kind.NAME.replace("-", "")
    assert kind.SUMMARY.endswith(".")
    assert kind.SUMMARY.count(".") == 1
    assert set(kind.KINDS.items()) <= set(KINDS.items())


@every
def test_no_packet_is_larger_than_configured(kind: RulesClass) -> None:
    run = group(kind, GroupConfig(packet_size=500, max_message_size=4_000))
    sizes = []
    run.lost = lambda source, target, kind: False
    transmit = run._transmit

    def measured(source: int, target: int, data: bytes) -> None:
        sizes.append(len(data))
        transmit(source, target, data)

    run._transmit = measured  # type: ignore[method-assign]
    for node in run.nodes:
        run.submit(node, bytes(3_000), *[b"y" * 40] * 100)
    finish(run)
    assert 400 < max(sizes) <= 500


@every
def test_a_driver_may_decode_once_for_all(kind: RulesClass) -> None:
    seen: dict[bytes, object] = {}

    def remembered(data: bytes) -> object:
        if data not in seen:
            seen[data] = decode(data)
        return seen[data]

    run = group(kind)
    for member in run.nodes.values():
        member.orderer._decode = remembered  # type: ignore[assignment]
    for node in run.nodes:
        run.submit(node, b"m")
    assert len(finish(run)) == 3
    assert seen
