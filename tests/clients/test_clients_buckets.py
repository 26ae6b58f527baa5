"""Key-value buckets through the official client for Python, at Debian's nats-server and at nodes alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.js.client import JetStreamContext
from nats.js.errors import (
    APIError,
    BadRequestError,
    BucketNotFoundError,
    KeyDeletedError,
    KeyNotFoundError,
    KeyWrongLastSequenceError,
    NoKeysError,
    NotFoundError,
)
from nats.js.kv import KeyValue
from nats_servers import LONG_S, Server, Starting


def run(case: Coroutine[Any, Any, None]) -> None:
    """One case, which fails rather than hangs."""
    asyncio.run(asyncio.wait_for(case, 2 * LONG_S))


async def ignore(_: Exception) -> None:
    """Errors of a connection that is cut on purpose."""


@asynccontextmanager
async def connected(
    *servers: Server, timeout: float = LONG_S, **more: Any
) -> AsyncIterator[tuple[Client, JetStreamContext]]:
    """A client, and what it has of JetStream, whose requests are given up after `timeout` seconds."""
    settings = {"allow_reconnect": False, "connect_timeout": LONG_S, "error_cb": ignore, **more}
    client = await nats.connect([server.url for server in servers], **settings)
    try:
        yield client, client.jetstream(timeout=timeout)
    finally:
        await client.close()


def of(entry: KeyValue.Entry) -> tuple[str, bytes | None, str | None]:
    """What is in an entry; an empty value and none at all are the same to the client."""
    return entry.key, entry.value or b"", entry.operation


async def update_of(watching: Any) -> KeyValue.Entry | None:
    """What one who watches gets next."""
    entry: KeyValue.Entry | None = await watching.updates(LONG_S)
    return entry


# --- one key ------------------------------------------------------------------------------------


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "asked of the leader"])
def test_a_value_is_put_and_got(bucket_server: Server, bucket: str, direct: bool) -> None:
    async def case() -> None:
        async with connected(bucket_server) as (_, stream):
            store = await stream.create_key_value(bucket=bucket, direct=direct, history=3)
            with pytest.raises(KeyNotFoundError):
                await store.get("color")
            first = await store.put("color", b"blue")
            second = await store.put("color", b"red")
            other = await store.put("of.a.car", b"")
            assert 0 < first < second < other
            got = await store.get("color")
            assert (got.key, got.value, got.revision) == ("color", b"red", second)
            assert (await store.get("color", revision=first)).value == b"blue"
            assert (await store.get("of.a.car")).revision == other
            with pytest.raises(KeyNotFoundError):
                await store.get("color", revision=other)
            with pytest.raises(KeyNotFoundError):
                await store.get("color", revision=other + 100)
            async with connected(bucket_server) as (_, elsewhere):
                again = await elsewhere.key_value(bucket)
                assert (await again.get("color")).value == b"red"

    run(case())


def test_a_key_is_created_updated_deleted_and_purged(bucket_server: Server, bucket: str) -> None:
    async def case() -> None:
        async with connected(bucket_server) as (_, stream):
            store = await stream.create_key_value(bucket=bucket, history=10)
            first = await store.create("k", b"1")
            with pytest.raises(KeyWrongLastSequenceError):
                await store.create("k", b"2")
            second = await store.update("k", b"2", last=first)
            with pytest.raises(KeyWrongLastSequenceError, match=f"wrong last sequence: {second}"):
                await store.update("k", b"3", last=first)
            with pytest.raises(APIError) as raised:
                await store.delete("k", last=first)
            assert (raised.value.code, raised.value.err_code) == (400, 10071)
            await store.delete("k", last=second)
            with pytest.raises(KeyNotFoundError):
                await store.get("k")
            assert [of(each) for each in await store.history("k")] == [
                ("k", b"1", None),
                ("k", b"2", None),
                ("k", b"", "DEL"),
            ]
            third = await store.create("k", b"3")
            assert third > second
            await store.purge("k")
            assert [of(each) for each in await store.history("k")] == [("k", b"", "PURGE")]
            with pytest.raises(KeyDeletedError):
                await store._get("k")
            await store.put("k", b"4")
            assert (await store.get("k")).value == b"4"

    run(case())


def test_of_those_that_update_a_key_at_once_one_wins(bucket_server: Server, bucket: str) -> None:
    async def case() -> None:
        async with connected(bucket_server) as (_, one), connected(bucket_server) as (_, other):
            stores = [await one.create_key_value(bucket=bucket), await other.key_value(bucket)]
            last = await stores[0].put("k", b"0")
            won: list[bytes] = []

            async def take(number: int) -> None:
                value = b"%d/%d" % (last, number)
                try:
                    await stores[number % 2].update("k", value, last=last)
                except KeyWrongLastSequenceError:
                    return
                won.append(value)

            for turn in range(1, 11):
                await asyncio.gather(*(take(number) for number in range(20)))
                entry = await stores[turn % 2].get("k")
                assert len(won) == turn
                assert entry.value == won[-1]
                assert entry.revision is not None
                last = entry.revision

    run(case())


def test_so_many_values_of_a_key_are_kept(bucket_server: Server, bucket: str) -> None:
    async def case() -> None:
        async with connected(bucket_server) as (_, stream):
            store = await stream.create_key_value(bucket=bucket, history=3)
            for number in range(5):
                await store.put("k", b"%d" % number)
                await store.put("other", b"%d" % number)
            assert [each.value for each in await store.history("k")] == [b"2", b"3", b"4"]
            assert (await store.status()).values == 6
            with pytest.raises(NoKeysError):
                await store.history("nothing")

    run(case())


# --- many keys ----------------------------------------------------------------------------------


def test_keys(bucket_server: Server, bucket: str) -> None:
    async def case() -> None:
        async with connected(bucket_server) as (_, stream):
            store = await stream.create_key_value(bucket=bucket, history=2)
            with pytest.raises(NoKeysError):
                await store.keys()
            for name in ("a", "b.c", "b.d", "gone", "purged"):
                await store.put(name, b"1")
                await store.put(name, b"2")
            await store.delete("gone")
            await store.purge("purged")
            assert sorted(await store.keys()) == ["a", "b.c", "b.d"]

    run(case())


def test_who_watches_gets_what_is_there_then_a_marker_then_changes(
    bucket_server: Server, bucket: str
) -> None:
    async def case() -> None:
        async with connected(bucket_server) as (_, stream):
            store = await stream.create_key_value(bucket=bucket, history=2)
            empty = await store.watchall()
            assert await update_of(empty) is None
            for name, value in (("a", b"1"), ("b.c", b"1"), ("a", b"2"), ("b.d", b"1")):
                await store.put(name, value)
            await store.delete("b.d")
            everything = await store.watchall()
            some = await store.watch("b.*", ignore_deletes=True)
            older = await store.watch("a", include_history=True)
            bare = await store.watchall(meta_only=True)
            present = [("b.c", b"1", None), ("a", b"2", None), ("b.d", b"", "DEL")]
            found = [await update_of(everything) for _ in range(4)]
            assert found.pop() is None
            assert sorted(of(each) for each in found if each) == sorted(present)
            revisions = [each.revision or 0 for each in found if each]
            assert revisions == sorted(revisions)
            assert [each.delta for each in found if each] == [2, 1, 0]
            first, end = [await update_of(some) for _ in range(2)]
            assert first is not None
            assert (of(first), end) == (("b.c", b"1", None), None)
            values = [await update_of(older) for _ in range(3)]
            assert [each and each.value for each in values] == [b"1", b"2", None]
            sizes = [await update_of(bare) for _ in range(4)]
            assert not any(each.value for each in sizes if each)

            await store.put("b.x.y", b"deeper")
            await store.put("b.d", b"again")
            await store.purge("a")
            for watching, expected in (
                (everything, [("b.x.y", b"deeper", None), ("b.d", b"again", None), ("a", b"", "PURGE")]),
                (some, [("b.d", b"again", None)]),
                (older, [("a", b"", "PURGE")]),
                (bare, [("b.x.y", b"", None), ("b.d", b"", None), ("a", b"", "PURGE")]),
            ):
                changes = [await update_of(watching) for _ in expected]
                assert [of(each) for each in changes if each] == expected

    run(case())


def test_a_client_that_watches_much_gets_all_of_it(bucket_server: Server, bucket: str) -> None:
    """More than flow control lets go at once, and while it goes on changing."""

    async def case() -> None:
        async with connected(bucket_server) as (_, stream):
            store = await stream.create_key_value(bucket=bucket)
            large = {f"k{number}": bytes([number % 251]) * 20_000 for number in range(250)}
            await asyncio.gather(*(store.put(name, value) for name, value in large.items()))
            watching = await store.watchall()
            got: dict[str, bytes | None] = {}
            changed = [asyncio.create_task(store.put(f"k{number}", b"new")) for number in range(0, 250, 5)]
            while not all(got.get(f"k{number}") == b"new" for number in range(0, 250, 5)) or len(got) < 250:
                entry = await update_of(watching)
                if entry is not None:
                    got[entry.key] = entry.value
            await asyncio.gather(*changed)
            expected = large | {f"k{number}": b"new" for number in range(0, 250, 5)}
            assert got == expected
            assert sorted(await store.keys()) == sorted(expected)

    run(case())


def test_markers_of_what_was_deleted_are_purged(bucket_server: Server, bucket: str) -> None:
    async def case() -> None:
        async with connected(bucket_server) as (_, stream):
            store = await stream.create_key_value(bucket=bucket, history=5)
            for name in ("a", "b"):
                await store.put(name, b"1")
                await store.put(name, b"2")
            await store.delete("a")
            await store.purge_deletes(olderthan=3600)
            assert [each.operation for each in await store.history("a")] == ["DEL"]
            await store.purge_deletes(olderthan=0)
            with pytest.raises(NoKeysError):
                await store.history("a")
            assert len(await store.history("b")) == 2
            last = (await store.get("b")).revision
            assert last is not None
            assert await stream.purge_stream(f"KV_{bucket}", seq=last)
            assert [each.value for each in await store.history("b")] == [b"2"]
            assert await stream.purge_stream(f"KV_{bucket}")
            assert (await store.status()).values == 0

    run(case())


def test_values_end_after_the_time_to_live(bucket_server: Server, bucket: str) -> None:
    async def case() -> None:
        async with connected(bucket_server) as (_, stream):
            store = await stream.create_key_value(bucket=bucket, ttl=1.0, history=4)
            assert (await store.status()).ttl == 1.0
            await store.put("k", b"1")
            await store.put("k", b"2")
            while True:
                try:
                    await store.get("k")
                except KeyNotFoundError:
                    break
                await asyncio.sleep(0.05)
            while (await store.status()).values:
                await asyncio.sleep(0.05)
            await store.create("k", b"3")

    run(case())


def test_plain_messages_to_a_key_are_values_too(bucket_server: Server, bucket: str) -> None:
    async def case() -> None:
        async with connected(bucket_server) as (client, stream):
            store = await stream.create_key_value(bucket=bucket)
            watching = await store.watchall()
            assert await update_of(watching) is None
            await client.publish(f"$KV.{bucket}.k", b"plain")
            entry = await update_of(watching)
            assert entry is not None
            assert of(entry) == ("k", b"plain", None)
            first = await stream.publish(f"$KV.{bucket}.k", b"once", headers={"Nats-Msg-Id": "1"})
            again = await stream.publish(f"$KV.{bucket}.k", b"twice", headers={"Nats-Msg-Id": "1"})
            assert (again.duplicate, again.seq) == (True, first.seq)
            assert (await store.get("k")).value == b"once"

    run(case())


# --- buckets ------------------------------------------------------------------------------------


def test_buckets_are_created_and_deleted(bucket_server: Server, bucket: str) -> None:
    async def case() -> None:
        async with connected(bucket_server) as (_, stream):
            with pytest.raises(BucketNotFoundError):
                await stream.key_value(bucket)
            with pytest.raises(NotFoundError):
                await stream.delete_key_value(bucket)
            store = await stream.create_key_value(bucket=bucket, history=4, description="of tests")
            status = await store.status()
            assert (status.bucket, status.history, status.values) == (bucket, 4, 0)
            assert status.stream_info.config.description == "of tests"
            again = await stream.create_key_value(bucket=bucket, history=4, description="of tests")
            await again.put("k", b"1")
            with pytest.raises(BadRequestError) as raised:
                await stream.create_key_value(bucket=bucket, history=5)
            assert raised.value.err_code == 10058
            assert f"KV_{bucket}" in {each.config.name for each in await stream.streams_info()}
            assert await stream.find_stream_name_by_subject(f"$KV.{bucket}.k") == f"KV_{bucket}"
            assert (await store.get("k")).value == b"1"
            assert await stream.delete_key_value(bucket)
            with pytest.raises(BucketNotFoundError):
                await stream.key_value(bucket)
            new = await stream.create_key_value(bucket=bucket)
            with pytest.raises(KeyNotFoundError):
                await new.get("k")
            await new.put("k", b"2")
            assert (await new.get("k")).value == b"2"

    run(case())


def test_the_settings_of_a_bucket_change(bucket_server: Server, bucket: str) -> None:
    async def case() -> None:
        async with connected(bucket_server) as (_, stream):
            store = await stream.create_key_value(bucket=bucket, history=5)
            for number in range(5):
                await store.put("k", b"%d" % number)
            config = (await store.status()).stream_info.config
            await stream.update_stream(config.evolve(max_msgs_per_subject=2, description="less"))
            status = await store.status()
            assert (status.history, status.stream_info.config.description) == (2, "less")
            await store.put("k", b"5")
            assert [each.value for each in await store.history("k")] == [b"4", b"5"]

    run(case())


def test_limits(bucket_server: Server, bucket: str) -> None:
    async def case() -> None:
        async with connected(bucket_server) as (_, stream):
            store = await stream.create_key_value(bucket=bucket, max_value_size=100, max_bytes=2_000)
            await store.put("k", bytes(100))
            with pytest.raises(APIError) as raised:
                await store.put("k", bytes(101))
            assert (raised.value.code, raised.value.err_code) == (400, 10054)
            results = await asyncio.gather(
                *(store.put(f"k{number}", bytes(100)) for number in range(30)), return_exceptions=True
            )
            refused = [each for each in results if isinstance(each, APIError)]
            assert 10 < len(refused) < 29
            assert {(each.code, each.err_code) for each in refused} == {(503, 10077)}
            await stream.purge_stream(f"KV_{bucket}")
            await store.put("k", bytes(100))

    run(case())


# --- several servers ----------------------------------------------------------------------------


async def until_there(stream: JetStreamContext, **wanted: Any) -> KeyValue:
    """A bucket at servers that may not have found each other yet."""
    while True:
        try:
            return await stream.create_key_value(**wanted)
        except (APIError, nats.errors.Error):
            await asyncio.sleep(0.1)


def test_what_was_acknowledged_is_there_when_a_server_is_killed(start: Starting, bucket: str) -> None:
    servers = start(3, majority=True)

    async def case() -> None:
        again = {"allow_reconnect": True, "reconnect_time_wait": 0.05, "max_reconnect_attempts": -1}
        async with connected(servers[0], timeout=2) as (_, first):
            await until_there(first, bucket=bucket, replicas=3, history=5)
        acknowledged: dict[str, int] = {}

        async def put(stream: JetStreamContext, name: str) -> None:
            store = await stream.key_value(bucket)
            for number in range(300):
                try:
                    acknowledged[f"{name}{number}"] = await store.put(f"{name}{number}", b"%d" % number)
                except (APIError, nats.errors.Error):
                    await asyncio.sleep(0.05)  # it may have been put, or not

        async with (
            connected(*servers, timeout=2, **again, dont_randomize=True) as (client, one),
            connected(servers[1]) as (_, other),
        ):
            seen: dict[str, int] = {}
            watching = await (await other.key_value(bucket)).watchall()
            putting = [asyncio.create_task(put(one, "a")), asyncio.create_task(put(other, "b"))]
            while len(acknowledged) < 100:
                await asyncio.sleep(0.01)
            assert client.connected_url is not None
            assert client.connected_url.port == servers[0].port
            servers[0].kill()
            await asyncio.gather(*putting)
            assert any(name.startswith("a") for name in list(acknowledged)[150:]), "it went on"
            store = await other.key_value(bucket)
            for name, revision in acknowledged.items():
                entry = await store.get(name)
                assert (entry.value, entry.revision) == (name[1:].encode(), revision)
            await store.put("last", b"")
            while "last" not in seen:
                change = await update_of(watching)
                if change is not None:
                    assert change.revision is not None
                    seen[change.key] = change.revision
            assert acknowledged.items() <= seen.items(), "who watches elsewhere has missed nothing"
            await asyncio.to_thread(servers[0].start)
            async with connected(servers[0]) as (_, back):
                store = await back.key_value(bucket)
                for name in list(acknowledged)[::20]:
                    assert (await store.get(name)).revision == acknowledged[name]

    run(case())
