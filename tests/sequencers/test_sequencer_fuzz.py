"""Loss, duplication, reordering and changing views, from seeds: one order everywhere, and nothing lost."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from shuffler import ALL, Heard, Shuffler, check_order, check_same, numbers_of

from hunts import rounds
from ordercast.core.contract import Effect
from ordercast.core.identity import Guarantee, NodeId
from ordercast.sequencers.cm import Irbp
from ordercast.sequencers.member import RulesClass
from ordercast.sequencers.order import Order
from ordercast.sequencers.packets import Acked, Answered, AnyPacket, Update
from ordercast.sequencers.primary_backup import PrimaryBackup
from ordercast.viewsync.config import GroupConfig

RAISING = (Irbp, PrimaryBackup)
"""Those with intermediate views, which raise levels of resilience."""
SIZES = (0, 3, 100, 3_000)
LEVELS = [Guarantee.AGREED] * 4 + [Guarantee.SAFE, Guarantee.K3, Guarantee.K7]
LOW = [Guarantee.K1, Guarantee.K2]
"""Levels that a few failures may contradict; not where intermediate views raise them."""


class Run:
    """One seed's group, load and faults."""

    def __init__(self, kind: RulesClass, seed: int) -> None:
        self.chance = chance = Random(f"{seed}/plan")
        size = chance.randint(3, 6)
        self.config = GroupConfig(
            window=chance.choice([1, 3, 8]),
            batch=chance.choice([1, 4, 64]),
            max_unstable=chance.choice([4, 16, 1_024]),
            packet_size=chance.choice([256, 400, 1_400]),
            max_requests=chance.choice([1, 4, 64]),
            keep_bytes=chance.choice([0, 2_000, 1_000_000]),
            max_message_size=5_000,
        )
        self.group = Shuffler(
            kind,
            size,
            self.config,
            seed=seed,
            loss=chance.choice([0, 0.02, 0.2]),
            duplication=chance.choice([0, 0.1]),
            delays=chance.choice([(50, 150), (10, 3_000)]),
        )
        self.group.watch = self._check_level
        self.levels = LEVELS + LOW if kind in RAISING else LEVELS
        self.submitted = dict.fromkeys(self.group.nodes, 0)
        self.alive = set(self.group.nodes)
        self.cut: set[NodeId] = set()
        self.group.lost = lambda source, target, kind: source in self.cut or target in self.cut
        self.group.install(self.group.nodes)

    def _check_level(self, node: NodeId, heard: Heard) -> None:
        """Whoever delivers in a view that goes on, enough members have what it delivers."""
        orderer = self.group.nodes[node].orderer
        order = orderer.order
        assert order is not None
        if orderer._told is not None or order.places.get(heard.place) is None:
            return
        have = 0
        for member in order.core:
            theirs = self.group.nodes[member].orderer.order
            assert theirs is not None
            same = theirs.view.id == order.view.id
            have += not same or theirs.hgsn >= heard.place or theirs.floor >= heard.place
        needed = heard.guarantee.needed(len(order.core))
        if isinstance(orderer.rules, RAISING):
            needed = max(needed, len(order.view.members) // 2 + 1)
        if isinstance(orderer.rules, PrimaryBackup):
            needed = max(needed, len(order.core))
        assert have >= min(needed, len(order.core))

    def submit(self) -> None:
        node = self.chance.choice(sorted(self.alive))
        level = self.chance.choice(self.levels)
        for _ in range(self.chance.choice([1, 1, 5])):
            self.submitted[node] += 1
            self.group.submit(node, bytes([node]) * self.chance.choice(SIZES), guarantee=level)

    def kill(self, nodes: set[NodeId], why: str) -> None:
        for node in nodes:
            self.group.nodes[node].halted = why
        self.alive -= nodes
        self.cut -= nodes

    def change_view(self) -> None:
        """A majority goes on; who is cut off, or has died just now, does not."""
        group = self.group
        majority = len(group.view.members) // 2 + 1
        connected = self.alive - self.cut
        if len(connected) < majority:
            return
        if len(connected) > majority and self.chance.random() < 0.5:
            self.kill({self.chance.choice(sorted(connected))}, "dead")
        self.kill(set(self.cut), "excluded")
        for node in sorted(self.alive):
            group.tell(node)
        group.freeze(sorted(self.alive)[:1])
        group.run(self.chance.randint(1, 3_000))
        told = group.freeze(sorted(self.alive))
        floor = max(one.floor for one in told.values())
        self.kill({node for node, one in told.items() if one.upto < floor}, "cut off")
        group.change(sorted(self.alive))
        check_same(group.nodes[node] for node in self.alive)
        assert not any(group.nodes[node].halted for node in self.alive)

    def step(self) -> None:
        if self.chance.random() < 0.85:
            self.submit()
        else:
            self.change_view()
        self.group.run(self.chance.randint(1, 4_000))
        self.check_bounds()

    def check_bounds(self) -> None:
        """Nobody keeps more than configured, whatever is lost."""
        config = self.config
        for node in self.alive:
            order = self.group.nodes[node].orderer.order
            assert order is not None
            if not order.externals:
                limit = max(config.max_unstable, 2 * len(order.R)) + config.batch + config.window
                assert len(order.places) <= 2 * limit
                assert len(order.BUF) <= 2 * limit + len(order.R) * config.window

    def finish(self) -> None:
        """Faults stop: everything is delivered everywhere, and forgotten."""
        self.group.view = self.group.view._replace(members=tuple(sorted(self.alive)))
        self.group.run()
        self.group.loss = 0
        self.group.run(3_000_000)
        nodes = self.group.nodes
        check_order(nodes.values())
        check_same(nodes[node] for node in self.alive)
        for node in self.alive:
            everything = list(range(1, self.submitted[node] + 1))
            assert numbers_of(nodes[node], node) == everything
            assert nodes[node].originated == everything
            order = nodes[node].orderer.order
            assert order is not None
            assert not order.BUF or order.externals
            assert len(order.places) <= len(order.R) or order.externals


@pytest.mark.untraced
@pytest.mark.campaign
@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.NAME)
@pytest.mark.parametrize("block", range(rounds(1, 40)))
def test_one_order_everywhere_and_nothing_lost(kind: RulesClass, block: int) -> None:
    for seed in range(5 * block, 5 * block + 5):
        run = Run(kind, seed)
        for _ in range(run.chance.randint(20, 60)):
            run.step()
        run.finish()


class Turning(Run):
    """With intermediate views: members are cut off, taken off the token list, told of it late, taken back."""

    def step(self) -> None:
        group, chance = self.group, self.chance
        what = chance.random()
        majority = len(group.view.members) // 2 + 1
        if what < 0.6:
            self.submit()
        elif what < 0.7:
            node = chance.choice(sorted(self.alive))
            if node in self.cut:
                self.cut.discard(node)
            elif len(self.alive - self.cut) > majority:
                self.cut.add(node)
        elif what < 0.85:
            self.turn(majority)
        elif what < 0.92:
            for node in sorted(self.alive - self.cut):
                if chance.random() < 0.6:
                    group.tell(node)
        elif what < 0.96:
            self.change_view()
        group.run(chance.randint(1, 4_000))
        check_order(group.nodes.values())

    def turn(self, majority: int) -> None:
        group, chance = self.group, self.chance
        able = sorted(node for node in self.alive - self.cut if group.up_to_date(node))
        if len(able) < majority:
            return
        core = sorted(chance.sample(able, chance.randint(majority, len(able))))
        group.freeze(core)
        group.run(chance.randint(0, 500))
        told = [node for node in core if chance.random() < 0.8]
        told += [node for node in sorted(self.alive - self.cut - set(core)) if chance.random() < 0.5]
        group.turn(core, told, first=chance.choice(core))

    def finish(self) -> None:
        """All hear of the last token list; who lacks what is gone leaves; then all are on it."""
        self.cut.clear()
        group = self.group
        for node in self.alive:
            group.tell(node)
        group.loss = 0
        group.run(2_000_000)
        self.kill({node for node in self.alive if group.nodes[node].orderer.cut_off}, "cut off")
        if len(self.alive) <= len(group.view.members) // 2:
            return
        group.turn(sorted(self.alive))
        group.run(2_000_000)
        super().finish()


def live(run: Turning) -> None:
    """All that its seed says."""
    for _ in range(run.chance.randint(20, 80)):
        run.step()
    run.finish()


@pytest.mark.campaign
@pytest.mark.parametrize("kind", RAISING, ids=lambda kind: kind.NAME)
@pytest.mark.parametrize("block", range(rounds(3, 60)))
def test_intermediate_views_change_nothing_of_that(kind: RulesClass, block: int) -> None:
    for seed in range(5 * block, 5 * block + 5):
        live(Turning(kind, seed))


@pytest.mark.parametrize("seed", [100_005, 200_001])
def test_what_a_primary_sends_again_does_not_say_that_it_has_all_before_it(seed: int) -> None:
    """Seeds that failed: a new primary was asked for what it had, and itself lacked what was before that."""
    live(Turning(PrimaryBackup, seed))


def _any_turn_counts(patch: pytest.MonkeyPatch) -> None:
    right = PrimaryBackup.take

    def take(
        self: PrimaryBackup, order: Order, sender: NodeId, packet: AnyPacket, effects: list[Effect]
    ) -> str:
        if isinstance(packet, Update | Acked | Answered):
            packet = packet._replace(turn=order.view.turn)
        return right(self, order, sender, packet, effects)

    patch.setattr(PrimaryBackup, "take", take)


def _places_stay(patch: pytest.MonkeyPatch) -> None:
    right = Order.cut
    patch.setattr(Order, "cut", lambda self, upto: right(self, max(upto, self.hgsn)))


def _acknowledgements_stay(patch: pytest.MonkeyPatch) -> None:
    right = Order.cut

    def cut(self: Order, upto: int) -> bool:
        had = dict(self.R)
        goes = right(self, upto)
        self.R = had
        return goes

    patch.setattr(Order, "cut", cut)


@pytest.mark.parametrize(
    ("mistake", "seed"), [(_any_turn_counts, 1), (_places_stay, 0), (_acknowledgements_stay, 62)]
)
def test_what_is_of_another_turn_and_counts_in_this_one_is_noticed(
    mistake: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mistakes that only runs with many changes of the list show: these checks would see them."""
    mistake(monkeypatch)
    with pytest.raises(AssertionError):
        live(Turning(PrimaryBackup, seed))
