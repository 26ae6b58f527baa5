"""Packets of many datagrams on a network that loses single ones: the family goes on, and no view changes."""

from __future__ import annotations

import msgspec
import pytest

from ordercast.catalogue import lab_protocol
from ordercast.core.protocol import LAN
from ordercast.protocols import PROTOCOLS
from ordercast.sequencers.loss import REMEMBERED, Loss
from ordercast.sim.experiment import Experiment, conduct
from ordercast.sim.network import Ethernet
from ordercast.sim.workload import Workload
from ordercast.viewsync.config import GroupConfig

pytestmark = pytest.mark.untraced

FAMILY = [name for name, protocol in PROTOCOLS.items() if protocol.settings is GroupConfig]
GIGABIT = Ethernet(bits_per_s=1_000_000_000, propagation_us=100, receive_us=20, unicast_us=20, send_us=15)


@pytest.mark.parametrize("name", FAMILY)
def test_what_is_lost_of_large_packets_is_sent_again_in_parts(name: str) -> None:
    settings = {
        **PROTOCOLS[name].profiles[LAN],
        "packet_size": 63_000,
        "window": 8,
        "max_unstable": 64,
        "founders": 2,
    }
    network = msgspec.structs.replace(GIGABIT, loss=0.1)
    load = Workload(rate=900.0, size=400)
    run = conduct(
        lab_protocol(name), Experiment(nodes=3, seconds=4, network=network, workload=load, settings=settings)
    )
    assert run.clean
    assert run.metrics.ordered >= 0.95 * run.metrics.submitted > 3_000
    assert run.stats["views"] == 0, "a view changed though everybody was there"


def test_packets_take_less_while_some_are_lost_and_grow_again() -> None:
    loss = Loss(GroupConfig(packet_size=60_000, datagram_size=1_400))
    most = loss.space
    loss.sent()
    assert (loss.space, loss.recent) == (most, False)
    loss.noticed()
    assert loss.space == most // 2
    assert loss.recent
    for _ in range(20):
        loss.noticed()
    least = loss.space
    assert 1_000 < least < 1_400, "no less than fits a datagram"
    sizes = []
    while loss.space < most:
        sizes.append(loss.space)
        loss.sent()
    assert sizes == sorted(set(sizes))
    assert len(sizes) > REMEMBERED
    assert not loss.recent


def test_packets_of_one_datagram_stay_as_they_are() -> None:
    loss = Loss(GroupConfig(packet_size=1_000, datagram_size=1_400))
    before = loss.space
    loss.noticed()
    assert (loss.space, loss.recent) == (before, True)
    for _ in range(REMEMBERED):
        loss.sent()
    assert (loss.space, loss.recent) == (before, False)
