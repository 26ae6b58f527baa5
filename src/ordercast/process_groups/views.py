"""Processes, the views of their groups, and what a node's processes are told of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from ordercast.core.identity import Batch, ConfigurationId, Kind, MessageId, NodeId

Properties: TypeAlias = Mapping[str, str]
"""What a process says of itself when it joins a group, as in ``{"nick": "ann"}``."""


class Life(NamedTuple):
    """One life of a node."""

    node: NodeId
    incarnation: int

    def __str__(self) -> str:
        return f"{self.node}.{self.incarnation}"


class Process(NamedTuple):
    """A process of the application: the life of the node that serves it, and its number there, from 1."""

    node: NodeId
    incarnation: int
    number: int

    @property
    def life(self) -> Life:
        """The node's life that it belongs to: it does not outlive it."""
        return Life(self.node, self.incarnation)

    def __str__(self) -> str:
        return f"{self.node}.{self.incarnation}.{self.number}"


class Cause(StrEnum):
    """Why a group has a new view."""

    JOINED = "joined"
    LEFT = "left"
    DIED = "process died"
    LOST = "node lost"
    """A node with members of the group is gone from the configuration."""
    UNSETTLED = "unsettled"
    """The configuration ends before its members have told of their processes: nodes that this one met there
    may have members in the group, who get the same messages."""
    MERGED = "merged"
    """A configuration brought nodes together, and with them members that these had in the group."""


class ViewId(NamedTuple):
    """Identifies a view of a group: the same at all who install it, and of that group's views unique."""

    configuration: ConfigurationId
    """The configuration in which it was installed."""
    number: int
    """Which change of memberships in that configuration it is, from 1."""
    part: Life | None = None
    """None in a regular view. In a transitional one the lowest of the lives that it speaks of: nodes that
    came into a configuration from different ones go on apart until their memberships are put together."""

    @property
    def kind(self) -> Kind:
        """Regular, or transitional."""
        return Kind.REGULAR if self.part is None else Kind.TRANSITIONAL

    def __str__(self) -> str:
        return f"{self.configuration}/{self.number}" + ("" if self.part is None else f"~{self.part}")


class Member(NamedTuple):
    """A process in a group."""

    process: Process
    properties: Properties


class View(NamedTuple):
    """Who is in a group, from one place in the order to the next view.

    A regular view has all members that the nodes of the configuration have in the group. A transitional one
    has those that the guarantees still cover: members that came here together with this node.
    """

    group: str
    id: ViewId
    members: tuple[Member, ...]
    """In ascending order of processes."""
    cause: Cause


# --- what local processes are told ------------------------------------------------------------------


class Installed(NamedTuple):
    """A group has a new view, and these processes of this node, by number, are in it: none, if that is told
    because groups are watched."""

    view: View
    to: tuple[int, ...]


class Left(NamedTuple):
    """A process of this node is no longer in a group: nothing of the group reaches it from here on."""

    process: int
    group: str
    cause: Cause


class Received(NamedTuple):
    """Messages for processes of this node, each once, in however many of the groups addressed it is."""

    batch: Batch
    """The messages, in order; payloads are the application's."""
    sender: int
    """Number of the process that sent them at `batch.origin`, or at the origin of `again`; 0: none, they came
    from outside all groups."""
    groups: tuple[str, ...]
    """The groups that they are addressed to."""
    to: tuple[int, ...]
    """Processes of this node, by number, in ascending order."""
    heads: Sequence[bytes] | None = None
    """What the sender said of each beside the message itself, if anything."""
    queue: str | None = None
    """The queue of which one member gets it, as the group of its members is called; None: all do."""
    again: MessageId | None = None
    """The message that it repeats, for another member of the queue than the one that was to get it."""
    sent_us: int = 0
    """When they were sent, in microseconds since the epoch by the clock of their node; 0: not known."""


class Unheard(NamedTuple):
    """Messages with heads, of a process of this node, that reach nobody at all: it may want to know."""

    batch: Batch
    sender: int
    groups: tuple[str, ...]
    heads: Sequence[bytes]


class Numbered(NamedTuple):
    """Messages, whoever gets them, with their numbers among all messages of the order."""

    first: int
    """Number of the first of them: the same at every node that was told how many there were before."""
    batch: Batch
    sender: int
    groups: tuple[str, ...]
    heads: Sequence[bytes] | None


class Recounted(NamedTuple):
    """Messages of a configuration are counted anew: others knew of more, or a life of the node begins."""

    configuration: ConfigurationId
    """The regular configuration of which this is true, from its first message on."""
    before: int
    """Number of the last message before it, as this node had counted;"""
    base: int
    """the first one in it has the number behind this."""


class Declared(NamedTuple):
    """The voters for the primary partition that members of a configuration were given, as digests."""

    voters: Mapping[NodeId, int]
    """By node, the digest of its voters; 0: it was given none."""


Output: TypeAlias = Installed | Left | Received | Unheard | Numbered | Recounted | Declared
