"""The contract between a protocol machine and whoever drives it.

A machine takes an event and the time and answers with effects. It holds no socket, clock, thread,
random source or ``await``: what it draws follows from the seed that it is handed (`core.randomness`). So the
code that is simulated a million times is, to the line, the code that runs on the network. The driver
(``sim.world``, ``runtime``) carries out the effects **in list order**, and everything behind a `Persist` only
once that is durable.

Time is integer microseconds. A machine may be told a later time than the last, never an earlier one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from ordercast.core.identity import Batch, Configuration, ConfigurationId, Ended, Guarantee, NodeId

# --- events: what happens to a machine ---------------------------------------------------------


class Start(NamedTuple):
    """The node begins a life. First event of every machine, and only the first."""

    incarnation: int
    """0, then +1 at each restart: it makes message identifiers unique over lives."""
    stored: bytes | None
    """What the last `Persist` of the node's earlier lives held; None on a fresh or lost disk."""
    seed: int
    """64 bits that the driver drew for this life alone: all the randomness there is for the machine
    (`ordercast.core.randomness`)."""


class Submit(NamedTuple):
    """The application hands over messages, in order. Answered with one `Accept`.

    The driver looks at `Machine.room` first: more bytes than that raise `QueueFull`.
    """

    payloads: Sequence[bytes]
    guarantee: Guarantee


class Packet(NamedTuple):
    """A datagram arrived. Anything may be in it: a machine never raises because of one."""

    data: bytes
    sender: NodeId
    """The node that sent it, as the driver established it (by its address; in a sealed group also by the
    session it is sealed with). A packet that names another sender than this is not used."""
    waited_us: int = 0
    """How long it lay in the driver (socket buffers) before the machine was given it."""
    network: int = 0
    """The number of the network (broadcast domain) it came in on; 0 where a node has one only."""


class Timer(NamedTuple):
    """The timer of that name, set earlier and not cancelled since, ran out."""

    name: str


class Stop(NamedTuple):
    """The application wants this node to go. It finishes what it accepted, says so, and halts."""


class Brake(NamedTuple):
    """The disk that this node's log is on does not keep up: while on, nobody in the group sends anything new.

    What was sent before still arrives, is retransmitted and delivered; what is submitted waits. The brake
    is of one life and one node: a new life starts without it, and the group forgets the brake of a node
    that it loses. A node that was told to `Stop` goes once its queue is empty, so not while someone brakes
    and it has something to send.
    """

    on: bool


class Gone(NamedTuple):
    """The driver has reason to believe that this node's process has ended: its ports are closed.

    No more than a hint, and it may be wrong or never come; it spares the group the wait for a timeout.
    """

    node: NodeId
    network: int = 0
    """The number of the network (broadcast domain) on which that was noticed; 0: on all of them."""


class Distance(NamedTuple):
    """The driver has measured how far the peers are: the longest round trip among them, now.

    Timeouts that are too short for that are stretched; a machine that has none may ignore it.
    """

    round_trip_us: int


MOST_ATTENDED = 512
"""Groups that an `Attend` names at most."""


class Attend(NamedTuple):
    """Of messages to groups, this node needs the contents of those to these groups only.

    Given before anything is submitted that makes a process of the node a member of another group. Until the
    first, a node needs all. A machine may ignore it.
    """

    groups: frozenset[str] | None
    """None: all, or more than `MOST_ATTENDED`."""
    shared: bool = False
    """All nodes need all contents: any of them may have to send a queue's messages again."""


Event: TypeAlias = Start | Submit | Packet | Timer | Stop | Brake | Gone | Distance | Attend

# --- effects: what a machine wants done --------------------------------------------------------


class Lane(Enum):
    """How a packet for one node travels beside the multicasts.

    What is multicast travels in a third lane, the one for data, which may be full of it: a receiver reads it
    in the order in which it came.
    """

    CONTROL = "control"
    """Apart from data: no multicasts can crowd it out, and it waits for none."""
    TOKEN = "token"
    """Behind data: it goes out behind what was multicast before it, and the receiver reads it once no data
    waits, one token at a time (000 §5.2). Data, in turn, may wait until the next token comes."""


class Multicast(NamedTuple):
    """Send to every other node that can be reached (the sender does not receive it)."""

    data: bytes
    network: int = 0
    """The number of the network (broadcast domain) it goes out on; 0 where a node has one only."""


class Unicast(NamedTuple):
    """Send to one node."""

    to: NodeId
    data: bytes
    lane: Lane = Lane.CONTROL
    network: int = 0
    """The number of the network (broadcast domain) it goes out on; 0 where a node has one only."""


class SetTimer(NamedTuple):
    """(Re)start the timer of that name: it runs out ``delay_us`` from now, once."""

    name: str
    delay_us: int


class CancelTimer(NamedTuple):
    """Stop the timer of that name, if it runs."""

    name: str


class Persist(NamedTuple):
    """Replace the node's stored state, durably, before any effect behind this one."""

    data: bytes


class Accept(NamedTuple):
    """The submitted messages are taken; the first has this number, the next ones follow on."""

    number: int


class Originate(NamedTuple):
    """These own messages are broadcast whole for the first time by the `Multicast` behind this.

    It ties them to their configuration (000 §3). A fragmented message originates with its last
    fragment: until then it could not be delivered anywhere.
    """

    batch: Batch


class Deliver(NamedTuple):
    """Hand these messages to the application, in order, in the configuration installed last."""

    batch: Batch


class Stable(NamedTuple):
    """Every member of the configuration is now known to have these messages."""

    batches: Sequence[Batch]


class Install(NamedTuple):
    """Tell the application of a configuration; what is delivered from here on belongs to it.

    This is the paper's Configuration Change message (000 §6.1): it ends one configuration, at one place in
    its order, and begins another.
    """

    configuration: Configuration
    ended: Ended | None = None
    """What it ends; None for the first configuration of a life."""


class Shift(NamedTuple):
    """The machine entered a state, and why. For stories, statistics and logs."""

    state: str
    because: str


class Drop(NamedTuple):
    """The packet being handled was not used. The driver counts the reasons, which are declared once
    (`ordercast.core.declared`)."""

    reason: str


ID_IN_USE = "another node has the id of this one"
"""The reason of a `Halt` after which the node must not begin another life."""
LEFT = "left"
"""The reason of a `Halt` of a node that was told to go; the others go on without it."""


class Halt(NamedTuple):
    """A program-controlled crash: the driver ends this life and hands over nothing more."""

    reason: str


Effect: TypeAlias = (
    Multicast
    | Unicast
    | SetTimer
    | CancelTimer
    | Persist
    | Accept
    | Originate
    | Deliver
    | Stable
    | Install
    | Shift
    | Drop
    | Halt
)

# --- the machine -------------------------------------------------------------------------------


class QueueFull(Exception):
    """More was submitted than `Machine.room` allows: wait for room, then submit again."""


class Machine(Protocol):
    """A protocol: event and time in, effects out."""

    def handle(self, now_us: int, event: Event) -> Sequence[Effect]:
        """Take one event. Nothing else changes the machine."""

    @property
    def room(self) -> int:
        """Bytes of payload that a `Submit` may carry now; 0 while the send queue is full."""

    @property
    def stats(self) -> Mapping[str, float]:
        """Running figures by name, for people and metrics: those of `Protocol.statistics`."""

    @property
    def role(self) -> str:
        """What this node does for the others right now, as in "sequencer"; empty where all do the same."""

    @property
    def waits(self) -> Mapping[NodeId, int]:
        """Microseconds for which each member of the configuration lately kept the others waiting.

        Waiting that the protocol wants (an idle group) does not count. Empty where it is not known.
        """

    @property
    def laggard(self) -> NodeId | None:
        """The member that keeps this node from sending right now, if one does: it brakes, or lags behind."""

    @property
    def final(self) -> tuple[ConfigurationId, int] | None:
        """Up to where what was delivered here cannot change any more, even if this node fails now.

        A configuration that was installed, and a place in its order: everything delivered up to there, and in
        all configurations before, will have been delivered at the same places by every member of that
        configuration that does not fail. None while that is not known of the last configuration at all. What
        was once final stays so, even if this says less later.
        """
