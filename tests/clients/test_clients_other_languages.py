"""Clients in other languages get the same from Debian's nats-server and from nodes: Node.js and C.

Each program of `programs/` goes through the cases over one connection with TLS and a password, and prints a
line a case.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from nats_servers import LONG_S, Login, Server, Starting, add_stream

from ordercast.measure.loopback import die_with_parent

PROGRAMS = Path(__file__).parent / "programs"
PACKAGES = (
    *("nats@2.29.3", "@nats-io/transport-node@3.4.0", "@nats-io/jetstream@3.4.0", "@nats-io/kv@3.4.0"),
)
LOGIN = Login(user="ann", password="s3cret")
EXPECTED = """\
authentication refused
publish a x.b y.b
wildcard, at most one x.b
queue 20
request re: ask
no responders 503
headers blue red
deduplication false true true
ordered a c
pull a c
kill me
reconnect back
drain true
"""
OF_BUCKETS = """\
nothing null
get color=red true true
get by revision color=blue
create true refused
update 10071 true
deleted DEL true
keys color,made,x.y
keys of a pattern x.y
history color=blue,color=red,color=green
purged a.b=PURGE
present a.b=PURGE,color=green,made=again,x.y=1
changes x.z=2,x.y=DEL
too large 10054
status true 5 11 of tests
purge of markers true
opened again color=ignored
destroyed true true
"""


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the programs for Node.js and the packages that they need."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("Node.js and npm are not installed (on Debian: apt-get install nodejs npm)")
    home = tmp_path_factory.mktemp("npm")
    for program in PROGRAMS.glob("*.mjs"):
        shutil.copy(program, home)
    words = [npm, "install", "--no-audit", "--no-fund", "--prefer-offline", *PACKAGES]
    try:
        done = subprocess.run(
            words, cwd=home, capture_output=True, text=True, timeout=2 * LONG_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        pytest.skip("npm does not get its packages: the registry does not answer")
    if done.returncode:
        pytest.skip(f"npm does not get its packages: {done.stderr.strip()[-300:]}")
    return home


@pytest.fixture
def compiled(tmp_path: Path) -> Path:
    """The program in C."""
    compiler = shutil.which("gcc")
    if compiler is None or not Path("/usr/include/nats/nats.h").exists():
        pytest.skip("gcc or the C client is not installed (on Debian: apt-get install gcc libnats-dev)")
    program = tmp_path / "libnats"
    words = [compiler, "-Wall", "-Werror", "-o", str(program), str(PROGRAMS / "libnats.c"), "-lnats"]
    subprocess.run(words, check=True, timeout=2 * LONG_S)
    return program


def speak(command: Sequence[object], server: Server) -> str:
    """What the program prints, whose server is killed and started again when it asks for it."""
    process = subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        preexec_fn=die_with_parent,
    )
    said = ""
    try:
        assert process.stdout is not None
        for line in process.stdout:
            said += line
            if line == "kill me\n":
                server.kill()
                server.start()
        process.wait(LONG_S)
    finally:
        process.kill()
        process.wait()
    return said


def go_through(command: Sequence[object], start: Starting, subject: str, logged: str) -> None:
    (server,) = start(login=LOGIN, tls=True)
    authority = server.directory / "ca.pem"
    asyncio.run(asyncio.wait_for(add_stream(server, LOGIN, authority), LONG_S))
    said = speak([*command, f"tls://{server.address}", subject, logged, authority], server)
    assert said == EXPECTED


@pytest.mark.parametrize("program", ["nats_package.mjs", "nats_io_packages.mjs"])
def test_node_js(packages: Path, start: Starting, subject: str, logged: str, program: str) -> None:
    go_through(["node", packages / program], start, subject, logged)


@pytest.mark.parametrize("program", ["nats_package_buckets.mjs", "nats_io_packages_buckets.mjs"])
def test_buckets_in_node_js(packages: Path, start: Starting, bucket: str, program: str) -> None:
    (server,) = start(login=LOGIN, tls=True, majority=True)
    authority = server.directory / "ca.pem"
    said = speak(["node", packages / program, f"tls://{server.address}", bucket, authority], server)
    assert said == OF_BUCKETS


def test_c(compiled: Path, start: Starting, subject: str, logged: str) -> None:
    go_through([compiled], start, subject, logged)
