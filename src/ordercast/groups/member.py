"""A node from its beginning to its end: it finds the others, runs its machine, leaves, and is taken apart.

`ordercast.groups.assembly` puts it together; `ordercast.groups.next_life` puts it to work again where its
machine ended its own life, or failed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ordercast.core.contract import ID_IN_USE, Event, Machine
from ordercast.core.identity import Configuration, Kind, NodeId
from ordercast.core.protocol import LAN, Protocol
from ordercast.core.wire import DROPS as WIRE_DROPS
from ordercast.errors import DuplicateNode, Excluded, NodeClosed
from ordercast.groups.defects import Failed, keep_defect
from ordercast.groups.events import PrimaryLost, PrimaryRegained
from ordercast.groups.founders import who_begins
from ordercast.groups.group_key import GroupKey, NetworkKey, every_key
from ordercast.groups.lifetime import Lifetime
from ordercast.groups.next_life import NextLife
from ordercast.groups.node_log import NodeLog
from ordercast.groups.primary import Primary, digest
from ordercast.groups.processes import Deliveries, Processes
from ordercast.groups.producing import Producing
from ordercast.groups.readers import Readers
from ordercast.groups.receipts import Receipts
from ordercast.groups.send_gate import SendGate
from ordercast.groups.services import Services
from ordercast.groups.slow_readers import SlowReaders
from ordercast.groups.upkeep import Upkeep
from ordercast.keys import Keyring
from ordercast.process_groups.notes import describe
from ordercast.replicated.node import Surroundings
from ordercast.replicated.quorum import quorum_of
from ordercast.replicated.replicas import Replicas
from ordercast.runtime.config import NodeConfig
from ordercast.runtime.distance import RoundTrip
from ordercast.runtime.driver import Driver
from ordercast.runtime.environment import Environment, Trace
from ordercast.runtime.notices import Notices
from ordercast.runtime.status import Rates, status
from ordercast.runtime.storage import Storage
from ordercast.trace.recorder import Recorder
from ordercast.trace.schema import Row
from ordercast.transport.drops import DROPS as TRANSPORT_DROPS
from ordercast.transport.drops import MALFORMED_MESSAGE, MALFORMED_NOTE
from ordercast.transport.interface import Drops, Transport
from ordercast.transport.known_lives import KnownLives
from ordercast.transport.relays import RelayedStreams

LOG = logging.getLogger("ordercast")

LEAVING_S = 3.0
"""How long a leaving node waits for the others."""
JOIN_LOG_INTERVAL_S = 5.0
"""How often a node that has not been let into a group says so."""


class Parts(NamedTuple):
    """What a node is made of that has to be opened, and closed when it ends."""

    config: NodeConfig
    protocol: Protocol
    environment: Environment
    storage: Storage
    log: NodeLog
    transport: Transport
    trace: Trace | None
    drops: Drops
    known_lives: Sequence[KnownLives]
    """Lives of other nodes that were heard of, for each network."""
    keys: Mapping[int, NetworkKey]
    """Keys of the networks, by the networks' numbers."""


class Member:
    """A node while it lives."""

    def __init__(self, parts: Parts, build: Callable[[], Machine]) -> None:
        """`build` makes the machine of each life."""
        config, protocol, storage = parts.config, parts.protocol, parts.storage
        self.config = config
        self.protocol = protocol
        self.id = storage.id
        self.storage = storage
        self.transport = parts.transport
        self.log = parts.log
        self.streams = RelayedStreams(
            parts.environment.open_streams(config, parts.transport, self._every_key),
            parts.transport,
            lambda node: protocol.toward(self.driver.machine, node),
        )
        """Bytes to and from other nodes, beside the packets of the group."""
        self.at_moment = parts.environment.at_moment
        """Told what begins or ends, for tests."""
        self.started_us = parts.environment.now_us()
        self.rates = Rates(self.started_us)
        self.services = Services(config, protocol.statistics, parts.log, parts.environment.listen_for_clients)
        self._known_lives = parts.known_lives
        quorum = quorum_of(config.voters, protocol.primary_partition)
        self._one_partition = quorum is not None
        self._notices = Notices(
            asyncio.get_running_loop().time(), (*WIRE_DROPS, *TRANSPORT_DROPS, *protocol.drops)
        )
        self._changed = asyncio.Event()
        """Set when the machine has entered a state, a configuration has begun, or the node has ended."""
        self._stopping = asyncio.Lock()
        self._trace = parts.trace
        rows: list[Row] = []
        self._recorder = None if parts.trace is None else Recorder(self.id, rows, describe=describe)
        self._lifetime = Lifetime()
        # Messages go round in a circle, from the gate through the driver to the processes: what comes first
        # here is handed what comes later as a call.
        voters = () if config.primary is None else config.voters
        self.processes = Processes(
            self.id,
            storage.incarnation,
            lambda: self.gate,
            lambda: self._lifetime.leaving or self._lifetime.over,
            self._recorder,
            parts.environment.now_us,
            counted=parts.log.counted,
            numbers=bool(config.client_stream),
            voters=digest(voters),
            needs_all=bool(config.log),
            declared=lambda voters: self.primary.declared(voters),
        )
        self.receipts = Receipts()
        self.readers = Readers(
            self.processes,
            config.receive_buffer,
            lambda: self._slow_readers.changed(),
            send_buffer=config.send_buffer,
        )
        self.primary = Primary(
            self.id,
            voters,
            protocol.primary_partition,
            lambda: self.transport.reachable,
            lambda: self.settled,
            self._primary_changed,
        )
        self.driver = Driver(
            build(),
            storage,
            parts.transport,
            Deliveries(
                self.processes,
                self.receipts,
                parts.log,
                lambda batch: self.producing.admit(batch),
                lambda payloads: self.gate.originated(payloads),
                self._installed,
                self.primary,
            ),
            self,
            parts.drops,
            parts.environment.now_us,
            parts.environment.new_seed,
            RoundTrip(
                config.settings_profile,
                followed=protocol.follows_distance and config.profile != LAN,
            ),
            self._recorder,
            rows,
            parts.trace,
        )
        self.gate = SendGate(
            self.id, self.driver, self.readers, self._lifetime, config.send_buffer, lambda: self.settled
        )
        self._slow_readers = SlowReaders(self.readers, self.gate, self._lifetime)
        self.replicas = Replicas(
            Surroundings(
                self.processes,
                self.gate,
                self.streams,
                quorum,
                parts.environment.open_directory,
                config.state_buffer,
                lambda: self.driver.machine.laggard,
                parts.environment.now_us,
                parts.environment.new_seed,
                parts.environment.at_moment,
                self._slow_readers.hold,
                self.check_open,
            )
        )
        self.producing = Producing(self.gate, self._lifetime)
        self.log.begin(lambda: self.driver.machine.final, self._apply_brake, self.driver.leave_at_once)
        self._next_life = NextLife(storage, self.driver, build, self, parts.transport.sealed)
        self._keys = [GroupKey(key, partial(self._rekey, network)) for network, key in parts.keys.items()]
        self._upkeep = Upkeep(
            self._lifetime,
            lambda elapsed_s: self._write_notices(),
            lambda elapsed_s: self.readers.look_at_readers(elapsed_s, config.evict_after),
            self.log.look,
            lambda elapsed_s: self._heed_refusal(),
            self.primary.look,
            lambda elapsed_s: self._save_lives(),
            lambda elapsed_s: self._look_at_keys(),
        )

    # --- life -----------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Find the others, start the machine, wait for the first configuration that the others share."""
        try:
            self.transport.start(self.driver)
            await self._find_peers()
            if self._recorder is not None:
                self._recorder.begin_life(
                    self.driver.now_us(), self.incarnation, crashed=self.storage.crashed
                )
            self._next_life.born()
            self.driver.start(self.incarnation, self.storage.stored)
            self.gate.largest = self.driver.machine.room
            self._upkeep.start()
            if len(self.transport.networks) > 1:
                await self.streams.relay()
            await self.services.start(
                self.status,
                self._every_key,
                self.producing,
                self.transport.hosts,
                self.id,
                self.processes,
                self.replicas if self._one_partition else None,
            )
            LOG.info("node %d, life %d, listens at %s", self.id, self.incarnation, self.address)
            await self._settle()
        except BaseException as error:
            self.driver.end(error)
            await self._take_apart()
            raise

    async def _find_peers(self) -> None:
        """Others may know a later life of this node than the one that it was to begin."""
        await self.transport.find_peers()
        while self._next_life.outlived_by is not None and not self.driver.ended:
            self._next_life.begin(await self._next_life.number())
            await self.transport.find_peers()
        self.check_open()

    async def _settle(self) -> None:
        """Wait until this node is in a group, and say now and then why it is not."""
        while not (self.settled and self.primary.there):
            self.check_open()
            self._changed.clear()
            try:
                async with asyncio.timeout(JOIN_LOG_INTERVAL_S):
                    await self._changed.wait()
            except TimeoutError:
                waits = who_begins(self.config) if self.protocol.primary_partition else self._waits_for()
                LOG.warning("in no group yet (%s): %s", self.driver.state, waits)
        self.check_open()

    def _waits_for(self) -> str:
        if not self.settled:
            return self.driver.because
        return (
            f"a majority of the voters {', '.join(map(str, self.config.voters))} is needed{self.primary.also}"
        )

    async def stop(self) -> None:
        """Leave, and give everything back; also when it is called twice, or cancelled."""
        async with self._stopping:
            try:
                if not self.driver.ended:
                    await self.services.send_clients_elsewhere()
                    self.gate.end(self._lifetime.leave())
                    self.driver.stop()
                    await self._lifetime.wait(LEAVING_S)
            finally:
                self.driver.end(None)
                await self._take_apart()

    async def closed(self) -> None:
        """Wait for the end; raises the error that brought it."""
        await self._lifetime.closed()

    def check_open(self) -> None:
        """Raise what ended the node, if it has ended, or is about to."""
        self._lifetime.check_open()

    async def _take_apart(self) -> None:
        self._upkeep.close()
        await self._next_life.wait()
        await self.services.close()
        await self.streams.close()
        await self.replicas.close()
        if self._trace is not None:
            await asyncio.to_thread(self._trace.close)
            self._trace = None
        try:
            await self.log.close()
        finally:
            self.storage.close(halted=self.driver.halted)

    # --- what the driver tells of its lives -----------------------------------------------------

    def entered(self, state: str) -> None:
        """The machine is in another state."""
        self._changed.set()

    def halted(self, reason: str) -> bool:
        """The machine ended its life, and nobody had told it to; whether another one is going to begin."""
        if reason == ID_IN_USE:
            raise DuplicateNode(
                f"another node, perhaps on another ring, has the id {self.id}: give this node another `id`, "
                "or stop the other one"
            )
        if self.protocol.revives:
            self._next_life.halted(reason)
        return self.protocol.revives

    def failed(self, event: Event, error: Exception) -> None:
        """The machine raised: its life is over, and another one is going to begin."""
        life = Failed(self.id, self.incarnation, self.protocol.name, self.driver.state)
        self._next_life.failed(keep_defect(self.config.data, life, event, error), error)

    def outlived(self, life: int) -> None:
        """Others know a life of this node that is not earlier than this one."""
        self._next_life.outlived(life)

    def ended(self, error: BaseException | None) -> None:
        """The node's life is over."""
        if self._lifetime.over:
            return
        self._changed.set()
        lost = error or NodeClosed("the node has left before this was delivered: send it again from another")
        self.processes.life_over()
        self.readers.end(error, lost)
        self.replicas.end(lost)
        self.receipts.fail(lost)
        self.gate.end(lost)
        self._lifetime.end(error)

    # --- what lives and dies with the machine ---------------------------------------------------

    def life_over(self, lost: Excluded) -> None:
        """A life has ended, and another follows; receipts that are still open get `lost`."""
        self.processes.life_over()
        self.readers.life_over()
        self.receipts.fail(lost)
        self.log.life_over()

    def begin_life(self, incarnation: int) -> None:
        """What the next life needs beside a machine."""
        self.transport.begin_life(incarnation)
        self.gate.begin_life()
        self.processes.begin_life(incarnation)

    def life_begun(self) -> None:
        """The machine of the next life has begun."""
        self._apply_brake()
        self.processes.life_begun()

    def _installed(self, configuration: Configuration) -> None:
        self.producing.producers.install(configuration)
        if configuration.kind is Kind.REGULAR:
            self.gate.slow_groups.install()
            self._slow_readers.install()
        self._changed.set()

    def _primary_changed(self, event: PrimaryLost | PrimaryRegained) -> None:
        if isinstance(event, PrimaryLost):
            LOG.warning("not in the primary partition: nodes %s are missing", event.missing)
            error = self.primary.why_not(event.missing)
            self.gate.refuse(error)
            self.readers.primary(event, error)
            self.replicas.primary(error)
            self.receipts.fail(error)
        else:
            LOG.info("in the primary partition again")
            self.gate.accept()
            self.readers.primary(event, None)
            self.replicas.primary(None)
        self._changed.set()

    def _apply_brake(self) -> None:
        """Hold everybody up while the log is not written as fast as messages come."""
        self.driver.brake(self.log.braking)

    # --- once a second --------------------------------------------------------------------------

    def _write_notices(self) -> None:
        self.rates.note(self.driver, self.readers)
        for level, sentence in self._notices.look(asyncio.get_running_loop().time(), self.status()):
            LOG.log(level, "%s", sentence)

    def _heed_refusal(self) -> None:
        """End, if another node has said that this one cannot be let in as it is."""
        refusal = self.transport.take_refusal()
        if refusal is not None:
            self.driver.leave_at_once(refusal)

    async def _save_lives(self) -> None:
        for known in self._known_lives:
            if known.changed and self.config.data is not None:
                await asyncio.to_thread(known.save, self.config.data)

    def _every_key(self) -> Keyring | None:
        """The keys of all networks: who has one of them is a node's equal, whatever it asks for."""
        return every_key(each.keyring for each in self._keys)

    def _look_at_keys(self) -> None:
        for key in self._keys:
            key.look()

    def _rekey(self, network: int, keyring: Keyring) -> None:
        self.transport.networks[network].rekey(keyring)
        self.log.rekeyed()
        self.streams.rekeyed()

    # --- looking --------------------------------------------------------------------------------

    @property
    def incarnation(self) -> int:
        """Which of the node's lives this is."""
        return self._next_life.incarnation

    @property
    def address(self) -> str:
        """Where others reach this node."""
        return self.transport.address

    @property
    def sealed(self) -> bool:
        """Whether packets are encrypted and authenticated."""
        return self.transport.sealed

    @property
    def settled(self) -> bool:
        """Whether this node is in a configuration in which messages are ordered."""
        return self.driver.live and self.driver.state == self.protocol.settled

    @property
    def configuration(self) -> Configuration:
        """The configuration installed last."""
        assert self.readers.configuration is not None
        return self.readers.configuration

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
                    if enough and there.kind is Kind.REGULAR and self.readers.placed:
                        return there
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            linked = ", ".join(map(str, self.transport.reachable)) or "nobody"
            raise TimeoutError(
                f"the group has the members {', '.join(map(str, self.configuration.members))} after "
                f"{timeout:g} s, and this node has links to {linked}: check addresses, keys and firewalls"
            ) from None

    @property
    def trace_problem(self) -> str | None:
        """Why the trace broke off, if it did."""
        return None if self._trace is None else self._trace.problem

    @property
    def queued(self) -> int:
        """Bytes that wait to be sent."""
        return self.gate.queued

    def status(self) -> dict[str, Any]:
        """How the node is doing, as `ordercast status` and Prometheus show it: everything can be written as
        JSON."""
        holder = self.driver.machine.laggard
        told = {
            **status(self),
            "held_up_by": self.gate.slow_groups.holder if holder is None else holder,
            "slow_groups": self.gate.slow_groups.status(),
            "unread_by_group": self.readers.unread_by_group(),
            "connections": self.services.connections.status(),
            "log": self.log.status(),
            "primary": self.primary.there,
            "clients": None if self.services.clients is None else self.services.clients.report(),
        }
        unread = {
            MALFORMED_MESSAGE: self.processes.malformed,
            MALFORMED_NOTE: self.producing.producers.malformed,
        }
        told["drops"] |= {reason: count for reason, count in unread.items() if count}
        return told
