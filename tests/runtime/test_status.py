"""The status document: figures a second, who is slow, what was dropped."""

from __future__ import annotations

import json
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ordercast.core.identity import Configuration, ConfigurationId, Kind
from ordercast.runtime import status as status_module
from ordercast.runtime.driver import Driver
from ordercast.runtime.status import SLOW_US, Counted, Living, Rates, status
from ordercast.totem.protocol import TOTEM
from ordercast.transport.paths import Measured
from ordercast.transport.peers import Peer


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(status_module, "time", SimpleNamespace(monotonic=lambda: self.now))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def channel(**given: Any) -> SimpleNamespace:
    return SimpleNamespace(
        **{"unsent": 0, "asked": 100, "granted": 80, "offload_send": True, "offload_receive": False, **given}
    )


def a_driver(**given: Any) -> Any:
    machine = SimpleNamespace(stats={}, waits={}, laggard=None, role="")
    return SimpleNamespace(
        **{
            "machine": machine,
            "wires": SimpleNamespace(token=channel(), data=channel(), dropped={}),
            "drops": Counter(),
            "state": "operational",
            "because": "all agreed",
            "delivered": 0,
            "sent": 0,
            "packets_sent": Counter(),
            "lag": SimpleNamespace(us=1234.5, stops=2),
            "paths": SimpleNamespace(
                round_trip_us=lambda node: 250 if node == 2 else None, measured=Measured(250, 1400)
            ),
            **given,
        }
    )


def a_node(driver: Any, *peers: Peer) -> Living:
    return cast(
        Living,
        SimpleNamespace(
            id=1,
            incarnation=3,
            address="127.0.0.1:4801",
            driver=driver,
            links=SimpleNamespace(peers={peer.node: peer for peer in peers}),
            started=90.0,
            sealed=True,
            protocol=TOTEM,
            settled=True,
            session=SimpleNamespace(
                delivered_bytes=0,
                unread=7,
                configuration=Configuration(ConfigurationId(8, 1), Kind.REGULAR, (1, 2)),
            ),
            rates=Rates(),
            trace_problem=None,
            queued=5,
        ),
    )


def test_a_node_that_just_began(clock: Clock) -> None:
    document = status(a_node(a_driver()))
    assert json.loads(json.dumps(document)) == document
    assert document["uptime_s"] == 10
    assert document["rotation_us"] is None
    assert document["slow"] is None
    assert document["drops"] == {}
    assert document["configuration"] == {"seq": 8, "rep": 1, "kind": "regular", "members": [1, 2]}
    assert (document["protocol"], document["role"], document["settled"]) == ("totem", None, True)

    assert document["buffers"] == {"asked": 100, "granted": 80}
    assert document["datagram_bytes"] == 1400
    assert document["offload"] == {"send": True, "receive": False}
    assert (document["lag_us"], document["stops"]) == (1234, 2)
    assert (document["queued_bytes"], document["unread_bytes"]) == (5, 7)
    assert document["sealed"] is True


def test_peers_are_listed_in_order(clock: Clock) -> None:
    late, early = Peer(9, ("10.0.0.9", 1), ("10.0.0.9", 2)), Peer(2, ("::1", 1, 0, 0), ("::1", 2, 0, 0))
    late.heard, early.heard, early.linked = 99.0, 99.5, True
    assert status(a_node(a_driver(), late, early))["peers"] == [
        {"node": 2, "address": "[::1]:1", "linked": True, "silent_s": 0.5, "round_trip_us": 250},
        {
            "node": 9,
            "address": "10.0.0.9:1",
            "linked": False,
            "silent_s": 1.0,
            "round_trip_us": None,
        },
    ]


def test_who_is_slow_is_named_only_when_it_matters(clock: Clock) -> None:
    driver = a_driver()
    driver.machine.waits = {2: SLOW_US, 3: 10}
    assert status(a_node(driver))["slow"] is None
    driver.machine.waits = {2: 10, 3: SLOW_US + 1}
    driver.machine.laggard = 3
    document = status(a_node(driver))
    assert document["slow"] == {"node": 3, "waits_us": SLOW_US + 1}
    assert document["waits_us"] == {"2": 10, "3": SLOW_US + 1}
    assert document["held_up_by"] == 3


def test_what_the_kernel_refused_is_a_drop(clock: Clock) -> None:
    driver = a_driver(drops=Counter({"zebra": 1, "ant": 2}))
    driver.wires.data.unsent, driver.wires.token.unsent = 3, 4
    drops = status(a_node(driver))["drops"]
    assert list(drops) == ["ant", "zebra", "kernel refused to send"]
    assert drops["kernel refused to send"] == 7
    assert driver.drops == {"zebra": 1, "ant": 2}


def test_figures_a_second(clock: Clock) -> None:
    driver, rates = a_driver(), Rates()
    counted = SimpleNamespace(delivered_bytes=0, unread=0)

    def note() -> None:
        rates.note(cast(Driver, driver), cast(Counted, counted))

    driver.delivered, driver.sent, counted.delivered_bytes = 200, 50, 10_000
    driver.machine.stats = {"rotations": 10, "rotation_us_total": 3000.0}
    clock.now += 2
    note()
    assert (rates.delivered_per_s, rates.sent_per_s, rates.bytes_per_s) == (100, 25, 5000)
    assert rates.rotation_us == 300
    clock.now += 1
    note()
    assert (rates.delivered_per_s, rates.sent_per_s, rates.bytes_per_s) == (0, 0, 0)
    assert rates.rotation_us is None, "none was seen of late"
    note()
    assert rates.delivered_per_s == 0, "no time has passed: nothing to divide by"


def test_a_node_that_was_not_let_in_yet_is_in_no_configuration(clock: Clock) -> None:
    node = a_node(a_driver())
    cast(Any, node.session).configuration = None
    assert status(node)["configuration"] is None


def test_the_role_of_a_machine_that_has_one_is_told(clock: Clock) -> None:
    machine = SimpleNamespace(stats={}, waits={}, laggard=None, role="sequencer")
    assert status(a_node(a_driver(machine=machine)))["role"] == "sequencer"
