"""A transport between nodes of one process: a network that can lose, delay, cut and join again, from a seed.

It works on any event loop. On one in virtual time (`ordercast.transport.virtual_time`) whole groups run
without waiting, and the same seed gives the same run.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Any

from ordercast.core.contract import Lane
from ordercast.core.identity import NodeId
from ordercast.core.wire import MAX_PACKET
from ordercast.errors import ConfigProblem, DuplicateNode, OrdercastError
from ordercast.keys import Keyring
from ordercast.transport.interface import Capacity, Network, Receiver, Setup
from ordercast.transport.memory_streams import AGAIN_US, End, MemoryStreams
from ordercast.transport.udp_socket import Address

ANSWER_S = 0.5
"""How long a starting node waits for another one before it begins alone."""
CAPACITY = Capacity(buffer=8 * 1024 * 1024, datagram=1400, packet=60_000, largest=MAX_PACKET)


class _What(Enum):
    """What arrives."""

    DATA = 0
    CONTROL = 1
    TOKEN = 2
    GONE = 3


class MemoryNetwork:
    """Carries packets between the nodes that are opened on it."""

    def __init__(
        self,
        nodes: Collection[NodeId],
        seed: int | str = 0,
        *,
        loss: float = 0.0,
        delay_us: tuple[int, int] = (50, 250),
    ) -> None:
        """`nodes`: all that there may be. `loss`: the probability that a packet does not arrive, at each
        receiver by itself. `delay_us`: the least and the most microseconds that a packet takes."""
        least, most = delay_us
        if not 0 <= loss < 1:
            raise ValueError(f"loss is {loss}: choose a probability below 1")
        if not 0 <= least <= most:
            raise ValueError(f"delay_us is {delay_us}: choose the least delay, and the most, in microseconds")
        self.nodes = sorted(nodes)
        self.loss = loss
        self.delay_us = delay_us
        self._random = random.Random(f"{seed}/network")
        self._open: dict[NodeId, MemoryTransport] = {}
        """The open transports, in the order of their nodes' identifiers."""
        self._sides: dict[NodeId, int] = {}
        self._last_us: dict[tuple[NodeId, NodeId], int] = {}
        """When the last data or token arrives from one node at another: later ones do not overtake it."""
        self._bytes: Counter[NodeId] = Counter()
        """On the way to each node."""
        self._paused: dict[NodeId, list[tuple[_What, NodeId, int, Sequence[bytes]]]] = {}
        """What has arrived at each process that is stopped, and waits for it."""
        self._slow_us: Counter[NodeId] = Counter()
        """How much longer what a node sends and gets takes."""
        self._context = contextvars.Context()
        """What the network does is in no node's context."""
        self._stream_delays = random.Random(f"{seed}/streams")
        self._changed = asyncio.Event()
        """Set and cleared when nodes reach each other that did not."""
        self.ends: dict[End, None] = {}
        """The ends of all streams, in the order in which they began."""
        self.served: dict[NodeId, MemoryStreams] = {}
        """Who serves streams."""
        self.relays: dict[NodeId, int] = {}
        """Where nodes carry streams to their other networks."""
        self.beside: dict[NodeId, NodeId | None] = {}
        """Clients, which have negative identifiers, by the node whose side of every partition they are on;
        None: they are on all sides."""

    # --- what tests do to it --------------------------------------------------------------------

    def partition(self, *sides: Collection[NodeId]) -> None:
        """Cut the network: nodes reach each other only within a side; those named nowhere are one more."""
        self._sides = {node: number for number, side in enumerate(sides, 1) for node in side}
        unknown = self._sides.keys() - set(self.nodes)
        if unknown or len(self._sides) < sum(map(len, sides)):
            raise ValueError(f"sides are {sides}: name each of the nodes {self.nodes} once at most")
        self._go_on()

    def heal(self) -> None:
        """All nodes reach each other again."""
        self._sides = {}
        self._go_on()

    def pause(self, node: NodeId) -> None:
        """A node's process is stopped: what arrives waits, as far as there is room."""
        self._paused.setdefault(node, [])

    def resume(self, node: NodeId) -> None:
        """A process that was stopped goes on with what waits."""
        for what, sender, size, packets in self._paused.pop(node, ()):
            self._hand_over(what, sender, node, size, packets)
        self._go_on()

    def slow(self, node: NodeId, by_us: int) -> None:
        """What a node sends and gets takes so much longer from now on; 0: no longer."""
        self._slow_us[node] = by_us

    def crash(self, node: NodeId, *, silently: bool = False) -> None:
        """A node's process is no more, as with ``kill -9``; silently: its machine is not either."""
        transport = self._open.get(node)
        if transport is not None:
            transport.crash()
            if not silently:
                self._send(_What.GONE, node, self.others(node), ())
            del self._open[node]
        for _, _, size, _ in self._paused.pop(node, ()):
            self._bytes[node] -= size
        self.served.pop(node, None)
        self.relays.pop(node, None)
        for end in [end for end in self.ends if end.node == node]:
            end.crash(silently=silently)

    def is_up(self, node: NodeId) -> bool:
        """Whether a process of the node runs."""
        return node in self._open

    def connected(self, one: NodeId, other: NodeId) -> bool:
        """Whether packets get from one node or client to another."""
        here, there = self.beside.get(one, one), self.beside.get(other, other)
        return here is None or there is None or self._sides.get(here, 0) == self._sides.get(there, 0)

    # --- what streams do ------------------------------------------------------------------------

    def _go_on(self) -> None:
        """What waits may get through now."""
        self._changed.set()
        self._changed.clear()
        for end in list(self.ends):
            end.wake()

    def passes(self, sender: NodeId, to: NodeId) -> bool:
        """Whether bytes get from one node to another, which takes them."""
        return self.connected(sender, to) and to not in self._paused

    def stream_delay_us(self, one: NodeId, other: NodeId) -> int:
        """How long the next bytes take; longer if they are lost, and sent again."""
        least, most = self.delay_us
        lost = self.loss > 0 and self._stream_delays.random() < self.loss
        again_us = AGAIN_US if lost else 0
        return self._stream_delays.randint(least, most) + again_us + self._slow_us[one] + self._slow_us[other]

    async def travel(self, sender: NodeId, to: NodeId) -> None:
        """Wait for as long as something takes to get there."""
        await asyncio.sleep(self.stream_delay_us(sender, to) / 1_000_000)
        while not self.passes(sender, to):
            await self._changed.wait()

    # --- what transports do ---------------------------------------------------------------------

    def open(self, setup: Setup) -> MemoryTransport:
        """Connect a node."""
        if setup.keyring is not None:
            raise ConfigProblem("a group in memory has no key, since packets leave no process: leave it out")
        if setup.node not in self.nodes:
            raise ConfigProblem(f"node {setup.node} is none of this network's: {self.nodes}")
        if setup.node in self._open:
            raise DuplicateNode(f"node {setup.node} is on this network already: stop it first")
        transport = MemoryTransport(self, setup)
        self._open = dict(sorted([*self._open.items(), (setup.node, transport)]))
        for other in self._open.values():
            other.met.set()
        return transport

    def others(self, node: NodeId) -> list[NodeId]:
        """The nodes that one reaches now, in order."""
        side, sides = self._sides.get(node, 0), self._sides
        return [other for other in self._open if other != node and sides.get(other, 0) == side]

    def close(self, node: NodeId) -> None:
        """A node is no longer there; those that it could reach notice."""
        self._send(_What.GONE, node, self.others(node), ())
        del self._open[node]

    def multicast(self, sender: NodeId, packets: Sequence[bytes]) -> None:
        """Packets to all that the sender reaches."""
        self._send(_What.DATA, sender, self.others(sender), packets)

    def unicast(self, sender: NodeId, to: NodeId, packet: bytes, lane: Lane) -> bool:
        """A packet to one node; whether there is such a one."""
        if to not in self._open:
            return False
        if self.connected(sender, to):
            self._send(_What.TOKEN if lane is Lane.TOKEN else _What.CONTROL, sender, (to,), (packet,))
        return True

    def _send(
        self, what: _What, sender: NodeId, receivers: Sequence[NodeId], packets: Sequence[bytes]
    ) -> None:
        loop, draw = asyncio.get_running_loop(), self._random.random
        least, most = self.delay_us
        now_us = round(loop.time() * 1_000_000) + least
        lossy = self.loss > 0 and what is not _What.GONE
        ordered = what in (_What.DATA, _What.TOKEN)
        slow = self._slow_us
        size = sum(map(len, packets))
        for to in receivers:
            arriving = packets
            if lossy:
                arriving = [packet for packet in packets if draw() >= self.loss]
                if len(arriving) < len(packets):
                    self._open[to].lost_packets["lost on the way"] += len(packets) - len(arriving)
                if not arriving:
                    continue
                size = sum(map(len, arriving))
            if self._bytes[to] + size > CAPACITY.buffer:
                self._open[to].lost_packets["no room"] += len(arriving)
                continue
            self._bytes[to] += size
            at_us = now_us + int(draw() * (most - least + 1))
            if slow:
                at_us += slow[sender] + slow[to]
            if ordered:
                at_us = self._last_us[sender, to] = max(at_us, self._last_us.get((sender, to), 0))
            loop.call_at(
                at_us / 1_000_000, self._arrive, what, sender, to, size, arriving, context=self._context
            )

    def _arrive(self, what: _What, sender: NodeId, to: NodeId, size: int, packets: Sequence[bytes]) -> None:
        if to in self._paused and to in self._open and self.connected(sender, to):
            self._paused[to].append((what, sender, size, packets))
        else:
            self._hand_over(what, sender, to, size, packets)

    def _hand_over(
        self, what: _What, sender: NodeId, to: NodeId, size: int, packets: Sequence[bytes]
    ) -> None:
        self._bytes[to] -= size
        receiver = self._open.get(to)
        if receiver is None:
            return
        if self.connected(sender, to):
            receiver.context.run(receiver.arrive, what, sender, packets)
        else:
            receiver.lost_packets["cut off"] += len(packets)


class MemoryTransport:
    """Carries the packets of one node within its process."""

    sealed = False

    def __init__(self, network: MemoryNetwork, setup: Setup) -> None:
        self._network = network
        self._node = setup.node
        self._drops = setup.drops
        self._receiver: Receiver | None = None
        self._closed = False
        self.context = contextvars.copy_context()
        """In which the node is told what arrives."""
        self.met = asyncio.Event()
        """Set whenever a node comes onto the network."""
        self.lost_packets: Counter[str] = Counter()

    # --- life -----------------------------------------------------------------------------------

    def start(self, receiver: Receiver) -> None:
        """Receive from now on."""
        self._receiver = receiver

    async def find_peers(self) -> None:
        """Wait until another node is reachable, but not for long."""
        try:
            async with asyncio.timeout(ANSWER_S):
                while not (self._closed or self.reachable):
                    self.met.clear()
                    await self.met.wait()
        except TimeoutError:
            return

    def begin_life(self, incarnation: int) -> None:
        """Others do not have to know."""

    def rekey(self, keyring: Keyring) -> None:
        """There are no keys: `MemoryNetwork.open` refuses them."""
        raise ConfigProblem("a group in memory has no key")

    def say_goodbye(self) -> None:
        """Tell nobody: others notice anyway."""

    def close(self) -> None:
        """Leave the network."""
        if not self._closed:
            self._closed = True
            self.met.set()
            self._network.close(self._node)

    def crash(self) -> None:
        """Send and receive nothing any more, and tell nobody: the process has ended."""
        self._closed = True

    # --- packets --------------------------------------------------------------------------------

    def multicast(self, packets: Sequence[bytes]) -> None:
        """Send packets to all reachable nodes, in order."""
        if not self._closed:
            self._network.multicast(self._node, packets)

    def unicast(self, to: NodeId, packet: bytes, lane: Lane, behind: Sequence[bytes]) -> None:
        """Send a packet to one node, behind packets that are multicast first."""
        if self._closed:
            return
        if behind:
            self._network.multicast(self._node, behind)
        if not self._network.unicast(self._node, to, packet, lane):
            self._drops.drop("no address to send to")

    def arrive(self, what: _What, sender: NodeId, packets: Sequence[bytes]) -> None:
        """Something arrived, for the network to hand over."""
        receiver = self._receiver
        if receiver is None or self._closed:
            return
        with receiver.guard:
            if what is _What.DATA:
                receiver.on_data(sender, packets)
            elif what is _What.GONE:
                receiver.on_gone(sender)
            else:
                for packet in packets:
                    receiver.on_unicast(sender, packet, 0)
            receiver.on_turn_over()

    def read_waiting(self) -> bool:
        """Nothing waits here: the network hands everything over when it arrives."""
        return True

    # --- looking --------------------------------------------------------------------------------

    @property
    def networks(self) -> Mapping[int, Network]:
        """The one network that this transport is on."""
        return {0: self}

    @property
    def address(self) -> str:
        """Only for people: nobody needs it."""
        return f"memory:{self._node}"

    @property
    def own(self) -> Address:
        """Where others reach this node, as it is found in `listed`."""
        return ("memory", self._node)

    @property
    def listed(self) -> Mapping[str, Sequence[Address]]:
        """All nodes that there may be."""
        return {f"memory:{node}": [("memory", node)] for node in self._network.nodes}

    @property
    def capacity(self) -> Capacity:
        """What the transport carries well."""
        return CAPACITY

    @property
    def reachable(self) -> Sequence[NodeId]:
        """The nodes on the same side."""
        return self._network.others(self._node)

    @property
    def round_trip_us(self) -> int:
        """The longest that there is."""
        return 2 * self._network.delay_us[1]

    def hosts(self) -> Sequence[str]:
        """No hosts: peers are in this process."""
        return ()

    def host_of(self, node: NodeId) -> str | None:
        """None: no node has a host."""
        return None

    def relay_of(self, node: NodeId) -> int:
        """The port at which a node carries streams between its networks; 0: nowhere."""
        return self._network.relays.get(node, 0)

    def relays_at(self, port: int) -> None:
        """All know where this node carries streams between its networks."""
        self._network.relays[self._node] = port

    def take_refusal(self) -> OrdercastError | None:
        """None: no node refuses another one."""
        return None

    def lost(self) -> Mapping[str, int]:
        """What was lost on the way here."""
        return self.lost_packets

    def status(self) -> dict[str, Any]:
        """Which nodes are reachable, as a document for `status`."""
        trip_us = self.round_trip_us
        return {
            "address": self.address,
            "sealed": self.sealed,
            "peers": [
                {"node": node, "address": f"memory:{node}", "linked": True, "round_trip_us": trip_us}
                for node in self.reachable
            ],
        }
