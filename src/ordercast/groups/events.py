"""What an application receives: messages, one at a time or by the batch, and who is there to receive them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Self, TypeAlias

from ordercast.core.headers import KEY, headers_of
from ordercast.core.identity import Configuration, ConfigurationId, Ended, Kind, MessageId, NodeId
from ordercast.process_groups.views import Cause, Member, Process


class ConfigurationChange(Configuration):
    """A configuration begins here, and the one before it ended: it stands between two messages.

    It is equal to the `Configuration` that it begins: `ended`, in which members may differ, does not count.
    """

    ended: Ended | None
    """The configuration that it ends, and the last place of that one's order. All members that go from one
    configuration to the same next one have delivered the same messages up to that place, and none beyond.
    None for the first configuration of a life: that ends nothing."""

    def __new__(
        cls,
        id: ConfigurationId,
        kind: Kind,
        members: tuple[NodeId, ...],
        ended: Ended | None = None,
    ) -> Self:
        """The configuration, and what it ends."""
        self = super().__new__(cls, id, kind, members)
        self.ended = ended
        return self

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, ended={self.ended!r})"


class Rejoined(ConfigurationChange):
    """The first configuration of a new life, where the group had gone on without this node.

    Between the configuration before it and this one messages may have passed this node by; and what it had
    sent and not delivered may be lost, or may have been delivered by others.
    """


class Joined(NamedTuple):
    """A member has joined the group here; its first event in a group tells each member of its own join."""

    group: str
    member: Member
    cause: Cause
    """`Cause.JOINED`, or `Cause.MERGED`: it was in the group before, at a node that was out of reach."""
    members: tuple[Member, ...]
    """All who are in the group from here on."""


class Left(NamedTuple):
    """A member is in the group no longer from here on."""

    group: str
    member: Member
    cause: Cause
    """`Cause.LEFT`, `Cause.DIED` (it ended without leaving), or `Cause.LOST` (its node is out of reach)."""
    members: tuple[Member, ...]
    """All who are in the group from here on."""


class PrimaryLost(NamedTuple):
    """This node is in the primary partition no longer: nothing is ordered here until `PrimaryRegained`.

    Sends raise `NoMajority` meanwhile. What was sent before and not delivered yet may be lost, or may be
    delivered by others.
    """

    configuration: Configuration
    """The one in which a majority is missing; or the last one, where there is no other without it."""
    missing: tuple[NodeId, ...]
    """Voters that are missing."""


class PrimaryRegained(NamedTuple):
    """This node is in the primary partition again: messages are ordered from here on."""

    configuration: Configuration


class Message(NamedTuple):
    """A message, at its place in the one order of all groups."""

    payload: bytes
    sender: NodeId
    group: str
    safe: bool
    """Every member of the configuration is known to have it."""
    id: MessageId
    """Who sent the message, in which of its lives, and its number in that life."""
    configuration: ConfigurationId
    """The configuration it was ordered in. Within one, (`seq`, `slot`) is the order."""
    seq: int
    slot: int
    groups: tuple[str, ...] = ()
    """All groups that it is addressed to; `group` is the one that it was read from."""
    number: int = 0
    """Which process of the sender sent it; 0 if none did that is in a group."""
    sent_us: int = 0
    """When it was sent, in microseconds since the epoch (UTC) by the clock of the sender's node, to the
    millisecond: the same at all who get it. 0 if the sender did not say."""
    head: bytes = b""
    """What was said beside it, as it travelled: `key` and `headers` read it."""

    @property
    def process(self) -> Process:
        """Who sent it, as in `Member.process`."""
        return Process(self.sender, self.id.incarnation, self.number)

    @property
    def key(self) -> str | None:
        """What it is about, as its sender says (the header ``Key``); None if it does not."""
        return self.headers.get(KEY)

    @property
    def headers(self) -> Mapping[str, str]:
        """What its sender said beside it, by name. The values of a name that comes twice are joined by a
        comma."""
        return headers_of(self.head)


class Delivery(NamedTuple):
    """Messages of one sender to one group that came in one packet: what is the same is said once.

    The fast path: `payloads` are the messages, in order; `messages` makes a `Message` of each.
    """

    payloads: Sequence[bytes]
    sender: NodeId
    group: str
    safe: bool
    incarnation: int
    """Which life of the sender."""
    numbers: range
    """The messages' numbers in that life."""
    configuration: ConfigurationId
    seq: int
    slots: range
    groups: tuple[str, ...] = ()
    """All groups that they are addressed to."""
    number: int = 0
    """Which process of the sender sent them; 0 if none did that is in a group."""
    sent_us: int = 0
    """When they were sent, as in `Message`."""
    heads: Sequence[bytes] | None = None
    """What was said beside each; None if nothing was beside any."""

    @property
    def process(self) -> Process:
        """Who sent them, as in `Member.process`."""
        return Process(self.sender, self.incarnation, self.number)

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Self:
        """The messages, which follow each other in one packet, together again."""
        first, count = messages[0], len(messages)
        begin = first.id.number
        return cls(
            [message.payload for message in messages],
            first.sender,
            first.group,
            first.safe,
            first.id.incarnation,
            range(begin, begin + count),
            first.configuration,
            first.seq,
            range(first.slot, first.slot + count),
            first.groups,
            first.number,
            first.sent_us,
            [message.head for message in messages] if first.head else None,
        )

    def messages(self) -> Iterator[Message]:
        """The messages one by one."""
        sender, group, safe, incarnation = self.sender, self.group, self.safe, self.incarnation
        configuration, seq, groups, process = self.configuration, self.seq, self.groups, self.number
        sent_us, heads = self.sent_us, self.heads
        for payload, number, slot in zip(self.payloads, self.numbers, self.slots, strict=True):
            message_id = MessageId(sender, incarnation, number)
            head = b"" if heads is None else heads[number - self.numbers.start]
            yield Message(
                payload,
                sender,
                group,
                safe,
                message_id,
                configuration,
                seq,
                slot,
                groups,
                process,
                sent_us,
                head,
            )


Change: TypeAlias = ConfigurationChange | Joined | Left | PrimaryLost | PrimaryRegained
"""What a reader is told between messages."""
Event: TypeAlias = Delivery | Change
"""What waits for a reader: the messages of a packet together."""
