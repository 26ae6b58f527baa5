"""What a node serves beside its group: `ordercast status`, Prometheus, and its log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ordercast.core.declared import Statistic
from ordercast.core.identity import NodeId
from ordercast.errors import ConfigProblem
from ordercast.groups.node_log import NodeLog
from ordercast.groups.processes import Processes
from ordercast.groups.producing import Producing
from ordercast.keys import Keyring
from ordercast.replicated.replicas import Replicas
from ordercast.runtime.config import NodeConfig
from ordercast.runtime.connections import Connections, allowance
from ordercast.runtime.control import SOCKET, Control

if TYPE_CHECKING:
    from ordercast.clients.buckets.bucket import Bucket
    from ordercast.clients.server import ClientServer
    from ordercast.runtime.client_listener import Listen
    from ordercast.runtime.metrics import Metrics


class Services:
    """The connections that others make to a node."""

    def __init__(
        self, config: NodeConfig, statistics: Sequence[Statistic], log: NodeLog, listen: Listen
    ) -> None:
        """`statistics` are those that the protocol's machine has; `listen` is how clients connect."""
        self._config = config
        self._listen = listen
        self._statistics = statistics
        self._log = log
        clients = 0 if config.clients is None else config.client_connections
        serves = config.log is not None or config.metrics is not None
        self.connections = Connections(allowance(serves, clients))
        self.clients: ClientServer | None = None
        """Serves processes that are no members; None if nobody does."""
        self._control: Control | None = None
        self._metrics: Metrics | None = None

    async def start(
        self,
        status: Callable[[], dict[str, Any]],
        keyring: Callable[[], Keyring | None],
        producing: Producing,
        hosts: Callable[[], Sequence[str]],
        node: NodeId,
        processes: Processes,
        objects: Replicas | None,
    ) -> None:
        """Serve from now on. `status` makes the document, `hosts` are those of the other nodes; `objects`, if
        there is one partition that goes on, has the buckets of clients."""
        await self._log.serve(keyring, producing, self.connections, hosts)
        if self._config.metrics is not None:
            from ordercast.runtime.metrics import Metrics

            self._metrics = Metrics(self._config.metrics, status, self._statistics, self.connections)
            await self._metrics.start()
        if self._config.data is not None:
            self._control = Control(self._config.data / SOCKET, status)
            await self._control.start()

        if self._config.clients is not None:
            from ordercast.clients.server import ClientServer

            self.clients = ClientServer(
                self._config, node, processes, status, self._log.stream, self._log, objects, self._listen
            )
            processes.watcher = self.clients
            await self.clients.start()

    async def bucket(self, name: str, history: int) -> Bucket:
        """The key-value bucket of a name. Raises `ConfigProblem` where there are none."""
        buckets = None if self.clients is None else self.clients.buckets
        if buckets is None:
            raise ConfigProblem(
                "buckets are kept by nodes that serve clients, in one partition: give this node clients, as "
                'in clients = "127.0.0.1:4222", and all nodes primary = "majority" and voters, or a protocol '
                "with a primary partition"
            )
        return await buckets.held.open(name, history)

    async def send_clients_elsewhere(self) -> None:
        """The node is about to leave."""
        if self.clients is not None:
            await self.clients.close()

    async def close(self) -> None:
        """Serve nobody any more; the log is closed by itself."""
        await self.send_clients_elsewhere()
        if self._control is not None:
            await self._control.close()
        if self._metrics is not None:
            await self._metrics.close()
