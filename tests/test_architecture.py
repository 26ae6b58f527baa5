"""What ARCHITECTURE.md says of files and classes is so."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import pytest

import ordercast.threads
from following import SOURCES, Following
from ordercast import Group, Node, keys
from ordercast.groups.events import Message

TEXT = (Path(__file__).parent.parent / "docs/ARCHITECTURE.md").read_text()
MOST_FILES = {"a send": 10, "a delivery": 9}
MESSAGE = bytes(range(1, 250)) * 2


def listed(what: str) -> tuple[list[str], list[str]]:
    """The files that the page names for a send or a delivery, and those that it leaves out."""
    row = re.search(rf"^\| {what} \|(.*)\|(.*)\|$", TEXT, re.MULTILINE)
    assert row is not None, f"the page has no row for {what}"
    followed, left_out = (re.findall(r"`([a-z_/]+\.py)`", cell) for cell in row.groups())
    return followed, left_out


@asynccontextmanager
async def two_nodes() -> AsyncIterator[tuple[Group, ordercast.threads.Node]]:
    """A group that a node of this thread has joined, and the node's only peer, which is in another thread."""
    key = keys.written(keys.generate())
    async with Node(key=key, listen="127.0.0.1:0") as node:
        peer = ordercast.threads.Node(key=key, listen="127.0.0.1:0", seeds=[node.address])
        await asyncio.to_thread(peer.start)
        try:
            group = await node.join("g")
            await node.wait_for(2)
            yield group, peer
        finally:
            await asyncio.to_thread(peer.stop)


async def delivery(group: Group) -> None:
    """Read until the message comes."""
    async for event in group:
        if isinstance(event, Message):
            break


async def follow_a_send() -> Following:
    """Up to the socket."""
    async with two_nodes() as (group, _):
        following = Following(MESSAGE)
        with following:
            await group.send(MESSAGE)
            await delivery(group)
    handling = following.handling
    sent = next(at for at, call in enumerate(handling) if call.function == "UdpSocket.send")
    following.calls = handling[: sent + 1]
    return following


async def follow_a_delivery() -> Following:
    """From the socket."""
    async with two_nodes() as (group, peer):
        other = await asyncio.to_thread(peer.join, "g", receive=False)
        following = Following(MESSAGE)
        with following:
            sending = asyncio.ensure_future(asyncio.to_thread(other.send, MESSAGE))
            await delivery(group)
            await sending
    handling = following.handling
    read = following.calls[: following.calls.index(handling[0])]
    # a socket is read into a buffer that its reader keeps: the last one that was has what is handled next
    received = next(call for call in reversed(read) if call.function == "SocketReader.receive")
    following.calls = [received, *handling]
    return following


@pytest.mark.parametrize("what", MOST_FILES)
def test_a_message_passes_through_the_files_that_the_page_lists(what: str) -> None:
    following = asyncio.run(follow_a_send() if what == "a send" else follow_a_delivery())
    followed, left_out = listed(what)
    passed = list(dict.fromkeys(call.file for call in following.calls))
    assert set(passed) == {*followed, *left_out}, [(call.file, call.function) for call in following.calls]
    assert not set(followed) & set(left_out)
    assert len(followed) <= MOST_FILES[what]


@cache
def classes() -> list[tuple[int, str, str, list[str]]]:
    """Every class of ours: its lines, name, file and bases; the largest first."""
    found = []
    for path in Path(SOURCES).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                bases = [ast.unparse(base) for base in node.bases]
                found.append((lines, node.name, str(path.relative_to(SOURCES)), bases))
    return sorted(found, reverse=True)


def test_the_page_says_of_the_ten_largest_classes_what_they_own_and_are_handed() -> None:
    told = set(re.findall(r"^\| `(\w+)` \(`([a-z_/]+\.py)`\) \|", TEXT, re.MULTILINE))
    largest = {(name, file) for _, name, file, _ in classes()[:10]}
    assert largest <= told, f"the table lacks {largest - told}"
    assert told <= {(name, file) for _, name, file, _ in classes()}, "the table names what is not there"


def test_none_of_the_ten_largest_classes_needs_a_base_class() -> None:
    ours = {name for _, name, _, _ in classes()}
    for _, name, file, bases in classes()[:10]:
        inherited = [base for base in bases if base.split("[")[0].split(".")[-1] in {*ours, "ABC"}]
        assert not inherited, f"{name} in {file} inherits from {inherited}: hand it what it needs instead"
