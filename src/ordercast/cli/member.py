"""What `node`, `send` and `listen` share: their options, and being a member until somebody interrupts."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from ordercast.cli.screen import STDERR, Code, refuse
from ordercast.errors import ConfigProblem, KeyProblem, OrdercastError
from ordercast.transport.address import format_address, is_loopback, parse_address

if TYPE_CHECKING:
    from ordercast.groups.api import Node
    from ordercast.runtime.config import NodeConfig

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="Configuration; see `ordercast config`."),
]
Seeds = Annotated[
    list[str] | None,
    typer.Option("--seed", metavar="HOST:PORT", help="Address of a node of the group; may be repeated."),
]
KeyFile = Annotated[
    Path | None, typer.Option("--key", metavar="FILE", help="The group key; see `ordercast keygen`.")
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Allow other machines to be reached without a key.")
]
OfProtocol = Annotated[
    str | None,
    typer.Option(
        "--protocol", metavar="NAME", help="What orders messages, as at all nodes; see `ordercast protocols`."
    ),
]
OfProfile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="How far nodes are apart, as at all of them: auto (as a rule), lan, wan.",
    ),
]
TracedTo = Annotated[
    Path | None,
    typer.Option(
        "--trace", metavar="DIR", help="Keep the trace in DIR; an audit needs those of all members."
    ),
]
ReachTimeout = Annotated[
    float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="How long to try to reach the group.")
]

SETTLE_S = 2.0
"""How long a member that was let in waits for the others that it has links to."""


class NotStarted(OrdercastError):
    """A node could not begin: a directory or an address that it was given cannot be used."""


class NotReached(OrdercastError):
    """No member of the group answered."""


def configured(file: Path | None, **changes: Any) -> NodeConfig:
    """The configuration of a file, or the default, with what the options change."""
    from ordercast.runtime.config import NodeConfig, load

    try:
        base = NodeConfig() if file is None else load(file)
        return base.with_changes(**{name: value for name, value in changes.items() if value is not None})
    except OrdercastError as error:
        refuse(str(error))


def passing(
    file: Path | None,
    seeds: Sequence[str] | None,
    key: Path | None,
    insecure: bool,
    protocol: str | None,
    profile: str | None,
    trace: Path | None,
) -> NodeConfig:
    """For a member that comes and goes: the file tells how to reach the group, and where traces go."""
    base = configured(
        file, key=key, insecure=insecure or None, protocol=protocol, profile=profile, trace=trace
    )
    base = next(iter(base.by_network().values()))  # a gateway's first ring is as good as the others
    if base.peers is not None and not seeds:
        refuse(
            f"{file} lists all peers, so that no further member is let in: use the API in one of them, or "
            "let nodes be discovered with seeds in the place of peers"
        )
    try:
        there = tuple(seeds or ()) or (*base.seeds, _own(base))
        alone = {
            "peers": None,
            "id": None,
            "data": None,
            "metrics": None,
            "log": None,
            "log_listen": None,
            "log_repair": (),
        }
        config = base.with_changes(seeds=there, **alone)
        config.place()
        return config.with_changes(listen=_any_port(base, there))
    except OrdercastError as error:
        refuse(f"{error}; options for it are --seed, --key and --insecure")


def _own(config: NodeConfig) -> str:
    """Where the node of this configuration is reached from its own machine."""
    from ordercast.runtime.config_values import DEFAULT_PORT

    place = config.place()
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(place.host, place.host)
    return format_address(host, place.port or DEFAULT_PORT)


def _any_port(base: NodeConfig, seeds: Sequence[str]) -> str:
    """Any free port, where all of the seeds can be reached from."""
    if base.listen is not None:
        host, _ = parse_address(base.listen)
        return format_address(host, 0)
    hosts = [parse_address(seed)[0] for seed in seeds]
    six = ":" in hosts[0]
    if all(map(is_loopback, hosts)):
        return "[::1]:0" if six else "127.0.0.1:0"
    return "[::]:0" if six else "0.0.0.0:0"


@asynccontextmanager
async def among_others(config: NodeConfig, timeout: float) -> AsyncIterator[Node]:
    """A member that shares a group with at least one other, and with all it knows unless that takes long."""
    from ordercast.groups.api import Node

    async with Node(config=config) as node:
        try:
            await node.wait_for(2, timeout)
        except TimeoutError:
            raise _not_reached(config, node, timeout) from None
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                while not _linked(node) <= set(node.members):
                    await asyncio.sleep(0.01)
        yield node


def _linked(node: Node) -> set[int]:
    return {peer["node"] for peer in node.status()["peers"] if peer["linked"]}


def _not_reached(config: NodeConfig, node: Node, timeout: float) -> NotReached:
    addresses = ", ".join(config.seeds)
    port = parse_address(config.seeds[0])[1]
    checks = [
        "that a node runs there (`ordercast status` asks one on its own machine)",
        "that it has the same key" if config.sealed else "that the group has no key, or name it with --key",
        f"that firewalls let UDP through, to the ports {port} and {port + 1} and back",
    ]
    drops = node.status()["drops"]
    seen = ", ".join(f"{count:,} {reason}" for reason, count in sorted(drops.items()))
    heard = f" Packets came but could not be used: {seen}." if seen else ""
    return NotReached(
        f"nobody at {addresses} shared a group with this node within {timeout:g} s.{heard} "
        f"Check {'; '.join(checks)}"
    )


def live(main: Coroutine[Any, Any, None], log: str = "error") -> None:
    """Run until done, or until a signal: then there is time to leave the group and tell the others.

    What is at least as bad as ``log`` is told on stderr meanwhile.
    """
    try:
        with _logging(log), asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_interruptible(main))
    except asyncio.CancelledError:
        raise typer.Exit(Code.INTERRUPTED) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads any more
        raise typer.Exit(Code.OK) from None
    except (ConfigProblem, KeyProblem, NotStarted) as error:
        refuse(str(error))
    except OSError as error:
        main.close()
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        refuse(
            f"this process may have {most} files and sockets open, which are too few for a node: raise the "
            "limit with `ulimit -n 1024`"
        )
    except OrdercastError as error:
        fail(str(error))


async def _interruptible(main: Coroutine[Any, Any, None]) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    await main


def _loop_factory() -> Any:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def fail(sentence: str) -> NoReturn:
    """End because the work could not be done."""
    STDERR.print("[bold red]error:[/]", end=" ")
    STDERR.print(sentence, soft_wrap=True, markup=False)
    raise typer.Exit(Code.BROKEN)


@contextmanager
def _logging(level: str) -> Iterator[None]:
    """Lines that a person can follow: when, how bad, and a sentence. What was set up before comes back."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s.%(msecs)03d %(levelname)-7s %(message)s", "%F %T"))
    handler.set_name("ordercast")
    logger = logging.getLogger("ordercast")
    before = logger.handlers, logger.propagate, logger.level
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(level.upper())
    try:
        yield
    finally:
        logger.handlers, logger.propagate, earlier = before
        logger.setLevel(earlier)
