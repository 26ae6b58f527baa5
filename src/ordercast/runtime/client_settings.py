"""What a node is told of clients, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ordercast.core.subjects import is_pattern
from ordercast.errors import ConfigProblem
from ordercast.runtime.config_values import check_address
from ordercast.transport.address import is_loopback

if TYPE_CHECKING:
    from ordercast.runtime.config import NodeConfig


def check_clients(config: NodeConfig) -> None:
    """Raise what is wrong with what a node is told of clients."""
    if config.client_advertise is not None:
        check_address("client_advertise", config.client_advertise)
    if (config.client_user is None) != (config.client_password is None):
        raise ConfigProblem("client_user and client_password belong together: write both, or neither")
    if config.client_user is not None and config.client_token is not None:
        raise ConfigProblem("client_user and client_token are both given: keep one of them")
    if (config.client_tls_cert is None) != (config.client_tls_key is None):
        raise ConfigProblem("client_tls_cert and client_tls_key belong together: write both, or neither")
    for pattern in config.client_stream:
        if not is_pattern(pattern):
            raise ConfigProblem(
                f'client_stream has {pattern!r}: write subjects, or patterns of them, as in "orders.>"'
            )
    if config.client_stream and config.log is None:
        raise ConfigProblem(
            "client_stream is given, but there is no log: name its directory, as in "
            'log = "/var/lib/ordercast-log"'
        )
    if config.clients is None or config.clients.startswith("unix:"):
        return
    host, _ = check_address("clients", config.clients, least=0)
    known = config.client_user is not None or config.client_token is not None
    if not (is_loopback(host) or known or config.insecure):
        raise ConfigProblem(
            f"clients is {config.clients!r}, where anybody could send and receive: write client_token, or "
            "client_user and client_password, or insecure = true if you trust everyone on that network, "
            "or serve clients at 127.0.0.1"
        )
