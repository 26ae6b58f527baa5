"""Puts a node together from its configuration: disk, protocol, log, transport, trace and machine.

`assemble` opens everything that can fail or takes time, and hands it to a `Member`, which is whole from its
first moment; or gives back what it has opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import msgspec

from ordercast.core.contract import Machine
from ordercast.core.identity import NodeId
from ordercast.core.protocol import Buffers, Protocol
from ordercast.errors import ConfigProblem
from ordercast.groups.founders import with_founders
from ordercast.groups.group_key import NetworkKey
from ordercast.groups.member import Member, Parts
from ordercast.groups.node_log import NodeLog
from ordercast.keys import Keyring
from ordercast.runtime.config import NodeConfig
from ordercast.runtime.environment import Environment
from ordercast.runtime.storage import Storage
from ordercast.transport.interface import Capacity, Drops, OneNetwork, Setup
from ordercast.transport.known_lives import KnownLives
from ordercast.transport.networks import Networks


async def assemble(config: NodeConfig, keyring: Keyring | None, environment: Environment) -> Member:
    """A node that is ready to begin; `keyring`: the group key, where it is not given as a file."""
    protocol = protocol_of(config)
    networks = config.by_network()
    if keyring is not None and config.ring:
        raise ConfigProblem("key is given beside rings: give each of them the file of its key")
    keys = {network: NetworkKey.of(each, keyring) for network, each in networks.items()}
    for network, each in networks.items():
        each.place(sealed=keys[network].keyring is not None)  # raises, before anything is opened
    sealed = any(key.keyring is not None for key in keys.values())
    log = NodeLog(config, sealed, environment.now_us)
    async with AsyncExitStack() as opened:
        storage = await _storage(config, environment.open_storage)
        opened.callback(storage.close, halted=False)
        opened.push_async_callback(log.close)
        await log.open(storage.id)
        known_lives = {network: KnownLives(network) for network in networks}
        drops = Drops()
        transports: dict[int, OneNetwork] = {}
        for network, each in networks.items():
            if config.data is not None:
                known_lives[network].load(config.data)
            setup = Setup(
                storage.id,
                storage.incarnation,
                f"{protocol.name} on network {network}" if network else protocol.name,
                keys[network].keyring,
                drops,
                environment.now_us,
                known_lives[network],
                network,
            )
            transports[network] = await environment.open_transport(each, setup)
            opened.callback(transports[network].close)
        transport = transports[0] if 0 in transports else Networks(transports)
        config = with_founders(config, protocol, transport.listed, transport.own)
        trace = environment.open_trace(config, storage.id, storage.incarnation, protocol.heading_with_groups)
        if trace is not None:
            opened.callback(trace.close)
        parts = Parts(
            config=config,
            protocol=protocol,
            environment=environment,
            storage=storage,
            log=log,
            transport=transport,
            trace=trace,
            drops=drops,
            known_lives=tuple(known_lives.values()),
            keys=keys,
        )
        member = Member(parts, build=lambda: machine_of(config, storage.id, transport.capacity))
        opened.pop_all()
    return member


async def _storage(config: NodeConfig, open_storage: Callable[[NodeConfig], Storage]) -> Storage:
    """Where the node keeps what it must not forget. In a thread: it syncs, and may wait for the clock."""
    opening = asyncio.get_running_loop().run_in_executor(None, open_storage, config)
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close_opened)
        raise


def _close_opened(opening: asyncio.Future[Storage]) -> None:
    """Nobody waits for it any more."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def protocol_of(config: NodeConfig) -> Protocol:
    """The protocol that a node runs. Only now are the machines loaded: a program may never start a node."""
    from ordercast.protocols import protocol

    try:
        return protocol(config.protocol)
    except ValueError as error:
        raise ConfigProblem(str(error)) from error


def protocol_settings_of(config: NodeConfig, capacity: Capacity) -> msgspec.Struct:
    """All settings of the protocol, as a node uses them whose transport has this capacity."""
    settings = {"packet_size": capacity.packet, **config.protocol_settings}
    if config.ring:
        settings["networks"] = tuple(config.by_network())
    size, most = settings["packet_size"], capacity.largest
    if isinstance(size, int) and size > most:
        raise ConfigProblem(f"packet_size is {size}: choose at most {most} with an mtu of {config.mtu}")
    try:
        return protocol_of(config).configure(
            settings, config.settings_profile, Buffers(capacity.buffer, capacity.datagram)
        )
    except ConfigProblem:
        raise
    except ValueError as error:
        raise ConfigProblem(str(error)) from error


def machine_of(config: NodeConfig, node: NodeId, capacity: Capacity) -> Machine:
    """The protocol's machine for a node whose transport has this capacity."""
    return protocol_of(config).build(protocol_settings_of(config, capacity), node)
