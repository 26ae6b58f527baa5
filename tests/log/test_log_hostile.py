"""Payloads that no correct member sends: refused, counted, and the same at every member; nobody stops."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import msgspec
import pytest
from test_log_nodes import group, run, stop

from hunts import rounds
from ordercast import Message, MessageTooLarge
from ordercast.core.addresses import MESSAGE, STAMP_SIZE, address, address_of, read_address
from ordercast.core.identity import Batch, Configuration, ConfigurationId, Guarantee, Kind
from ordercast.errors import ConfigProblem
from ordercast.groups.notes import (
    NOTE,
    ROW,
    Ask,
    Clock,
    Commit,
    Fence,
    Job,
    Known,
    Progress,
    Slow,
    written,
)
from ordercast.groups.producers import Producers, row_fronts
from ordercast.groups.receipts import Receipts
from ordercast.log import Replica
from ordercast.log.compare import compare
from ordercast.log.store import Delivered, Installed, Store
from ordercast.process_groups.machine import ProcessGroups
from ordercast.process_groups.views import Output

RING = ConfigurationId(4, 1)
OWNER = b"ownerown"
FENCE = Fence(b"task", 0, b"run", 0, OWNER, "rows", 1)
PROGRESS = Progress(0, 3, 7, b"run", 0, 1)
NO_UTF8 = bytes((MESSAGE, 0, 0, 0, 0, 1, 2)) + b"\xff\xfehello"


def unlikely(chance: random.Random) -> bytes:
    """Something like what members multicast, bent in one place or several."""
    number = chance.choice((0, 1, -1, 2**31, 2**62, 2**63 - 1, -(2**63), 2**64 - 1))
    name = chance.randbytes(chance.choice((0, 1, 128, 129, 506, 600)))
    front = next(iter(row_fronts(OWNER, chance.randrange(3), 1)))
    fence = chance.choice(
        (
            msgspec.structs.replace(FENCE, producer=name),
            msgspec.structs.replace(FENCE, run=name * 3),
            msgspec.structs.replace(FENCE, owner=name),
            msgspec.structs.replace(FENCE, batch=number),
            msgspec.structs.replace(FENCE, attempt=number, time_us=number),
            msgspec.structs.replace(FENCE, group="x" * chance.choice((0, 128, 129))),
        )
    )
    known = chance.choice(
        (
            Known(RING, 0, number, 0, {}, {b"task": PROGRESS}),
            Known(RING, number, 1, number, {}, {name: PROGRESS}),
            Known(RING, 0, 1, 0, {name[:17]: Job(number, number)}, {b"task": PROGRESS}),
            Known(RING, 0, 1, 0, {}, {b"task": msgspec.structs.replace(PROGRESS, count=number, run=name)}),
            Known(RING, 0, 1, 0, {}, {b"%d" % n: PROGRESS for n in range(chance.choice((0, 100, 101)))}),
            Commit(name[:17], number, True, OWNER, number),
            Clock(number),
            Slow(tuple("x" * chance.choice((0, 1, 128, 129)) for _ in range(chance.choice((0, 3, 1001))))),
        )
    )
    good = [address(0, ["rows"]) + b"a row", front + b"a row", written(FENCE), written(known), written(Ask())]
    match chance.randrange(7):
        case 0:
            return written(fence)
        case 1:
            return written(known)
        case 2:
            return bytes((chance.choice((MESSAGE, ROW, NOTE, 0, 255)),)) + chance.randbytes(
                chance.randrange(30)
            )
        case 3:
            return bytes((MESSAGE, 0, 0, 0, 0, 1, len(name) % 256)) + name
        case 4:
            data = bytearray(chance.choice(good))
            data[chance.randrange(len(data))] = chance.randrange(256)
            return bytes(data)
        case 5:
            data = bytearray(chance.choice(good))
            return bytes(data[: chance.randrange(len(data))])
    return chance.choice(good)


@pytest.mark.campaign
def test_an_address_names_groups_or_there_is_none() -> None:
    chance = random.Random(1)
    for _ in range(rounds(2_000, 100_000)):
        payload = unlikely(chance)
        found = address_of(payload)
        if found is not None:
            where = read_address(found)
            assert where is not None
            assert address(*where, stamped=found[-STAMP_SIZE:]) == found
    assert address_of(NO_UTF8) is None
    longest = address(0, ["x" * 255])
    assert address_of(longest + b"y") == longest
    assert address_of(bytes((MESSAGE, 0, 0, 0, 0, 1, 0)) + b"x") is None


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(rounds(2, 40)))
def test_whatever_is_delivered_members_do_the_same_and_the_log_holds(seed: int, tmp_path: Path) -> None:
    """The whole path behind the machine: producers, groups, log; two members, the same order."""
    chance = random.Random(seed)
    configuration = Configuration(RING, Kind.REGULAR, (1, 2))
    members = [Producers(), Producers()]
    machines = [ProcessGroups(node, 0) for node in (1, 2)]
    stores = [Store(tmp_path / str(node), node, most_bytes=2**24, sync=False) for node in (1, 2)]
    try:
        for producers, machine, store in zip(members, machines, stores, strict=True):
            producers.install(configuration)
            machine.join(machine.begin(), "rows")
            machine.install(configuration)
            store.append([Installed(1, configuration, True)])
        states = [submit for machine in machines if (submit := machine.take(2**20)) is not None]
        received: tuple[list[Output], list[Output]] = ([], [])
        for machine in machines:
            for origin, submit in enumerate(states, 1):
                machine.routing.deliver(Batch(RING, 0, 0, origin, 0, 1, submit.guarantee, submit.payloads))
            assert machine.settled
        for seq in range(1, 400):
            payloads = [unlikely(chance) for _ in range(chance.randint(1, 6))]
            origin, number = chance.choice((1, 2)), chance.choice((seq, 1, 2**61))
            batch = Batch(RING, seq, 0, origin, 0, number, Guarantee.SAFE, payloads)
            for producers, machine, store, got in zip(members, machines, stores, received, strict=True):
                admitted = producers.admit(batch)
                for part in admitted:
                    got += machine.routing.deliver(part)
                notes = producers.table.take_unsaved()
                store.append([Delivered(1, part, notes) for part in admitted])
        assert members[0].table.progress == members[1].table.progress
        assert members[0].table.jobs == members[1].table.jobs
        assert members[0].malformed == members[1].malformed > 0
        assert machines[0].stats["malformed"] == machines[1].stats["malformed"] > 0
        assert len(received[0]) == len(received[1]) > 50
        assert stores[0].notes() == stores[1].notes()
        assert stores[0].meta.entries == stores[1].meta.entries > 1
        Producers().table.restore(stores[0].notes())
    finally:
        for store in stores:
            store.close()
    with Replica(str(tmp_path / "1")) as one, Replica(str(tmp_path / "2")) as other:
        compared = compare(one, other)
    assert compared.equal
    assert compared.entries > 50


def test_a_receipt_that_another_member_forged_is_an_error_and_not_the_end() -> None:
    async def test() -> None:
        receipts = Receipts()
        receipt = receipts.expect(3)
        receipts.resolve(Batch(RING, 1, 0, 1, 0, 2**61, Guarantee.AGREED, [address(0, ["rows"]) + b"x"]))
        with pytest.raises(Exception, match="another member sends in its place"):
            await receipt

    asyncio.run(test())


@pytest.mark.parametrize("protocol", ["totem", "total"])
def test_hostile_payloads_end_nobody_and_logs_stay_the_same(protocol: str, tmp_path: Path) -> None:
    async def test() -> None:
        nodes = await group(tmp_path, 3, protocol=protocol)
        chance = random.Random(5)
        joined = [await one.join("rows") for one in nodes]
        hostile = [
            NO_UTF8,
            written(FENCE),
            written(msgspec.structs.replace(FENCE, producer=b"p" * 600)),
            *(unlikely(chance) for _ in range(300)),
        ]
        for one in nodes:
            one._running.producing.submit([written(Ask())])
        for payload in hostile:
            nodes[0]._running.gate.submit([payload], len(payload), Guarantee.SAFE)
        for at, rows in enumerate(joined):
            await rows.send(b"afterwards %d" % at, safe=True)
        counts = []
        for rows in joined:
            seen = set()
            async for event in rows:
                if isinstance(event, Message) and event.payload.startswith(b"afterwards"):
                    seen.add(event.payload)
                    if len(seen) == 3:
                        break
        for one in nodes:
            counts.append(
                {reason: count for reason, count in one.status()["drops"].items() if "malformed" in reason}
            )
        assert counts[0] == counts[1] == counts[2]
        assert counts[0]["malformed message"] > 0
        await stop(*nodes)
        for other in (2, 3):
            with Replica(str(tmp_path / "log 1")) as left, Replica(str(tmp_path / f"log {other}")) as right:
                assert compare(left, right).equal

    run(test)


def test_a_producer_with_an_impossible_name_is_told_so(tmp_path: Path) -> None:
    async def test() -> None:
        nodes = await group(tmp_path, 1)
        serve = nodes[0]._running.producing.serve
        wish = {"group": "rows", "producer": b"task", "batch": 0, "run": b"", "attempt": 0}
        for wrong in ({"producer": b"p" * 507}, {"producer": b""}, {"run": b"r" * 2**25}, {"batch": -1}):
            with pytest.raises(ConfigProblem, match="names of producers have 1 to 128 bytes"):
                await serve(None, {**wish, **wrong})  # type: ignore[arg-type]
        with pytest.raises(MessageTooLarge, match="max_message_size"):
            nodes[0]._running.producing.submit([bytes(2**25)])
        await stop(*nodes)

    run(test)
