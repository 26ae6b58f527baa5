"""What a node does once a second: rates, notices for the log, readers, refusals by others, the key file."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from ordercast.core.wire import DROPS as WIRE_DROPS
from ordercast.errors import KeyProblem
from ordercast.keys import Keyring
from ordercast.runtime.notices import Notices
from ordercast.transport.drops import DROPS as TRANSPORT_DROPS

if TYPE_CHECKING:
    from ordercast.groups.member import Member

LOG = logging.getLogger("ordercast")

INTERVAL_S = 1.0


class Upkeep:
    """Looks after a node until it ends."""

    def __init__(self, member: Member, key_file: Path | None) -> None:
        self._member = member
        self._key_file = key_file
        self._stamp = _stamp(key_file)
        self._notices = Notices(
            asyncio.get_running_loop().time(),
            (*WIRE_DROPS, *TRANSPORT_DROPS, *member.protocol.drops),
        )
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """From now on."""
        self._task = asyncio.create_task(self._run(), name="ordercast")

    def close(self) -> None:
        """No longer."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        driver, loop = self._member.driver, asyncio.get_running_loop()
        while not driver.ended:
            before = loop.time()
            await asyncio.sleep(INTERVAL_S)
            # a process that was stopped, or whose event loop was busy, could not read meanwhile
            await self._look(min(loop.time() - before, 2 * INTERVAL_S))

    async def _look(self, elapsed_s: float) -> None:
        member = self._member
        member.rates.note(member.driver, member.session)
        for level, sentence in self._notices.look(asyncio.get_running_loop().time(), member.status()):
            LOG.log(level, "%s", sentence)
        member.session.look_at_readers(elapsed_s, member.config.evict_after)
        if member.log.feed is not None:
            member.log.feed.look(elapsed_s)
        refusal = member.transport.take_refusal()
        if refusal is not None:
            member.driver.leave_at_once(refusal)
        if member.known_lives.changed and member.config.data is not None:
            await asyncio.to_thread(member.known_lives.save, member.config.data)
        self._look_at_key_file()

    def _look_at_key_file(self) -> None:
        stamp = _stamp(self._key_file)
        if stamp == self._stamp or self._key_file is None:
            return
        self._stamp = stamp
        try:
            self._member.keyring = keyring = Keyring.load(self._key_file)
            self._member.transport.rekey(keyring)
            self._member.log.rekeyed()
            LOG.info("the group key was changed: %s", self._key_file)
        except KeyProblem as error:
            LOG.error("the changed key file is not used: %s", error)


def _stamp(key_file: Path | None) -> tuple[int, int] | None:
    """Changes when the key file does."""
    if key_file is None:
        return None
    try:
        found = key_file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
