"""What a `Node` can be told by name, for the type checker: a name that is none is found before it runs.

`NodeConfig` says what each of them means, and checks it; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from ordercast.keys import Keyring
from ordercast.runtime.config import NodeConfig
from ordercast.runtime.environment import Environment
from ordercast.runtime.ring_settings import RingSettings


class MoreSettings(TypedDict, total=False):
    """Fields of `NodeConfig` that few need."""

    multicast: str | None
    interface: str | None
    ring: tuple[RingSettings, ...]
    cipher: Literal["aes-gcm", "chacha20-poly1305"]
    profile: Literal["auto", "lan", "wan"]
    primary: str | None
    voters: tuple[int, ...]
    trace_rows: int
    trace_files: int
    metrics: str | None
    log_listen: str | None
    log_bytes: int
    log_age: float | None
    log_sync: bool
    log_repair: tuple[str, ...]
    clients: str | None
    client_advertise: str | None
    client_connections: int
    client_max_payload: int
    client_buffer: int
    client_user: str | None
    client_password: str | None
    client_token: str | None
    client_tls_cert: Path | None
    client_tls_key: Path | None
    client_stream: tuple[str, ...]
    client_stream_bytes: int
    log_level: Literal["debug", "info", "warning", "error"]
    send_buffer: int
    receive_buffer: int
    state_buffer: int
    evict_after: float
    mtu: int
    socket_buffer: int


class NodeSettings(MoreSettings, total=False):
    """All that a `Node` takes."""

    seeds: Sequence[str]
    peers: Sequence[str] | None
    listen: str | None
    id: int | None
    key: str | bytes | Path | Keyring | None
    data: str | Path | None
    trace: str | Path | None
    log: str | Path | None
    insecure: bool
    protocol: str | None
    settings: Mapping[str, Any] | None
    config: NodeConfig | None
    environment: Environment | None
