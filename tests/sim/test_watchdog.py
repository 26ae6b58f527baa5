"""A machine that loops inside one event does not hang a campaign: its seed fails, and the rest goes on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping, Sequence

import pytest
from toy_protocol import PRODUCT, toy
from toy_sequencer import Sequencer

from ordercast.core.contract import Effect
from ordercast.core.identity import NodeId
from ordercast.sim import watchdog
from ordercast.sim.campaign import Campaign, explore, failure_of
from ordercast.sim.protocol import LabProtocol
from ordercast.sim.watchdog import NeverReturned, watched
from ordercast.sim.world import MachineFactory


class Endless(Sequencer):
    def _on_start(self, incarnation: int, stored: bytes | None) -> Sequence[Effect]:
        while self.node == 2 and incarnation:
            pass
        return super()._on_start(incarnation, stored)


def make(settings: Mapping[str, object]) -> MachineFactory:
    nodes = range(1, int(str(settings["nodes"])) + 1)

    def machine(node: NodeId) -> Endless:
        return Endless(node, nodes)

    return machine


PROTOCOL = toy(
    PRODUCT._replace(name="endless", survives_amnesia=True),
    make=make,
    draw_settings=lambda stream, nodes, lan: {"nodes": nodes},
)


def find(name: str) -> LabProtocol:
    return PROTOCOL


def test_a_campaign_names_the_seeds_whose_machines_never_return(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "EVENT_S", 0.05)
    campaign = Campaign(protocol="endless", nodes=(2, 4), seeds=range(12))
    failures = [failure_of(done.result) for done in explore(campaign, find)]
    assert len(failures) == len(campaign.seeds)
    told = [failure for failure in failures if failure is not None and failure.property == "endless"]
    assert told
    assert len(told) < len(failures), "the others went on"
    assert "never returned from event" in told[0].sentence
    assert "Endless._on_start" in told[0].sentence
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_what_gets_on_is_left_alone() -> None:
    handled = 0
    with watched(lambda: handled, 0.01):
        for _ in range(200_000):
            handled += 1
    with pytest.raises(NeverReturned), watched(lambda: handled, 0.01):
        _compute_for_ever()


def _compute_for_ever() -> None:
    while True:
        pass


def test_only_the_main_thread_is_watched() -> None:
    done = []

    def work() -> None:
        with watched(lambda: 0, 0.001):
            done.append(sum(range(300_000)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done
