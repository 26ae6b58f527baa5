"""``ordercast node``: a member of a group, until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Annotated

import typer

from ordercast.cli.member import (
    ConfigFile,
    Insecure,
    KeyFile,
    NotStarted,
    OfProfile,
    OfProtocol,
    Seeds,
    TracedTo,
    configured,
    live,
)
from ordercast.cli.screen import Code
from ordercast.errors import AddressProblem, StorageProblem
from ordercast.groups.api import Node
from ordercast.runtime.config import NodeConfig

LOG = logging.getLogger("ordercast")


def node(
    config: ConfigFile = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where to receive, at this port and the next.")
    ] = None,
    seed: Seeds = None,
    id: Annotated[int | None, typer.Option(help="The node's number in the group.")] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="What the node must not forget over restarts.")
    ] = None,
    key: KeyFile = None,
    insecure: Insecure = False,
    trace: TracedTo = None,
    protocol: OfProtocol = None,
    profile: OfProfile = None,
    metrics: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve Prometheus metrics there.")
    ] = None,
    log: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the ordered log there; see `ordercast log`.")
    ] = None,
    log_listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where the log is read over TCP.")
    ] = None,
    clients: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve clients there, over the NATS client protocol."),
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info (as a rule), warning or error.")
    ] = None,
) -> None:
    """Run a member of a group until SIGINT or SIGTERM; then it tells the others that it leaves.

    Options override the configuration. What it says goes to stderr. Exit code 2 if something is wrong with
    the configuration, or with a directory or address in it; 3 if the node ended later, without being told to.
    """
    chosen = configured(
        config,
        listen=listen,
        seeds=tuple(seed) if seed else None,
        id=id,
        data=data,
        key=key,
        insecure=insecure or None,
        trace=trace,
        protocol=protocol,
        profile=profile,
        metrics=metrics,
        log=log,
        log_listen=log_listen,
        clients=clients,
        log_level=log_level,
    )
    live(_run(chosen), log=chosen.log_level)
    raise typer.Exit(Code.OK)


async def _run(config: NodeConfig) -> None:
    node = Node(config=config)
    try:
        await node.start()
    except (AddressProblem, StorageProblem) as error:
        raise NotStarted(str(error)) from error
    except asyncio.CancelledError:
        LOG.info("stopped")
        return  # it was told to stop before it had begun
    try:
        await node.closed()
    except asyncio.CancelledError:
        pass  # that is how it is told to stop
    finally:
        LOG.info("stopping: node %d leaves the group", node.id)
        await node.stop()
    LOG.info("stopped")
