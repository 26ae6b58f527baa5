"""A node's ordered log, as part of the node: opened, fed, served and closed with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ordercast.core.identity import NodeId
from ordercast.errors import ConfigProblem, StorageProblem
from ordercast.extras import need
from ordercast.keys import Keyring
from ordercast.process_groups.views import Recounted
from ordercast.runtime.config import NodeConfig
from ordercast.runtime.connections import Connections
from ordercast.transport.address import format_address

if TYPE_CHECKING:
    from ordercast.clients.stream import Stream
    from ordercast.groups.client_stream import KeptStream
    from ordercast.groups.log_scrubber import LogScrubber
    from ordercast.groups.logged_stream import LoggedStream
    from ordercast.groups.producing import Producing
    from ordercast.log.feed import Feed, Final
    from ordercast.log.position import Position
    from ordercast.log.service import Service
    from ordercast.log.store import Store
LOG = logging.getLogger("ordercast")


class NodeLog:
    """The log of a node, if it is to have one."""

    def __init__(self, config: NodeConfig, sealed: bool, now_us: Callable[[], int]) -> None:
        """`now_us` is the node's clock: microseconds since the epoch."""
        self._config = config
        self._now_us = now_us
        self._place = config.log_place(sealed)
        if config.log is None and config.log_listen is not None:
            raise ConfigProblem(
                "log_listen is given, but there is no log to be read there: name its directory, as in "
                'log = "/var/lib/ordercast-log"'
            )
        self._store: Store | None = None
        self._service: Service | None = None
        self._scrubber: LogScrubber | None = None
        self._scrubbing: asyncio.Task[None] | None = None
        self._stream: Stream | None = None
        self._kept_stream: KeptStream | None = None
        self._logged: LoggedStream | None = None
        self._keyring: Callable[[], Keyring | None] = lambda: None
        self._hosts: Callable[[], Sequence[str]] | None = None
        self.counted = 0
        """Messages of the order that there were in earlier lives, as far as the log remembers."""
        self.feed: Feed | None = None
        """What is told of everything that is delivered; None without a log."""

    @property
    def _mark(self) -> Path | None:
        """Where the data directory remembers how far the log was."""
        return None if self._config.data is None else self._config.data / "log-mark.json"

    async def open(self, node: NodeId) -> None:
        """Take the directory. In a thread: it syncs."""
        config = self._config
        if config.log is not None:
            need("log", f"log = {config.log}")
            from ordercast.groups.log_scrubber import read_mark
            from ordercast.log.store import Store

            commits = 0 if self._mark is None else read_mark(self._mark, config.log)
            opening = asyncio.ensure_future(
                asyncio.to_thread(
                    Store,
                    config.log,
                    node,
                    most_bytes=config.log_bytes,
                    most_age_s=config.log_age,
                    sync=config.log_sync,
                    commits=commits,
                )
            )
            try:
                self._store = await asyncio.shield(opening)
            except asyncio.CancelledError:
                opening.add_done_callback(_close_opened)
                raise
            if config.client_stream:
                await self._open_stream(self._store)

    async def _open_stream(self, store: Store) -> None:
        from ordercast.groups.client_stream import KeptStream, OlderInLog, reopened
        from ordercast.groups.logged_stream import LoggedStream

        config = self._config
        kept = self._kept_stream = KeptStream(store.notes(), self._note)
        self.counted = kept.counted
        logged = self._logged = await asyncio.to_thread(
            LoggedStream, store.path, lambda: kept.recounts, config.client_stream
        )
        self._stream = await asyncio.to_thread(
            reopened,
            logged,
            kept,
            config.client_stream,
            config.client_stream_bytes,
            lambda: self._now_us() * 1000,
        )
        self._stream.older = OlderInLog(logged, kept)

    @property
    def stream(self) -> Stream | None:
        """What clients read; None if they do not."""
        return self._stream

    def reached(self, number: int) -> None:
        """The last message that was delivered has this number among all of the order."""
        if self._kept_stream is not None:
            self._kept_stream.reached(number)

    def recounted(self, recounted: Recounted) -> None:
        """Messages of a configuration are counted anew."""
        if self._kept_stream is not None:
            self._kept_stream.recounted(recounted)

    def _note(self, notes: Mapping[bytes, bytes | None]) -> None:
        if self.feed is not None:
            self.feed.note(notes)

    async def kept(self) -> None:
        """Wait until everything that was delivered so far is on the disk."""
        if self.feed is not None:
            await self.feed.kept()

    def begin(
        self, final: Callable[[], Final], brake: Callable[[], None], failed: Callable[[StorageProblem], None]
    ) -> None:
        """Begin to take deliveries."""
        if self._store is not None:
            from ordercast.log.feed import Feed

            config = self._config
            known = config.log_repair or config.log_listen is not None
            # the numbers of a stream of clients follow from what this node has delivered itself
            catch_up = self._catch_up if known and not config.client_stream else None
            self.feed = Feed(self._store, final, brake, failed, self._now_us, catch_up)
            self.feed.start()

    def _catch_up(self, first: Position, stop: Callable[[], bool]) -> bool:
        """Get what the log missed before a position from the logs of the others. In a thread."""
        from ordercast.log.catching_up import catch_up

        def others() -> Sequence[tuple[str, Keyring | None]]:
            return [(where, self._keyring()) for where in self._others()]

        assert self._store is not None
        head, began = self._store.head, self._store.meta.entries
        reasons = catch_up(self._store, first, others, stop)
        count = self._store.meta.entries - began
        if reasons:
            LOG.info("what was delivered after %s is not in the log: %s", head, "; ".join(reasons))
        elif count:
            LOG.info("%d entries that were delivered while this node was away are in its log now", count)
        return not reasons

    def _others(self) -> Sequence[str]:
        """Where the logs of other nodes are read; nowhere until this node's is served."""
        if self._hosts is None:
            return ()
        if self._config.log_repair or self._config.log_listen is None:
            return self._config.log_repair
        return [format_address(host, self._place[1]) for host in self._hosts()]

    async def serve(
        self,
        keyring: Callable[[], Keyring | None],
        producing: Producing,
        connections: Connections,
        hosts: Callable[[], Sequence[str]],
    ) -> None:
        """Let others read it, and write into groups; their connections are counted in `connections`.

        `hosts`: those of the other nodes, from whose logs this one is repaired.
        """
        if self._store is not None and self.feed is not None:
            from ordercast.log.service import Service

            handlers = {"produce": producing.serve, "commit": producing.commit}
            self._service = Service(
                self._store.path,
                keyring,
                handlers,
                connections,
            )
            producing.use_log(self._store.notes(), self.feed.note, self.feed.kept)
            await self._service.start(*self._place)
            self._keyring, self._hosts = keyring, hosts
            self._start_scrubber(self._store, self._service)

    def _start_scrubber(self, store: Store, service: Service) -> None:
        from ordercast.groups.log_scrubber import LogScrubber

        def damage_met() -> int:
            return service.damage_met + (0 if self._logged is None else self._logged.damage_met)

        self._scrubber = LogScrubber(store, self._mark, self._others, self._keyring, damage_met)
        self._scrubbing = asyncio.create_task(self._scrubber.run(), name="ordercast-log-scrubber")

    def rekeyed(self) -> None:
        """The keys of the group have changed."""
        if self._service is not None:
            self._service.rekeyed()

    def look(self, elapsed_s: float) -> None:
        """Called about once a second, with the seconds since the last time."""
        if self.feed is not None:
            self.feed.look(elapsed_s)

    def life_over(self) -> None:
        """The machine has ended a life, and another one follows."""
        if self.feed is not None:
            self.feed.life_over()
        if self._kept_stream is not None:
            self._kept_stream.life_over()

    async def close(self) -> None:
        """Write what is final, and let go of everything."""
        scrubbing, self._scrubbing = self._scrubbing, None
        if scrubbing is not None:
            scrubbing.cancel()
            await asyncio.gather(scrubbing, return_exceptions=True)
        service, self._service = self._service, None
        if service is not None:
            await service.close()
        feed, self.feed = self.feed, None
        if feed is not None:
            try:
                await feed.close()
            finally:
                if self._scrubber is not None:
                    self._scrubber.note()
        elif self._store is not None:
            self._store.close()
        self._store = None
        if self._logged is not None:
            self._logged.close()

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
            "damaged": [] if self._scrubber is None else self._scrubber.damaged,
        }


def _close_opened(opening: asyncio.Future[Store]) -> None:
    """Nobody waits for it any more."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
