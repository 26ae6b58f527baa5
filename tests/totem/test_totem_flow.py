"""Flow control (000 §8): the three constraints of §8.2, and what they give to a whole ring."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from totem_parts import data, examples, ring, token

from ordercast.core.contract import Effect, Multicast
from ordercast.core.identity import Guarantee
from ordercast.totem.circulation import Outbox, work
from ordercast.totem.config import TotemConfig
from ordercast.totem.flow import FlowControl
from ordercast.totem.packets import Token


def config(window_size: int = 20, max_messages: int = 10, max_outstanding: int = 1000) -> TotemConfig:
    return TotemConfig(window_size=window_size, max_messages=max_messages, max_outstanding=max_outstanding)


def flow(made: TotemConfig, members: int = 4) -> FlowControl:
    return FlowControl(made, members, made.limits)


def allowed(made: TotemConfig, visiting: Token, tbl: int, retransmitted: int = 0, members: int = 4) -> int:
    return flow(made, members).new_datagrams(visiting, retransmitted, tbl)


# --- the constraints of §8.2 --------------------------------------------------------------------


@pytest.mark.parametrize(("tbl", "may"), [(0, 0), (10, 10), (11, 10), (500, 10)])
def test_no_more_than_max_messages_at_one_visit(tbl: int, may: int) -> None:
    """000 §8.2: my_trc ≤ max_messages."""
    assert allowed(config(), token(), tbl) == may


@pytest.mark.parametrize(("fcc", "may"), [(0, 10), (10, 10), (13, 7), (19, 1), (20, 0), (25, 0)])
def test_no_more_than_the_last_rotation_left_of_the_window(fcc: int, may: int) -> None:
    """000 §8.2: my_trc ≤ window_size - fcc."""
    assert allowed(config(), token(fcc=fcc), 100) == may


def test_what_this_node_sent_itself_is_no_longer_counted() -> None:
    """The token's fcc is that of the last rotation; this visit replaces this node's part of it."""
    mine = flow(config())
    visiting = token(fcc=13)
    mine.settle(visiting, 7, 100)
    assert visiting.fcc == 20
    assert mine.new_datagrams(visiting, 0, 100) == 7
    assert mine.retransmissions(visiting) == 7


@pytest.mark.parametrize(
    ("mine", "others", "may"),
    [
        pytest.param(30, (), 20, id="alone, the whole window"),
        pytest.param(3, (30,), 3, id="less than an equal part"),
        pytest.param(30, (30,), 10, id="as much as another"),
        pytest.param(30, (30, 30, 30, 30), 4, id="an equal part"),
        pytest.param(30, (1, 1, 1, 1), 16, id="what modest ones leave"),
        pytest.param(24, (64, 1, 1), 6, id="of what modest ones leave, by how much more is wanted"),
    ],
)
def test_no_more_than_the_fair_share_of_the_window(mine: int, others: tuple[int, ...], may: int) -> None:
    """000 §8.2: no more than its fair share of the window size, based on the ratio of its backlog."""
    made = config(max_messages=20)
    visiting = token()
    for other in others:
        flow(made, 5).settle(visiting, 0, other)
    assert allowed(made, visiting, mine, members=5) == may


def test_the_share_replaces_what_this_node_had_told_of_its_backlog() -> None:
    """000 §8.2: in backlog + my_tbl - my_pbl, the old backlog of this node is exchanged for the new."""
    mine = flow(config(max_messages=20))
    visiting = token(backlog=40, entitled=5)
    mine.settle(visiting, 0, 60)
    assert (visiting.backlog, visiting.entitled) == (100, 10)
    assert mine.new_datagrams(visiting, 0, 40) == 5 + 10 * 35 // 70


def test_nobody_wants_more_than_everything() -> None:
    """A token may tell of less than this node entered; its share is that of a lone sender, no more."""
    mine = flow(config(max_messages=20))
    mine.settle(token(), 0, 60)
    assert mine.new_datagrams(token(), 0, 40) == 20


@pytest.mark.parametrize("members", [20, 21, 100])
def test_of_a_window_no_larger_than_the_ring_everyone_has_one_datagram(members: int) -> None:
    assert allowed(config(), token(backlog=1000, entitled=members - 1), 100, members=members) == 1


def test_who_has_anything_to_send_has_a_share_of_at_least_one() -> None:
    """A share of less than one datagram would keep a light sender silent behind heavy ones."""
    assert allowed(config(), token(backlog=10_000, entitled=15), 1) == 1


def test_retransmissions_are_subtracted_from_what_is_allowed() -> None:
    """000 Fig. 3: subtract retransmissions from allowed to broadcast."""
    assert allowed(config(), token(), 100, retransmitted=4) == 6
    assert allowed(config(), token(), 100, retransmitted=10) == 0
    assert allowed(config(), token(), 100, retransmitted=11) == 0


def test_retransmissions_at_one_visit_are_bounded_by_max_messages() -> None:
    """000 §8.1: max_messages bounds what a processor broadcasts during one visit of the token."""
    made = ring(*(data(seq) for seq in range(1, 31)), config=config())
    visiting = token(seq=30, rtr=range(1, 31))
    assert len(made.answer(visiting)) == 10
    assert visiting.rtr == list(range(11, 31))


@pytest.mark.parametrize(
    ("fcc", "may"), [(0, 10), (10, 10), (13, 7), (19, 1), (20, 1), (25, 1), (2**31 - 1, 1)]
)
def test_retransmissions_take_what_is_left_of_the_window_and_at_least_one(fcc: int, may: int) -> None:
    """Without the one, a request could wait for as long as others fill the window; and with it aru."""
    made = ring(*(data(seq) for seq in range(1, 31)), config=config())
    assert made.flow.retransmissions(token(fcc=fcc)) == may
    assert len(made.answer(token(seq=30, rtr=range(1, 31), fcc=fcc))) == may


@pytest.mark.parametrize(
    ("behind", "may"), [(0, 10), (960, 10), (980, 5), (996, 1), (999, 1), (1000, 0), (1100, 0)]
)
def test_nothing_new_goes_out_while_aru_is_far_behind(behind: int, may: int) -> None:
    """000 §6.2.2: while one processor misses a message, the others buffer all that follow; boundedly.

    What room is left is shared by the four, so that the first behind the laggard does not take it all.
    """
    assert min(10, flow(config()).new_packets(token(seq=2000, aru=2000 - behind))) == may


def test_answering_requests_costs_a_node_none_of_its_share() -> None:
    """Else the successor of a node that loses much would hardly get to send."""
    busy = token(backlog=120, entitled=16)
    assert allowed(config(max_messages=20), busy, 30, members=5, retransmitted=3) == 4
    assert allowed(config(max_messages=20), busy, 30, members=5) == 4


# --- the token's account ------------------------------------------------------------------------


def test_the_token_counts_the_packets_and_the_demand_of_the_last_rotation() -> None:
    """000 §8.1: fcc counts what all broadcast in the last rotation, backlog sums what waited."""
    group = [flow(config(), 3) for _ in range(3)]
    visiting = token()
    for sent, waited in ((1, 10), (2, 20), (3, 30)):
        group[sent - 1].settle(visiting, sent, waited)
    assert (visiting.fcc, visiting.backlog) == (6, 60)
    group[0].settle(visiting, 5, 0)
    assert (visiting.fcc, visiting.backlog) == (10, 50)


def test_a_visit_enters_what_waited_when_the_token_came() -> None:
    """Who sends all it has still wants its share of the next rotation."""
    made, visiting = ring(config=config()), token(fcc=2, backlog=3)
    outbox = Outbox(config())
    outbox.queue.accept([bytes(1000)] * 5, Guarantee.AGREED)
    waited = outbox.backlog
    effects: list[Effect] = []
    visit = work(0, made, visiting, outbox, effects)
    assert (visit.fresh, visit.resent, outbox.backlog) == (waited, 0, 0)
    assert (visiting.fcc, visiting.backlog) == (2 + waited, 3 + waited)
    work(0, made, visiting, outbox, effects)
    assert (visiting.fcc, visiting.backlog) == (2, 3)


def test_a_visit_enters_retransmissions_with_the_new_packets() -> None:
    made = ring(*(data(seq) for seq in range(1, 5)), config=config())
    visiting = token(seq=4, aru=0, aru_id=3, rtr=range(1, 5))
    outbox = Outbox(config())
    outbox.queue.accept([bytes(1000)] * 100, Guarantee.AGREED)
    effects: list[Effect] = []
    visit = work(0, made, visiting, outbox, effects)
    assert (visit.resent, visit.fresh) == (4, 6), "ten are allowed"
    assert visiting.fcc == 10
    assert sum(isinstance(effect, Multicast) for effect in effects) == 10


@pytest.mark.parametrize(("packing", "packets"), [(True, 1), (False, 5)])
def test_without_packing_every_message_has_its_own_packet(packing: bool, packets: int) -> None:
    """001 Fig. 6: throughput with and without packing small messages into larger packets."""
    made, visiting = ring(config=config()), token()
    outbox = Outbox(TotemConfig(packing=packing))
    outbox.queue.accept([bytes(100)] * 5, Guarantee.AGREED)
    assert outbox.backlog == packets
    effects: list[Effect] = []
    assert work(0, made, visiting, outbox, effects).fresh == packets
    assert sum(isinstance(effect, Multicast) for effect in effects) == packets
    assert not outbox.queue.waiting


class Simulated:
    """A ring of accounts and one token; packets arrive at once, unless `aru` is held back.

    As on a ring, sums are entered anew where nobody else has broadcast anything for a rotation.
    """

    def __init__(self, made: TotemConfig, size: int) -> None:
        self.config = made
        self.flows = [flow(made, size) for _ in range(size)]
        self.forwarded: list[int | None] = [None] * size
        self.token = token()
        self.stuck = False

    def visit(self, node: int, waiting: int) -> int:
        """One visit of the token; how many packets it sent of the ones that wait."""
        mine, visiting = self.flows[node], self.token
        if visiting.seq == self.forwarded[node] == visiting.aru:
            mine.recount(visiting)
        sent = min(waiting, mine.new_packets(visiting), mine.new_datagrams(visiting, 0, waiting))
        assert 0 <= sent <= waiting
        visiting.seq += sent
        if not self.stuck:
            visiting.aru = visiting.seq
        mine.settle(visiting, sent, waiting)
        self.forwarded[node] = visiting.seq
        return sent

    def rotate(self, waiting: list[int]) -> list[int]:
        """One rotation; the queues shrink by what is sent."""
        sent = []
        for node in range(len(self.flows)):
            sent.append(self.visit(node, waiting[node]))
            waiting[node] -= sent[-1]
        return sent

    def saturated(self, waiting: Sequence[int], rotations: int) -> list[int]:
        """Rotations with queues that are full again at each visit; what each node sent in all of them."""
        total = [0] * len(waiting)
        for _ in range(rotations):
            for node, left in enumerate(waiting):
                total[node] += self.visit(node, left)
        return total


configs = st.builds(config, st.integers(1, 40), st.integers(1, 40))


@examples(100)
@given(
    made=st.builds(config, st.integers(8, 40), st.integers(1, 40)),
    arrivals=st.integers(1, 8).flatmap(
        lambda size: st.lists(
            st.lists(st.integers(0, 100), min_size=size, max_size=size), min_size=1, max_size=12
        )
    ),
)
def test_no_rotation_exceeds_the_window(made: TotemConfig, arrivals: list[list[int]]) -> None:
    """000 §8.1: window_size is the most that all processors may broadcast in any token rotation.

    Any rotation: whichever member one starts counting at.
    """
    size = len(arrivals[0])
    simulated = Simulated(made, size)
    waiting = [0] * size
    visits: list[int] = []
    for arriving in arrivals:
        waiting = [left + new for left, new in zip(waiting, arriving, strict=True)]
        demand = sum(waiting)
        visits += simulated.rotate(waiting)
        assert simulated.token.fcc == sum(visits[-size:])
        assert simulated.token.backlog == demand
    for start in range(len(visits)):
        assert sum(visits[start : start + size]) <= made.window_size


@examples(100)
@given(made=configs, waiting=st.lists(st.integers(0, 60), min_size=1, max_size=8))
def test_every_backlog_drains(made: TotemConfig, waiting: list[int]) -> None:
    """000 §8: whoever has messages to send gets through once the load ends."""
    simulated = Simulated(made, len(waiting))
    for _ in range(sum(waiting) + 2):
        simulated.rotate(waiting)
    assert sum(waiting) == 0


def test_a_lone_sender_has_the_whole_window() -> None:
    """000 §9: throughput was also measured with all messages broadcast by a single processor."""
    assert Simulated(config(20, 20), 3).saturated([0, 1000, 0], 50) == [0, 50 * 20, 0]


def test_alone_on_its_ring_a_sender_has_the_whole_window() -> None:
    assert Simulated(config(20, 20), 1).saturated([1000], 50) == [50 * 20]


def shares(made: TotemConfig, waiting: Sequence[int]) -> list[int]:
    """What lasting demands give to each: an equal part of the window, and of what others leave of theirs as
    much as corresponds to what more it wants."""
    window, equal = made.window_size, made.window_size // len(waiting)
    if sum(waiting) <= window:
        return [min(made.max_messages, left) for left in waiting]
    modest = [min(left, equal) for left in waiting]
    more = [left - least for left, least in zip(waiting, modest, strict=True)]
    rest = window - sum(modest)
    return [
        min(made.max_messages, least + rest * extra // sum(more))
        for least, extra in zip(modest, more, strict=True)
    ]


SETTLED = 2
"""Rotations after which every node knows of every lasting demand, and keeps to its share."""


@pytest.mark.parametrize(
    ("made", "waiting", "sent"),
    [
        pytest.param(TotemConfig(), [1000, 1000, 1], [63, 63, 1], id="a light sender behind two heavy ones"),
        pytest.param(TotemConfig(), [1000, 10, 10, 10, 10], [88, 10, 10, 10, 10], id="one heavy, four light"),
        pytest.param(TotemConfig(), [64, 64, 64], [42] * 3, id="three with 64 datagrams each"),
        pytest.param(TotemConfig(), [20] * 10, [12] * 10, id="ten with 20 datagrams each"),
        pytest.param(config(20, 20), [1000] * 10, [2] * 10, id="ten in a window of 20"),
        pytest.param(config(20, 20), [100] * 4, [5] * 4, id="four in a window of 20"),
        pytest.param(config(6, 6), [100] * 6, [1] * 6, id="as many as the window has datagrams"),
        pytest.param(config(6, 6), [1, 1000, 1, 1000, 1, 1000], [1] * 6, id="as many, of different demand"),
        pytest.param(config(20, 3), [100] * 4, [3] * 4, id="less than the window at each visit"),
        pytest.param(TotemConfig(), [64] * 128, [1] * 128, id="the largest ring of the defaults"),
    ],
)
def test_under_lasting_load_everyone_has_its_share_at_every_rotation(
    made: TotemConfig, waiting: list[int], sent: list[int]
) -> None:
    """000 §8.2: each processor has its fair share of the window, based on the ratio of its backlog.

    The load is that of applications which send again as soon as there is room.
    """
    assert shares(made, waiting) == sent
    simulated = Simulated(made, len(waiting))
    simulated.saturated(waiting, SETTLED)
    for _ in range(100):
        assert simulated.saturated(waiting, 1) == sent
        assert simulated.token.fcc == sum(sent) <= made.window_size


@st.composite
def lasting_loads(draw: st.DrawFn) -> tuple[TotemConfig, list[int]]:
    """A ring within its limit, and what waits at each member."""
    size = draw(st.integers(1, 10))
    demand = st.one_of(st.integers(0, 3), st.integers(1, 100), st.integers(1, 100_000))
    made = config(draw(st.integers(size, 150)), draw(st.integers(1, 150)), 10_000)
    assert size <= made.ring_limit
    return made, draw(st.lists(demand, min_size=size, max_size=size))


@examples(200)
@given(load=lasting_loads(), before=st.lists(st.integers(0, 1000), min_size=30, max_size=30))
def test_any_lasting_load_is_shared_by_demand(load: tuple[TotemConfig, list[int]], before: list[int]) -> None:
    """Whatever the load was before, two rotations later nobody with anything to send sends nothing."""
    made, waiting = load
    size = len(waiting)
    simulated = Simulated(made, size)
    for start in (0, 10, 20):
        simulated.saturated(before[start : start + size], 1)
    simulated.saturated(waiting, SETTLED)
    for _ in range(5):
        sent = simulated.saturated(waiting, 1)
        assert sent == shares(made, waiting)
        assert all(got > 0 for got, left in zip(sent, waiting, strict=True) if left)
        assert sum(sent) <= made.window_size


@examples(100)
@given(waiting=st.lists(st.integers(0, 3_000), min_size=1, max_size=8))
@example(waiting=[0, 0, 0, 0, 0, 173])
def test_none_of_the_window_is_left_unused_while_somebody_wants_it(waiting: list[int]) -> None:
    """Work-conserving but for rounding: less than one datagram a member.

    Of a member's part of `max_outstanding`, which bounds what all have to keep, there is enough here.
    """
    simulated = Simulated(config(200, 200, 10_000), len(waiting))
    simulated.saturated(waiting, SETTLED)
    sent = sum(simulated.saturated(waiting, 1))
    assert min(200, sum(waiting)) - len(waiting) <= sent <= 200


@examples(60)
@given(made=configs, waiting=st.lists(st.integers(1, 500), min_size=1, max_size=5))
def test_a_node_that_receives_nothing_stops_the_others_at_max_outstanding(
    made: TotemConfig, waiting: list[int]
) -> None:
    """000 §6.2.2: what must be buffered for a processor that fails to receive stays bounded."""
    bounded = config(made.window_size, made.max_messages, made.window_size + 5)
    simulated = Simulated(bounded, len(waiting))
    simulated.stuck = True
    simulated.saturated(waiting, 100)
    assert simulated.token.seq - simulated.token.aru == bounded.max_outstanding
    simulated.stuck = False
    simulated.token.aru = simulated.token.seq
    assert sum(simulated.saturated(waiting, 3)) > 0


@pytest.mark.parametrize("max_messages", [3, 10, 20])
def test_retransmissions_stay_within_the_window_but_for_one_at_each_member(max_messages: int) -> None:
    """000 §8.1: window_size is the most that all processors may broadcast in any token rotation.

    §8: only so can no input buffer overflow; a storm of retransmissions would cause the next losses.
    """
    made = config(window_size=20, max_messages=max_messages)
    group = (1, 2, 3, 4)
    storm = range(1, 61)
    rings = [ring(*map(data, storm), me=me, members=group, config=made) for me in group]
    visiting = token(seq=60, aru=0, aru_id=5)
    answers: list[int] = []
    for _ in range(5):
        for own in rings:
            others = sum(answers[-3:])
            visiting.rtr = list(storm)
            resent = len(own.answer(visiting))
            assert own.flow.new_datagrams(visiting, resent, 100) <= max(0, 20 - others - resent)
            own.flow.settle(visiting, resent, 0)
            answers.append(resent)
            assert resent == max(1, min(max_messages, 20 - others))
            assert visiting.fcc == sum(answers[-4:]) <= 20 + len(group) - 1


def test_packets_are_filled_less_while_some_are_lost() -> None:
    outbox = Outbox(TotemConfig(packet_size=20_000))
    outbox.queue.accept([bytes(1_000)] * 200, Guarantee.AGREED)

    def filled() -> int:
        packed = outbox.next_packet(ring(), 1, 100, [])
        assert packed is not None
        return len(packed.raw)

    assert filled() > 19_000
    for _ in range(10):
        outbox.adapt(lossy=True)
    assert filled() <= 1_400, "one datagram"
    outbox.adapt(lossy=False)
    assert filled() < 3_000, "it grows step by step"
    for _ in range(20):
        outbox.adapt(lossy=False)
    assert filled() > 19_000
