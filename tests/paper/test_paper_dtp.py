"""002 Fig. 1: one sequence of transmissions in a group of five, under CM, Pinwheel and DTP.

The figure's drawing is not in the text, its result is: M1 is stable after the fifth acknowledgement under CM,
the fourth under Pinwheel, the third under DTP, and four messages are stable after DTP's sixth. The sequence
below is one for which all four hold: it begins at LTM_2, and then LTM_3 and LTM_5 send more than LTM_4.
"""

from __future__ import annotations

from collections import deque

import pytest

from ordercast.core.contract import Effect, Multicast
from ordercast.core.identity import ConfigurationId, Guarantee, NodeId
from ordercast.sequencers.cm import Cm
from ordercast.sequencers.dtp import Dtp
from ordercast.sequencers.member import Member, RulesClass
from ordercast.sequencers.packets import Ack, Msg, decode
from ordercast.sequencers.pinwheel import Pinwheel
from ordercast.viewsync.config import GroupConfig
from ordercast.viewsync.contract import NOTHING, View

LTMS = (1, 2, 3, 4, 5)
SENDERS = (2, 3, 5, 3, 5, 4)
"""Who sends M1 to M6. Each is sent when the one before has been acknowledged."""


class SpaceTime:
    """Five LTMs and a network that loses nothing; nobody waits long enough for a silence to matter."""

    def __init__(self, protocol: RulesClass) -> None:
        view = View(ConfigurationId(1, 1), LTMS, (0,) * len(LTMS), LTMS)
        self.ltms = {ltm: Member(protocol, ltm, GroupConfig()) for ltm in LTMS}
        self.network: deque[tuple[NodeId, bytes]] = deque()
        self.acks: list[tuple[NodeId, Ack]] = []
        self.statuses: list[int] = []
        """h of each message in turn."""
        for ltm in self.ltms.values():
            effects: list[Effect] = []
            ltm.begin(0)
            ltm.install(0, view, NOTHING, effects)

    def send(self, sender: NodeId) -> None:
        """An update arrives; everything that follows from it happens."""
        effects: list[Effect] = []
        self.ltms[sender].submit(0, [b"update"], Guarantee.AGREED, effects)
        self._transmit(sender, effects)
        while self.network:
            source, data = self.network.popleft()
            for ltm in LTMS:
                if ltm != source:
                    effects = []
                    self.ltms[ltm].packet(0, data[3], source, data, effects)
                    self._transmit(ltm, effects)

    def _transmit(self, source: NodeId, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Multicast):
                self.network.append((source, effect.data))
                packet = decode(effect.data)
                if isinstance(packet, Ack):
                    self.acks.append((source, packet))
                elif isinstance(packet, Msg):
                    self.statuses.append(packet.hgsn)

    def stable(self) -> int:
        """Up to which place every LTM knows that every LTM has everything."""
        known = []
        for ltm in self.ltms.values():
            assert ltm.order is not None
            known.append(ltm.order.rank()[-1])
        return min(known)


def stable_after_each(protocol: RulesClass) -> list[int]:
    """How many messages all know to be stable after each acknowledgement."""
    run = SpaceTime(protocol)
    stable = []
    for sender in SENDERS:
        run.send(sender)
        stable.append(run.stable())
    assert len(run.acks) == len(SENDERS)
    return stable


@pytest.mark.parametrize(
    ("protocol", "acknowledgements"),
    [
        pytest.param(Cm, 5, id="(a) CM"),
        pytest.param(Pinwheel, 4, id="(b) Pinwheel"),
        pytest.param(Dtp, 3, id="(c) DTP"),
    ],
)
def test_how_soon_m1_is_stable(protocol: RulesClass, acknowledgements: int) -> None:
    stable = stable_after_each(protocol)
    assert next(i for i, count in enumerate(stable, 1) if count >= 1) == acknowledgements


def test_four_messages_are_stable_after_the_sixth_acknowledgement_of_dtp() -> None:
    """002 §3: "when the sixth message has been acknowledged in figure 1(c), four messages become stable"."""
    assert stable_after_each(Dtp)[5] == 4
    assert stable_after_each(Cm)[5] == 2
    assert stable_after_each(Pinwheel)[5] < 4


def test_the_token_goes_round_in_cm_and_to_the_least_active_in_dtp() -> None:
    ring, dynamic = SpaceTime(Cm), SpaceTime(Dtp)
    for sender in SENDERS:
        ring.send(sender)
        dynamic.send(sender)
    assert [holder for holder, _ in ring.acks] == [1, 2, 3, 4, 5, 1]
    assert [holder for holder, _ in dynamic.acks] == [1, 2, 4, 1, 2, 3]
    for run in (ring, dynamic):
        successors = [ack.next for _, ack in run.acks]
        assert [holder for holder, _ in run.acks[1:]] == successors[:-1]
        assert run.statuses == [0, 1, 2, 3, 4, 5]


def test_the_least_active_is_who_has_the_least_known_status_and_never_the_holder_itself() -> None:
    """002 §3: "LTM_m such that R_i[m] = min"; among equals the first behind the holder."""
    run = SpaceTime(Dtp)
    ltm = run.ltms[3]
    assert ltm.order is not None
    ltm.order.R = {1: 5, 2: 4, 3: 0, 4: 6, 5: 4}
    assert isinstance(ltm.rules, Dtp)
    assert ltm.rules._next(ltm.order) == 5
    ltm.order.R = {1: 0, 2: 0, 3: 0, 4: 0, 5: 0}
    assert ltm.rules._next(ltm.order) == 4


def test_one_acknowledgement_a_message_is_all_the_overhead_of_the_three() -> None:
    """002 §5: "about 1 message per message"."""
    for protocol in (Cm, Pinwheel, Dtp):
        run = SpaceTime(protocol)
        for sender in SENDERS:
            run.send(sender)
        assert len(run.acks) == len(run.statuses) == len(SENDERS)
