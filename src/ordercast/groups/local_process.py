"""A process at this node, as whoever it belongs to uses it: it joins groups, leaves them, and sends.

It outlives the life of the node that it began in: it begins anew in the next one, under another number, and
joins its groups again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ordercast.core.addresses import MOST_GROUPS, address
from ordercast.core.fronted import bytes_of, put_in_front
from ordercast.core.identity import Guarantee
from ordercast.errors import ConfigProblem, MessageTooLarge
from ordercast.process_groups.notes import check_name, head
from ordercast.process_groups.views import Properties

if TYPE_CHECKING:
    from ordercast.groups.processes import Processes

CHUNK = 64 * 1024
"""Bytes of many messages that are handed over at a time: between them others may send."""
ADDRESSES = 1024
"""How many lists of groups that it sent to a process remembers."""


def check_group(group: str) -> None:
    """Raise what is wrong with a group's name."""
    if not isinstance(group, str):
        raise TypeError(f'a group\'s name is a text, not {type(group).__name__}: write join("orders")')
    try:
        check_name(group)
        address(0, (group,))
    except ValueError as error:
        raise ConfigProblem(str(error)) from None


def check_groups(groups: Sequence[str]) -> tuple[str, ...]:
    """The groups that a message is for; raises what is wrong with them."""
    if isinstance(groups, str):
        raise TypeError(f"the groups of a message are a list, not {groups!r}: write [{groups!r}]")
    if not 0 < len(set(groups)) == len(groups) <= MOST_GROUPS:
        raise ConfigProblem(
            f"a message is for 1 to {MOST_GROUPS} different groups, not for {len(groups)}: name each once"
        )
    for group in groups:
        check_group(group)
    return tuple(groups)


def too_large(size: int, most: int) -> MessageTooLarge:
    """What whoever sends so large a message is told."""
    return MessageTooLarge(
        f"a message of {size:,} bytes is too large: at most {most:,} fit here; split it, or raise "
        "max_message_size at every node"
    )


class LocalProcess:
    """A process at this node, which may be in any number of groups, and send to any."""

    def __init__(self, processes: Processes, number: int) -> None:
        self.number = number
        """Which process of the node's life it is; 0 sends from outside all groups, and is in none."""
        self.wanted: dict[str, Properties] = {}
        """The groups that it has joined or asked to join, and what it says of itself there."""
        self._processes = processes
        self._gate = processes.gate
        self._fronts: dict[tuple[str, ...], bytes] = {}
        self._headed_fronts: dict[tuple[str, ...], bytes] = {}

    def begin_anew(self, number: int) -> None:
        """Another life of the node begins, in which the process has this number; 0: it has ended."""
        self.number = number
        self._fronts.clear()
        self._headed_fronts.clear()

    # --- groups ---------------------------------------------------------------------------------

    def join(self, group: str, properties: Mapping[str, str] | None = None) -> None:
        """Ask to be in a group, or to have a subscription (`ordercast.core.subjects`); the listener is told
        by its first view. Between two lives of the node it is asked in the next."""
        self._processes.join(self, group, dict(properties or {}))

    def leave(self, group: str) -> None:
        """Ask to be in a group no longer; the listener is told when it has left."""
        self._processes.leave(self, group)

    def end(self) -> None:
        """Leave all groups, and be told nothing more. What it sends afterwards comes from outside."""
        self._processes.end_process(self)

    # --- sending --------------------------------------------------------------------------------

    def front(self, groups: tuple[str, ...], *, headed: bool = False) -> bytes:
        """What stands in front of a message from this process to these groups, sent now; or of one with a
        head."""
        fronts = self._headed_fronts if headed else self._fronts
        front = fronts.get(groups)
        if front is None:
            check_groups(groups)
            if len(fronts) >= ADDRESSES:
                fronts.clear()
            front = fronts[groups] = address(self.number, groups, headed=headed, stamped=b"")
        return front + self._gate().stamp()

    def try_send(
        self,
        groups: tuple[str, ...],
        payloads: Sequence[bytes],
        guarantee: Guarantee,
        *,
        heads: Sequence[bytes] | None = None,
    ) -> int | None:
        """Send messages at once, as `send` does; the number of the last, or None if they have to wait."""
        gate = self._gate()
        if gate.must_wait(groups):
            gate.check_majority()
            return None
        front = self.front(groups, headed=heads is not None)
        if heads is not None:
            payloads = [head(words) + payload for words, payload in zip(heads, payloads, strict=True)]
        longest = max(map(len, payloads))
        if longest + len(front) > gate.largest:
            raise too_large(longest, gate.largest - len(front))
        size = sum(map(len, payloads)) + len(front) * len(payloads)
        return gate.submit([front + payload for payload in payloads], size, guarantee) + len(payloads) - 1

    async def send(
        self,
        groups: Sequence[str],
        payloads: Sequence[bytes],
        guarantee: Guarantee = Guarantee.AGREED,
        timeout: float | None = None,
        *,
        heads: Sequence[bytes] | None = None,
    ) -> int:
        """Send messages to all who are in any of the groups, in order; the number of the first.

        Waits for slow readers of the groups and for room, `timeout` seconds at most for each 64 KiB.
        `heads`: what is said of each beside the message itself.
        """
        groups = groups if isinstance(groups, tuple) else check_groups(groups)
        headed = heads is not None
        if heads is not None:
            payloads = [head(words) + payload for words, payload in zip(heads, payloads, strict=True)]
        gate, front = self._gate(), self.front(groups, headed=headed)
        longest = max(map(len, payloads))
        if longest + len(front) > gate.largest:
            raise too_large(longest, gate.largest - len(front))
        step = max(1, CHUNK // (longest + len(front)))
        first = 0
        for start in range(0, len(payloads), step):
            some = payloads[start : start + step]
            messages = put_in_front(front, some)
            if gate.must_wait(groups):
                await gate.wait(groups, bytes_of(messages), timeout)
                front = self.front(groups, headed=headed)  # later, and there may be another life since
                messages = put_in_front(front, some)
            number = gate.submit(messages, bytes_of(messages), guarantee)
            first = first or number
        return first
