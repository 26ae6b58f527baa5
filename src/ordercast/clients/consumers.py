"""Consumers of the stream: where a client is in it, what it was given, and what it has not acknowledged.

A consumer is kept at the node that its client is connected to, and ends with the connection.
"""

from __future__ import annotations

import asyncio
import datetime
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ordercast.clients import wire
from ordercast.clients.consumer_config import SECOND, ConsumerConfig, Pull
from ordercast.clients.flow_control import FlowControl
from ordercast.clients.stream import NAME, Entry, Stream

if TYPE_CHECKING:
    from ordercast.clients.connection import ClientConnection

MOST_WAITING = 512
"""Requests for messages that may wait at a consumer."""
MOST_UNACKNOWLEDGED = 1000
"""Messages that may be given and not acknowledged, if the client does not say how many."""
ACK_WAIT_S = 30.0
PUMPED = 256
"""Messages that are given to a client before the event loop has its turn again."""


class _Asked:
    """A client that waits for messages."""

    def __init__(self, client: ClientConnection, subject: str, pull: Pull) -> None:
        self.client = client
        self.subject = subject
        self.left = max(1, pull.batch)
        self.bytes = pull.max_bytes
        self.limited = pull.max_bytes > 0
        self.expires: asyncio.TimerHandle | None = None
        self.beats: asyncio.TimerHandle | None = None

    def end(self) -> None:
        for timer in (self.expires, self.beats):
            if timer is not None:
                timer.cancel()


class _Given(NamedTuple):
    """A message that was given and not acknowledged."""

    consumer: int
    """Its number among those given."""
    times: int
    at: float


class Consumer:
    """A consumer of the stream (JetStream): gives its messages to a client, one after the other."""

    def __init__(
        self, name: str, config: ConsumerConfig, stream: Stream, client: ClientConnection, start: int
    ) -> None:
        self.name = name
        self.config = config
        self.client = client
        self.created_ns = stream.created_ns if not stream.messages else stream._now_ns()
        self.next = start
        """The number of the next message of the stream."""
        self.given = 0
        """Messages that were given."""
        self.last = max(0, start - 1)
        """The number in the stream of the last of them."""
        self.floor = (0, 0)
        self.unacknowledged: dict[int, _Given] = {}
        """Those that are to be acknowledged, by their number in the stream."""
        self.again: deque[int] = deque()
        """Those that are to be given again."""
        self.asked: deque[_Asked] = deque()
        self._pending = 0
        """Messages from `next` on, among those up to number `_counted_to`."""
        self._counted_to = 0
        self._counted_from = 0
        self._counts: dict[int, int] = {}
        """How often each was given that is not acknowledged."""
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._pumping = False
        self._beat: asyncio.TimerHandle | None = None
        self._active = self._loop.time()
        """When its client last wanted something of it."""
        self._flow = FlowControl(client, config.deliver_subject or "", NAME, name)
        self._quiet = True
        self.ended = False
        if self._heartbeat_s:
            self._beat = self._loop.call_later(self._heartbeat_s, self._beat_on)

    @property
    def pushes(self) -> bool:
        """Whether messages go to the client without being asked for."""
        return self.config.deliver_subject is not None

    @property
    def _heartbeat_s(self) -> float:
        return (self.config.idle_heartbeat or 0) / SECOND if self.pushes else 0.0

    @property
    def _most_unacknowledged(self) -> int:
        most = self.config.max_ack_pending
        return most if most is not None and most > 0 else MOST_UNACKNOWLEDGED

    @property
    def pending(self) -> int:
        """Messages that were not given yet."""
        stream, pattern = self._stream, self.config.filter_subject
        if stream.first > max(self._counted_from, self.next):  # some were dropped before they were given
            self._pending = stream.pending(self.next, pattern)
        else:
            self._pending += stream.pending(max(self._counted_to + 1, self.next), pattern)
        self._counted_from, self._counted_to = stream.first, stream.last
        return self._pending

    # --- giving ---------------------------------------------------------------------------------

    def pump_soon(self) -> None:
        """Give what there is, in a turn of its own."""
        if not self._pumping and not self.ended:
            self._pumping = True
            self._loop.call_soon(self.pump)

    def pump(self) -> None:
        """Give what there is to who wants it."""
        self._pumping = False
        if self.ended:
            return
        pattern, deliver = self.config.filter_subject, self.config.deliver_subject
        wanted = self.asked if deliver is None else self.client.subscriptions.of(deliver)
        for _ in range(PUMPED):
            if not wanted or self.client.behind or self._flow.stalled:
                return
            if self.config.ack_policy != "none" and len(self.unacknowledged) >= self._most_unacknowledged:
                return
            entry = self._next_entry(pattern)
            if entry is None:
                return
            if not self._give(entry):
                return
        self.pump_soon()

    def _next_entry(self, pattern: str | None) -> Entry | None:
        while self.again:
            entry = self._stream.get(self.again[0])
            if entry is not None:
                return entry
            self._counts.pop(self.again.popleft(), None)
        entry = next(self._stream.following(self.next, pattern), None)
        if entry is None and self.next <= self._stream.last:
            self._pending = 0
            self._counted_to = self._stream.last
            self.next = self._stream.last + 1
        return entry

    def _give(self, entry: Entry) -> bool:
        asked = None
        if not self.pushes:
            asked = self.asked[0]
            size = len(entry.headers) + len(entry.body)
            if asked.limited and size > asked.bytes:
                self.end_pull(asked, 409, "Message Size Exceeds MaxBytes")
                return bool(self.asked)
            asked.bytes -= size
        repeated = bool(self.again) and self.again[0] == entry.number
        if repeated:
            self.again.popleft()
        else:
            self._pending = self.pending - 1
            self.next = entry.number + 1
        self.given += 1
        self.last = entry.number
        times = self._counts.get(entry.number, 0) + 1
        if self.config.ack_policy != "none":
            self._counts[entry.number] = times
            self.unacknowledged[entry.number] = _Given(self.given, times, self._loop.time())
        pending = self.pending
        places = f"{times}.{entry.number}.{self.given}.{entry.time_ns}.{pending}"
        reply = f"$JS.ACK.{NAME}.{self.name}.{places}".encode()
        self._quiet = False
        if asked is None:
            assert self.config.deliver_subject is not None
            self.client.tell_as(self.config.deliver_subject, entry.subject, entry.headers, entry.body, reply)
            if self.config.flow_control:
                self._flow.sent(entry.size)
            return True
        asked.client.tell_as(asked.subject, entry.subject, entry.headers, entry.body, reply)
        asked.left -= 1
        if asked.left <= 0:
            self._take_off(asked)
        return True

    def confirm(self, subject: str) -> None:
        """The client has handled all that came before a question."""
        if self._flow.confirm(subject):
            self.pump_soon()

    # --- requests -------------------------------------------------------------------------------

    def ask(self, client: ClientConnection, subject: str, pull: Pull) -> None:
        """A client wants messages."""
        self._active = self._loop.time()
        if len(self.asked) >= min(MOST_WAITING, self.config.max_waiting or MOST_WAITING):
            client.tell(subject, wire.status(409, "Exceeded MaxWaiting"), b"")
            return
        asked = _Asked(client, subject, pull)
        self.asked.append(asked)
        self.pump()
        if asked not in self.asked:
            return
        if pull.no_wait and not pull.expires:
            self.end_pull(asked, 404, "No Messages")
            return
        if pull.expires:
            asked.expires = self._loop.call_later(
                pull.expires / SECOND, self.end_pull, asked, 408, "Request Timeout"
            )
        if pull.idle_heartbeat:
            self._beat_asked(asked, pull.idle_heartbeat / SECOND)

    def end_pull(self, asked: _Asked, code: int, words: str) -> None:
        """A request ends before all of it was given."""
        if asked in self.asked:
            self._take_off(asked)
            told = (
                ("Nats-Pending-Messages", str(asked.left)),
                ("Nats-Pending-Bytes", str(max(0, asked.bytes))),
            )
            asked.client.tell(asked.subject, wire.status(code, words, told if code != 404 else ()), b"")

    def _take_off(self, asked: _Asked) -> None:
        self.asked.remove(asked)
        asked.end()

    def _beat_asked(self, asked: _Asked, seconds: float) -> None:
        asked.beats = self._loop.call_later(seconds, self._tell_asked, asked, seconds)

    def _tell_asked(self, asked: _Asked, seconds: float) -> None:
        if asked in self.asked:
            asked.client.tell(asked.subject, self._flow.heartbeat(self.given, self.last), b"")
            self._beat_asked(asked, seconds)

    def _beat_on(self) -> None:
        if self.ended:
            return
        self._beat = self._loop.call_later(self._heartbeat_s, self._beat_on)
        if self._quiet and self.config.deliver_subject is not None:
            self.client.tell(self.config.deliver_subject, self._flow.heartbeat(self.given, self.last), b"")
        self._quiet = True

    # --- acknowledgements -----------------------------------------------------------------------

    def acknowledge(self, number: int, word: bytes) -> None:
        """A client says what became of a message."""
        given = self.unacknowledged.get(number)
        if given is None:
            return
        if word.startswith(b"+WPI"):
            self.unacknowledged[number] = given._replace(at=self._loop.time())
            return
        del self.unacknowledged[number]
        if word.startswith(b"-NAK"):
            self._give_again(number, given)
        else:
            self._counts.pop(number, None)
            self.floor = (given.consumer, number)
        self.pump_soon()

    def _give_again(self, number: int, given: _Given) -> None:
        most = self.config.max_deliver
        if most is None or most <= 0 or given.times < most:
            self.again.append(number)
        else:
            self._counts.pop(number, None)

    @property
    def inactive(self) -> bool:
        """Whether its client has wanted nothing of it for longer than it said that this may take."""
        deliver, now = self.config.deliver_subject, self._loop.time()
        if self.asked if deliver is None else self.client.subscriptions.of(deliver):
            self._active = now
        threshold_s = (self.config.inactive_threshold or 0) / SECOND
        return bool(threshold_s) and now - self._active > threshold_s

    def look(self) -> None:
        """Now and then: what was not acknowledged in time is given again."""
        if not self.unacknowledged:
            return
        wait_s = (self.config.ack_wait or 0) / SECOND or ACK_WAIT_S
        late = self._loop.time() - wait_s
        for number, given in list(self.unacknowledged.items()):
            if given.at <= late:
                del self.unacknowledged[number]
                self._give_again(number, given)
        self.pump_soon()

    def forget(self, client: ClientConnection) -> None:
        """A client has ended: its requests do."""
        for asked in [each for each in self.asked if each.client is client]:
            self._take_off(asked)

    def end(self) -> None:
        """The consumer is deleted: requests for its messages get no answer any more."""
        self.ended = True
        if self._beat is not None:
            self._beat.cancel()
        for asked in list(self.asked):
            self._take_off(asked)

    def info(self) -> dict[str, Any]:
        """What JetStream tells of it."""
        return {
            "stream_name": NAME,
            "name": self.name,
            "created": rfc3339(self.created_ns),
            "config": msgspec.to_builtins(self.config)
            | {
                "deliver_policy": self.config.deliver_policy,
                "ack_policy": self.config.ack_policy,
                "replay_policy": "instant",
            },
            "delivered": {"consumer_seq": self.given, "stream_seq": self.last if self.given else 0},
            "ack_floor": {"consumer_seq": self.floor[0], "stream_seq": self.floor[1]},
            "num_ack_pending": len(self.unacknowledged),
            "num_redelivered": sum(1 for each in self.unacknowledged.values() if each.times > 1),
            "num_waiting": len(self.asked),
            "num_pending": self.pending,
        }


def rfc3339(time_ns: int) -> str:
    """A time as JetStream writes it."""
    seconds, rest = divmod(time_ns, SECOND)
    whole = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return f"{whole:%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def read_time(text: str) -> int | None:
    """Nanoseconds of a time as clients write it; None if it is none."""
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    if found.tzinfo is None:
        found = found.replace(tzinfo=datetime.UTC)
    try:
        since = found - datetime.datetime.fromtimestamp(0, datetime.UTC)
    except (OverflowError, ValueError):
        return None
    return (since.days * 86_400 + since.seconds) * SECOND + since.microseconds * 1000
