"""The list of protocols: each can be drawn, built, named and refused; and what a new one takes."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from ordercast.audit.properties import PROMISES
from ordercast.catalogue import LAB_PROTOCOLS, OVER_NETWORKS, LabProtocol, sequenced_in_lab
from ordercast.core.contract import Drop, Install, Packet, Start, Submit
from ordercast.core.declared import PacketKind, Purpose
from ordercast.core.identity import Guarantee
from ordercast.core.protocol import LAN, Buffers
from ordercast.protocols import PROTOCOLS, protocol
from ordercast.sequencers.cm import Cm
from ordercast.sequencers.member import OrdererOf
from ordercast.sequencers.packets import MSG
from ordercast.sim.fuzz import plan, run
from ordercast.sim.network import Lan
from ordercast.viewsync.header import NO_VIEW, header
from ordercast.viewsync.machine import GroupMachine
from ordercast.viewsync.protocol import sequenced

FAMILY = [each for each in LAB_PROTOCOLS.values() if each.product.primary_partition]
EVERY = {**LAB_PROTOCOLS, **OVER_NETWORKS}
ALL = pytest.mark.parametrize("each", EVERY.values(), ids=list(EVERY))
OF_THE_FAMILY = pytest.mark.parametrize("each", FAMILY, ids=[each.name for each in FAMILY])


def test_they_are_found_by_name_and_totem_is_the_first() -> None:
    assert list(PROTOCOLS) == [
        "totem",
        "total",
        "cm",
        "rbp",
        "irbp",
        "pinwheel",
        "dtp",
        "primary-backup",
        "trmp",
        "rings",
    ]
    assert protocol("dtp") is PROTOCOLS["dtp"]
    with pytest.raises(ValueError, match=f"no protocol 'paxos'; there are {', '.join(PROTOCOLS)}"):
        protocol("paxos")


@ALL
def test_each_says_what_it_is(each: LabProtocol) -> None:
    product = each.product
    assert product.summary.endswith(".")
    assert all(product.about), "every word of the comparison"
    assert product.settled in product.states
    assert each.checks is PROMISES[product.promises]


@ALL
def test_wrong_settings_are_refused_by_name(each: LabProtocol) -> None:
    product = each.product
    fields = product.settings.__struct_fields__

    def configure(settings: Mapping[str, object]) -> object:
        return product.configure(settings, LAN, Buffers(4 * 2**20, 1_400))

    told = {
        "speed": rf"{each.name}: there is no setting speed; its settings are {', '.join(fields)}$",
        "large": rf"{each.name}: packet_size: Expected `int`, got `str`$",
        "small": rf"{each.name}: packet_size ",
    }
    wrong: dict[str, Mapping[str, object]]
    wrong = {"speed": {"speed": 1}, "large": {"packet_size": "large"}, "small": {"packet_size": 1}}
    for name, words in told.items():
        for make in (each.make, configure):
            with pytest.raises(ValueError, match=words):
                make(wrong[name])


@ALL
@pytest.mark.parametrize(
    "lan", [Lan(base_us=1, tail_us=0), Lan(base_us=1_000, tail_us=1_500)], ids=["quick", "slow"]
)
def test_settings_that_are_drawn_are_right_whatever_the_network(each: LabProtocol, lan: Lan) -> None:
    seen: dict[str, set[object]] = {}
    for seed in range(200):
        drawn = each.draw_settings(random.Random(seed), 5, lan)
        each.make(drawn)
        for name, value in drawn.items():
            seen.setdefault(name, set()).add(str(value))
    assert len(seen["packet_size"]) >= 3


@ALL
@pytest.mark.parametrize("buffer", [65_536, 212_992, 4 * 2**20, 2**30])
def test_a_machine_for_a_real_node_can_be_started(each: LabProtocol, buffer: int) -> None:
    config = each.product.configure({"packet_size": 60_000}, LAN, Buffers(buffer, 1_400))
    machine = each.product.build(config, 3)
    machine.handle(1_000_000, Start(0, None, 0))
    assert machine.room > 0


@OF_THE_FAMILY
def test_more_than_half_of_the_nodes_of_a_simulation_have_to_agree_to_begin(each: LabProtocol) -> None:
    made: list[object] = []

    def make(settings: Mapping[str, object]) -> Any:
        made.append(settings["founders"])
        return each.make(settings)

    for nodes in (3, 4, 5):
        each._replace(make=make).world({}, range(1, nodes + 1), Lan(), 0)
    each._replace(make=make).world({"founders": 1}, range(1, 5), Lan(), 0)
    assert made == [2, 3, 3, 1]


@OF_THE_FAMILY
def test_three_nodes_form_a_view_and_order_messages_of_every_guarantee(each: LabProtocol) -> None:
    world = each.world({}, (1, 2, 3), Lan(), 1)
    world.start()
    world.run_until(1_000_000)
    for guarantee in (Guarantee.AGREED, Guarantee.SAFE, Guarantee.of(1), Guarantee.of(7)):
        assert world.applications.submit(2, 100, guarantee)
    world.run_until(2_000_000)
    assert world.latest is not None
    assert world.latest.members == (1, 2, 3)
    for node in (1, 2, 3):
        delivered = [row[11] for row in world.rows if row[0] == node and row[4] == "deliver"]
        assert delivered == [1, 2, 3, 4]
    roles = sorted(getattr(host.machine, "role", "") for host in world.hosts.values())
    assert roles.count("sequencer") <= 1
    assert not world.applications.corrupt


@OF_THE_FAMILY
def test_packets_have_names(each: LabProtocol) -> None:
    world = each.world({}, (1, 2, 3), Lan(), 1, packets=True)
    world.start()
    world.run_until(500_000)
    world.applications.submit(2, 100)
    world.run_until(1_000_000)
    names = {row[19] for row in world.rows if row[4] == "packet_sent"}
    assert None not in names
    assert len(names) > 4
    assert each.product.kind_of(b"garbage") is None
    assert each.product.kind_of(header(63, NO_VIEW, 1, 0)) is None


@OF_THE_FAMILY
def test_the_first_seeds_keep_every_property(each: LabProtocol) -> None:
    for seed in range(3):
        result, _ = run(each, plan(each, seed, (3, 4)))
        assert result.failed is None, result.sentences
        for hit in each.hits:
            assert hit in result.coverage


# --- a new one ----------------------------------------------------------------------------------


class Newcomer(Cm):
    """All that is needed: an orderer, and what it is called."""

    NAME = "newcomer"
    SUMMARY = "CM under another name."
    KINDS: ClassVar[dict[int, PacketKind]] = {MSG: PacketKind("hello", Purpose.MESSAGES, "Messages.")}


def test_a_protocol_is_an_orderer_and_a_line() -> None:
    product = sequenced(OrdererOf(Newcomer), window=3, retry_us=7_000)
    newcomer = sequenced_in_lab(product)
    assert (newcomer.name, product.summary) == ("newcomer", "CM under another name.")
    assert product.kind_of(header(MSG, NO_VIEW, 1, 0)) == "hello"
    machine = newcomer.make({"retry_us": 8_000})(1)
    assert isinstance(machine, GroupMachine)
    config = machine.config
    assert (config.window, config.retry_us) == (3, 8_000), "defaults of the protocol, then what is set"
    result, _ = run(newcomer, plan(newcomer, 1, (3, 3)))
    assert result.failed is None, result.sentences


def test_a_machine_is_made_anew_for_each_life() -> None:
    factory = sequenced_in_lab(sequenced(OrdererOf(Newcomer))).make({})
    one, two = factory(1), factory(1)
    effects = one.handle(0, Start(0, None, 0))
    assert not any(isinstance(effect, Install) for effect in effects), "nobody is in a view at once"
    for _ in range(2):
        one.handle(1, Submit([bytes(one.room)], Guarantee.AGREED))
    two.handle(0, Start(1, None, 0))
    assert two.handle(1, Packet(b"garbage", 2)) == (Drop("not ordercast"),)
    assert one.room < two.room


@pytest.mark.parametrize(
    ("name", "setting", "choices"),
    [
        ("totem", "visits", "equal, square-root or proportional"),
        ("rbp", "detector", "heartbeats, attempts or adaptive"),
    ],
)
def test_a_setting_that_is_one_of_a_few_words_tells_which(name: str, setting: str, choices: str) -> None:
    with pytest.raises(ValueError, match=f"^{setting} is 'most': choose {choices}$"):
        PROTOCOLS[name].configure({setting: "most"}, LAN)
