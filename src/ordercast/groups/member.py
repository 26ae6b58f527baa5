"""A node from its start to its end: storage, keys, sockets, links, machine and groups, put together and taken
apart. `ordercast.groups.next_life` puts it to work again where its machine ended its own life, or failed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ordercast.core.contract import Event
from ordercast.core.identity import Batch, Configuration, Ended, Kind, NodeId
from ordercast.core.protocol import LAN
from ordercast.core.wire import DROPS as WIRE_DROPS
from ordercast.errors import KeyProblem, NodeClosed
from ordercast.groups.envelope import describe
from ordercast.groups.equipment import journal_of, machine_of, protocol_of, stamp_of, storage_of
from ordercast.groups.founders import who_begins, with_founders
from ordercast.groups.keeping import Keeping
from ordercast.groups.next_life import NextLife
from ordercast.groups.producers import GUARANTEE
from ordercast.groups.producing import Producing
from ordercast.groups.send_gate import SendGate
from ordercast.groups.session import Session
from ordercast.keys import Keyring
from ordercast.runtime.config import NodeConfig
from ordercast.runtime.connections import Connections, allowance
from ordercast.runtime.control import SOCKET, Control
from ordercast.runtime.driver import Driver
from ordercast.runtime.notices import Notices
from ordercast.runtime.status import Rates, status
from ordercast.runtime.storage import Storage
from ordercast.trace.recorder import Recorder
from ordercast.transport.drops import DROPS as TRANSPORT_DROPS
from ordercast.transport.drops import MALFORMED_MESSAGE, MALFORMED_NOTE
from ordercast.transport.known_lives import KnownLives
from ordercast.transport.links import Links
from ordercast.transport.paths import RoundTrip
from ordercast.transport.peers import spell
from ordercast.transport.seal import Cipher, Seal, new_session
from ordercast.transport.sockets import NodeSockets, open_sockets, resolve

if TYPE_CHECKING:
    from ordercast.runtime.metrics import Metrics
    from ordercast.trace.journal import Journal

LOG = logging.getLogger("ordercast")

GREETED_S = 0.5
"""How long a starting node waits for an answer of the others before it begins alone."""
REFUSED_S = 3.2
"""How long a starting node goes on asking when refused: its own earlier life may just have ended."""
LEAVING_S = 3.0
"""How long a leaving node waits for the others."""
LOOK_S = 1.0
"""How often a node looks after its key file, its rates and its reader."""
PATIENCE_S = 5.0
"""A node that has not been let into a group for so long says so."""
_LEAVING = "the node is leaving: it takes no more messages; make a new Node for another life"


class Member:
    """A node while it lives."""

    def __init__(self, config: NodeConfig, keyring: Keyring | None) -> None:
        self.config = config
        self.protocol = protocol_of(config)
        if keyring is None and config.key is not None:
            keyring = Keyring.load(config.key)
            self._key_file: Path | None = config.key
        else:
            self._key_file = None
        self._keyring = keyring
        self._place = config.place(sealed=keyring is not None)
        self.largest = 0
        """Bytes of the largest payload, with its tag."""
        self.gate = SendGate(self)
        self.producing = Producing(self)
        self.producing.producers.slow = self.gate.slow_groups.hear
        self.log = Keeping(config, sealed=keyring is not None)
        self._changed = asyncio.Event()
        self._over: asyncio.Future[None] | None = None
        self.leaving = False
        self._stopping = asyncio.Lock()
        self._watch: asyncio.Task[None] | None = None
        self.connections = Connections(allowance(config.log is not None or config.metrics is not None))
        self._control: Control | None = None
        self._metrics: Metrics | None = None
        self._journal: Journal | None = None
        self._next_life = NextLife(self)
        self._known_lives = KnownLives()
        if config.data is not None:
            self._known_lives.load(config.data)
        self.rates = Rates()
        self._notices = Notices(time.monotonic(), (*WIRE_DROPS, *TRANSPORT_DROPS, *self.protocol.drops))
        self.started = time.monotonic()

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Bind, greet, start the machine, wait for the first configuration that the others share."""
        storage = await storage_of(self.config)
        self.storage = storage
        self.id, self.incarnation = storage.id, storage.incarnation
        try:
            await self._assemble(storage)
        except BaseException:
            await self.log.close()
            storage.close(halted=False)
            raise
        try:
            await self._begin(storage)
        except BaseException as error:
            self.driver.end(error)
            await self._take_apart()
            raise

    async def _assemble(self, storage: Storage) -> None:
        config = self.config
        await self.log.open(self.id)
        self._over = asyncio.get_running_loop().create_future()
        seal = None
        if self._keyring is None:
            LOG.warning(
                "no key: packets are neither encrypted nor authenticated; `ordercast keygen` makes one"
            )
        else:
            seal = Seal(self._keyring, Cipher(config.cipher))
        self._seal = seal
        listed = {text: await resolve([text], self._place.host) for text in config.peers or config.seeds}
        seeds = [address for addresses in listed.values() for address in addresses]
        wires = await open_sockets(
            self._place,
            config.socket_buffer,
            config.multicast,
            config.interface,
        )
        try:
            self.config = with_founders(config, self.protocol, listed, wires.token.address)
            self._equip(wires, storage, seal)
        except BaseException:
            wires.close()
            raise
        self.links.know(seeds)

    def _equip(self, wires: NodeSockets, storage: Storage, seal: Seal | None) -> None:
        config, protocol = self.config, self.protocol
        self.buffer = wires.data.granted
        machine = machine_of(config, self.id, self.buffer)
        self.address = spell(wires.token.address)
        rows: list[Any] = []
        self._journal = journal_of(config, self.id, self.incarnation)
        self._recorder = None if self._journal is None else Recorder(self.id, rows, describe=describe)
        self.session = Session(
            self.id,
            self.incarnation,
            config.receive_buffer,
            self.gate.on_slow_changed,
            send_buffer=config.send_buffer,
        )
        self.driver = Driver(
            self.id,
            machine,
            storage,
            wires,
            self,
            seal,
            config.datagram_size,
            self._recorder,
            rows,
            self._journal,
            round_trip=RoundTrip(
                config.settings_profile,
                followed=protocol.follows_distance and config.profile != LAN,
            ),
        )
        self.log.begin(lambda: self.driver.machine.final, self.apply_brake, self.driver.leave_at_once)
        self.links = Links(
            node=self.id,
            incarnation=self.incarnation,
            session=seal.session if seal is not None else new_session(),
            data_port=wires.data.address[1],
            protocol=protocol.name,
            settings=f"protocol {protocol.name}, mtu {config.mtu}",
            post=self.driver,
            seal=seal,
            closed=config.peers is not None,
            clock=time.monotonic,
            known_lives=self._known_lives,
        )

    async def _begin(self, storage: Storage) -> None:
        self.driver.listen(self.links)
        await self._greet()
        if self._recorder is not None:
            self._recorder.begin_life(self.driver.now_us(), self.incarnation, crashed=storage.crashed)
        self._next_life.born()
        self.driver.start(self.incarnation, storage.stored)
        self.largest = self.driver.machine.room
        self._watch = asyncio.create_task(self._look_after(), name="ordercast")
        keyring = lambda: None if self._seal is None else self._seal.keyring  # noqa: E731 - it changes
        await self.log.serve(keyring, self.producing, self.connections, self.links.hosts)
        if self.config.metrics is not None:
            from ordercast.runtime.metrics import Metrics

            self._metrics = Metrics(
                self.config.metrics, self.status, self.protocol.statistics, self.connections
            )
            await self._metrics.start()
        if self.config.data is not None:
            self._control = Control(self.config.data / SOCKET, self.status)
            await self._control.start()
        LOG.info("node %d, life %d, listens at %s", self.id, self.incarnation, self.address)
        patient_until = time.monotonic() + PATIENCE_S
        while not self.settled:
            self.check_open()
            await asyncio.sleep(0.005)
            if time.monotonic() > patient_until:
                patient_until += PATIENCE_S
                waits = who_begins(self.config) if self.protocol.primary_partition else self.driver.because
                LOG.warning("in no group yet (%s): %s", self.driver.state, waits)
        self.check_open()

    async def _greet(self) -> None:
        """Wait for the first link, or for nobody to answer; a second node of one identifier stops here."""
        driver = self.driver
        begun = time.monotonic()
        others = self.config.peers or self.config.seeds
        while others and not self.links.targets:
            waited = time.monotonic() - begun
            patience_s = GREETED_S * (3 if self.links.answered else 1)  # a link takes two round trips
            if waited > (REFUSED_S if driver.refusals else patience_s):
                if driver.refusals:
                    raise driver.refusals[-1]
                LOG.info("nobody answers yet at %s: going on alone until somebody does", ", ".join(others))
                return
            if driver.ended:
                self.check_open()
            if self._next_life.outlived_by is not None:
                self.begin_life(await self._next_life.number())
                self.links.greet()
            await asyncio.sleep(0.005)

    async def stop(self) -> None:
        """Leave, and give everything back; also when it is called twice, or cancelled."""
        assert self._over is not None
        async with self._stopping:
            try:
                if not self.driver.ended:
                    self.leaving = True
                    self.gate.end(NodeClosed(_LEAVING))
                    self.driver.stop()
                    await asyncio.wait((self._over,), timeout=LEAVING_S)
            finally:
                self.driver.end(None)
                await self._take_apart()

    async def closed(self) -> None:
        """Wait for the end; raises the error that brought it."""
        assert self._over is not None
        await asyncio.shield(self._over)

    def check_open(self) -> None:
        """Raise what ended the node, if it has ended, or is about to."""
        if self._over is not None and self._over.done():
            error = self._over.exception()
            if error is not None:
                raise error.with_traceback(None)
            raise NodeClosed("the node has left: make a new Node for another life")
        if self.leaving:
            raise NodeClosed(_LEAVING)

    async def _take_apart(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        await self._next_life.wait()
        if self._control is not None:
            await self._control.close()
        if self._metrics is not None:
            await self._metrics.close()
        if self._journal is not None:
            await asyncio.to_thread(self._journal.close)
            self._journal = None
        try:
            await self.log.close()
        finally:
            self.storage.close(halted=self.driver.halted)

    # --- another life ---------------------------------------------------------------------------

    def halted(self, reason: str) -> bool:
        """The machine ended its life, and nobody had told it to; whether another one is going to begin."""
        if self.protocol.revives:
            self._next_life.halted(reason)
        return self.protocol.revives

    def failed(self, event: Event, error: Exception) -> None:
        """The machine raised: its life is over, and another one is going to begin."""
        self._next_life.failed(event, error)

    def outlived(self, life: int) -> None:
        """Others know a life of this node that is not earlier than this one."""
        self._next_life.outlived(life)

    def begin_life(self, incarnation: int) -> None:
        """What the next life needs beside a machine."""
        self.incarnation = self.links.incarnation = incarnation
        self.gate.begin_life()
        self.session.begin_life(incarnation)

    # --- what the driver tells ------------------------------------------------------------------

    def deliver(self, batch: Batch) -> None:
        """Messages, in order."""
        feed = self.log.feed
        if batch.guarantee is not GUARANTEE:
            self.session.deliver(batch)
            if feed is not None:
                feed.deliver(batch)
            return
        for admitted in self.producing.admit(batch):
            self.session.deliver(admitted)
            if feed is not None:
                feed.deliver(admitted)
        if feed is not None:
            feed.keep_notes(batch)

    def install(self, configuration: Configuration, ended: Ended | None) -> None:
        """A configuration, in its place among the messages, and what it ends."""
        self.producing.producers.install(configuration)
        self.session.install(configuration, ended)
        if configuration.kind is Kind.REGULAR:
            self.gate.install()
        if self.log.feed is not None:
            self.log.feed.install(configuration)
        self._changed.set()

    def originated(self, batch: Batch) -> None:
        """Own messages left the queue: there is room for others."""
        self.gate.originated(batch.payloads)

    def ended(self, error: BaseException | None) -> None:
        """The node's life is over."""
        assert self._over is not None
        if self._over.done():
            return
        self._changed.set()
        lost = error or NodeClosed("the node has left before this was delivered: send it again from another")
        self.session.end(error, lost)
        self.gate.end(lost)
        if error is None:
            self._over.set_result(None)
        else:
            self._over.set_exception(error)
            self._over.exception()  # nobody may be waiting: that is no mistake

    # --- slow disks -----------------------------------------------------------------------------

    def apply_brake(self) -> None:
        """Hold everybody up while the log is not written as fast as messages come."""
        self.driver.brake(self.log.braking)

    # --- looking after things -------------------------------------------------------------------

    async def _look_after(self) -> None:
        """Once a second: the key file, the rates, what the log should say, the reader, refusals by others."""
        changed = stamp_of(self._key_file)
        while not self.driver.ended:
            before = time.monotonic()
            await asyncio.sleep(LOOK_S)
            self.rates.note(self.driver, self.session)
            for level, sentence in self._notices.look(time.monotonic(), self.status()):
                LOG.log(level, "%s", sentence)
            # a process that was stopped, or whose event loop was busy, could not read meanwhile
            elapsed = min(time.monotonic() - before, 2 * LOOK_S)
            self.session.look_at_readers(elapsed, self.config.evict_after)
            if self.log.feed is not None:
                self.log.feed.look(elapsed)
            if self.driver.refusals and not self.links.targets:
                self.driver.leave_at_once(self.driver.refusals[-1])
            self.driver.refusals.clear()
            if self._known_lives.changed and self.config.data is not None:
                await asyncio.to_thread(self._known_lives.save, self.config.data)
            stamp = stamp_of(self._key_file)
            if stamp != changed and self._seal is not None and self._key_file is not None:
                changed = stamp
                try:
                    self._seal.rekey(Keyring.load(self._key_file))
                    self.links.rekeyed()
                    self.log.rekeyed()
                    LOG.info("the group key was changed: %s", self._key_file)
                except KeyProblem as error:
                    LOG.error("the changed key file is not used: %s", error)

    # --- looking --------------------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        """Whether this node is in a configuration in which messages are ordered."""
        return self.driver.live and self.driver.state == self.protocol.settled

    @property
    def configuration(self) -> Configuration:
        """The configuration installed last."""
        assert self.session.configuration is not None
        return self.session.configuration

    async def wait_for(self, members: int | Collection[NodeId], timeout: float | None) -> Configuration:
        """Wait until so many, or these, are members."""
        try:
            async with asyncio.timeout(timeout):
                while True:
                    self.check_open()
                    there = self.configuration
                    enough = (
                        len(there.members) >= members
                        if isinstance(members, int)
                        else set(members) <= set(there.members)
                    )
                    if enough and there.kind is Kind.REGULAR and self.session.placed:
                        return there
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            linked = ", ".join(str(peer.node) for peer in self.links.targets) or "nobody"
            raise TimeoutError(
                f"the group has the members {', '.join(map(str, self.configuration.members))} after "
                f"{timeout:g} s, and this node has links to {linked}: check addresses, keys and firewalls"
            ) from None

    @property
    def sealed(self) -> bool:
        """Whether packets are encrypted and authenticated."""
        return self._seal is not None

    @property
    def trace_problem(self) -> str | None:
        """Why the trace broke off, if it did."""
        return None if self._journal is None else self._journal.problem

    @property
    def queued(self) -> int:
        """Bytes that wait to be sent."""
        return self.gate.queued

    def status(self) -> dict[str, Any]:
        """Everything a person might want to know."""
        holder = self.driver.machine.laggard
        told = {
            **status(self),
            "held_up_by": self.gate.slow_groups.holder if holder is None else holder,
            "slow_groups": self.gate.slow_groups.status(),
            "unread_by_group": self.session.unread_by_group(),
            "connections": self.connections.status(),
            "log": self.log.status(),
        }
        unread = {
            MALFORMED_MESSAGE: self.session.malformed,
            MALFORMED_NOTE: self.producing.producers.malformed,
        }
        told["drops"] |= {reason: count for reason, count in unread.items() if count}
        return told
