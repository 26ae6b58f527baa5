"""Consumers of the stream: where a client is in it, what it was given, and what it has not acknowledged.

A consumer is kept at the node that its client is connected to, and ends with the connection.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ordercast.clients import wire
from ordercast.clients.consumer_config import SECOND, ConsumerConfig, Nak, Pull
from ordercast.clients.flow_control import FlowControl
from ordercast.clients.stream import NAME, Entry, Stream
from ordercast.core.wire import UNREADABLE
from ordercast.errors import LogError, Trimmed

if TYPE_CHECKING:
    from ordercast.clients.connection import ClientConnection

LOG = logging.getLogger("ordercast")

MOST_WAITING = 512
"""Requests for messages that may wait at a consumer."""
MOST_UNACKNOWLEDGED = 1000
"""Messages that may be given and not acknowledged, if the client does not say how many."""
ACK_WAIT_S = 30.0
NAK = b"-NAK"
AGAIN_S = 0.05
"""How soon the log is looked at again for what it does not have yet."""
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
    """The message's number among those given to readers, when it was given first."""
    times: int
    """How often the message was given."""
    at: float
    """When it was given last, or its client said that it works at it."""


class Consumer:
    """A consumer of the stream (JetStream): gives its messages to a client, one after the other."""

    def __init__(
        self,
        name: str,
        config: ConsumerConfig,
        stream: Stream,
        client: ClientConnection,
        start: int,
        failed: Callable[[Consumer], None],
    ) -> None:
        """It begins with the number `start`. `failed` is told that it cannot go on."""
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
        self.unacknowledged: dict[int, _Given] = {}
        """Those that are to be acknowledged, by their number in the stream."""
        self.again: dict[int, None] = {}
        """Those of them that are to be given again, in this order."""
        self.asked: deque[_Asked] = deque()
        self._pending = 0
        """Messages from `next` on, among those up to number `_counted_to`."""
        self._counted_to = 0
        self._counted_from = 0
        self._stream = stream
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._pumping = False
        self._older: deque[Entry] = deque()
        """Messages that were read from the log, and are given next."""
        self._older_to = 0
        """The number behind what was looked at for them."""
        self._older_left = 0
        """About how many messages there were from there on when it was looked, less those given since."""
        self._fetched: dict[int, Entry | None] = {}
        """What was read from the log to be given again; None where it is not kept."""
        self._reading: asyncio.Task[None] | None = None
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
    def _ack_wait_s(self) -> float:
        return (self.config.ack_wait or 0) / SECOND or ACK_WAIT_S

    @property
    def pending(self) -> int:
        """Messages that were not given yet."""
        stream, pattern = self._stream, self.config.filter_subject
        if self._older or self._is_older:
            return max(0, self._older_left)
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
            entry = self._again_entry()
            if entry is None and self._reading is None:
                entry = self._next_entry(pattern)
            if entry is None:
                return
            if not self._give(entry):
                return
        self.pump_soon()

    def _again_entry(self) -> Entry | None:
        """The first that is to be given again; those that the stream does not keep any more are given up."""
        while self.again:
            number = next(iter(self.again))
            entry = self._stream.get(number) or self._fetched.get(number)
            if entry is not None:
                return entry
            if number < self._stream.first and self._stream.older is not None and number not in self._fetched:
                self._read_older(number)
                return None
            self._fetched.pop(number, None)
            del self.again[number], self.unacknowledged[number]
        return None

    def _next_entry(self, pattern: str | None) -> Entry | None:
        """The next that was not given yet; None also while too many are not acknowledged."""
        if len(self.unacknowledged) >= self._most_unacknowledged:
            return None
        if self._older:
            return self._older.popleft()
        if self._is_older:
            self._read_older()
            return None
        entry = next(self._stream.following(self.next, pattern), None)
        if entry is None and self.next <= self._stream.last:
            self._pending = 0
            self._counted_to = self._stream.last
            self.next = self._stream.last + 1
        return entry

    @property
    def _is_older(self) -> bool:
        """Whether what comes next is not in memory any more."""
        return self._stream.older is not None and self._older_from < self._stream.first

    @property
    def _older_from(self) -> int:
        """The number from which on it is to be read from the log."""
        return max(self.next, self._older_to, self._stream.since)

    def _read_older(self, again: int | None = None) -> None:
        """Read what comes next from the log; or that message again."""
        if self._reading is None:
            self._reading = self._loop.create_task(self._read(again))

    async def _read(self, again: int | None) -> None:
        stream, pattern = self._stream, self.config.filter_subject
        assert stream.older is not None, "there are older messages"
        begin = self._older_from if again is None else again
        try:
            found, first, end = await stream.older.read(begin, pattern)
            if again is not None:
                self._fetched[again] = next((each for each in found if each.number == again), None)
            elif self.given and first > begin:
                raise Trimmed(f"messages {begin} to {first - 1} are not kept any more")
            else:
                self._older += found
                self._older_to = end
                self._pending = self._counted_to = self._counted_from = 0
                later = stream.pending(stream.first, pattern)
                self._older_left = stream.older.pending(begin, stream.first, pattern) + later
                if end <= begin < stream.first:
                    await asyncio.sleep(AGAIN_S)  # it is not written yet
        except LogError as error:
            LOG.warning("a client reads from the log, which does not have it: %s", error)
            self._reading = None
            self._failed(self)
        else:
            self._reading = None
            self.pump_soon()

    def _give(self, entry: Entry) -> bool:
        asked = None
        if not self.pushes:
            asked = self.asked[0]
            size = len(entry.headers) + len(entry.body)
            if asked.limited and size > asked.bytes:
                if entry.number < self._stream.first:
                    self._older.appendleft(entry)
                self.end_pull(asked, 409, "Message Size Exceeds MaxBytes")
                return bool(self.asked)
            asked.bytes -= size
        self.given += 1
        times, now = 1, self._loop.time()
        if entry.number in self.again:
            del self.again[entry.number]
            self._fetched.pop(entry.number, None)
            before = self.unacknowledged[entry.number]
            times = before.times + 1
            self.unacknowledged[entry.number] = before._replace(times=times, at=now)
        else:
            if entry.number < self._older_to:
                self._older_left -= 1
            else:
                self._pending = self.pending - 1
            self.next = entry.number + 1
            self.last = entry.number
            if self.config.ack_policy != "none":
                self.unacknowledged[entry.number] = _Given(self.given, times, now)
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
        """A client says what became of a message; late, too, as long as the message was not given again."""
        given = self.unacknowledged.get(number)
        if given is None:
            return
        if word.startswith(b"+WPI"):
            self.unacknowledged[number] = given._replace(at=self._loop.time())
            return
        if word.startswith(NAK):
            delay_s = _delay_s(word)
            if delay_s:
                begun = self._loop.time() - self._ack_wait_s
                self.again.pop(number, None)
                self.unacknowledged[number] = given._replace(at=begun + delay_s)
            else:
                self._give_again(number, given)
        else:
            del self.unacknowledged[number]
            self.again.pop(number, None)
        self.pump_soon()

    def _give_again(self, number: int, given: _Given) -> None:
        most = self.config.max_deliver
        if most is None or most <= 0 or given.times < most:
            self.again[number] = None
        else:
            del self.unacknowledged[number]

    @property
    def floor(self) -> tuple[int, int]:
        """Up to where all is acknowledged: among those given, and in the stream."""
        if not self.unacknowledged:
            return (self.given, self.last) if self.given else (0, 0)
        number = min(self.unacknowledged)
        return self.unacknowledged[number].consumer - 1, number - 1

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
        late = self._loop.time() - self._ack_wait_s
        for number, given in list(self.unacknowledged.items()):
            if given.at <= late and number not in self.again:
                self._give_again(number, given)
        self.pump_soon()

    def forget(self, client: ClientConnection) -> None:
        """A client has ended: its requests do."""
        for asked in [each for each in self.asked if each.client is client]:
            self._take_off(asked)

    def end(self) -> None:
        """The consumer is deleted: requests for its messages get no answer any more."""
        self.ended = True
        if self._reading is not None:
            self._reading.cancel()
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


def _delay_s(word: bytes) -> float:
    """How long a client wants a message not to be given again, which it says behind `NAK` in JSON."""
    try:
        return msgspec.json.decode(word[len(NAK) :], type=Nak).delay / SECOND
    except UNREADABLE:
        return 0.0


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
