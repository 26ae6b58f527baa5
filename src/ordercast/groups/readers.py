"""All readers of a node: who reads which group, and which of them do not keep up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from ordercast.groups.events import ConfigurationChange, PrimaryLost, PrimaryRegained
from ordercast.groups.processes import Processes
from ordercast.groups.reader import Inbox, Reader, ReceiveBuffer

LOG = logging.getLogger("ordercast")


class Readers:
    """The readers of a node, over all lives that it has in one process."""

    def __init__(
        self,
        processes: Processes,
        limit: int,
        slow_changed: Callable[[], None],
        *,
        send_buffer: int = 0,
    ) -> None:
        """`limit` and `send_buffer` are those of `ReceiveBuffer`; `slow_changed` is called when `slow_groups`
        may have changed."""
        self.processes = processes
        self.buffer = ReceiveBuffer(processes, limit, send_buffer)
        self.slow_changed = slow_changed
        self._readers: dict[Reader, None] = {}
        self._leaving: dict[Reader, None] = {}
        """Those that are still members, and receive nothing."""

    @property
    def configuration(self) -> ConfigurationChange | None:
        """The one installed last; that of the life before, until the new one has its first."""
        return self.processes.configuration

    @property
    def placed(self) -> bool:
        """Whether this life of the node has installed a configuration."""
        return self.processes.placed

    @property
    def unread(self) -> int:
        """Bytes that wait to be read, in all groups."""
        return self.buffer.unread

    @property
    def delivered_bytes(self) -> int:
        """Bytes of all messages that were delivered to readers so far."""
        return self.buffer.delivered_bytes

    # --- readers --------------------------------------------------------------------------------

    def open(self, group: str, properties: Mapping[str, str] | None = None) -> Reader:
        """Join a group, and keep its messages for a reader from there on."""
        reader = Reader(self, group, properties)
        self._readers[reader] = None
        return reader

    def close(self, reader: Reader) -> None:
        """Nobody reads this any more; it is still a member."""
        if self._readers.pop(reader, self) is None:
            reader.inbox.clear()
            reader.inbox.end(None)
            self._leaving[reader] = None

    def has_left(self, reader: Reader) -> None:
        """A reader that nobody reads is no member any more."""
        self._leaving.pop(reader, None)

    # --- readers that do not keep up ------------------------------------------------------------

    @property
    def slow_groups(self) -> tuple[str, ...]:
        """The groups that are to be slowed down because a reader here does not keep up."""
        return tuple(sorted({inbox.group for inbox in self._inboxes() if inbox.slows}))

    def unread_by_group(self) -> dict[str, int]:
        """Bytes that wait to be read, in each group of which some do."""
        sizes: dict[str, int] = {}
        for inbox in self._inboxes():
            if inbox.unread:
                sizes[inbox.group] = sizes.get(inbox.group, 0) + inbox.unread
        return sizes

    def look_at_readers(self, seconds: float, evict_after: float) -> None:
        """So much time has passed: drop the readers that are in everybody's way and stand still."""
        for reader in tuple(self._readers):
            if reader.inbox.stand_still(seconds, evict_after):
                because = f"it had read nothing for {evict_after:g} s, and the group waited for it"
                self.evict(reader, because, "raise evict_after or receive_buffer")

    def evict(self, reader: Reader, because: str, advice: str) -> None:
        """A reader gets an error behind what it has, and is a member no more."""
        self._readers.pop(reader, None)
        LOG.warning("%s", reader.inbox.evict(because, advice))
        reader.life_over()
        reader.process.end()

    # --- lives ----------------------------------------------------------------------------------

    def end(self, error: BaseException | None, lost: BaseException) -> None:
        """The node's life is over: readers get `error`, if there is one, behind what they have, and whoever
        waits to join gets `lost`."""
        for reader in self._readers:
            reader.inbox.end(error)
            reader.fail_joining(lost)
        self.life_over()

    def life_over(self) -> None:
        """The machine ended a life, and perhaps another follows."""
        for reader in (*self._readers, *self._leaving):
            reader.life_over()

    def primary(self, event: PrimaryLost | PrimaryRegained, lost: BaseException | None) -> None:
        """The primary partition is lost, and whoever waits to join gets `lost`; or it is regained."""
        for reader in tuple(self._readers):
            reader.put(event)
            if lost is not None:
                reader.fail_joining(lost)

    def _inboxes(self) -> Iterable[Inbox]:
        return [reader.inbox for reader in self._readers]
