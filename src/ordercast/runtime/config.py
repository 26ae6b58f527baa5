"""What a node is told: one validated object, from a TOML file or from Python.

Every mistake is a `ConfigProblem` that names the field, what is wrong with it, and what to write instead.
The meaning of a field is written once, below it; `explain.py` takes it from there.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from ordercast.core.identity import MAX_NODE_ID
from ordercast.core.protocol import LAN, WAN
from ordercast.core.wire import MAX_PACKET
from ordercast.errors import ConfigProblem
from ordercast.plain_file import NotPlain, read_plain
from ordercast.runtime.client_settings import check_clients
from ordercast.runtime.config_values import (
    DEFAULT_PORT,
    MULTICAST_EXAMPLE,
    check_address,
    check_listen,
    check_multicast,
    toml_value,
    words_for,
)
from ordercast.runtime.reach import (
    ALLOW,
    check_that_nobody_else_is_reached,
    check_that_others_can_be_reached,
)
from ordercast.runtime.ring_settings import (
    OF_ONE_NETWORK,
    RINGS,
    RingSettings,
    check_apart,
    check_rings,
    number_of_one,
    ring_settings,
)
from ordercast.runtime.voting import MAJORITY, check_primary
from ordercast.transport.address import Place, is_loopback, parse_address

IP_AND_UDP_HEADERS = 48
"""Bytes of a frame that are not payload: 40 of IPv6 and 8 of UDP. IPv4 needs 20 less."""
LONGEST_FILE = 64 * 1024
"""Bytes of a configuration."""
LEVELS = ("debug", "info", "warning", "error")
_fields = cache(msgspec.structs.fields)


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything a node can be told. Only what differs from the default has to be."""

    id: int | None = None
    """The node's number in the group, from 1. Not set: the number kept in `data`, or one drawn at random
    at the first start and then kept there. No two living nodes of a group may have the same."""

    data: Path | None = None
    """Directory of what the node must not forget over restarts: its number and its last ring. Each node
    needs its own. Not set: nothing is kept, and the node is another one after a restart."""

    seeds: tuple[str, ...] = ()
    """Addresses of some other nodes, as "host:port". One that can be reached is enough: it tells of the
    others. The node's own address may be among them, so that all nodes can have the same list. The first
    node of a group needs none."""

    peers: tuple[str, ...] | None = None
    """Addresses of all nodes, instead of `seeds`: nobody else is let in, and nothing is discovered. The
    node's own may be among them."""

    listen: str | None = None
    """Where the node receives: "host:port", with an IPv6 host in brackets, as in "[::1]:4801". Tokens and
    greetings come to that port and data to the next one, so firewalls must let both through (UDP); the
    first one by TCP, too, where others are to notice at once that the process has ended. Port 0
    takes any free pair. Not set: port 4801, or the next free pair; on all interfaces with a `key`, and
    on 127.0.0.1 alone without one."""

    multicast: str | None = None
    """Send data to this IP multicast group, as in "239.1.2.3:4803", where the network carries multicast.
    The same at all nodes. Not set: each packet goes to every member by itself, which works everywhere."""

    interface: str | None = None
    """The network interface that multicast uses, by name or by its address, as in "eth0". Not set: the
    system chooses."""

    key: Path | None = None
    """File with the group key, made by `ordercast keygen`; the same at all nodes. With it every packet is
    authenticated and encrypted. Not set: anyone who can reach the ports can read and forge messages."""

    ring: tuple[RingSettings, ...] = ()
    """The rings that the node is on, where protocol is "rings": a table [[ring]] each, behind all fields of
    the node, with a `network` number, and with `listen`, `seeds` or `peers`, `key`, `multicast` and
    `interface` of that ring, which do not stand above then. One table at an ordinary node, two or more at a
    gateway. Not set: one ring, on network 1."""

    cipher: Literal["aes-gcm", "chacha20-poly1305"] = "aes-gcm"
    """How packets are sealed, the same at all nodes. AES-GCM is the faster one where the processor has
    instructions for it, as nearly all servers do; ChaCha20-Poly1305 where not."""

    insecure: bool = False
    """Allow the node to be reached from other machines without a `key`. Only for networks where you trust
    everyone."""

    protocol: str = "totem"
    """Which protocol orders the messages, the same at all nodes; `ordercast protocols` compares them. Its own
    settings are in the table of its name."""

    protocol_settings: dict[str, Any] = {}
    """Settings of the protocol, the same at all nodes; times are microseconds."""

    profile: Literal["auto", "lan", "wan"] = "auto"
    """Which defaults the protocol's settings have, the same at all nodes: "lan" those for a local network,
    with round trips of up to 15 ms; "wan" those for nodes that are far apart, with up to 300 ms; "auto" those
    of "lan". With "auto" and "wan", Totem's timeouts grow where longer round trips are measured; those of the
    sequencer family stay, and a warning says so."""

    primary: str | None = None
    """Which of several partitions goes on, the same at all nodes. "majority": the one with more than half of
    the `voters`; elsewhere sends raise `NoMajority`, and nothing is delivered. Not set: with totem and rings
    each goes on by itself; the sequencer family has one primary partition in any case."""

    voters: tuple[int, ...] = ()
    """Numbers of the nodes of which a majority has to be there, for `primary`, and for replicated objects
    that are on disk, with any protocol; the same at all nodes. An odd number of nodes with a fixed `id` each;
    other nodes may come and go."""

    trace: Path | None = None
    """Directory for the run's trace, which `ordercast audit` checks. Not set: no trace."""

    trace_rows: int = 500_000
    """Events in one file of the trace; then the next file is begun."""

    trace_files: int = 20
    """How many files of the trace are kept: when there are more, the oldest is deleted."""

    metrics: str | None = None
    """Serve Prometheus metrics over HTTP at this address, as in "127.0.0.1:9464". Not set: no metrics."""

    log: Path | None = None
    """Directory of the node's ordered log: everything that it delivers, kept durably in the one order, for
    `ordercast log` and for Spark. Each node needs its own, and `data` beside it. Not set: no log."""

    log_listen: str | None = None
    """Where the log is read over TCP, as in "0.0.0.0:4805"; port 0 takes any. Not set: any free port of
    127.0.0.1. `ordercast status` shows it."""

    log_bytes: int = 8 * 1024**3
    """Bytes of the log that are kept: when there are more, the oldest entries go."""

    log_age: float | None = None
    """Seconds for which entries of the log are kept. Not set: as long as `log_bytes` allows."""

    log_sync: bool = True
    """Entries are on the disk itself before anybody can read them, so that they survive a loss of power. If
    false, they survive the end of the process, and the disk has less to do."""

    log_repair: tuple[str, ...] = ()
    """Addresses of other nodes' log services, from which this node repairs its log when files of it are
    damaged. Not set: the hosts of the nodes that it has links to, at the port of its own `log_listen`."""

    clients: str | None = None
    """Serve processes that are no members over the NATS client protocol, here: "host:port", as in
    "127.0.0.1:4222", or "unix:PATH". Port 0 takes any. Not set: no clients."""

    client_advertise: str | None = None
    """The address at which clients of other nodes reach this one, as they are told it. Not set: that of
    `clients`, unless it is that of all interfaces."""

    client_connections: int = 1024
    """How many clients may be connected at a time. Others are refused."""

    client_max_payload: int = 1024 * 1024
    """Bytes of the largest message that a client may publish, with its headers."""

    client_buffer: int = 8 * 1024 * 1024
    """Bytes that may be on their way to one client. A client that does not take them is cut off."""

    client_user: str | None = None
    """Who clients have to say they are, with `client_password`. Not set: nobody."""

    client_password: str | None = None
    """The password of `client_user`."""

    client_token: str | None = None
    """What clients have to know instead of a user and a password. Not set: nothing."""

    client_tls_cert: Path | None = None
    """File with the certificate, in PEM, by which clients know the node: connections are encrypted then.
    Not set: they are not."""

    client_tls_key: Path | None = None
    """File with the key of `client_tls_cert`, in PEM."""

    client_stream: tuple[str, ...] = ()
    """Subjects, or patterns of them, that clients read as a stream of JetStream, whose name is ORDERCAST; who
    publishes to one of them with a reply is told the message's number. The same at all nodes, which need a
    `log`. Not set: no JetStream."""

    client_stream_bytes: int = 64 * 1024 * 1024
    """Bytes of the stream in memory: what is older is read from the log."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important messages that `ordercast node` writes about what it does."""

    send_buffer: int = 1024 * 1024
    """Bytes that the application has sent and the node has not yet broadcast. When it is full, sending
    waits."""

    state_buffer: int = 256 * 1024 * 1024
    """Bytes of messages that wait here for the state of a replicated object to come from another node; with
    more, they are dropped, and a later state is asked for."""
    receive_buffer: int = 8 * 1024 * 1024
    """Bytes of a group that were delivered to a reader of the application and that it has not read yet. When
    they are more, whoever sends to that group is slowed down; see `evict_after`. Other groups go on."""

    evict_after: float = 10.0
    """Seconds for which a reader with a full receive buffer may read nothing at all. After half of that its
    group does not wait for it any more; then it is dropped, and gets an error (`Evicted`) behind what it
    had. The node stays. `inf`: never."""

    mtu: int = 1500
    """Largest IP packet that the network carries whole, in bytes, the same at all nodes. Datagrams are
    made to fit."""

    socket_buffer: int = 8 * 1024 * 1024
    """Bytes of receive buffer that the kernel is asked for. It may grant less (Linux: net.core.rmem_max);
    `ordercast status` tells how much it granted."""

    def with_changes(self, **fields: Any) -> NodeConfig:
        """A copy in which these fields have other values; all is checked again."""
        check_names(fields)
        return msgspec.structs.replace(self, **fields)

    @property
    def settings_profile(self) -> str:
        """The profile whose settings are the protocol's defaults."""
        return WAN if self.profile == WAN else LAN

    @property
    def sealed(self) -> bool:
        """Whether a key file is named, for each ring if there are several."""
        return all(each.key is not None for each in self.by_network().values())

    def by_network(self) -> dict[int, NodeConfig]:
        """What the node would be told if it were on that network alone, by the networks' numbers: 0 where
        the protocol knows no numbers."""
        if self.protocol != RINGS:
            return {0: self}
        if not self.ring:
            return {number_of_one(self.protocol_settings): self}
        return {ring.network: self._on(ring) for ring in self.ring}

    def _on(self, ring: RingSettings) -> NodeConfig:
        settings = {**self.protocol_settings, "networks": (ring.network,)}
        try:
            return self.with_changes(**ring.of_a_node, ring=(), protocol_settings=settings)
        except ConfigProblem as error:
            raise ConfigProblem(f"[[ring]] of network {ring.network}: {error}") from None

    @property
    def datagram_size(self) -> int:
        """Bytes that one datagram carries without being split on the way."""
        return min(self.mtu - IP_AND_UDP_HEADERS, MAX_PACKET)

    def place(self, sealed: bool | None = None) -> Place:
        """Where to listen, if that is allowed; `sealed` where the key is not given as a file. For each of
        `by_network` by itself.

        Without a key a node is reached from its own machine only, unless it is told to be `insecure`.
        """
        open_to_all = self.insecure or (self.key is not None if sealed is None else sealed)
        others = [*self.seeds, *(self.peers or ()), *((self.multicast,) if self.multicast else ())]
        if self.listen is not None:
            place = Place(*parse_address(self.listen), exact=True)
        else:
            six = bool(others) and ":" in parse_address(others[0])[0]
            host = ("::" if six else "0.0.0.0") if open_to_all else ("::1" if six else "127.0.0.1")
            place = Place(host, DEFAULT_PORT, exact=False)
        if not open_to_all:
            check_that_nobody_else_is_reached(self, place)
        check_that_others_can_be_reached(self, place)
        return place

    def log_place(self, sealed: bool) -> tuple[str, int]:
        """Where to serve the log, if that is allowed: without a key from this machine only."""
        host, port = parse_address(self.log_listen or "127.0.0.1:0")
        if not (sealed or self.insecure or is_loopback(host)):
            raise ConfigProblem(
                f"log_listen is {self.log_listen!r}, where other machines could read the log, since the node "
                f"has no key: {ALLOW}, or listen on 127.0.0.1"
            )
        return host, port

    def __post_init__(self) -> None:
        for field in _fields(type(self)):
            value = getattr(self, field.name)
            value = ring_settings(value) if field.name == "ring" else _converted(field, value)
            msgspec.structs.force_setattr(self, field.name, value)
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                most = "no upper limit" if math.isinf(high) else f"at most {high:,}"
                raise ConfigProblem(f"{name} is {value}: choose at least {low:,} and {most}")
        for address in self.seeds:
            check_address("seeds", address)
        for address in self.peers or ():
            check_address("peers", address)
        if self.peers is not None and not self.peers:
            raise ConfigProblem("peers is empty: list the address of every node, or leave it out")
        if self.peers is not None and self.seeds:
            raise ConfigProblem(
                "seeds and peers are both given: keep peers for a fixed list of all nodes, or seeds to let "
                "nodes be discovered"
            )
        if self.listen is not None:
            check_listen(self.listen)
        if self.metrics is not None:
            check_address("metrics", self.metrics, least=0)
        if self.log_listen is not None:
            check_address("log_listen", self.log_listen, least=0)
        check_clients(self)
        for address in self.log_repair:
            check_address("log_repair", address)
        if str(self.log) in LEVELS:
            raise ConfigProblem(
                f"log is {str(self.log)!r}: it is the directory of the ordered log; for how much the node "
                "says write log_level"
            )
        check_primary(self.primary, self.voters, self.protocol)
        check_rings(
            self.ring,
            self.protocol,
            self.protocol_settings,
            [name for name in OF_ONE_NETWORK if getattr(self, name)],
        )
        if self.multicast is not None:
            check_multicast(self.multicast)
        elif self.interface is not None:
            raise ConfigProblem(
                "interface is for multicast, which is not used: say where to receive with listen instead"
            )
        self.by_network()  # raises what is wrong with one of the rings
        check_apart(self.ring)


_RANGES: tuple[tuple[str, float, float], ...] = (
    ("id", 1, MAX_NODE_ID),
    ("trace_rows", 1_000, 100_000_000),
    ("trace_files", 2, 1_000_000),
    ("log_bytes", 1024 * 1024, 2**45),
    ("log_age", 1.0, math.inf),
    ("client_connections", 1, 100_000),
    ("client_max_payload", 1, 64 * 1024 * 1024),
    ("client_buffer", 65_536, 2**32),
    ("client_stream_bytes", 65_536, 2**40),
    ("send_buffer", 4_096, 2**32),
    ("receive_buffer", 65_536, 2**40),
    ("state_buffer", 65_536, 2**40),
    ("evict_after", 0.1, math.inf),
    ("mtu", 576, 65_535),
    ("socket_buffer", 65_536, 2**31 - 1),
)
EXAMPLES: Mapping[str, object] = {
    "id": 3,
    "data": "/var/lib/ordercast",
    "seeds": ("10.0.0.1:4801", "10.0.0.2:4801"),
    "peers": ("10.0.0.1:4801", "10.0.0.2:4801", "10.0.0.3:4801"),
    "listen": "0.0.0.0:4801",
    "multicast": MULTICAST_EXAMPLE,
    "interface": "eth0",
    "key": "group.key",
    "trace": "trace",
    "primary": MAJORITY,
    "voters": (1, 2, 3),
    "metrics": "127.0.0.1:9464",
    "log": "/var/lib/ordercast-log",
    "log_listen": "0.0.0.0:4805",
    "log_repair": ("10.0.0.2:4805", "10.0.0.3:4805"),
    "log_age": 604_800.0,
    "clients": "127.0.0.1:4222",
    "client_advertise": "10.0.0.1:4222",
    "client_user": "ann",
    "client_password": "a secret",
    "client_token": "a secret",
    "client_tls_cert": "server.pem",
    "client_tls_key": "server.key",
    "client_stream": ("orders.>",),
}
"""What to write where nothing is the default."""


# --- reading ------------------------------------------------------------------------------------


def load(path: str | Path) -> NodeConfig:
    """The configuration in a TOML file. Relative paths in it are relative to the file."""
    path = Path(path)
    try:
        text = read_plain(path, LONGEST_FILE).decode("utf-8")
    except (OSError, NotPlain, ValueError) as error:
        if isinstance(error, UnicodeDecodeError):
            raise ConfigProblem(f"{path} is no configuration: it is not text in UTF-8") from error
        raise ConfigProblem(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error}; `ordercast config` prints "
            "one to start from"
        ) from error
    try:
        return parse(text, path.parent)
    except ConfigProblem as error:
        raise ConfigProblem(f"{path}: {error}") from error


def parse(text: str, directory: Path = Path()) -> NodeConfig:
    """The configuration that a TOML text tells; relative paths in it are relative to the directory."""
    try:
        told: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigProblem(f"this is not TOML: {error}; write name = value, with texts in quotes") from error
    except RecursionError:
        raise ConfigProblem(
            "this is nested too deeply for a configuration: write name = value, one a line"
        ) from None
    settings = _settings_table(told)
    if settings is not None:
        told["protocol_settings"] = settings
    check_names(told)
    rings = told.get("ring")
    for table in (told, *(each for each in rings or () if isinstance(each, dict))):
        for name in ("data", "key", "trace", "log", "client_tls_cert", "client_tls_key"):
            if isinstance(table.get(name), str) and table[name] not in LEVELS:
                table[name] = directory / Path(table[name]).expanduser()
    return NodeConfig(**told)


def check_names(told: Iterable[str]) -> None:
    """Raise unless every name is that of a field; of a wrong one the nearest is told."""
    known = [name for name in NodeConfig.__struct_fields__ if name != "protocol_settings"]
    for name in told:
        if name in known or name == "protocol_settings":
            continue
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}."
        raise ConfigProblem(f"there is no field {name}: {advice} `ordercast config` explains all of them")


def _settings_table(told: dict[str, Any]) -> dict[str, object] | None:
    """The table of the protocol's own settings, taken out."""
    if "protocol_settings" in told:
        raise ConfigProblem(
            "there is no field protocol_settings: write the protocol's settings into a table of its name, "
            "as in [totem]"
        )
    protocol = told.get("protocol", "totem")
    settings = told.pop(protocol, None) if isinstance(protocol, str) else None
    if settings is not None and not isinstance(settings, dict):
        raise ConfigProblem(
            f"{protocol} is {settings!r}: write a table of settings, which begins [{protocol}]"
        )
    for name, value in told.items():
        if isinstance(value, dict) and name not in NodeConfig.__struct_fields__:
            raise ConfigProblem(
                f"there is no table [{name}]: the only table is that of the protocol, [{protocol}], beside "
                "[[ring]]; all other fields stand before it"
            )
        # TOML counts what is written below a table's head as part of it.
    for name in settings or ():
        if name in NodeConfig.__struct_fields__:
            raise ConfigProblem(
                f"{name} stands in the table [{protocol}], where it is not known: move it above that line"
            )
    return settings


def _converted(field: msgspec.structs.FieldInfo, value: object) -> Any:
    try:
        return msgspec.convert(value, field.type, dec_hook=_path)
    except msgspec.ValidationError:
        example = toml_value(EXAMPLES.get(field.name, default_of(field)))
        raise ConfigProblem(
            f"{field.name} is {value!r}: write {words_for(field.type)}, as in {field.name} = {example}"
        ) from None


def default_of(field: msgspec.structs.FieldInfo) -> Any:
    """What the field is when nothing is said of it."""
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _path(kind: type, value: Any) -> Any:
    return kind(value)
