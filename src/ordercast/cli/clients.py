"""What `send`, `listen` and `status` share as clients of a node: their options, and which node that is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ordercast.cli.member import configured
from ordercast.cli.screen import blaming, refuse
from ordercast.errors import AddressProblem
from ordercast.transport.address import format_address, parse_address

if TYPE_CHECKING:
    from ordercast.client import Client

Nodes = Annotated[
    list[str] | None,
    typer.Option(
        "--client",
        metavar="HOST:PORT",
        help="Node to be a client of; may be repeated. As a rule 127.0.0.1:4222.",
    ),
]
User = Annotated[
    str, typer.Option("--user", metavar="NAME", envvar="ORDERCAST_USER", help="Who the client is.")
]
Password = Annotated[
    str,
    typer.Option(
        "--password", metavar="TEXT", envvar="ORDERCAST_PASSWORD", help="Of that user; better as a variable."
    ),
]
Token = Annotated[
    str,
    typer.Option(
        "--token", metavar="TEXT", envvar="ORDERCAST_TOKEN", help="What the node wants to be told instead."
    ),
]
Signer = Annotated[
    Path | None,
    typer.Option("--tls", metavar="FILE", help="Certificate of who signed the node's: it is encrypted then."),
]
AsMember = Annotated[
    bool,
    typer.Option(
        "--member", help="Become a member of the group meanwhile, over --seed or the configuration's nodes."
    ),
]

LOCAL = "127.0.0.1:4222"


class Access(NamedTuple):
    """How a node is reached by its clients."""

    servers: tuple[str, ...]
    user: str
    password: str
    token: str
    signer: Path | None

    @asynccontextmanager
    async def connected(self, timeout: float, session: str | None = None) -> AsyncIterator[Client]:
        """A client of it, within so many seconds."""
        from ordercast.client import Client

        async with Client(
            self.servers,
            user=self.user,
            password=self.password,
            token=self.token,
            tls=self.signer,
            session=session,
            name="ordercast",
            connect_timeout=timeout,
            give_up_after=timeout,
        ) as client:
            yield client


def access(
    nodes: Sequence[str] | None,
    user: str,
    password: str,
    token: str,
    signer: Path | None,
    config: Path | None = None,
    only_for_members: Sequence[str] = (),
) -> Access:
    """What the options say, or the node's configuration; options that are only for members are refused."""
    from ordercast.client.servers import parse_servers

    if only_for_members:
        given = ", ".join(only_for_members)
        refuse(
            f"{given}: that is for members. Say --member to become one for as long as this takes, which the "
            "others notice; or name a node that serves clients, with --client HOST:PORT"
        )
    if config is not None:
        if nodes:
            refuse("--client and --config both name a node: say one of them")
        return _configured(config, user, password, token, signer)
    servers = tuple(nodes or (LOCAL,))
    try:
        parse_servers(servers)
    except AddressProblem as error:
        refuse(str(error))
    return Access(servers, user, password, token, signer)


def _configured(file: Path, user: str, password: str, token: str, signer: Path | None) -> Access:
    """The node of a configuration file, as others reach it; from its own machine, if that is not said."""
    config = configured(file)
    if config.clients is None:
        refuse(
            f'{file} serves no clients: write clients = "127.0.0.1:4222" there; or say --member to become a '
            "member for as long as this takes, which the others notice"
        )
    server = config.clients
    if not server.startswith("unix:"):
        host, port = parse_address(config.client_advertise or server)
        server = format_address({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)
    if not (user or token):
        user, password = config.client_user or "", config.client_password or ""
        token = config.client_token or ""
    if config.client_tls_cert is not None and signer is None:
        signer = config.client_tls_cert
    return Access((server,), user, password, token, signer)


def checked(group: str, *, pattern: bool = False) -> str:
    """The name of a group that clients can send to, or with ``pattern`` receive from."""
    from ordercast.client.wire import check_group

    with blaming("GROUP"):
        return check_group(group, pattern=pattern)


def for_members(**given: object) -> list[str]:
    """The options among these that were given."""
    return [f"--{name}" for name, value in given.items() if value]
