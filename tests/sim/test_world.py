from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest
from toy_sequencer import QUIET_US, Sequencer, sequencers

from ordercast.core.contract import (
    Accept,
    Brake,
    CancelTimer,
    Deliver,
    Effect,
    Event,
    Halt,
    Install,
    Multicast,
    Originate,
    Packet,
    Persist,
    SetTimer,
    Shift,
    Stable,
    Start,
    Submit,
    Timer,
    Unicast,
)
from ordercast.core.identity import Batch, Configuration, ConfigurationId, Guarantee, Kind, NodeId
from ordercast.sim.clock import Runaway
from ordercast.sim.network import Ethernet, Lan, NetworkConfig
from ordercast.sim.world import World
from ordercast.trace.schema import Row

QUICK = Lan(base_us=100, tail_us=0)
Answer = Callable[[int, Event], Sequence[Effect]]


class Script:
    """A machine that notes its events and answers as a test says."""

    def __init__(self, answer: Answer) -> None:
        self.seen: list[tuple[int, Event]] = []
        self.answer = answer
        self.room = 1_000_000
        self.stats: Mapping[str, float] = {}
        self.waits: Mapping[NodeId, int] = {}
        self.laggard: NodeId | None = None
        self.role = ""
        self.final: tuple[ConfigurationId, int] | None = None

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        self.seen.append((now_us, event))
        return self.answer(now_us, event)


class Group:
    """A world of scripts; every life's machine is kept."""

    def __init__(
        self, answers: Mapping[NodeId, Answer], network: NetworkConfig = QUICK, packets: bool = False
    ) -> None:
        self.lives: dict[NodeId, list[Script]] = {node: [] for node in answers}

        def make(node: NodeId) -> Script:
            self.lives[node].append(Script(answers[node]))
            return self.lives[node][-1]

        self.world = World(make, tuple(answers), network, 0, packets=packets)

    def seen(self, node: NodeId, kind: type = object, life: int = -1) -> list[tuple[int, Event]]:
        return [(at, event) for at, event in self.lives[node][life].seen if isinstance(event, kind)]


def quiet(now_us: int, event: Event) -> Sequence[Effect]:
    return ()


def on_start(*effects: Effect) -> Answer:
    return lambda now_us, event: effects if isinstance(event, Start) else ()


def events(rows: Sequence[Row], node: NodeId) -> list[str]:
    return [row[4] for row in rows if row[0] == node]


def ring(seq: int) -> Configuration:
    return Configuration(ConfigurationId(seq, 1), Kind.REGULAR, (1, 2))


# --- the ordinary run --------------------------------------------------------------------------------


def test_every_node_delivers_what_everybody_submits_in_one_order() -> None:
    world = World(sequencers((1, 2, 3)), (1, 2, 3), Lan(), 1)
    world.start()
    for node in (1, 2, 3, 2):
        assert world.applications.submit(node, 50)
    world.run_until(10_000)
    orders = [
        [row[9:12] for row in world.rows if row[0] == node and row[4] == "deliver"] for node in world.nodes
    ]
    assert len(orders[0]) == 4
    assert orders[0] == orders[1] == orders[2]
    assert world.applications.corrupt == []
    assert world.applications.accepted == 4
    assert world.receptions == 3 + 4 * 2
    assert world.sent_packets == 3 + 4
    assert world.handled == world.receptions + world.applications.submissions + world.starts
    assert world.now == 10_000


def test_effects_are_carried_out_in_list_order_and_become_rows() -> None:
    batch = Batch(ring(4).id, 1, 0, 1, 0, 0, Guarantee.AGREED, (b"",))

    def answer(now_us: int, event: Event) -> Sequence[Effect]:
        if isinstance(event, Submit):
            return [Accept(0), Originate(batch), Deliver(batch), Stable([batch]), Install(ring(8))]
        return [Install(ring(4))] if isinstance(event, Start) else ()

    group = Group({1: answer})
    group.world.start()
    group.world.applications.submit(1, 0)
    rows = group.world.rows
    assert events(rows, 1) == ["install", "submit", "originate", "deliver", "stable", "install"]
    assert [row[2] for row in rows] == list(range(6))
    assert [row[5] for row in rows] == [4, 4, 4, 4, 4, 8]


def test_all_receivers_of_a_multicast_are_given_one_packet_object() -> None:
    group = Group({1: on_start(Multicast(b"m")), 2: quiet, 3: quiet})
    group.world.start()
    group.world.run_until(1000)
    first, second = (group.seen(node, Packet)[0][1] for node in (2, 3))
    assert first is second


def test_a_unicast_to_oneself_arrives() -> None:
    group = Group({1: on_start(Unicast(1, b"me"))})
    group.world.start()
    group.world.run_until(1000)
    assert group.seen(1, Packet) == [(10, Packet(b"me", 1))]


def test_an_exception_of_a_machine_says_where_it_happened() -> None:
    def fail(now_us: int, event: Event) -> Sequence[Effect]:
        raise ZeroDivisionError

    group = Group({1: on_start(SetTimer("t", 500)), 2: quiet})
    group.world.start(1)
    group.lives[1][0].answer = fail
    with pytest.raises(ZeroDivisionError) as caught:
        group.world.run_until(1000)
    assert caught.value.__notes__ == ["in the simulation with seed 0, at 500 µs"]
    group.lives[1][0].answer = quiet
    group.world.run_until(1000)
    assert group.world.now == 1000


def test_time_does_not_go_back_or_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ordercast.sim.clock._MOST_AT_ONE_INSTANT", 10_000)
    group = Group({1: lambda now_us, event: [SetTimer("t", 0)]})
    group.world.start()
    with pytest.raises(Runaway, match="events at 0 µs"):
        group.world.run_until(1)
    world = Group({1: quiet}).world
    world.run_until(10)
    with pytest.raises(ValueError, match="10 µs already"):
        world.run_until(9)


def test_a_node_starts_once() -> None:
    world = Group({1: quiet}).world
    world.start()
    with pytest.raises(ValueError, match="runs already"):
        world.start(1)


def test_rows_may_be_taken_out_while_a_run_goes_on() -> None:
    def run(taken: list[Row], pieces: int) -> list[Row]:
        world = World(sequencers((1, 2)), (1, 2), Lan(), 1)
        world.start()
        for at in range(0, 1_000_000, 500):
            world.at(at, lambda: world.applications.submit(2, 20))
        for piece in range(1, pieces + 1):
            world.run_until(1_100_000 * piece // pieces)
            taken += world.rows
            world.rows.clear()
        return taken

    assert run([], 10) == run([], 1)


# --- timers ------------------------------------------------------------------------------------------


def test_a_timer_runs_out_once() -> None:
    group = Group({1: on_start(SetTimer("t", 500))})
    group.world.start()
    group.world.run_until(5_000)
    assert group.seen(1, Timer) == [(500, Timer("t"))]
    assert group.world.timeouts == 1


@pytest.mark.parametrize(
    ("again", "due"), [([SetTimer("t", 900)], [1000]), ([SetTimer("t", 50)], [150]), ([CancelTimer("t")], [])]
)
def test_a_timer_is_set_anew_or_cancelled(again: list[Effect], due: list[int]) -> None:
    def answer(now_us: int, event: Event) -> Sequence[Effect]:
        if isinstance(event, Start):
            return [SetTimer("t", 500), SetTimer("other", 100)]
        return again if event == Timer("other") else ()

    group = Group({1: answer})
    group.world.start()
    group.world.run_until(5_000)
    assert [at for at, event in group.seen(1, Timer) if event == Timer("t")] == due


def test_setting_a_timer_later_again_and_again_keeps_one_entry() -> None:
    group = Group({1: on_start(*[SetTimer("t", 500 + i) for i in range(1000)])})
    group.world.start()
    assert len(group.world.clock.heap) == 1
    group.world.run_until(5_000)
    assert group.seen(1, Timer) == [(1499, Timer("t"))]


def test_a_timer_earlier_then_later_again_runs_out_once() -> None:
    moves: list[Effect] = [
        SetTimer("t", 500),
        SetTimer("t", 100),
        SetTimer("t", 500),
        CancelTimer("t"),
        SetTimer("t", 500),
    ]
    group = Group({1: on_start(*moves)})
    group.world.start()
    group.world.run_until(5_000)
    assert group.seen(1, Timer) == [(500, Timer("t"))]


def test_timers_die_with_their_life() -> None:
    group = Group({1: lambda now_us, event: [SetTimer("t", 500)] if isinstance(event, Start) else ()})
    group.world.start()
    group.world.run_until(200)
    group.world.crash(1)
    group.world.run_until(300)
    group.world.restart(1)
    group.world.run_until(5_000)
    assert group.seen(1, Timer, life=0) == []
    assert group.seen(1, Timer, life=1) == [(800, Timer("t"))]


# --- lives -------------------------------------------------------------------------------------------


def test_a_restart_finds_what_was_persisted_or_not() -> None:
    group = Group(
        {1: lambda now_us, event: [Persist(b"a"), Persist(b"b")] if isinstance(event, Start) else ()}
    )
    world = group.world
    world.start()
    for keep_disk in (True, False):
        world.crash(1)
        world.restart(1, keep_disk)
    starts = [life.seen[0][1] for life in group.lives[1]]
    assert [start[:2] for start in starts] == [(0, None), (1, b"b"), (2, None)]
    assert events(world.rows, 1) == ["crash", "restart", "crash", "restart"]
    assert [row[1] for row in world.rows] == [0, 1, 1, 2]


def test_a_disk_may_return_what_it_held_some_writes_ago() -> None:
    writes = [Persist(bytes([n])) for n in range(20)]
    group = Group({1: lambda now_us, event: writes if isinstance(event, Start) else ()})
    group.world.start()
    found: list[bytes | None] = []
    for ago in (3, 100, 0):
        group.world.crash(1)
        group.world.restart(1, writes_ago=ago)
        start = group.lives[1][-1].seen[0][1]
        assert isinstance(start, Start)
        found.append(start.stored)
    assert found == [bytes([16]), bytes([11]), bytes([19])], "eight writes are remembered"


def test_clocks_differ_from_one_life_to_the_next_and_never_within_one() -> None:
    group = Group({1: on_start(SetTimer("t", 500)), 2: on_start(SetTimer("t", 500))})
    world = group.world
    world.set_clock(1, 7_000)
    world.start()
    world.set_clock(1, 2_000)
    world.run_until(1_000)
    world.crash(1)
    world.restart(1)
    world.run_until(2_000)
    assert [[at for at, _ in life.seen] for life in group.lives[1]] == [[7_000, 7_500], [3_000, 3_500]]
    assert [at for at, _ in group.lives[2][0].seen] == [0, 500]


def test_a_node_may_begin_after_the_others_and_begins_once() -> None:
    group = Group({1: quiet, 2: quiet})
    group.world.start(1)
    group.world.run_until(100)
    group.world.begin(2)
    group.world.begin(2)
    group.world.crash(2)
    group.world.begin(2)
    assert [len(lives) for lives in group.lives.values()] == [1, 1]


def test_configurations_whose_numbers_fall_on_a_kept_disk_are_noted() -> None:
    numbers = iter((8, 12, 12, 4, 4))
    group = Group(
        {1: lambda now_us, event: [Install(ring(next(numbers)))] if isinstance(event, Start) else ()}
    )
    world = group.world
    world.start()
    for keep_disk, writes_ago in ((True, 0), (True, 0), (False, 0), (True, 1)):
        world.crash(1)
        world.restart(1, keep_disk, writes_ago)
    assert world.fallen == ["node 1 installed configuration 12.1 after 12 on the same disk"]


def test_each_life_of_each_node_has_a_seed_of_its_own_that_the_run_decides() -> None:
    def seeds() -> list[object]:
        group = Group({1: quiet, 2: quiet})
        group.world.start()
        group.world.crash(1)
        group.world.restart(1)
        return [life.seen[0][1] for node in (1, 2) for life in group.lives[node]]

    starts = seeds()
    assert all(isinstance(start, Start) for start in starts)
    assert len({start.seed for start in starts if isinstance(start, Start)}) == 3
    assert starts == seeds()


def test_a_node_that_is_down_hears_nothing_and_sends_nothing() -> None:
    group = Group({1: on_start(SetTimer("t", 500)), 2: on_start(SetTimer("t", 200)), 3: quiet})
    group.world.start()
    group.lives[1][0].answer = lambda now_us, event: [Multicast(b"x")]
    group.world.crash(2)
    group.world.run_until(1_000)
    assert group.seen(2, Packet) == []
    assert group.seen(2, Timer) == []
    assert len(group.seen(3, Packet)) == 1
    assert group.world.drops == {"down": 1}
    assert not group.world.up(2)


def test_a_crash_in_the_middle_carries_out_the_first_effects_only() -> None:
    def answer(now_us: int, event: Event) -> Sequence[Effect]:
        return [Persist(b"new"), Multicast(b"m"), Install(ring(4))] if event == Timer("t") else ()

    for after, disk, heard, installed in [
        (0, None, 0, False),
        (1, b"new", 0, False),
        (2, b"new", 1, False),
    ]:
        group = Group({1: answer, 2: quiet})
        group.world.start()
        group.lives[1][0].answer = lambda now_us, event: [SetTimer("t", 10)]
        group.world._step(group.world.hosts[1], Packet(b"", 1))
        group.lives[1][0].answer = answer
        group.world.crash(1, after)
        assert group.world.up(1)
        group.world.run_until(1_000)
        assert not group.world.up(1)
        assert group.world.hosts[1].disk == disk
        assert len(group.seen(2, Packet)) == heard
        assert events(group.world.rows, 1) == ["crash"]
        assert ("install" in events(group.world.rows, 1)) == installed


def test_the_fuse_waits_for_an_event_with_enough_effects_and_restart_puts_it_out() -> None:
    group = Group({1: lambda now_us, event: [SetTimer("t", 100)]})
    group.world.start()
    group.world.crash(1, after_effects=1)
    group.world.run_until(1_000)
    assert group.world.up(1)
    group.world.restart(1)
    group.lives[1][0].answer = lambda now_us, event: [SetTimer("t", 100), Install(ring(4))]
    group.world.run_until(2_000)
    assert group.world.up(1)
    assert group.world.hosts[1].incarnation == 0


def test_a_halt_ends_the_life_and_nothing_behind_it_happens() -> None:
    world = World(sequencers((1, 2)), (1, 2), QUICK, 0)
    world.start()
    world.leave(2)
    assert not world.up(2)
    assert events(world.rows, 2) == ["install", "halt"]
    assert world.halts == 1
    assert "ghost" not in world.visits
    world.run_until(500_000)
    assert not world.up(2)
    world.restart(2)
    assert events(world.rows, 2)[-2:] == ["restart", "install"]


def test_a_packet_may_make_a_machine_halt() -> None:
    def halt(now_us: int, event: Event) -> Sequence[Effect]:
        return [Halt("bad"), Install(ring(4))] if isinstance(event, Packet) else ()

    for packets in (False, True):
        group = Group({1: on_start(Multicast(b"x")), 2: halt, 3: quiet}, packets=packets)
        group.world.start()
        group.world.run_until(1_000)
        assert not group.world.up(2)
        assert events(group.world.rows, 2)[-1] == "halt"
        assert len(group.seen(3, Packet)) == 1


def test_changes_of_state_are_counted_and_told() -> None:
    heard: list[tuple[NodeId, str]] = []
    world = World(sequencers((1, 2)), (1, 2), QUICK, 0)
    world.watch(lambda node, state: heard.append((node, state)))
    world.start()
    world.run_until(QUIET_US)
    world.crash(1)
    world.crash(1)
    assert heard == [
        *((1, "starting"), (1, "running"), (2, "starting"), (2, "running")),
        *((1, "quiet"), (2, "quiet")),
    ]
    assert world.visits["running"] == 2
    assert world.crashes == {"quiet": 1}
    assert [change.because for change in world.changes][-1] == "nothing heard"


# --- pause, slow, busy -------------------------------------------------------------------------------


def beats(period_us: int, times: int = 10**9) -> Answer:
    """Multicasts and unicasts to node 2 every so often."""

    def answer(now_us: int, event: Event) -> Sequence[Effect]:
        if now_us >= period_us * times:
            return ()
        if isinstance(event, Start):
            return [SetTimer("beat", period_us)]
        return [Unicast(2, b"u%d" % now_us), Multicast(b"m%d" % now_us), SetTimer("beat", period_us)]

    return answer


def watchful(now_us: int, event: Event) -> Sequence[Effect]:
    """Suspects after 500 µs of silence."""
    return [Shift("suspicious", "silence")] if isinstance(event, Timer) else [SetTimer("silence", 500)]


def test_a_resumed_node_reads_what_waits_before_its_timers() -> None:
    """PEERS.md, pause guard; and multicasts before unicasts, 000 §5.2."""
    group = Group({1: beats(100), 2: watchful})
    group.world.start()
    group.world.run_until(1_050)
    assert "suspicious" not in group.world.visits
    before = len(group.seen(2))
    group.world.pause(2)
    group.world.run_until(3_050)
    assert len(group.seen(2)) == before
    group.world.resume(2)
    at_once = group.seen(2)[before:]
    assert {at for at, _ in at_once} == {3_050}
    kinds = [event.data[:1] for _, event in at_once if isinstance(event, Packet)]
    assert kinds == [b"m"] * 20 + [b"u"] * 20
    assert "suspicious" not in group.world.visits
    group.world.run_until(5_000)
    assert "suspicious" not in group.world.visits


def test_overdue_timers_ring_after_what_waits() -> None:
    def answer(now_us: int, event: Event) -> Sequence[Effect]:
        return [SetTimer("a", 300), SetTimer("b", 200)] if isinstance(event, Start) else ()

    group = Group({1: beats(100, times=5), 2: answer})
    group.world.start()
    group.world.pause(2)
    group.world.run_until(1_000)
    group.world.resume(2)
    kinds = [event for _, event in group.seen(2)[1:]]
    assert kinds[-2:] == [Timer("b"), Timer("a")]
    assert all(isinstance(event, Packet) for event in kinds[:-2])
    assert len(kinds) == 8 + 2


def test_a_paused_nodes_buffers_overflow() -> None:
    group = Group({1: beats(100), 2: quiet}, Lan(base_us=10, tail_us=0, input_bytes=40))
    group.world.start()
    group.world.pause(2)
    group.world.run_until(10_050)
    group.world.resume(2)
    received = [event for _, event in group.seen(2, Packet)]
    assert sum(len(event.data) for event in received if isinstance(event, Packet)) <= 80
    assert group.world.drops["overflow"] == 200 - len(received)


def test_a_crash_of_a_paused_node_forgets_what_waits() -> None:
    group = Group({1: beats(100, times=5), 2: quiet})
    group.world.start()
    group.world.pause(2)
    group.world.run_until(1_000)
    group.world.crash(2)
    group.world.restart(2)
    group.world.resume(2)
    group.world.run_until(2_000)
    assert len(group.seen(2)) == 1


@pytest.mark.parametrize("slow", [False, True])
def test_processor_time_delays_and_orders_what_a_node_handles(slow: bool) -> None:
    """Packets arrive together; each takes 70 µs, a multicast first, and nothing is handled in between."""
    network = Lan(base_us=10, tail_us=0) if slow else Lan(base_us=10, tail_us=0, receive_us=70, unicast_us=70)
    sends: list[Effect] = [Unicast(2, b"u1"), Multicast(b"m1"), Unicast(2, b"u2"), Multicast(b"m2")]
    group = Group({2: quiet, 1: on_start(*sends)}, network)
    if slow:
        group.world.slow(2, 70)
    group.world.start()
    group.world.run_until(1_000)
    handled = [(at, event.data) for at, event in group.seen(2) if isinstance(event, Packet)]
    assert handled == [(80, b"u1"), (150, b"m1"), (220, b"m2"), (290, b"u2")]
    if slow:
        group.world.slow(2, 0)
        assert group.world.hosts[2].direct


def test_a_busy_node_hears_a_timer_after_the_packets_before_it() -> None:
    def answer(now_us: int, event: Event) -> Sequence[Effect]:
        return [SetTimer("t", 100)] if isinstance(event, Start) else ()

    group = Group(
        {1: beats(50, times=20), 2: answer}, Lan(base_us=10, tail_us=0, receive_us=60, unicast_us=0)
    )
    group.world.start()
    group.world.run_until(5_000)
    kinds = [type(event) for _, event in group.seen(2)]
    at = group.seen(2, Timer)[0][0]
    assert 100 < at <= 250
    assert Packet in kinds[: kinds.index(Timer)]


def test_sending_takes_time_and_packets_leave_one_after_another() -> None:
    network = Lan(base_us=10, tail_us=0, send_us=100)
    group = Group({1: on_start(Multicast(b"a"), Multicast(b"b"), Unicast(2, b"c")), 2: quiet}, network)
    group.world.start()
    group.world.run_until(1_000)
    assert group.seen(2, Packet) == [(110, Packet(b"a", 1)), (210, Packet(b"b", 1)), (310, Packet(b"c", 1))]


def busy_receiver() -> Group:
    """At 50 µs node 2 is at work on the first of two packets of node 1, which takes it until 110 µs."""
    group = Group(
        {1: on_start(Multicast(b"a"), Multicast(b"b")), 2: quiet},
        Lan(base_us=10, tail_us=0, receive_us=100),
    )
    group.world.start()
    group.world.run_until(50)
    return group


def test_a_pause_while_busy_keeps_the_packet_in_hand() -> None:
    group = busy_receiver()
    group.world.pause(2)
    group.world.run_until(500)
    assert group.seen(2, Packet) == []
    group.world.resume(2)
    group.world.run_until(1_000)
    assert group.seen(2, Packet) == [(500, Packet(b"a", 1, 390)), (600, Packet(b"b", 1, 490))]


def test_a_short_pause_while_busy_changes_nothing() -> None:
    group = busy_receiver()
    group.world.pause(2)
    group.world.run_until(60)
    group.world.resume(2)
    group.world.run_until(1_000)
    assert group.seen(2, Packet) == [(110, Packet(b"a", 1)), (210, Packet(b"b", 1, 100))]


def test_a_packet_says_how_long_it_waited_and_what_handling_always_takes_is_no_waiting() -> None:
    group = Group({1: on_start(Multicast(b"a")), 2: quiet, 3: quiet, 4: quiet})
    group.world.slow(3, 70)
    group.world.start()
    group.world.pause(4)
    group.world.run_until(400)
    group.world.resume(4)
    assert [group.seen(node, Packet) for node in (2, 3, 4)] == [
        [(100, Packet(b"a", 1, 0))],
        [(170, Packet(b"a", 1, 70))],
        [(400, Packet(b"a", 1, 300))],
    ]
    costly = Group({1: on_start(Unicast(2, b"a")), 2: quiet}, Lan(base_us=10, tail_us=0, unicast_us=100))
    costly.world.start()
    costly.world.run_until(200)
    assert costly.seen(2, Packet) == [(110, Packet(b"a", 1, 0))]


def test_a_brake_reaches_a_node_that_runs() -> None:
    group = Group({1: quiet, 2: quiet, 3: quiet})
    group.world.start(1, 2)
    group.world.pause(2)
    for node in (1, 2, 3):
        group.world.brake(node, True)
    group.world.brake(1, False)
    assert group.seen(1, Brake) == [(0, Brake(True)), (0, Brake(False))]
    assert group.seen(2, Brake) == []
    assert group.lives[3] == []


def test_a_crash_while_busy_drops_the_packet_in_hand() -> None:
    group = busy_receiver()
    group.world.crash(2)
    group.world.restart(2)
    group.world.run_until(1_000)
    assert group.seen(2, Packet) == []


def test_slow_receivers_on_an_ethernet_overflow() -> None:
    """000 §8: at higher rates the input buffer of the slowest processor fills and messages are lost."""
    sends = [Multicast(bytes(1000))] * 100
    group = Group({1: on_start(*sends), 2: quiet, 3: quiet}, Ethernet(receive_us=900, input_bytes=8_000))
    group.world.slow(2, 5_000)
    group.world.start()
    group.world.run_until(2_000_000)
    assert len(group.seen(3, Packet)) == 100
    assert 10 < len(group.seen(2, Packet)) < 40
    assert group.world.drops["overflow"] == 100 - len(group.seen(2, Packet))
    assert 0.04 < group.world.utilization < 0.06


# --- the application ---------------------------------------------------------------------------------


def test_what_finds_no_room_waits_and_too_much_is_refused() -> None:
    world = World(sequencers((1, 2), room=100), (1, 2), QUICK, 0, application_queue=3)
    world.start()
    assert [world.applications.submit(2, 60) for _ in range(5)] == [True, True, True, True, False]
    assert world.applications.accepted == 1
    world.run_until(10_000)
    assert world.applications.accepted == 4
    assert world.applications.refused == {"queue full": 1}
    assert world.applications.waited_us == 200 + 400 + 600
    times = [row[3] for row in world.rows if row[4] == "submit"]
    assert times == [0, 200, 400, 600]


def test_a_node_that_is_down_or_crashes_loses_its_applications_messages() -> None:
    world = World(sequencers((1, 2), room=100), (1, 2), QUICK, 0)
    assert not world.applications.submit(2, 10)
    world.start()
    world.applications.submit(2, 60)
    world.applications.submit(2, 60)
    world.crash(2)
    assert world.applications.refused == {"down": 1, "lost in a crash": 1}


def test_a_closed_world_takes_no_more_messages() -> None:
    world = World(sequencers((1, 2), room=100), (1, 2), QUICK, 0)
    world.start()
    world.applications.saturate(2, lambda node, room: [(60, Guarantee.AGREED), (60, Guarantee.AGREED)])
    world.run_until(1_000)
    world.applications.close()
    assert not world.applications.submit(1, 10)
    accepted = world.applications.accepted
    assert accepted > 4
    world.run_until(9_000)
    assert world.applications.accepted <= accepted + 2  # what waited already
    assert not world.hosts[2].waiting


def test_messages_of_a_paused_nodes_application_wait() -> None:
    world = World(sequencers((1, 2)), (1, 2), QUICK, 0)
    world.start()
    world.pause(2)
    world.leave(2)
    assert world.applications.submit(2, 10)
    assert world.applications.accepted == 0
    world.run_until(50)
    world.resume(2)
    assert world.applications.accepted == 1
    assert world.up(2)


def test_runs_of_one_guarantee_are_submitted_together() -> None:
    group = Group({1: lambda now_us, event: [Accept(0)] if isinstance(event, Submit) else ()})
    group.world.start()
    group.world.pause(1)
    for guarantee in (Guarantee.AGREED, Guarantee.AGREED, Guarantee.SAFE):
        group.world.applications.submit(1, 4, guarantee)
    group.world.resume(1)
    sizes = [(len(e.payloads), e.guarantee) for _, e in group.seen(1) if isinstance(e, Submit)]
    assert sizes == [(2, Guarantee.AGREED), (1, Guarantee.SAFE)]
    assert "accepted twice" in str(group.world.applications.corrupt[0])


def test_a_machine_must_accept_what_it_has_room_for() -> None:
    world = Group({1: quiet}).world
    world.start()
    with pytest.raises(AssertionError, match="did not accept"):
        world.applications.submit(1, 10)


def test_a_damaged_payload_is_noticed() -> None:
    class Damaging(Sequencer):
        def _on_packet(self, data: bytes) -> Sequence[Effect]:
            return super()._on_packet(data[:-1] + b"?")

    world = World(lambda node: Damaging(node, (1, 2)), (1, 2), QUICK, 0)
    world.start()
    world.applications.submit(1, 30)
    world.run_until(1_000)
    assert [(bad.node, bad.message) for bad in world.applications.corrupt] == [(2, (1, 0, 0))]


# --- packets in the trace ----------------------------------------------------------------------------


def test_packets_are_traced_where_asked_for() -> None:
    def run(packets: bool) -> World:
        world = World(
            sequencers((1, 2, 3)), (1, 2, 3), QUICK, 0, packets=packets, kind_of=lambda data: str(data[0])
        )
        world.start()
        world.network.links.cut(1, 3)
        world.applications.submit(2, 10)
        world.run_until(1_000)
        world.network.unicast(world.now, 1, 2, b"Z")
        world.run_until(2_000)
        return world

    traced, plain = run(True), run(False)
    packets = [(row[0], row[4], row[19]) for row in traced.rows if row[4].startswith("packet")]
    assert packets == [
        (2, "packet_sent", "1"),
        (1, "packet_received", "1"),
        (1, "packet_sent", "2"),
        (3, "packet_dropped", "2"),
        (2, "packet_received", "2"),
        (2, "packet_received", "90"),
        (2, "packet_dropped", "90"),
    ]
    assert traced.drops == {"cut": 1, "short": 1}
    rest = [row[3:] for row in traced.rows if not row[4].startswith("packet")]
    assert rest == [row[3:] for row in plain.rows]
