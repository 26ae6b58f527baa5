"""The status document: figures a second, who is slow, what was dropped."""

from __future__ import annotations

import json
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ordercast.core.identity import Configuration, ConfigurationId, Kind
from ordercast.runtime.driver import Driver
from ordercast.runtime.status import SLOW_US, Counted, Rates, StatusSource, status
from ordercast.totem.protocol import TOTEM


class Clock:
    now = 100.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


TRANSPORT = {
    "address": "127.0.0.1:4801",
    "sealed": True,
    "peers": [],
    "buffers": {"asked": 100, "granted": 80},
    "datagram_bytes": 1400,
    "offload": {"send": True, "receive": False},
}


def a_driver(clock: Clock, **given: Any) -> Any:
    machine = SimpleNamespace(stats={}, waits={}, laggard=None, role="")
    return SimpleNamespace(
        **{
            "machine": machine,
            "transport": SimpleNamespace(status=lambda: TRANSPORT, lost=dict),
            "now_us": lambda: int(clock.now * 1_000_000),
            "drops": Counter(),
            "state": "operational",
            "because": "all agreed",
            "delivered": 0,
            "sent": 0,
            "packets_sent": Counter(),
            "lag": SimpleNamespace(us=1234.5, stops=2),
            **given,
        }
    )


def a_node(driver: Any) -> StatusSource:
    return cast(
        StatusSource,
        SimpleNamespace(
            id=1,
            incarnation=3,
            driver=driver,
            started_us=90_000_000,
            protocol=TOTEM,
            settled=True,
            readers=SimpleNamespace(
                delivered_bytes=0,
                unread=7,
                configuration=Configuration(ConfigurationId(8, 1), Kind.REGULAR, (1, 2)),
            ),
            rates=Rates(90_000_000),
            trace_problem=None,
            queued=5,
        ),
    )


def test_a_node_that_just_began(clock: Clock) -> None:
    document = status(a_node(a_driver(clock)))
    assert json.loads(json.dumps(document)) == document
    assert document["uptime_s"] == 10
    assert document["rotation_us"] is None
    assert document["slow"] is None
    assert document["drops"] == {}
    assert document["configuration"] == {"seq": 8, "rep": 1, "kind": "regular", "members": [1, 2]}
    assert (document["protocol"], document["role"], document["settled"]) == ("totem", None, True)

    assert {name: document[name] for name in TRANSPORT} == TRANSPORT
    assert (document["lag_us"], document["stops"]) == (1234, 2)
    assert (document["queued_bytes"], document["unread_bytes"]) == (5, 7)


def test_who_is_slow_is_named_only_when_it_matters(clock: Clock) -> None:
    driver = a_driver(clock)
    driver.machine.waits = {2: SLOW_US, 3: 10}
    assert status(a_node(driver))["slow"] is None
    driver.machine.waits = {2: 10, 3: SLOW_US + 1}
    driver.machine.laggard = 3
    document = status(a_node(driver))
    assert document["slow"] == {"node": 3, "waits_us": SLOW_US + 1}
    assert document["waits_us"] == {"2": 10, "3": SLOW_US + 1}
    assert document["held_up_by"] == 3


def test_what_the_transport_lost_is_a_drop(clock: Clock) -> None:
    driver = a_driver(clock, drops=Counter({"zebra": 1, "ant": 2}))
    driver.transport.lost = lambda: {"kernel refused to send": 7}
    assert status(a_node(driver))["drops"] == {"ant": 2, "kernel refused to send": 7, "zebra": 1}
    assert driver.drops == {"zebra": 1, "ant": 2}


def test_figures_a_second(clock: Clock) -> None:
    driver, rates = a_driver(clock), Rates(int(clock.now * 1_000_000))
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
    node = a_node(a_driver(clock))
    cast(Any, node.readers).configuration = None
    assert status(node)["configuration"] is None


def test_the_role_of_a_machine_that_has_one_is_told(clock: Clock) -> None:
    machine = SimpleNamespace(stats={}, waits={}, laggard=None, role="sequencer")
    assert status(a_node(a_driver(clock, machine=machine)))["role"] == "sequencer"
