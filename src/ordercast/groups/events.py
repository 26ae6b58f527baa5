"""What an application receives: messages, one at a time or by the batch, and configurations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

from ordercast.core.identity import Configuration, ConfigurationId, Ended, Kind, MessageId, NodeId


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


class Delivery(NamedTuple):
    """Messages of one sender to one group that came in one packet: what is the same is said once.

    The fast path: `payloads` are the messages, in order; `messages` makes a `Message` of each.
    """

    payloads: list[bytes]
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

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Self:
        """The messages, which follow each other in one packet, together again."""
        first, count = messages[0], len(messages)
        number = first.id.number
        return cls(
            [message.payload for message in messages],
            first.sender,
            first.group,
            first.safe,
            first.id.incarnation,
            range(number, number + count),
            first.configuration,
            first.seq,
            range(first.slot, first.slot + count),
        )

    def messages(self) -> Iterator[Message]:
        """The messages one by one."""
        for payload, number, slot in zip(self.payloads, self.numbers, self.slots, strict=True):
            message_id = MessageId(self.sender, self.incarnation, number)
            yield Message(
                payload, self.sender, self.group, self.safe, message_id, self.configuration, self.seq, slot
            )
