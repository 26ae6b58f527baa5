"""One life of a node: keys that change, disks that fail, others that are killed, and who comes back."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from group_nodes import make_node, payloads, read, ring, run, together, udp, until

from absence import turns
from ordercast import Configuration, DuplicateNode, Kind, Message, Node, NodeClosed, StorageProblem, keys
from ordercast.groups import upkeep


def test_a_key_is_changed_while_the_group_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "INTERVAL_S", 0.02)
    files = [tmp_path / "one.key", tmp_path / "two.key"]
    keys.create(files[0])
    files[1].write_text(files[0].read_text())
    files[1].chmod(0o600)

    async def main() -> None:
        async with make_node(key=files[0]) as one, make_node(key=str(files[1]), seeds=[one.address]) as two:
            await together([one, two])
            mine, its = await one.join("g"), await two.join("g")
            configuration = one.configuration
            seals = [udp(node).seal for node in (one, two)]
            for step, change in enumerate((keys.add, keys.promote, keys.prune)):
                change(files[0])
                files[1].write_text(files[0].read_text())
                ids = keys.Keyring.load(files[0]).ids
                await until(lambda ids=ids: all(seal and seal.keyring.ids == ids for seal in seals))  # type: ignore[misc]
                await mine.send(b"%d" % step)
                assert await payloads(its, 1) == [b"%d" % step]
            assert one.configuration == configuration, "nobody noticed"

    run(main)


def test_a_broken_key_file_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(upkeep, "INTERVAL_S", 0.02)
    file = tmp_path / "group.key"
    keys.create(file)

    async def main() -> None:
        async with make_node(key=file) as node:
            file.write_text("rubbish")
            await until(lambda: "the changed key file is not used" in caplog.text)
            group = await node.join("g")
            await group.send(b"x")
            assert await payloads(group, 1) == [b"x"]

    run(main)


def test_a_disk_that_fails_ends_the_node_with_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with make_node(data=tmp_path / "one") as one:
            group = await one.join("g")

            def full(data: bytes) -> None:
                raise StorageProblem("the disk is full: make room")

            one._running.storage.persist = full  # type: ignore[method-assign]
            async with make_node(seeds=[one.address]) as two:
                with pytest.raises(StorageProblem, match="disk is full"):
                    await one.closed()
                with pytest.raises(StorageProblem):
                    await group.send(b"x")
                with pytest.raises(StorageProblem):
                    await read(group, 1)
                with pytest.raises(StorageProblem):
                    await one.wait_for(2)
                await until(lambda: two.members == (two.id,))
        async with make_node(data=tmp_path / "one") as again:
            assert again.incarnation > 0

    run(main)
    assert [r.levelno for r in caplog.records if "disk is full" in r.message] == [logging.ERROR]


def test_who_is_killed_is_missed_and_may_come_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with ring(2) as (one, two):
            dead = make_node(data=tmp_path / "three", seeds=[one.address])
            await dead.start()
            await together([one, two, dead])
            group = await one.join("g")
            dead._running.driver.end(None)  # as kill -9 would: without a word
            await until(lambda: set(one.members) == {one.id, two.id})
            await dead.stop()
            async with make_node(data=tmp_path / "three", seeds=[two.address]) as back:
                assert back.id == dead.id
                assert back.incarnation == dead.incarnation + 1
                await together([one, two, back])
                await (await back.join("g", receive=False)).send(b"back")
                kinds: list[object] = []
                async for event in group:
                    if isinstance(event, Message):
                        assert event.id.incarnation == back.incarnation
                        break
                    if isinstance(event, Configuration):
                        kinds.append(event.kind)
                assert Kind.TRANSITIONAL in kinds
                assert kinds[-1] is Kind.REGULAR

    run(main)


def test_two_that_were_started_apart_with_one_identifier() -> None:
    async def main() -> None:
        async with make_node(id=5) as first:
            late = make_node(id=5)
            await late.start()
            udp(late).links.know([udp(first).own])
            with pytest.raises(DuplicateNode, match="5 is in use"):
                await late.closed()
            with pytest.raises(DuplicateNode):
                await late.join("g")
            await late.stop()
            assert first.members == (5,)

    run(main)


def test_without_a_key_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with make_node():
            pass
        async with make_node(key=keys.generate()):
            pass

    run(main)
    assert caplog.text.count("no key: packets are neither encrypted nor authenticated") == 1


def test_those_who_were_apart_come_together() -> None:
    async def main() -> None:
        async with ring(2) as (one, two):
            groups = [await node.join("g") for node in (one, two)]
            with pytest.MonkeyPatch.context() as cut:
                for node in (one, two):
                    for channel in udp(node).sockets[:2]:
                        cut.setattr(channel, "send", lambda train, to: None)
                await until(lambda: len(one.members) == len(two.members) == 1)
                for group in groups:
                    await group.send(b"apart")
            await together([one, two])
            await groups[0].send(b"together")
            for group, node in zip(groups, (one, two), strict=True):
                seen = await read(group, 2)
                assert [m.payload for m in seen] == [b"apart", b"together"]
                assert seen[0].sender == node.id

    run(main)


def test_settings_of_the_protocol_are_checked() -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="packet_size"):
            await make_node(protocol_settings={"packet_size": 65_507, "max_message_size": 1}).start()

    run(main)


def test_a_node_dropped_without_stopping_ends_its_readers() -> None:
    async def main() -> None:
        node = make_node()
        await node.start()
        group = await node.join("g")
        node._running.driver.end(NodeClosed("gone"))
        entries: list[object] = []
        with pytest.raises(NodeClosed, match="gone"):
            entries += [event async for event in group]
        await node.stop()

    run(main)


def test_cancelling_a_sender_that_waits_sends_nothing() -> None:
    async def main() -> None:
        async with ring(2, send_buffer=4096, receive_buffer=65_536) as (one, two):
            its = await two.join("g")
            mine = await one.join("g", receive=False)

            sent = 0

            async def flood() -> None:
                nonlocal sent
                while True:
                    await mine.send(bytes(1000))
                    sent += 1

            flooding = asyncio.create_task(flood())
            await until(lambda: one.status()["held_up_by"] == two.id)
            late = asyncio.create_task(mine.send(b"cancelled"))
            await turns()
            assert not late.done()
            for task in (late, flooding):
                task.cancel()
            await asyncio.gather(late, flooding, return_exceptions=True)
            last = asyncio.create_task(mine.send(b"last"))
            assert await payloads(its, sent + 1) == [*[bytes(1000)] * sent, b"last"]
            await last

    run(main)


@pytest.mark.parametrize("politely", [True, False])
def test_a_node_that_leaves_with_a_word_is_no_cause_for_a_warning(
    politely: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ordercast")
    two: list[Node] = []

    def told() -> list[logging.LogRecord]:
        said = (
            record for record in caplog.records if record.getMessage().startswith(f"node {two[0].id} at ")
        )
        return [record for record in said if "gone" in record.getMessage()]

    async def main() -> None:
        async with make_node() as one:
            two.append(make_node(seeds=[one.address]))
            await two[0].start()
            await one.wait_for(2)
            group = await one.join("g")
            if politely:
                await two[0].stop()
            else:
                two[0]._running.driver.end(None)
            await until(lambda: one.members == (one.id,))
            await until(lambda: bool(told()))
            await group.send(b"x")
            await two[0].stop()

    run(main)
    assert {record.levelno for record in told()} == {logging.INFO if politely else logging.WARNING}
