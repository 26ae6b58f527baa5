"""Servers for NATS clients, in processes of their own on loopback: Debian's nats-server, and nodes.

A server ends with the process that started it, however that ends.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from free_ports import free_port
from ordercast.measure.loopback import die_with_parent

LONG_S = 60.0
"""What takes longer than this hangs."""
STREAM = "ORDERCAST"
LOGGED = "logged."
"""Subjects that begin so are in the stream, and acknowledged."""


class Certificates(NamedTuple):
    """Files: of who signed, and of the server."""

    authority: Path
    certificate: Path
    key: Path


class Login(NamedTuple):
    """What a server wants to be told by its clients."""

    user: str = ""
    password: str = ""
    token: str = ""


class Wanted(NamedTuple):
    """Settings of servers, where they are not the usual ones."""

    login: Login | None = None
    tls: Certificates | None = None
    max_payload: int | None = None
    majority: bool = False
    """Of several only a majority goes on, and none keeps a log; a cluster of nats-servers is so anyway."""


AS_USUAL = Wanted()


@dataclass
class Server:
    """A server that runs, or ran, and how it is started again at the same address."""

    kind: str
    port: int
    command: Sequence[str]
    directory: Path
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        """Where clients connect."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The same, as NATS clients want it."""
        return f"nats://{self.address}"

    def start(self) -> None:
        """Start it, and wait until it greets its clients."""
        with (self.directory / f"{self.port}.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent
            )
        deadline = time.monotonic() + LONG_S
        while self.info() is None:
            assert self.process.poll() is None, self.told()
            assert time.monotonic() < deadline, f"the server does not answer: {self.told()}"
            time.sleep(0.01)

    def info(self) -> dict[str, Any] | None:
        """What it tells of itself to who connects; None while it does not."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), LONG_S) as connection:
                line = connection.makefile("rb").readline()
        except OSError:
            return None
        return json.loads(line.removeprefix(b"INFO ")) if line.startswith(b"INFO ") else None

    def kill(self) -> None:
        """End it at once, as kill -9 does, and wait until it is gone."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(LONG_S)

    def told(self) -> str:
        """What it has logged."""
        return (self.directory / f"{self.port}.log").read_text(errors="replace")[-4_000:]


class Starting(Protocol):
    """Starts servers of one kind, which end with the test."""

    def __call__(self, count: int = 1, **wanted: Any) -> list[Server]: ...


def nats_server() -> str | None:
    """Debian's nats-server, if it is here."""
    return shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin")


def nats_servers(directory: Path, count: int = 1, wanted: Wanted = AS_USUAL) -> list[Server]:
    """So many nats-servers with JetStream, which form a cluster if there is more than one; not started."""
    login, tls = wanted.login, wanted.tls
    binary = nats_server()
    assert binary is not None
    ports = [free_port() for _ in range(count)]
    routes = [f"nats://127.0.0.1:{port + 1}" for port in ports]
    found = []
    for port in ports:
        store = directory / f"store-{port}"
        lines = [
            f'listen: "127.0.0.1:{port}"',
            f"server_name: s{port}",
            f'jetstream {{ store_dir: "{store}" }}',
        ]
        if count > 1:
            lines.append(
                f'cluster {{ name: tests, listen: "127.0.0.1:{port + 1}", routes: {json.dumps(routes)} }}'
            )
        if login is not None and login.token:
            lines.append(f'authorization {{ token: "{login.token}" }}')
        elif login is not None:
            lines.append(f'authorization {{ user: "{login.user}", password: "{login.password}" }}')
        if tls is not None:
            lines.append(f'tls {{ cert_file: "{tls.certificate}", key_file: "{tls.key}" }}')
        if wanted.max_payload is not None:
            lines.append(f"max_payload: {wanted.max_payload}")
        file = directory / f"{port}.conf"
        file.write_text("\n".join(lines))
        found.append(Server("nats-server", port, [binary, "-c", str(file)], directory))
    return found


def nodes(directory: Path, count: int = 1, wanted: Wanted = AS_USUAL) -> list[Server]:
    """So many nodes of one group that serve clients, and keep a log; not started."""
    login, tls = wanted.login, wanted.tls
    places = [f"127.0.0.1:{free_port()}" for _ in range(count)]
    found = []
    for number, place in enumerate(places, 1):
        port = free_port()
        fields: dict[str, Any] = {
            "id": number,
            "listen": place,
            "seeds": [other for other in places if other != place],
            "data": str(directory / f"data-{number}"),
            "clients": f"127.0.0.1:{port}",
        }
        if wanted.majority:
            fields |= {"primary": "majority", "voters": list(range(1, count + 1))}
        else:
            fields |= {"log": str(directory / f"log-{number}"), "client_stream": [f"{LOGGED}>"]}
        if login is not None and login.token:
            fields["client_token"] = login.token
        elif login is not None:
            fields |= {"client_user": login.user, "client_password": login.password}
        if tls is not None:
            fields |= {"client_tls_cert": str(tls.certificate), "client_tls_key": str(tls.key)}
        if wanted.max_payload is not None:
            fields["client_max_payload"] = wanted.max_payload
        file = directory / f"{port}.toml"
        file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in fields.items()))
        run = "from ordercast.cli import main; main()"
        found.append(Server("node", port, [sys.executable, "-c", run, "node", "-c", str(file)], directory))
    return found


async def add_stream(server: Server, login: Login | None = None, authority: Path | None = None) -> None:
    """Have a nats-server keep what is sent to subjects that begin with `LOGGED`, as nodes with a log do."""
    import nats

    if server.kind != "nats-server":
        return

    told: dict[str, Any] = {} if login is None else {"user": login.user, "password": login.password}
    if authority is not None:
        told["tls"] = ssl.create_default_context(cafile=str(authority))
    async with await nats.connect(server.url, **told) as client:
        await client.jetstream(timeout=LONG_S).add_stream(
            name=STREAM, subjects=[f"{LOGGED}>"], allow_direct=True
        )


def certificates(directory: Path) -> Certificates:
    """A certificate for 127.0.0.1, and one of who signed it."""
    now = datetime.datetime.now(datetime.UTC)
    signer, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    files = Certificates(directory / "ca.pem", directory / "server.pem", directory / "server.key")
    for name, subject_key, file in (("ca", signer, files.authority), ("server", key, files.certificate)):
        authority = name == "ca"
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ca")]))
            .public_key(subject_key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName(
                    [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
                ),
                critical=False,
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
            )
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(subject_key.public_key()), critical=False
            )
            .sign(signer, hashes.SHA256())
        )
        file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files
