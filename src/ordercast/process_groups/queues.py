"""Queues: of the members that subscribe with one queue's name, one gets a message, the same at every node.

Who it is follows from the message and the ordered membership; who wants no echo of its own messages is
passed over for these. If that process has ended when its node is to
give it the message, the node sends the message again, to the queue alone (`Again`), behind the note that the
process has ended. If its node is lost, the others do: each keeps what processes of others were to get, until
their node says in the order that they got it (`Served`, every so many messages) or is in the next
configuration. So none is lost; what a lost node had not told of may be given twice.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

from ordercast.core.identity import MessageId
from ordercast.process_groups.views import Life, Process, Properties

SERVED_EVERY = 64
"""Messages after which a node tells that its processes got them,"""
SERVED_BYTES = 64 * 1024
"""or bytes."""
MOST_KEPT = 8 * 1024 * 1024
"""Bytes of messages for one other node's processes that are kept; beyond it the oldest are forgotten."""
_OVERHEAD = 128
NO_ECHO = {"$ORDERCAST.echo": "off"}
"""What a member of a queue says of itself that is to get nothing over it that it has sent itself."""


class Share(NamedTuple):
    """A message that one member of a queue is to get."""

    message: MessageId
    queue: str
    """The group of the queue's members (`ordercast.core.subjects.subscription`)."""
    payload: bytes
    """As it was sent, its address in front."""


def wants_no_echo(properties: Properties) -> bool:
    """Whether a member of a queue is to get nothing over it that it has sent itself."""
    return properties.items() >= NO_ECHO.items()


def chosen(members: Sequence[Process], message: MessageId) -> Process:
    """The member that gets a message."""
    mixed = (
        message.number * 0x9E3779B1 + message.origin * 0x85EBCA6B + message.incarnation * 0xC2B2AE35
    ) >> 7
    return members[mixed % 1_000_003 % len(members)]


class Shares:
    """What members of queues were to get, as far as it has to be remembered."""

    def __init__(self) -> None:
        self._given: list[int] = [0, 0]
        """Messages that processes here got since the configuration was settled, and how many of them the
        others know of."""
        self._untold_bytes = 0
        self._kept: defaultdict[Life, deque[tuple[int, Share]]] = defaultdict(deque)
        """What processes of others were to get, with its number among what they got in this configuration."""
        self._kept_bytes: Counter[Life] = Counter()
        self._counts: Counter[Life] = Counter()
        self._owed: dict[tuple[MessageId, str], tuple[Share, frozenset[Life]]] = {}
        """What lost nodes' processes were to get, and who else knows that it is to be sent again."""
        self._sent: set[tuple[MessageId, str]] = set()
        self.forgotten = 0
        """Messages that were not kept, because too many were."""

    def given(self, size: int) -> int | None:
        """A process here got a message, or it was sent again; how many that are, if others are to be told."""
        self._given[0] += 1
        self._untold_bytes += size
        if self._given[0] - self._given[1] < SERVED_EVERY and self._untold_bytes < SERVED_BYTES:
            return None
        self._given[1] = self._given[0]
        self._untold_bytes = 0
        return self._given[0]

    def keep(self, life: Life, share: Share) -> None:
        """A process of another node is to get a message."""
        self._counts[life] += 1
        kept = self._kept[life]
        kept.append((self._counts[life], share))
        self._kept_bytes[life] += len(share.payload) + _OVERHEAD
        while self._kept_bytes[life] > MOST_KEPT:
            self._drop_first(life)
            self.forgotten += 1

    def served(self, life: Life, count: int) -> None:
        """A node says that its processes got the first so many of this configuration."""
        kept = self._kept[life]
        while kept and kept[0][0] <= count:
            self._drop_first(life)

    def _drop_first(self, life: Life) -> None:
        _, share = self._kept[life].popleft()
        self._kept_bytes[life] -= len(share.payload) + _OVERHEAD

    # --- configurations ---------------------------------------------------------------------------

    def lose(self, lives: Container[Life], known_to: frozenset[Life]) -> None:
        """Only these lives are left: what others' processes were to get is owed by those who are."""
        for life in sorted(each for each in self._kept if each not in lives):
            for _, share in self._kept.pop(life):
                self._owed[share.message, share.queue] = (share, known_to)
            del self._kept_bytes[life]

    def owed_by(self, me: Life, lives: Container[Life]) -> Iterator[Share]:
        """What this node has to send again, now that these lives are left: each is told once."""
        for key, (share, known_to) in self._owed.items():
            if key not in self._sent and min(life for life in known_to if life in lives) == me:
                self._sent.add(key)
                yield share

    def settle(self) -> None:
        """All members have told of their processes: so they have delivered all that was before."""
        self._given = [0, 0]
        self._untold_bytes = 0
        self._kept.clear()
        self._kept_bytes.clear()
        self._counts.clear()

    def sent_again(self, message: MessageId, queue: str) -> None:
        """A message that was owed has its place in the order anew."""
        self._owed.pop((message, queue), None)
        self._sent.discard((message, queue))
