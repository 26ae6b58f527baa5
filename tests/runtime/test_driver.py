"""The driver, with a machine that does as it is told: what is done in which order, and what never is."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest

from absence import past, turns
from ordercast.core.contract import (
    Accept,
    Brake,
    CancelTimer,
    Deliver,
    Drop,
    Effect,
    Event,
    Gone,
    Halt,
    Install,
    Lane,
    Multicast,
    Originate,
    Packet,
    Persist,
    SetTimer,
    Shift,
    Stable,
    Start,
    Stop,
    Submit,
    Timer,
    Unicast,
)
from ordercast.core.identity import Batch, Configuration, ConfigurationId, Ended, Guarantee, Kind, NodeId
from ordercast.errors import NodeClosed, StorageProblem
from ordercast.keys import Keyring, generate
from ordercast.runtime import driver as driver_module
from ordercast.runtime.config import NodeConfig
from ordercast.runtime.distance import RoundTrip
from ordercast.runtime.driver import Driver
from ordercast.runtime.environment import system
from ordercast.runtime.storage import Memory
from ordercast.trace.recorder import Recorder
from ordercast.trace.schema import Row
from ordercast.transport import udp_reading
from ordercast.transport.address import Place
from ordercast.transport.interface import MOST_REASONS, Drops, Setup
from ordercast.transport.known_lives import KnownLives
from ordercast.transport.probes import LivenessProbes
from ordercast.transport.seal import OVERHEAD
from ordercast.transport.segments import HEADER_SIZE, Segmenter, Train
from ordercast.transport.udp import UdpSettings, UdpTransport
from ordercast.transport.udp_reading import BUFFERS_A_TURN, USELESS_A_TURN, Arrival, SocketReader
from ordercast.transport.udp_socket import Address

RING = ConfigurationId(4, 1)
BATCH = Batch(RING, 1, 0, 1, 0, 1, Guarantee.AGREED, [b"payload"])
TOGETHER = Configuration(RING, Kind.REGULAR, (1, 2))
SEALED = pytest.mark.parametrize("sealed", [False, True], ids=["open", "sealed"])

Answer = Callable[[Event], Sequence[Effect]]


class Script:
    """A machine that answers as it was told, and remembers what it was given."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.told: deque[Sequence[Effect]] = deque()
        self.answer: Answer = lambda event: ()
        self.room = 1_000_000
        self.stats: Mapping[str, float] = {}
        self.waits: Mapping[NodeId, int] = {}
        self.laggard: NodeId | None = None
        self.role = ""
        self.final: tuple[ConfigurationId, int] | None = None

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        self.events.append(event)
        if isinstance(event, Submit):
            self.room -= sum(map(len, event.payloads))
        if isinstance(event, Brake) and self.told:
            return self.told.popleft()
        return self.answer(event)

    def of(self, *kinds: type) -> list[Event]:
        return [event for event in self.events if isinstance(event, kinds)]


class Disk(Memory):
    """Storage that can be told to fail."""

    def __init__(self, log: list[object], id: int) -> None:
        super().__init__(id, new=True)
        self.log = log
        self.full = False

    def persist(self, data: bytes) -> None:
        if self.full:
            raise StorageProblem("the disk is full: make room, and start the node again")
        self.log.append(("persist", data))


class Being:
    """A node: driver, script, and what the driver told and sent, in one list."""

    def __init__(
        self, node: int, driver: Driver, script: Script, transport: UdpTransport, disk: Disk, told: Told
    ) -> None:
        self.told = told
        self.node = node
        self.driver = driver
        self.script = script
        self.transport = transport
        self.links = transport.links
        self.sockets = transport.sockets
        self.disk = disk

    def carry_out(self, *effects: Effect) -> None:
        """Have the driver do this, now."""
        self.script.told.append(effects)
        self.driver.brake(True)

    @property
    def log(self) -> list[object]:
        return self.disk.log

    @property
    def packets(self) -> list[bytes]:
        return [event.data for event in self.script.events if isinstance(event, Packet)]


class Told:
    """Who the driver works for."""

    def __init__(self, log: list[object]) -> None:
        self.log = log
        self.error: BaseException | None = None
        self.over = False
        self.revives = False

    def deliver(self, batch: Batch) -> None:
        self.log.append(("deliver", batch.payloads[0]))

    def install(self, configuration: Configuration, ended: Ended | None) -> None:
        self.log.append(("install", configuration.members))

    def originated(self, batch: Batch) -> None:
        self.log.append(("originated", batch.number))

    def entered(self, state: str) -> None:
        """The log is of what goes to others."""

    def halted(self, reason: str) -> bool:
        self.log.append(("halted", reason))
        return self.revives

    def failed(self, event: Event, error: Exception) -> None:
        self.log.append(("failed", event.data if isinstance(event, Packet) else event, error))

    def outlived(self, life: int) -> None:
        self.log.append(("outlived", life))

    def ended(self, error: BaseException | None) -> None:
        assert not self.over
        self.over = True
        self.error = error
        self.log.append(("ended", type(error).__name__))


async def being(node: int, knows: Sequence[Being] = (), ring: Keyring | None = None) -> Being:
    log: list[object] = []
    environment, drops = system(), Drops()
    setup = Setup(node, 0, "script", ring, drops, environment.now_us, KnownLives())
    settings = UdpSettings(
        place=Place("127.0.0.1", 0, exact=True),
        datagram=1452,
        buffer=NodeConfig().socket_buffer,
        greets=[other.transport.address for other in knows],
        closed=False,
        shared="the same",
    )
    transport = await UdpTransport.open(setup, settings)
    script, disk, told = Script(), Disk(log, node), Told(log)
    driver = Driver(
        script,
        disk,
        transport,
        told,
        told,
        drops,
        environment.now_us,
        environment.new_seed,
        RoundTrip(),
        None,
        [],
        None,
    )
    transport.start(driver)
    driver.start(0, None)
    return Being(node, driver, script, transport, disk, told)


@asynccontextmanager
async def pair(sealed: bool = False, tokens: bool = True) -> AsyncIterator[tuple[Being, Being]]:
    """Two that are linked, and have passed a token on where there are `tokens`."""
    ring = Keyring((generate(),)) if sealed else None
    one = await being(1, ring=ring)
    two = await being(2, [one], ring=ring)
    try:
        await until(lambda: bool(one.links.targets and two.links.targets))
        if tokens:
            one.carry_out(Unicast(2, b"token", Lane.TOKEN))
            two.carry_out(Unicast(1, b"token", Lane.TOKEN))
            await until(lambda: bool(one.packets and two.packets))
        for each in (one, two):
            each.script.events.clear()
        yield one, two
    finally:
        one.driver.end(None)
        two.driver.end(None)


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.002)


def run(test: Callable[[], Coroutine[None, None, None]]) -> None:
    async def guarded() -> None:
        async with asyncio.timeout(20):
            await test()

    asyncio.run(guarded())


def watch_sending(being: Being) -> list[tuple[str, object]]:
    """Note in the log what leaves by which socket; and where to, in the list that is returned."""
    ways: list[tuple[str, object]] = []
    for name in ("data", "token"):
        channel = getattr(being.sockets, name)

        def send(
            train: Train, to: object, name: str = name, inner: Callable[..., None] = channel.send
        ) -> None:
            if train.data.startswith(b"oc"):
                being.log.append((name, train.data))
                ways.append((name, to))
            inner(train, to)

        channel.send = send
    return ways


def sent(being: Being) -> list[object]:
    """The log, with what was sent as packets."""
    return [
        (entry[0], entry[1][-1:]) if isinstance(entry, tuple) and entry[0] in ("data", "token") else entry
        for entry in being.log
    ]


# --- effects ------------------------------------------------------------------------------------


def test_effects_are_carried_out_in_order() -> None:
    async def main() -> None:
        async with pair() as (one, two):
            watch_sending(one)
            one.carry_out(
                Accept(1),
                Originate(BATCH),
                Multicast(b"a"),
                Unicast(2, b"t", Lane.TOKEN),
                Deliver(BATCH),
                Persist(b"durable"),
                Multicast(b"b"),
                Install(TOGETHER),
                Stable([BATCH]),
                Shift("operational", "it was told to"),
                Drop("no reason"),
            )
            assert sent(one) == [
                ("originated", 1),
                ("data", b"a"),
                ("token", b"t"),
                ("deliver", b"payload"),
                ("persist", b"durable"),
                ("install", (1, 2)),
                ("data", b"b"),
            ]
            assert (one.driver.state, one.driver.because) == ("operational", "it was told to")
            assert one.driver.drops == {"no reason": 1}
            assert one.driver.delivered == 1
            await until(lambda: len(two.packets) == 3)
            assert sorted(two.packets) == [b"a", b"b", b"t"]

    run(main)


@pytest.mark.parametrize("successor", [2, 3])
def test_the_token_follows_the_data_of_its_receiver_and_goes_ahead_of_that_of_others(successor: int) -> None:
    async def main() -> None:
        async with pair() as (one, two):
            three = await being(3, [one, two])
            await until(lambda: len(one.links.targets) == len(three.links.targets) == 2)
            three.script.events.clear()
            ways = watch_sending(one)
            one.carry_out(Multicast(b"a"), Unicast(successor, b"t", Lane.TOKEN))
            there, other = (one.links.peers[node] for node in (successor, 5 - successor))
            assert ways == [("data", there.data), ("token", there.token), ("data", other.data)]
            await until(lambda: len(two.packets) + len(three.packets) == 3)
            three.driver.end(None)

    run(main)


@SEALED
def test_packets_of_one_turn_leave_together_and_arrive_in_order(sealed: bool) -> None:
    async def main() -> None:
        async with pair(sealed) as (one, two):
            paths = one.transport.paths
            await until(lambda: paths.measured.round_trip_us > 0 and paths.measured.datagram == 1452)
            watch_sending(one)
            packets = [bytes([number]) * (2 * (1452 - HEADER_SIZE) - OVERHEAD) for number in range(20)]
            one.carry_out(*map(Multicast, packets))
            trains = [entry for entry in sent(one) if isinstance(entry, tuple) and entry[0] == "data"]
            assert len(trains) < len(packets)
            await until(lambda: len(two.packets) == len(packets))
            assert two.packets == packets
            assert not two.driver.drops

    run(main)


def test_nothing_behind_a_persist_that_fails() -> None:
    async def main() -> None:
        async with pair() as (one, two):
            one.disk.full = True
            one.carry_out(
                Deliver(BATCH),
                Persist(b"x"),
                Multicast(b"promise"),
                Unicast(2, b"promise"),
                Install(TOGETHER),
            )
            assert one.log == [("deliver", b"payload"), ("ended", "StorageProblem")]
            assert one.driver.ended
            assert not one.driver.halted
            seen = len(one.script.events)
            one.driver.brake(True)
            await turns()
            assert len(one.script.events) == seen
            assert two.packets == []

    run(main)


def test_nothing_behind_a_halt() -> None:
    async def main() -> None:
        async with pair() as (one, two):
            one.carry_out(
                Multicast(b"last word"),
                Halt("enough"),
                Deliver(BATCH),
                Multicast(b"ghost"),
                Unicast(2, b"ghost"),
                SetTimer("ghost", 1),
                Persist(b"ghost"),
            )
            assert one.log == [("halted", "enough"), ("ended", "NoneType")]
            assert one.driver.halted
            await until(lambda: two.packets == [b"last word"])
            await past(1_000)
            assert two.packets == [b"last word"]
            assert not one.script.of(Timer)

    run(main)


def test_the_rest_of_a_train_is_not_for_the_dead() -> None:
    async def main() -> None:
        async with pair() as (one, two):
            one.script.answer = lambda event: (Halt("enough"),) if isinstance(event, Packet) else ()
            two.carry_out(*(Multicast(bytes(1438)) for _ in range(8)))
            await until(lambda: one.driver.ended)
            assert len(one.packets) == 1

    run(main)


def test_what_a_machine_tells_a_user_ends_the_node() -> None:
    async def main() -> None:
        async with pair() as (one, two):

            def answer(event: Event) -> Sequence[Effect]:
                raise NodeClosed("it left")

            one.script.answer = answer
            two.carry_out(Multicast(b"x"))
            await until(lambda: one.driver.ended)
            assert one.log == [("ended", "NodeClosed")]

    run(main)


@pytest.mark.parametrize("token", [False, True], ids=["data", "token"])
def test_a_machine_that_raises_on_a_packet_ends_its_life_and_not_the_node(token: bool) -> None:
    async def main() -> None:
        async with pair() as (one, two):
            error = ValueError("a defect")

            def answer(event: Event) -> Sequence[Effect]:
                raise error

            one.carry_out(SetTimer("ghost", 20_000))
            one.script.answer = answer
            two.carry_out(Unicast(1, b"x", Lane.TOKEN) if token else Multicast(b"x"))
            await until(lambda: not one.driver.live)
            assert one.log == [("failed", b"x", error)]
            assert (one.driver.state, one.driver.drops["machine failed"]) == ("crashed", 1)
            heard = len(one.script.events)
            two.carry_out(Multicast(b"y"))
            await until(lambda: one.driver.drops["not started yet"] > 0)
            await past(20_000)
            assert len(one.script.events) == heard, "the life is over: no packet, no timer"
            assert not one.driver.ended
            one.script.answer = lambda event: ()
            one.driver.start_again(one.script, 1, None)
            two.carry_out(Multicast(b"z"))
            await until(lambda: one.packets[-1:] == [b"z"])

    run(main)


def test_a_machine_that_cannot_begin_ends_the_node(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with pair() as (one, _):

            def answer(event: Event) -> Sequence[Effect]:
                raise ValueError("a defect")

            one.driver.crash("for a test")
            one.script.answer = answer
            one.driver.start_again(one.script, 1, None)
            assert one.log == [("ended", "ValueError")]

    run(main)
    assert [record.levelname for record in caplog.records if record.levelname == "CRITICAL"] == ["CRITICAL"]


def test_to_nobody() -> None:
    async def main() -> None:
        async with pair() as (one, _):
            one.carry_out(Unicast(77, b"token", Lane.TOKEN))
            assert one.driver.drops == {"no address to send to": 1}

    run(main)


def test_it_ends_once() -> None:
    async def main() -> None:
        async with pair() as (one, _):
            one.driver.end(None)
            one.driver.end(ValueError())
            one.driver.brake(True)
            assert one.log == [("ended", "NoneType")]

    run(main)


def test_packets_before_the_start_are_for_nobody() -> None:
    async def main() -> None:
        async with pair() as (one, two):
            one.driver._handle = driver_module._not_started
            two.carry_out(Multicast(b"x"))
            await until(lambda: one.driver.drops["not started yet"] == 1)
            assert one.packets == []

    run(main)


# --- submitting ---------------------------------------------------------------------------------


def test_messages_of_one_turn_are_submitted_together() -> None:
    async def main() -> None:
        async with pair() as (one, _):
            for number in range(5):
                one.driver.submit([b"%d" % number], Guarantee.AGREED)
            one.driver.submit([b"safe"], Guarantee.SAFE)
            one.driver.submit([b"more"], Guarantee.AGREED)
            assert one.script.events == []
            await until(lambda: len(one.script.events) == 3)
            assert one.script.events == [
                Submit([b"0", b"1", b"2", b"3", b"4"], Guarantee.AGREED),
                Submit([b"safe"], Guarantee.SAFE),
                Submit([b"more"], Guarantee.AGREED),
            ]
            assert one.driver.sent == 7

    run(main)


def test_what_the_machine_has_no_room_for_waits_for_the_token() -> None:
    async def main() -> None:
        async with pair() as (one, two):
            one.script.room = 5
            one.driver.submit([b"abc", b"de", b"fgh"], Guarantee.AGREED)
            await until(lambda: bool(one.script.events))
            await turns()
            assert one.script.events == [Submit([b"abc", b"de"], Guarantee.AGREED)]
            one.script.room = 100
            two.carry_out(Unicast(1, b"token", Lane.TOKEN))
            await until(lambda: bool(one.packets))
            submitted, token = one.script.events[1:]
            assert submitted == Submit([b"fgh"], Guarantee.AGREED)
            assert isinstance(token, Packet)

    run(main)


def test_stopping_submits_what_waits_first() -> None:
    async def main() -> None:
        async with pair() as (one, _):
            one.driver.submit([b"last"], Guarantee.AGREED)
            one.driver.stop()
            assert one.script.events == [Submit([b"last"], Guarantee.AGREED), Stop()]
            await turns()
            assert len(one.script.events) == 2

    run(main)


def test_after_the_end_nothing_is_submitted() -> None:
    async def main() -> None:
        async with pair() as (one, _):
            one.driver.submit([b"late"], Guarantee.AGREED)
            one.driver.end(None)
            await turns()
            assert one.script.events == []

    run(main)


# --- reading ------------------------------------------------------------------------------------


@SEALED
def test_data_is_read_before_a_token(sealed: bool) -> None:
    async def main() -> None:
        async with pair(sealed) as (one, two):
            for _ in range(3):
                two.carry_out(Unicast(1, b"token", Lane.TOKEN), Multicast(b"first"), Multicast(b"second"))
            await until(lambda: len(one.packets) == 9)
            assert one.packets == [b"first", b"second"] * 3 + [b"token"] * 3

    run(main)


def test_work_a_turn_is_bounded() -> None:
    """The application's own tasks have their turns while much is read."""

    async def main() -> None:
        async with pair() as (one, two):
            turn = 0
            read: dict[int, int] = {}

            def answer(event: Event) -> Sequence[Effect]:
                read[turn] = read.get(turn, 0) + 1
                return ()

            one.script.answer = answer
            for number in range(200):
                two.carry_out(Multicast(bytes(number + 1)))
            while sum(read.values()) < 200:
                turn += 1
                await asyncio.sleep(0)
            assert len(read) >= 200 // (3 * BUFFERS_A_TURN)
            assert max(read.values()) <= 3 * BUFFERS_A_TURN

    run(main)


def overdue(one: Being) -> None:
    """A timer that has run out while this process did nothing."""
    one.carry_out(SetTimer("silence", 1000))
    time.sleep(0.005)


def test_timers_wait_until_everything_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(udp_reading, "BUFFERS_A_TURN", 1)

    async def main() -> None:
        async with pair() as (one, two):
            overdue(one)
            for number in range(20):
                two.carry_out(Multicast(bytes(number + 1)), Unicast(1, b"token", Lane.TOKEN))
            await until(lambda: bool(one.script.of(Timer)))
            kinds = [type(event) for event in one.script.of(Packet, Timer)]
            assert kinds[:40] == [Packet] * 40
            assert kinds[40] is Timer

    run(main)


def test_a_timer_that_what_was_read_set_back_has_not_run_out() -> None:
    async def main() -> None:
        async with pair() as (one, two):
            one.script.answer = lambda event: (
                (SetTimer("silence", 60_000_000),) if isinstance(event, Packet) else ()
            )
            overdue(one)
            two.carry_out(Multicast(b"I am here"))
            await until(lambda: bool(one.packets))
            await turns()
            assert not one.script.of(Timer)

    run(main)


@pytest.mark.pure
def test_sockets_that_never_run_dry_do_not_starve_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with pair() as (one, two):
            source = two.sockets.data.address
            data = Segmenter(1452).cut([b"flood"])[0].data
            flooded = one.sockets.data
            receive, waiting = SocketReader.receive, SocketReader.waiting

            def receive_flood(reader: SocketReader) -> Arrival | None:
                if reader.socket is not flooded:
                    return receive(reader)
                reader.buffer[: len(data)] = data
                return Arrival(len(data), source, 0, 0)

            monkeypatch.setattr(SocketReader, "receive", receive_flood)
            monkeypatch.setattr(
                SocketReader, "waiting", lambda reader: reader.socket is flooded or waiting(reader)
            )
            overdue(one)
            await until(lambda: bool(one.script.of(Timer)))
            assert len(one.packets) > BUFFERS_A_TURN

    run(main)


def test_timers_set_in_a_timer_do_not_hold_the_loop() -> None:
    async def main() -> None:
        async with pair() as (one, _):
            one.script.answer = lambda event: (SetTimer("again", 0),) if isinstance(event, Timer) else ()
            one.carry_out(SetTimer("again", 0))
            await until(lambda: len(one.script.of(Timer)) > 3)

    run(main)


def test_a_cancelled_timer_does_not_run_out() -> None:
    async def main() -> None:
        async with pair() as (one, _):
            one.carry_out(SetTimer("a", 2000), SetTimer("b", 1000), SetTimer("c", 3000), CancelTimer("a"))
            await until(lambda: len(one.script.of(Timer)) == 2)
            assert one.script.of(Timer) == [Timer("b"), Timer("c")]

    run(main)


def test_a_brake_is_passed_on() -> None:
    async def main() -> None:
        async with pair() as (one, _):
            one.driver.brake(True)
            one.driver.brake(False)
            assert one.script.events == [Brake(True), Brake(False)]

    run(main)


# --- others -------------------------------------------------------------------------------------


def test_a_process_that_is_gone_is_told_of() -> None:
    async def main() -> None:
        async with pair() as (one, two):
            two.driver.end(None)
            await until(lambda: bool(one.script.of(Gone)))
            assert one.script.of(Gone) == [Gone(2)]
            assert one.links.targets == []

    run(main)


def test_nobody_is_taken_for_gone_who_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[object] = []
    look = LivenessProbes.look

    def counted(self: LivenessProbes, addresses: list[Address]) -> list[Address]:
        looks.append(addresses)
        return look(self, addresses)

    monkeypatch.setattr(LivenessProbes, "look", counted)

    async def main() -> None:
        async with pair() as (one, two):
            await until(lambda: len(looks) >= 10)
            assert not one.script.of(Gone)
            assert not two.script.of(Gone)
            assert not one.driver.drops

    run(main)


@SEALED
def test_strangers_are_counted_and_not_handed_over(sealed: bool) -> None:
    async def main() -> None:
        async with pair(sealed) as (one, _):
            wires = one.sockets
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                for data in (
                    b"",
                    b"x",
                    b"oc garbage" * 20,
                    b"OG\x01 greeting",
                    b"OP\x01",
                    b"OP",
                    bytes(2000),
                ):
                    stranger.sendto(data, wires.data.address)
                    stranger.sendto(data, wires.token.address)
            expected = 14

            def counted() -> int:
                return sum(one.driver.drops.values()) + sum(wires.dropped.values())

            await until(lambda: counted() >= expected)
            assert one.packets == []
            assert not one.driver.ended
            by_the_kernel = wires.dropped.get("data of unknown senders, or no room", 0)
            assert one.driver.drops["unknown sender"] + by_the_kernel >= 6
            assert one.driver.drops["empty"] >= 1

    run(main)


@SEALED
def test_garbage_from_a_known_address_is_counted(sealed: bool) -> None:
    async def main() -> None:
        async with pair(sealed) as (one, two):
            mine, its = two.sockets, one.sockets
            mine.data.send(Train(b"garbage of a peer", 0), its.data.address)
            mine.token.send(Train(b"garbage of a peer", 0), its.token.address)
            await until(lambda: one.driver.drops["malformed segment"] == 2)
            assert one.packets == []
            if sealed:
                forged = Segmenter(1452).cut([bytes(100)])[0]
                mine.data.send(forged, its.data.address)
                mine.token.send(forged, its.token.address)
                await until(lambda: sum(one.driver.drops.values()) == 4)
                assert one.packets == []

    run(main)


@SEALED
def test_a_token_does_not_wait_for_data_of_no_use_that_does_not_end(sealed: bool) -> None:
    """As somebody sends who writes a member's address on it."""

    async def main() -> None:
        async with pair(sealed) as (one, two):
            await until(lambda: not SocketReader(one.sockets.token).waiting())
            two.carry_out(Unicast(1, b"token", Lane.TOKEN))
            mine, its = two.sockets, one.sockets
            for _ in range(100):
                for _ in range(2 * BUFFERS_A_TURN):
                    mine.data.send(Train(b"garbage of a peer", 0), its.data.address)
                one.transport.read_waiting()
                if one.packets:
                    break
            assert one.packets == [b"token"]
            assert SocketReader(its.data).waiting(), "there was no end of it"

    run(main)


@SEALED
def test_a_token_is_found_among_what_is_none(sealed: bool) -> None:
    async def main() -> None:
        async with pair(sealed) as (one, two):
            mine, its = two.sockets, one.sockets
            await until(lambda: not SocketReader(its.token).waiting())
            for _ in range(USELESS_A_TURN // 2):
                mine.token.send(Train(b"garbage of a peer", 0), its.token.address)
            two.carry_out(Unicast(1, b"token", Lane.TOKEN))
            one.transport.read_waiting()
            assert one.packets == [b"token"]

    run(main)


@SEALED
def test_strangers_do_not_take_the_place_of_tokens(sealed: bool) -> None:
    """They have a small socket of their own at the token port, and it is read at a bounded pace."""

    async def main() -> None:
        async with pair(sealed) as (one, two):
            wires = one.sockets
            if not wires.greetings:
                pytest.skip("this kernel does not part them")
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                for _ in range(5000):
                    stranger.sendto(b"OG\x02\x01" + bytes(150), wires.token.address)
                two.carry_out(Unicast(1, b"token", Lane.TOKEN))
                one.transport.read_waiting()
                assert one.packets == [b"token"]
                assert wires.dropped["greeting: no room"] > 1000

    run(main)


def test_reasons_are_bounded() -> None:
    async def main() -> None:
        async with pair() as (one, _):
            one.carry_out(*(Drop(f"reason {number}") for number in range(3 * MOST_REASONS)))
            assert len(one.driver.drops) <= MOST_REASONS + 1
            assert sum(one.driver.drops.values()) == 3 * MOST_REASONS

    run(main)


def test_the_first_event_is_the_start() -> None:
    async def main() -> None:
        one = await being(1)
        (start,) = one.script.events
        assert isinstance(start, Start)
        assert start[:2] == (0, None)
        one.driver.end(None)

    run(main)


# --- lives that the machine ends ----------------------------------------------------------------


def test_a_machine_that_halts_by_itself_is_followed_by_another() -> None:
    async def main() -> None:
        async with pair() as (one, two):
            one.told.revives = True
            one.carry_out(Multicast(b"last"), SetTimer("ghost", 1), Halt("excluded"), Multicast(b"ghost"))
            assert not one.driver.live
            assert not one.driver.ended
            assert (one.driver.state, one.driver.because) == ("halted", "excluded")
            two.carry_out(Multicast(b"to nobody"))
            await until(lambda: one.driver.drops["not started yet"] == 1)
            again = Script()
            one.driver.start_again(again, 1, b"stored")
            two.carry_out(Multicast(b"to the next"))
            await until(lambda: len(again.events) == 2)
            start, heard = again.events
            assert isinstance(start, Start)
            assert (start[:2], heard) == ((1, b"stored"), Packet(b"to the next", 2))
            assert two.packets == [b"last"]
            assert not one.script.of(Timer, Packet)
            assert one.log == [("halted", "excluded")]

    run(main)


def test_what_waited_for_the_old_life_is_not_given_to_the_new_one() -> None:
    async def main() -> None:
        async with pair() as (one, _):
            one.told.revives = True
            one.script.room = 3
            one.driver.submit([b"one", b"two"], Guarantee.AGREED)
            await until(lambda: bool(one.script.of(Submit)))
            one.carry_out(Halt("excluded"))
            again = Script()
            one.driver.start_again(again, 1, None)
            one.driver.submit([b"three"], Guarantee.SAFE)
            await until(lambda: bool(again.of(Submit)))
            assert again.of(Submit) == [Submit([b"three"], Guarantee.SAFE)]
            assert one.driver.sent == 2, "of both lives"

    run(main)


def test_the_trace_has_both_lives_and_numbers_messages_anew() -> None:
    async def main() -> None:
        async with pair() as (one, _):
            rows: list[Row] = []
            one.driver._recorder = Recorder(1, rows)
            one.told.revives = True
            one.driver.submit([b"a", b"b"], Guarantee.AGREED)
            await until(lambda: bool(one.script.of(Submit)))
            one.carry_out(Halt("excluded"))
            one.driver.start_again(Script(), 1, None)
            one.driver.submit([b"c"], Guarantee.AGREED)
            await until(lambda: one.driver.sent == 3)
            told = [(row[1], row[4], row[11]) for row in rows]
            assert told == [
                (0, "submit", 1),
                (0, "submit", 2),
                (0, "halt", None),
                (1, "restart", None),
                (1, "submit", 1),
            ]
            assert [row[2] for row in rows] == sorted({row[2] for row in rows})

    run(main)


def test_a_node_that_is_stopped_between_two_lives_has_left() -> None:
    async def main() -> None:
        async with pair() as (one, _):
            one.told.revives = True
            one.carry_out(Halt("excluded"))
            one.driver.stop()
            assert one.log == [("halted", "excluded"), ("ended", "NoneType")]
            assert one.driver.halted

    run(main)


def test_a_machine_that_was_told_to_go_is_not_followed_by_another() -> None:
    async def main() -> None:
        async with pair() as (one, _):
            one.told.revives = True
            one.script.answer = lambda event: (Halt("left"),) if isinstance(event, Stop) else ()
            one.driver.stop()
            assert one.log == [("ended", "NoneType")]

    run(main)


# --- protocols without a token on its own socket ------------------------------------------------


def test_without_a_token_many_unicasts_are_read_at_a_time() -> None:
    async def main() -> None:
        async with pair(tokens=False) as (one, two):
            two.carry_out(*(Unicast(1, b"%d" % number) for number in range(5)), Multicast(b"data"))
            await asyncio.sleep(0)
            await until(lambda: len(one.packets) == 6)
            assert [packet for packet in one.packets if packet != b"data"] == [b"%d" % n for n in range(5)]

    run(main)


def test_room_that_data_makes_is_used_at_once() -> None:
    async def main() -> None:
        async with pair(tokens=False) as (one, two):
            one.script.room = 3
            one.driver.submit([b"one", b"two"], Guarantee.AGREED)
            await until(lambda: bool(one.script.of(Submit)))
            one.script.room = 3
            two.carry_out(Multicast(b"makes room"))
            await until(lambda: len(one.script.of(Submit)) == 2)

    run(main)


def test_a_silent_process_that_ended_is_missed_although_others_speak() -> None:
    """With a token, somebody else's packets would mean nothing; here they mean that the group is at work."""

    async def main() -> None:
        async with pair(tokens=False) as (one, two):
            three = await being(3, [one, two])
            await until(lambda: len(one.links.targets) == 2)
            three.driver.end(None)

            async def chat() -> None:
                while True:
                    two.carry_out(Multicast(b"I am here"))
                    await asyncio.sleep(0.005)

            chatting = asyncio.create_task(chat())
            await until(lambda: bool(one.script.of(Gone)))
            chatting.cancel()
            assert one.script.of(Gone) == [Gone(3)]

    run(main)
