"""A node's ordered log, as part of the node: opened, fed, served and closed with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ordercast.core.identity import NodeId
from ordercast.errors import ConfigProblem, StorageProblem
from ordercast.groups.envelope import tag_of
from ordercast.runtime.config import NodeConfig
from ordercast.runtime.connections import Connections
from ordercast.runtime.keys import Keyring

if TYPE_CHECKING:
    from ordercast.groups.producing import Producing
    from ordercast.log.feed import Feed, Final
    from ordercast.log.service import Service
    from ordercast.log.store import Store


class Keeping:
    """The log of a node, if it is to have one."""

    def __init__(self, config: NodeConfig, sealed: bool) -> None:
        self._config = config
        self._place = config.log_place(sealed)
        if config.log is None and config.log_listen is not None:
            raise ConfigProblem(
                "log_listen is given, but there is no log to be read there: name its directory, as in "
                'log = "/var/lib/ordercast-log"'
            )
        self._store: Store | None = None
        self._service: Service | None = None
        self.feed: Feed | None = None
        """What is told of everything that is delivered; None without a log."""

    async def open(self, node: NodeId) -> None:
        """Take the directory. In a thread: it syncs."""
        config = self._config
        if config.log is not None:
            from ordercast.log.store import Store

            opening = asyncio.ensure_future(
                asyncio.to_thread(
                    Store,
                    config.log,
                    node,
                    tag_of,
                    most_bytes=config.log_bytes,
                    most_age_s=config.log_age,
                    sync=config.log_sync,
                )
            )
            try:
                self._store = await asyncio.shield(opening)
            except asyncio.CancelledError:
                opening.add_done_callback(_close_opened)
                raise

    def begin(
        self, final: Callable[[], Final], brake: Callable[[], None], failed: Callable[[StorageProblem], None]
    ) -> None:
        """From now on deliveries are told."""
        if self._store is not None:
            from ordercast.log.feed import Feed

            self.feed = Feed(self._store, final, brake, failed)
            self.feed.start()

    async def serve(
        self, keyring: Callable[[], Keyring | None], producing: Producing, connections: Connections
    ) -> None:
        """Let others read it, and write into groups; their connections are counted in `connections`."""
        if self._store is not None and self.feed is not None:
            from ordercast.log.service import Service

            self._service = Service(self._store.path, keyring, {"produce": producing.serve}, connections)
            producing.remember(self._store.notes(), self.feed.note)
            producing.kept = self.feed.kept
            await self._service.start(*self._place)

    def rekeyed(self) -> None:
        """The keys of the group have changed."""
        if self._service is not None:
            self._service.rekeyed()

    def life_over(self) -> None:
        """The machine has ended a life, and another one follows."""
        if self.feed is not None:
            self.feed.life_over()

    async def close(self) -> None:
        """Write what is final, and let go of everything."""
        service, self._service = self._service, None
        if service is not None:
            await service.close()
        feed, self.feed = self.feed, None
        if feed is not None:
            await feed.close()
        elif self._store is not None:
            self._store.close()
        self._store = None

    @property
    def braking(self) -> bool:
        """Whether the disk does not keep up."""
        return self.feed is not None and self.feed.braking

    def status(self) -> dict[str, Any] | None:
        """How the log is doing."""
        store, service = self._store, self._service
        if store is None:
            return None
        meta, oldest = store.meta, store.oldest
        return {
            "directory": str(store.path),
            "address": None if service is None else service.address,
            "entries": meta.entries,
            "bytes": meta.bytes,
            "oldest": None if oldest is None else str(oldest),
            "head": None if meta.head is None else str(meta.head),
            "clients": 0 if service is None else service.connections,
            "drops": {} if service is None else dict(sorted(service.drops.items())),
            "braking": self.braking,
        }


def _close_opened(opening: asyncio.Future[Store]) -> None:
    """Nobody waits for it any more."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
