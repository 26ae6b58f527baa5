"""What a driver saw at one node, as rows of the trace.

One recorder per node, for all of its lives: the simulated world and the real runtime both hold one
and tell it what they did. Rows are plain tuples in the order of `ordercast.trace.schema.Row`, appended
to a list the driver owns (shared by all nodes of a simulation), and written from there in batches.

Rules:

- ``step`` rises over the node's rows in all its lives and never repeats: in a simulation it counts them, and
  a real node, which does not know how many rows its earlier lives made, begins each life at a step of its
  own (`begin_life`);
- ``time_us`` is virtual time in a simulation, and microseconds since the epoch in a real run;
- the ``config_*`` columns name the configuration the node installed last *in this life*; they are null
  before the first;
- a `Batch` becomes one row a message: message ``i`` has number ``number + i`` and slot ``slot + i``; an
  origination without a place yet (``Batch.seq`` 0) has null ``seq`` and ``slot``;
- ``timestamp`` and ``ring`` are those of the batch, null where it has none (0);
- ``checksum`` is that of the payload, null where its contents were withheld from the node;
- a message's rows at one node come in the order in which the driver carried out the effects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias
from zlib import crc32

from ordercast.core.addresses import is_withheld_front
from ordercast.core.identity import Batch, Configuration, Ended, Guarantee, Kind, NodeId
from ordercast.trace.schema import Row

_WORD: dict[str, str] = {word: str(word.value) for word in (*Guarantee, *Kind)}
"""Plain strings for the rows: an enum member would cost its readers more than a look-up here."""

STEPS_OF_A_LIFE = 2**32
"""Real nodes begin life ``i`` at step ``i`` times this. A life of more rows would run into the next."""

Describe: TypeAlias = Callable[[bytes], tuple[str | None, int]]
"""From a payload: the group it is addressed to, and the size of the application's message in it."""

GroupColumns: TypeAlias = tuple[
    int | None, int | None, int | None, int | None, int | None, int | None, int | None, str | None
]
"""The columns ``origin`` to ``guarantee``."""

_NO_MESSAGE = (None, None, None, None, None, None, None, None, None)
"""The columns ``origin`` to ``group`` where no message is concerned."""

_NO_CHANGE = (None, None, None)
"""The columns ``ended_config_seq`` to ``ended_place`` where no configuration ends."""

_NO_BIRTH = (None, None)
"""The columns ``timestamp`` and ``ring`` where no message has them."""

_NOTHING = (*_NO_CHANGE, *_NO_BIRTH, None)


def _checksum(payload: bytes) -> int | None:
    return None if is_withheld_front(payload) else crc32(payload)


def no_kind(data: bytes) -> str | None:
    """The kind of a packet, where nobody knows."""
    return None


class Recorder:
    """Turns what happened at one node into rows.

    `_message_rows` is the hottest code of a simulation beside the machine itself: a row for each message at
    each node.
    """

    __slots__ = (
        "_describe",
        "_kind",
        "_kind_of",
        "_rep",
        "_rows",
        "_seq",
        "_step",
        "incarnation",
        "node",
        "packets",
    )

    def __init__(
        self,
        node: NodeId,
        rows: list[Row],
        packets: bool = False,
        kind_of: Callable[[bytes], str | None] = no_kind,
        describe: Describe | None = None,
    ) -> None:
        """Record `node` into `rows`; with `packets`, packet events too.

        `kind_of` names a packet's kind for the ``packet`` column (the protocol knows, we do not).
        `describe` reads ``group`` and ``size`` off a payload (the groups' layer knows); without it there
        is no group, and the size is the payload's.
        """
        self.node = node
        self.incarnation = 0
        self.packets = packets
        self._rows = rows
        self._kind_of = kind_of
        self._describe = describe
        self._step = 0
        self._seq: int | None = None
        self._rep: int | None = None
        self._kind: str | None = None

    @property
    def steps(self) -> int:
        """The step of the next row: in a simulation, how many rows this node has made."""
        return self._step

    # --- messages ------------------------------------------------------------------------------

    def submit(self, now_us: int, payloads: Sequence[bytes], guarantee: Guarantee, number: int) -> None:
        """The application's messages were accepted (`Submit`, answered by `Accept`)."""
        node, life, rows = self.node, self.incarnation, self._rows
        config = (self._seq, self._rep, self._kind)
        word = _WORD.get(guarantee, guarantee)
        step = self._step
        describe = self._describe
        for payload in payloads:
            group, size = (None, len(payload)) if describe is None else describe(payload)
            message = (node, life, number, None, None, None, None, word, group, size, None)
            rows.append((node, life, step, now_us, "submit", *config, None, *message, *_NOTHING))
            step += 1
            number += 1
        self._step = step

    def stable(self, now_us: int, batches: Iterable[Batch]) -> None:
        """Every member of the configuration is known to have these messages."""
        self._message_rows("stable", now_us, batches)

    def deliver(self, now_us: int, batch: Batch) -> None:
        """The messages reached the application."""
        self._message_rows("deliver", now_us, (batch,))

    def originate(self, now_us: int, batch: Batch) -> None:
        """The node's own messages were broadcast for the first time.

        Where somebody else is going to give them their place (`Batch.seq` 0), the rows have none.
        """
        if batch.seq:
            self._message_rows("originate", now_us, (batch,))
        else:
            self._unplaced_rows(now_us, batch)

    def _message_rows(self, event: str, now_us: int, batches: Iterable[Batch]) -> None:
        if self._describe is not None:
            self._described_rows(event, now_us, batches, self._describe)
            return
        # `Any`: one object in all the rows, where the compiled build would make one for each row of an `int`.
        node: Any = self.node
        mine: Any = self.incarnation
        now: Any = now_us
        config_seq: Any
        config_rep: Any
        seq: Any
        origin: Any
        life: Any
        rows, step = self._rows, self._step
        here_seq, here_rep, here_kind = self._seq, self._rep, self._kind
        stable = event == "stable"
        for batch in batches:
            (config_seq, config_rep), seq, slot, origin, life, number, guarantee, payloads, time, net = batch
            word = _WORD.get(guarantee, guarantee)
            timestamp, ring = time or None, net or None
            for payload in payloads:
                rows.append(
                    (
                        node,
                        mine,
                        step,
                        now,
                        event,
                        here_seq,
                        here_rep,
                        here_kind,
                        None,
                        origin,
                        life,
                        number,
                        config_seq,
                        config_rep,
                        seq,
                        slot,
                        word,
                        None,
                        len(payload),
                        None,
                        None,
                        None,
                        None,
                        timestamp,
                        ring,
                        None if stable else _checksum(payload),
                    )
                )
                step += 1
                number += 1
                slot += 1
        self._step = step

    def _described_rows(self, event: str, now_us: int, batches: Iterable[Batch], describe: Describe) -> None:
        node, mine, rows, step = self.node, self.incarnation, self._rows, self._step
        here = (self._seq, self._rep, self._kind, None)
        stable = event == "stable"
        for batch in batches:
            (config_seq, config_rep), seq, slot, origin, life, number, guarantee, payloads, time, net = batch
            word = _WORD.get(guarantee, guarantee)
            rest = (None, *_NO_CHANGE, time or None, net or None)
            for payload in payloads:
                place = (origin, life, number, config_seq, config_rep, seq, slot, word)
                carried = describe(payload)
                checksum = None if stable else _checksum(payload)
                rows.append((node, mine, step, now_us, event, *here, *place, *carried, *rest, checksum))
                step += 1
                number += 1
                slot += 1
        self._step = step

    def _unplaced_rows(self, now_us: int, batch: Batch) -> None:
        node, mine, rows, step = self.node, self.incarnation, self._rows, self._step
        describe = self._describe
        here = (self._seq, self._rep, self._kind, None)
        (config_seq, config_rep), _, _, origin, life, number, guarantee, payloads, _, _ = batch
        word = _WORD.get(guarantee, guarantee)
        rest = (None, *_NO_CHANGE, *_NO_BIRTH)
        for payload in payloads:
            place = (origin, life, number, config_seq, config_rep, None, None, word)
            carried = (None, len(payload)) if describe is None else describe(payload)
            rows.append(
                (node, mine, step, now_us, "originate", *here, *place, *carried, *rest, crc32(payload))
            )
            step += 1
            number += 1
        self._step = step

    # --- configurations and lives --------------------------------------------------------------

    def install(self, now_us: int, configuration: Configuration, ended: Ended | None = None) -> None:
        """The application was told of a configuration; what follows at this node belongs to it."""
        (self._seq, self._rep), kind, members = configuration
        self._kind = _WORD.get(kind, kind)
        before = _NO_CHANGE if ended is None else (*ended.configuration, ended.place)
        self._plain_row(now_us, "install", members, before)

    def crash(self, now_us: int) -> None:
        """The node's life ended from outside."""
        self._plain_row(now_us, "crash")

    def halt(self, now_us: int) -> None:
        """The machine ended its own life (`Halt`)."""
        self._plain_row(now_us, "halt")

    def restart(self, now_us: int, incarnation: int) -> None:
        """The node begins another life. Its first one, incarnation 0, begins without a row."""
        self.incarnation = incarnation
        self._seq = self._rep = self._kind = None
        self._plain_row(now_us, "restart")

    def begin_life(self, now_us: int, incarnation: int, *, crashed: bool = False) -> None:
        """A life of a real node begins, `now_us` in microseconds since the epoch.

        With `crashed` the life before is known, and ended without `halt`: it gets its ``crash`` row here,
        as the last of its steps, since it could not write one itself. The time is when that was found
        out, and its configuration is not known any more. Incarnation 0 follows nothing.
        """
        first = incarnation * STEPS_OF_A_LIFE
        if crashed:
            if not incarnation:
                raise ValueError("incarnation 0 is a node's first life: there was none before it to crash")
            self.incarnation = incarnation - 1
            self._seq = self._rep = self._kind = None
            self._step = first - 1
            self.crash(now_us)
        self._step = first
        if incarnation:
            self.restart(now_us, incarnation)

    def _plain_row(
        self,
        now_us: int,
        event: str,
        members: tuple[int, ...] | None = None,
        ended: tuple[int | None, int | None, int | None] = _NO_CHANGE,
    ) -> None:
        step = self._step
        self._step = step + 1
        place = (self.node, self.incarnation, step, now_us, event, self._seq, self._rep, self._kind)
        self._rows.append((*place, members, *_NO_MESSAGE, None, None, *ended, *_NO_BIRTH, None))

    # --- processes -----------------------------------------------------------------------------

    def describe_with(self, describe: Describe) -> None:
        """From here on ``group`` and ``size`` are read off payloads."""
        self._describe = describe

    def group_event(
        self,
        now_us: int,
        event: str,
        members: tuple[int, ...] | None,
        message: GroupColumns,
        group: str | None,
        size: int | None,
        words: str | None,
    ) -> None:
        """One of `schema.GROUP_EVENTS`; `message` is the columns ``origin`` to ``guarantee``."""
        step = self._step
        self._step = step + 1
        place = (self.node, self.incarnation, step, now_us, event, self._seq, self._rep, self._kind)
        self._rows.append((*place, members, *message, group, size, words, *_NOTHING))

    # --- packets -------------------------------------------------------------------------------

    def packet(self, now_us: int, event: str, data: bytes) -> None:
        """A packet was `packet_sent`, `packet_received` or `packet_dropped`, if packets are traced."""
        if not self.packets:
            return
        step = self._step
        self._step = step + 1
        place = (self.node, self.incarnation, step, now_us, event, self._seq, self._rep, self._kind)
        self._rows.append((*place, None, *_NO_MESSAGE, len(data), self._kind_of(data), *_NOTHING))
