"""Connections between nodes over TCP: who has no key is not served, changes nothing, and keeps nobody out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from zlib import crc32

import pytest

from ordercast.keys import Keyring, generate
from ordercast.runtime import tcp_streams
from ordercast.runtime.tcp_streams import HANDSHAKE, PLACES, TcpStreams
from ordercast.transport import streams as streams_module
from ordercast.transport.stream_seal import NONCE_SIZE, SEALED, Seal
from ordercast.transport.streams import MOST_FIRST, MOST_FRAME, Channel

KEY, OTHER = generate(), generate()
HOST = "127.0.0.1"
SECRET = b"what only members may read " * 10


class Pair:
    """A node that serves, and one that connects."""

    def __init__(self, served: list[bytes], connecting: list[bytes] | None = None) -> None:
        self.keys = {1: connecting if connecting is not None else served, 2: served}
        self.nodes = {number: TcpStreams([HOST], lambda node: HOST, self._ring(number)) for number in (1, 2)}
        self.port = 0
        self.told: list[bytes] = []

    def _ring(self, number: int) -> Callable[[], Keyring | None]:
        return lambda: Keyring(tuple(self.keys[number])) if self.keys[number] else None

    async def serve(self, channel: Channel) -> None:
        """Tell the secret to whoever asks for it."""
        while True:
            self.told.append(await channel.receive())
            await channel.send(SECRET)

    async def open(self) -> Channel:
        """Connect one to the other."""
        return await self.nodes[1].open(2, self.port)

    async def line(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Somebody connects."""
        return await asyncio.open_connection(HOST, self.port)

    async def until(self, true: Callable[[], object]) -> None:
        """Wait for something."""
        async with asyncio.timeout(20):
            while not true():
                await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def pair(served: list[bytes], connecting: list[bytes] | None = None) -> AsyncIterator[Pair]:
    both = Pair(served, connecting)
    both.port = await both.nodes[2].serve(both.serve)
    try:
        yield both
    finally:
        await asyncio.gather(*(node.close() for node in both.nodes.values()))


def with_pair(
    body: Callable[[Pair], Awaitable[None]], served: list[bytes], connecting: list[bytes] | None = None
) -> None:
    async def main() -> None:
        async with pair(served, connecting) as both:
            await body(both)

    asyncio.run(main())


async def asked(channel: Channel) -> bytes:
    await channel.send(b"tell me")
    return await channel.receive()


@pytest.mark.parametrize("served", [[KEY], [OTHER, KEY], []], ids=["key", "two keys", "no key"])
def test_who_has_the_key_is_served(served: list[bytes]) -> None:
    async def body(both: Pair) -> None:
        channel = await both.open()
        assert [await asked(channel) for _ in range(3)] == [SECRET] * 3

    with_pair(body, served, [KEY] if served else [])


@pytest.mark.parametrize(
    ("served", "connecting"), [([KEY], [OTHER]), ([KEY], []), ([], [KEY])], ids=["other", "none", "one"]
)
def test_who_has_another_key_or_none_is_not(served: list[bytes], connecting: list[bytes]) -> None:
    async def body(both: Pair) -> None:
        with pytest.raises(ConnectionRefusedError, match="key"):
            await both.open()
        assert not both.told

    with_pair(body, served, connecting)


async def everything(reader: asyncio.StreamReader) -> bytes:
    """What comes until the other end ends it."""
    with contextlib.suppress(ConnectionError):
        return await reader.read()
    return b""


async def greeted(both: Pair) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes, bytes]:
    """Somebody says that it has the key, whose name everybody can see; and both nonces."""
    reader, writer = await both.line()
    own = bytes(NONCE_SIZE)
    writer.write(HANDSHAKE.greeting(own, Keyring((KEY,))))
    how, theirs, _, _ = HANDSHAKE.read_answer(await reader.readexactly(HANDSHAKE.answer_size))
    assert how == SEALED
    return reader, writer, own, theirs


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def unsealed(body: bytes) -> bytes:
    return frame(crc32(body).to_bytes(4, "big") + body)


@pytest.mark.parametrize("said", ["plain", "other key", "flipped", "repeated", "too long"])
def test_what_was_not_sealed_with_the_key_ends_its_connection(said: str) -> None:
    async def body(both: Pair) -> None:
        reader, writer, own, theirs = await greeted(both)
        right = Seal.of(KEY, own, theirs, HANDSHAKE.purpose, serving=False)
        wrong = Seal.of(OTHER, own, theirs, HANDSHAKE.purpose, serving=False)
        sealed = right.sealed(b"tell me")
        forged = {
            "plain": unsealed(b"tell me"),
            "other key": frame(wrong.sealed(b"tell me")),
            "flipped": frame(sealed[:-1] + bytes([sealed[-1] ^ 1])),
            "repeated": frame(sealed) * 2,
            "too long": frame(right.sealed(bytes(MOST_FIRST))),
        }[said]
        writer.write(forged)
        heard = await everything(reader)
        if said == "repeated":
            assert both.told == [b"tell me"]
            assert Seal.of(KEY, own, theirs, HANDSHAKE.purpose, serving=False).opened(heard[4:]) == SECRET
        else:
            assert (heard, both.told) == (b"", [])
        reason = "a frame of" if said == "too long" else "not authentic"
        assert any(each.startswith(reason) for each in both.nodes[2].drops)
        assert await asked(await both.open()) == SECRET
        writer.close()

    with_pair(body, [KEY])


def test_who_has_the_key_says_nothing_to_one_that_does_not_seal() -> None:
    """Somebody in the place of a node answers that nothing is sealed."""

    async def body(both: Pair) -> None:
        heard: list[bytes] = []

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(HANDSHAKE.greeting_size + 4)
            writer.write(HANDSHAKE.answer(bytes(NONCE_SIZE)))
            heard.append(await everything(reader))
            writer.close()

        false = await asyncio.start_server(answer, HOST)
        both.port = false.sockets[0].getsockname()[1]
        with pytest.raises(ConnectionRefusedError, match="not sealed"):
            await both.open()
        await both.until(lambda: heard)
        assert heard == [b""]
        false.close()

    with_pair(body, [KEY])


def test_what_is_said_cannot_be_read_on_the_way() -> None:
    async def body(both: Pair) -> None:
        passed = bytearray()

        async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(65536):
                passed.extend(data)
                writer.write(data)

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            onward, there = await both.line()
            with contextlib.suppress(ConnectionError):
                await asyncio.gather(pump(reader, there), pump(onward, writer))

        between = await asyncio.start_server(relay, HOST)
        both.port, port = between.sockets[0].getsockname()[1], both.port
        both.line = lambda: asyncio.open_connection(HOST, port)  # type: ignore[method-assign]
        channel = await both.open()
        assert await asked(channel) == SECRET
        assert len(passed) > len(SECRET)
        assert SECRET[:20] not in passed
        assert b"tell me" not in passed
        channel.close()
        between.close()

    with_pair(body, [KEY])


def test_a_frame_that_was_changed_on_the_way_is_noticed_without_a_key() -> None:
    async def body(both: Pair) -> None:
        reader, writer = await both.line()
        writer.write(HANDSHAKE.greeting(bytes(NONCE_SIZE), None))
        await reader.readexactly(HANDSHAKE.answer_size)
        changed = bytearray(unsealed(b"tell me"))
        changed[-1] ^= 1
        writer.write(changed)
        assert await everything(reader) == b""
        assert both.nodes[2].drops == {"a checksum does not fit": 1}
        writer.close()

    with_pair(body, [])


@pytest.mark.parametrize("key", [[KEY], []], ids=["sealed", "plain"])
@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\n\r\n" * 10, HANDSHAKE.magic, bytes(100)])
def test_who_is_silent_or_no_node_goes(
    said: bytes, key: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp_streams, "FIRST_S", 0.05)
    monkeypatch.setattr(streams_module, "FIRST_S", 0.05)

    async def body(both: Pair) -> None:
        reader, writer = await both.line()
        writer.write(said)
        assert await everything(reader) == b""
        assert sum(both.nodes[2].drops.values()) == 1
        greeting = HANDSHAKE.greeting(bytes(NONCE_SIZE), Keyring(tuple(key)) if key else None)
        more, silent = await both.line()
        silent.write(greeting)
        assert len(await everything(more)) == HANDSHAKE.answer_size
        assert both.nodes[2].drops["silent"] == 1 + (len(said) < HANDSHAKE.greeting_size)
        assert not both.told
        writer.close()
        silent.close()

    with_pair(body, key)


def test_a_crowd_of_strangers_keeps_no_node_out() -> None:
    async def body(both: Pair) -> None:
        served = await both.open()
        assert await asked(served) == SECRET
        crowd = [await both.line() for _ in range(5 * PLACES)]
        assert await asked(await both.open()) == SECRET
        assert await asked(served) == SECRET, "who has shown the key stays"
        assert len(both.nodes[2]._connections) <= PLACES
        for _, writer in crowd:
            writer.close()

    with_pair(body, [KEY])


def test_frames_are_bounded() -> None:
    async def body(both: Pair) -> None:
        channel = await both.open()
        assert await asked(channel) == SECRET
        await channel.send(bytes(MOST_FRAME))
        with pytest.raises((OSError, EOFError)):
            await channel.receive()
        assert both.told == [b"tell me"]

    with_pair(body, [KEY])


def test_connections_end_with_their_key_at_both_ends() -> None:
    async def body(both: Pair) -> None:
        for number in (1, 2):
            channel = await both.open()
            assert await asked(channel) == SECRET
            for keys in both.keys.values():
                keys.append(OTHER)
            for node in both.nodes.values():
                node.rekeyed()
            assert await asked(channel) == SECRET, "the key is still one of the group's"
            both.keys[number][:] = [OTHER]
            both.nodes[number].rekeyed()
            with pytest.raises((OSError, EOFError)):
                await asked(channel)
            for keys in both.keys.values():
                keys[:] = [KEY]
            for node in both.nodes.values():
                node.rekeyed()

    with_pair(body, [KEY], [KEY])
