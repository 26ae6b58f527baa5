"""Identifiers of messages that a node missed, which it learns from another one.

All nodes drop a message with an identifier that was there before (``Nats-Msg-Id``), so all have to know the
same identifiers. A node that was away, while others went on, asks one that was there, in the order: the
answer says what was known where the node came back. Until then messages wait before its stream takes them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from ordercast.clients.stream import Stream
from ordercast.core.wire import UNREADABLE
from ordercast.process_groups.views import Member, Numbered, Process, Received, View

LOG = logging.getLogger("ordercast")

STREAM = "stream"
"""The property of those nodes that have a stream."""
AT_ONCE_BYTES = 16 * 1024
"""Bytes of identifiers in one message, about."""
PATIENCE_S = 10.0
"""A node that has not learned them for so long goes on with what it knows."""
MOST_HELD = 32 * 1024 * 1024
"""A node where so many bytes of messages wait goes on with what it knows."""


class Ask(msgspec.Struct, tag="ask", array_like=True):
    """A node wants to know all identifiers."""

    of: tuple[int, int]
    """The life of the node that is to answer."""


class Known(msgspec.Struct, tag="known", array_like=True):
    """Some of the identifiers that a node knows, for another one."""

    to: tuple[int, int]
    pairs: list[tuple[str, int]]
    """Each with the number of its message, in the order in which they came."""
    last: bool
    """Nothing follows."""
    whole: bool
    """It knows all."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Ask | Known).decode
Taken = Callable[[Numbered, bool], None]


class Learning:
    """What a node knows of identifiers: all, or not yet."""

    def __init__(
        self, stream: Stream, take: Taken, me: Callable[[], Process], send: Callable[[Sequence[bytes]], None]
    ) -> None:
        """`take` has a message, and whether it is of a process of this node, taken into the stream; `me` is
        the process by which nodes talk, and `send` sends to them all."""
        self._stream = stream
        self._take = take
        self._me = me
        self._send = send
        self._others: tuple[Process, ...] = ()
        """The nodes with a stream, this one among them."""
        self._since: int | None = None
        """The number of the first message since this node came back; None: it knows all."""
        self._held: list[tuple[Numbered, bool]] = []
        self._held_bytes = 0
        self._waited_s = 0.0
        self._asked: set[Process] = set()
        """Who has answered since the node came back."""
        self._asking: Process | None = None
        """Who was asked and has not answered; None: nobody."""
        self._pairs: dict[str, int] = {}
        """What came of answers by nodes that do not know all."""
        self._answer: list[tuple[str, int]] = []
        """What came of the answer that is awaited."""

    @property
    def learning(self) -> bool:
        """Whether messages wait."""
        return self._since is not None

    def hold(self, numbered: Numbered, mine: bool) -> None:
        """A message that is to be taken once all identifiers are known."""
        self._held.append((numbered, mine))
        self._held_bytes += sum(map(len, numbered.batch.payloads))
        if self._held_bytes > MOST_HELD:
            self._give_up(f"{self._held_bytes:,} bytes of messages wait")

    def begin(self, number: int) -> None:
        """The node missed messages before that number."""
        self._take_held()  # what came before is known by its identifiers, too
        self._stream.restart(number - 1)
        self._since = number
        self._asked.clear()
        self._pairs.clear()
        self._waited_s = 0.0
        self._asking = None
        self._ask()

    def life_over(self) -> None:
        """The node begins another life: its processes are others."""
        self._held = [(numbered, False) for numbered, _ in self._held]
        self._asking = None

    def installed(self, view: View) -> None:
        """The nodes that serve clients are others."""
        self._others = tuple(_with_stream(view.members))
        if self._asking is not None and self._asking not in self._others:
            self._asking = None
        if self.learning and self._asking is None:
            self._ask()

    def look(self, elapsed_s: float) -> None:
        """So much time has passed."""
        if self.learning:
            self._waited_s += elapsed_s
            if self._waited_s >= PATIENCE_S:
                self._give_up(f"nobody answered within {PATIENCE_S:g} s")
            elif self._asking is None:
                self._ask()

    def _ask(self) -> None:
        """Ask the next one; if nobody is left who could know, go on."""
        me = self._me()
        if me not in self._others:
            return  # until the others know this node
        for other in self._others:
            if other != me and other not in self._asked:
                self._asking = other
                self._answer = []
                self._send([_encode(Ask((other.node, other.incarnation)))])
                return
        self._learned({**self._stream.identifiers, **self._pairs})

    # --- what nodes say -------------------------------------------------------------------------

    def received(self, received: Received) -> None:
        """Nodes tell each other something."""
        batch = received.batch
        sender = Process(batch.origin, batch.incarnation, received.sender)
        for payload in batch.payloads:
            try:
                said = _decode(payload)
            except UNREADABLE:
                continue
            me = self._me()
            if isinstance(said, Ask) and said.of == tuple(me.life) and sender != me:
                self._tell(sender)
            elif isinstance(said, Known) and said.to == tuple(me.life) and sender == self._asking:
                self._told(sender, said)

    def _tell(self, asker: Process) -> None:
        to, whole = (asker.node, asker.incarnation), not self.learning
        parts = list(_parts(self._stream.identifiers)) or [[]]
        self._send([_encode(Known(to, part, part is parts[-1], whole)) for part in parts])

    def _told(self, sender: Process, known: Known) -> None:
        self._answer += known.pairs
        if not known.last:
            return
        self._asking = None
        self._asked.add(sender)
        if known.whole:
            self._learned(dict(self._answer))
        else:
            self._pairs |= dict(self._answer)
            self._ask()

    # --- the end --------------------------------------------------------------------------------

    def _learned(self, pairs: Mapping[str, int]) -> None:
        assert self._since is not None, "somebody was asked"
        since = self._since
        self._stream.learn({identifier: number for identifier, number in pairs.items() if number < since})
        self._take_held()

    def _give_up(self, why: str) -> None:
        LOG.warning(
            "identifiers of messages that were sent while this node was away are not known (%s): one that is "
            "sent again may come twice to clients of this node",
            why,
        )
        self._asking = None
        self._take_held()

    def _take_held(self) -> None:
        held, self._held, self._held_bytes, self._since = self._held, [], 0, None
        for numbered, mine in held:
            self._take(numbered, mine)


def _with_stream(members: Sequence[Member]) -> list[Process]:
    return [member.process for member in members if STREAM in member.properties]


def _parts(identifiers: Mapping[str, int]) -> Iterator[list[tuple[str, int]]]:
    part: list[tuple[str, int]] = []
    size = 0
    for identifier, number in identifiers.items():
        part.append((identifier, number))
        size += len(identifier) + 16
        if size >= AT_ONCE_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part
