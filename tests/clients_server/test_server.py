"""A node's clients, over the NATS client protocol by hand; the node is alone and orders at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from one_node import LONG_S, Line, serving

from ordercast.clients import connection, server
from ordercast.core.subjects import subscription
from ordercast.errors import MessageTooLarge, NoMajority


def run(case: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(case, LONG_S))


HEADED = b'{"headers": true, "no_responders": true}'


def test_what_is_published_comes_to_who_subscribes() -> None:
    async def case() -> None:
        async with serving() as (_, at):
            one, other = await Line.to(at), await Line.to(at)
            one.say(b"SUB a.* 1", b"SUB a.b 2", b"SUB > 3", b"SUB other 4")
            await one.settled()
            other.say(b"PUB a.b 2", b"hi", b"PUB a.c r 0", b"")
            await other.settled()
            assert await one.answers(6) == [
                b"MSG a.b 1 2",
                b"hi",
                b"MSG a.b 2 2",
                b"hi",
                b"MSG a.b 3 2",
                b"hi",
            ]
            assert await one.answers(4) == [b"MSG a.c 1 r 0", b"", b"MSG a.c 3 r 0", b""]
            await one.settled()

    run(case())


def test_messages_over_all_subscriptions_are_in_the_one_order() -> None:
    async def case() -> None:
        async with serving() as (_, at):
            one, other, third = [await Line.to(at) for _ in range(3)]
            one.say(b"SUB a 1", b"SUB b 2", b"SUB c q 3")
            await one.settled()
            for number in range(50):
                other.say(b"PUB a 2", b"%02d" % number, b"PUB c 2", b"%02d" % number)
                third.say(b"PUB b 2", b"%02d" % number)
            await other.settled()
            await third.settled()
            lines = await one.answers(300)
            assert sorted(lines[1::2]) == sorted([b"%02d" % number for number in range(50)] * 3)
            assert [
                text for head, text in zip(lines[::2], lines[1::2], strict=True) if b" c " not in head
            ] != []
            for name in (b"a", b"b", b"c"):
                mine = [
                    text
                    for head, text in zip(lines[::2], lines[1::2], strict=True)
                    if head.split()[1] == name
                ]
                assert mine == [b"%02d" % number for number in range(50)]

    run(case())


def test_of_a_queue_one_subscription_gets_a_message() -> None:
    async def case() -> None:
        async with serving() as (_, at):
            lines = [await Line.to(at) for _ in range(3)]
            for line in lines:
                line.say(b"SUB work q 1", b"SUB work q 2")
                await line.settled()
            for _ in range(60):
                lines[0].say(b"PUB work 1", b"x")
            counts = []
            for line in lines:
                line.say(b"PING")
                got: list[bytes] = []
                while (answer := await line.read()) != b"PONG\r\n":
                    got.append(answer)
                counts.append(len(got) // 2)
                assert {head.split()[2] for head in got[::2]} == {b"1", b"2"}
            assert sum(counts) == 60
            assert all(counts)

    run(case())


def test_headers_come_to_who_knows_them() -> None:
    async def case() -> None:
        async with serving() as (_, at):
            one, other = await Line.to(at, HEADED), await Line.to(at)
            one.say(b"SUB a 1")
            other.say(b"SUB a 1")
            await one.settled()
            await other.settled()
            one.say(b"HPUB a r 18 20", b"NATS/1.0\r\nA: b\r\n\r\nhi")
            assert await one.answers(5) == [b"HMSG a 1 r 18 20", b"NATS/1.0", b"A: b", b"", b"hi"]
            assert await other.answers(2) == [b"MSG a 1 r 2", b"hi"]

    run(case())


def test_who_asks_where_nobody_is_is_told() -> None:
    async def case() -> None:
        async with serving() as (_, at):
            one, other = await Line.to(at, HEADED), await Line.to(at)
            for line in (one, other):
                line.say(b"SUB inbox.* 1", b"PUB nobody inbox.x 1", b"?", b"PUB nobody 1", b"?")
            assert await one.answers(4) == [b"HMSG inbox.x 1 16 16", b"NATS/1.0 503", b"", b""]
            await one.settled()
            await other.settled()

    run(case())


def test_a_client_may_want_no_echo() -> None:
    async def case() -> None:
        async with serving() as (_, at):
            one, other = await Line.to(at, b'{"echo": false}'), await Line.to(at)
            one.say(b"SUB a 1", b"PUB a 1", b"1")
            await one.settled()
            other.say(b"PUB a 1", b"2")
            assert await one.answers(2) == [b"MSG a 1 1", b"2"]

    run(case())


def test_a_subscription_ends_at_once_or_after_so_many() -> None:
    async def case() -> None:
        async with serving() as (node, at):
            one = await Line.to(at)
            one.say(b"SUB a 1", b"SUB a 2", b"SUB b 3", b"UNSUB 3", b"UNSUB 1 2", b"UNSUB 7")
            for number in range(3):
                one.say(b"PUB a 1", b"%d" % number)
            one.say(b"PUB b 1", b"x")
            heads = (await one.answers(10))[::2]
            assert heads == [b"MSG a 1 1", b"MSG a 2 1", b"MSG a 1 1", b"MSG a 2 1", b"MSG a 2 1"]
            one.say(b"UNSUB 1 2", b"UNSUB 2")
            await one.settled()
            assert not node.members("a")
            assert not node.members("b")

    run(case())


def test_who_wants_to_be_verbose_is_told_of_each_operation() -> None:
    async def case() -> None:
        async with serving() as (_, at):
            one = await Line.to(at, b'{"verbose": true}')
            one.say(b"SUB a 1", b"PUB b 1", b"x", b"PUB b 1", b"x", b"UNSUB 1", b"PING")
            assert await one.answers(6) == [b"+OK"] * 5 + [b"PONG"]
            one.close()

    run(case())


def test_a_ping_is_answered_when_what_came_before_it_has_its_place() -> None:
    async def case() -> None:
        async with serving() as (node, at):
            one = await Line.to(at)
            one.say(b"SUB a 1", b"PUB a 1", b"x", b"PING")
            assert await one.answers(3) == [b"MSG a 1 1", b"x", b"PONG"]
            assert node.members("a")

    run(case())


def test_what_is_wrong_is_told_and_counted_and_ends_the_connection() -> None:
    async def case() -> None:
        async with serving(client_max_payload=100) as (_, at):
            other = await Line.to(at)
            other.say(b"SUB > 1")
            await other.settled()
            for said, words, reason in (
                (b"NONSENSE\r\n", b"Unknown Protocol Operation", "unknown operation"),
                (b"SUB " + b"a" * 5000, b"maximum control line exceeded", "line too long"),
                (b"PUB a 101\r\n", b"Maximum Payload Violation", "payload too large"),
                (b"SUB\r\n", b"Parser Error", "malformed line"),
                (b"CONNECT [[[[\r\n", b"Parser Error", "CONNECT without sound options"),
                (b"CONNECT " + b"[" * 4000 + b"\r\n", b"Parser Error", "CONNECT without sound options"),
                (b'CONNECT {"verbose": "yes"}\r\n', b"Parser Error", "CONNECT without sound options"),
            ):
                before = at.malformed[reason]
                line = await Line.to(at, None)
                line.writer.write(said)
                assert await line.rest() == b"-ERR '%s'\r\n" % words
                assert at.malformed[reason] == before + 1
            await other.settled()
            assert at.report()["connected"] == 1

    run(case())


def test_a_wrong_subject_does_not_end_the_connection() -> None:
    async def case() -> None:
        async with serving() as (_, at):
            one = await Line.to(at)
            one.say(b"SUB a..b 1", b"SUB >.a 1", b"SUB " + b"a" * 300 + b" 1", b"PUB .a 1", b"x")
            assert await one.answers(4) == [b"-ERR 'Invalid Subject'"] * 3 + [
                b"-ERR 'Permissions Violation for Publish to \".a\": it is no subject'"
            ]
            await one.settled()
            one.say(b'CONNECT {"pedantic": true}', b"PUB .a 1", b"x")
            assert await one.answers(1) == [b"-ERR 'Invalid Publish Subject'"]
            await one.settled()

    run(case())


@pytest.mark.parametrize(
    ("settings", "right", "wrong"),
    [
        ({"client_token": "t"}, b'{"auth_token": "t"}', [b"{}", b'{"auth_token": "u"}']),
        (
            {"client_user": "ann", "client_password": "p"},
            b'{"user": "ann", "pass": "p"}',
            [b"{}", b'{"user": "ann", "pass": "q"}', b'{"user": "bob", "pass": "p"}', b'{"user": null}'],
        ),
    ],
)
def test_who_is_not_known_is_cut_off(settings: dict[str, str], right: bytes, wrong: list[bytes]) -> None:
    async def case() -> None:
        async with serving(**settings) as (_, at):
            one = await Line.to(at, right)
            await one.settled()
            for text in wrong:
                other = await Line.to(at, text)
                assert await other.rest() == b"-ERR 'Authorization Violation'\r\n"
            silent = await Line.to(at, None)
            silent.say(b"SUB a 1")
            assert await silent.rest() == b"-ERR 'Authorization Violation'\r\n"
            assert at.refused["authorization"] == len(wrong) + 1

    run(case())


def test_a_client_that_takes_nothing_is_cut_off_and_others_are_not_slowed() -> None:
    async def case() -> None:
        async with serving(client_buffer=65_536) as (node, at):
            slow, other = await Line.to(at), await Line.to(at)
            slow.say(b"SUB a 1")
            slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
            other.say(b"PING")
            await other.answers(1)
            payload = bytes(50_000)
            while not at.refused["slow consumer"]:
                other.say(b"PUB a 50000", payload)
                await other.settled()
            assert at.report()["connected"] == 1
            assert not node.members("a")
            await other.settled()

    run(case())


def test_a_client_that_publishes_more_than_there_is_room_for_waits() -> None:
    async def case() -> None:
        async with serving() as (node, at):
            one, other = await Line.to(at), await Line.to(at)
            other.say(b"SUB a 1")
            await other.settled()
            node.full.set()
            for number in range(20):
                one.say(b"PUB a 2", b"%02d" % number)
            one.say(b"PING")
            await other.settled()
            node.full.clear()
            assert await one.answers(1) == [b"PONG"]
            assert (await other.answers(40))[1::2] == [b"%02d" % number for number in range(20)]

    run(case())


def test_who_ends_leaves_its_groups_and_its_share_of_a_queue_goes_to_others() -> None:
    async def case() -> None:
        async with serving() as (node, at):
            one, other = await Line.to(at), await Line.to(at)
            for line in (one, other):
                line.say(b"SUB work q 1")
                await line.settled()
            one.writer.transport.abort()
            while len(node.members(subscription("work", "q"))) > 1:
                await asyncio.sleep(0.01)
            for _ in range(10):
                other.say(b"PUB work 1", b"x")
            assert len(await other.answers(20)) == 20

    run(case())


def test_when_too_many_are_connected_others_are_refused() -> None:
    async def case() -> None:
        async with serving(client_connections=4) as (_, at):
            lines = [await Line.to(at) for _ in range(3)]
            for line in lines:
                await line.settled()
            assert at.address is not None
            host, port = at.address.split(":")
            more = [await asyncio.open_connection(host, int(port)) for _ in range(3)]
            said = [await asyncio.wait_for(reader.readline(), LONG_S) for reader, _ in more]
            assert all(words.startswith((b"INFO", b"-ERR 'maximum conn")) or not words for words in said)
            for line in lines:
                await line.settled()
            for _, writer in more:
                writer.close()

    run(case())


def test_clients_are_told_to_go_elsewhere_when_the_node_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "GRACE_S", 0.05)

    async def case() -> None:
        async with serving() as (_, at):
            one = await Line.to(at)
            await one.settled()
            closing = asyncio.create_task(at.close())
            info = json.loads((await one.read()).removeprefix(b"INFO "))
            assert info["ldm"] is True
            assert await one.rest() == b""
            await closing

    run(case())


def test_silent_and_stale_connections_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "TICK_S", 0.01)
    monkeypatch.setattr(server, "HANDSHAKE_S", 0.05)
    monkeypatch.setattr(server, "PING_S", 0.2)

    async def case() -> None:
        async with serving() as (_, at):
            silent, stale = await Line.to(at, None), await Line.to(at)
            assert await silent.rest() == b"-ERR 'Authentication Timeout'\r\n"
            assert await stale.rest() == b"PING\r\nPING\r\n-ERR 'Stale Connection'\r\n"
            assert (at.refused["silent"], at.refused["stale"]) == (1, 1)

    run(case())


def test_the_status_of_the_node_is_a_request_away() -> None:
    async def case() -> None:
        async with serving() as (_, at):
            one = await Line.to(at, HEADED)
            one.say(b"SUB inbox 1", b"PUB $ORDERCAST.STATUS inbox 0", b"", b"PUB $ORDERCAST.X inbox 0", b"")
            head, body = await one.answers(2)
            assert head.startswith(b"MSG inbox 1 ")
            assert json.loads(body) == {"node": 1}
            assert (await one.answers(4))[1] == b"NATS/1.0 503"

    run(case())


def test_who_watches_a_group_is_told_of_its_members_in_the_one_order() -> None:
    async def case() -> None:
        async with serving() as (node, at):
            one, other = await Line.to(at), await Line.to(at)
            one.say(b"SUB $ORDERCAST.MEMBERS.hall 1", b"SUB inbox 2", b"SUB hall 3")
            head, body = await one.answers(2)
            assert (head.split()[1], json.loads(body)["cause"]) == (b"$ORDERCAST.MEMBERS.hall", "joined")
            one.say(b"UNSUB 3")
            head, body = await one.answers(2)
            assert json.loads(body) == {"group": "hall", "cause": "left", "members": []}
            other.say(b"SUB hall 1", b"PUB inbox 1", b"x", b"UNSUB 1", b"PUB inbox 1", b"y")
            lines = await one.answers(8)
            assert [lines[1] and json.loads(lines[1])["cause"], lines[3]] == ["joined", b"x"]
            assert [json.loads(lines[5])["cause"], lines[7]] == ["left", b"y"]
            other.say(b"SUB hall 1")
            await other.settled()
            one.say(b"UNSUB 1", b"PUB $ORDERCAST.MEMBERS.hall inbox 0", b"")
            while b"inbox" not in (await one.answers(1))[0]:
                pass
            answer = json.loads((await one.answers(1))[0])
            (member,) = node.members("hall")
            assert answer["members"] == [{"process": str(member.process), "node": 1, "properties": {}}]
            one.close()
            while node.machine.watched:
                await asyncio.sleep(0.01)

    run(case())


def test_the_most_subscriptions_of_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_SUBSCRIPTIONS", 2)

    async def case() -> None:
        async with serving() as (_, at):
            one = await Line.to(at)
            one.say(b"SUB a 1", b"SUB b 2", b"SUB c 3")
            assert await one.answers(1) == [b"-ERR 'maximum subscriptions exceeded'"]
            await one.settled()

    run(case())


def test_a_unix_socket(tmp_path: Path) -> None:
    async def case() -> None:
        path = tmp_path / "clients.sock"
        async with serving(clients=f"unix:{path}") as (_, at):
            one = await Line.to(at)
            await one.settled()
            assert path.stat().st_mode & 0o077 == 0
        assert not path.exists()

    run(case())


def test_pings_that_wait_together_take_one_place() -> None:
    async def case() -> None:
        async with serving() as (node, at):
            one = await Line.to(at)
            await one.settled()
            (client,) = at.clients.values()
            client._last_number = node.numbers + 1  # as if a message of the client were on its way
            one.say(*[b"PING"] * 1_000)
            while not client._pongs or client._pongs[-1][2] < 1_000:
                await asyncio.sleep(0.01)
            assert len(client._pongs) == 1
            client.answer_pings(all_of_them=True)
            assert await one.answers(1_000) == [b"PONG"] * 1_000

    run(case())


def test_who_publishes_outside_the_primary_partition_is_told_and_stays_connected() -> None:
    async def case() -> None:
        async with serving() as (node, at):
            one = await Line.to(at, HEADED)
            one.say(b"SUB inbox 1", b"SUB a 2")
            await one.settled()
            node.refusal = NoMajority("nobody else is there")
            one.say(b"PUB a 1", b"x", b"PUB a 1", b"y", b"PUB a inbox 1", b"z")
            refused = (
                b'-ERR \'Permissions Violation for Publish to "a": ' + connection.NOT_PRIMARY.encode() + b"'"
            )
            assert await one.answers(2) == [refused] * 2
            assert await one.answers(5) == [b"HMSG inbox 1 16 16", b"NATS/1.0 503", b"", b"", refused]
            await one.settled()
            node.refusal = None
            one.say(b"PUB a 1", b"x")
            assert await one.answers(2) == [b"MSG a 2 1", b"x"]

    run(case())


def test_who_waits_to_publish_is_told_when_the_primary_partition_is_lost() -> None:
    async def case() -> None:
        async with serving() as (node, at):
            one = await Line.to(at, b'{"verbose": true}')
            assert await one.answers(1) == [b"+OK"]
            node.full.set()
            one.say(b"PUB a 1", b"x", b"PUB b 1", b"y")
            while not at.clients or next(iter(at.clients.values()))._sending is None:
                await asyncio.sleep(0)
            node.refusal = NoMajority("nobody else is there")
            node.full.clear()
            for subject in (b"a", b"b"):
                assert (await one.read()).startswith(
                    b'-ERR \'Permissions Violation for Publish to "%b"' % subject
                )
            node.refusal = None
            one.say(b"PUB a 1", b"x")
            assert await one.answers(1) == [b"+OK"]

    run(case())


def test_what_does_not_fit_into_a_message_is_too_large_a_payload() -> None:
    async def case() -> None:
        async with serving(1024 + server.MOST_BESIDE, client_max_payload=1 << 20) as (node, at):
            assert at.most_payload == 1024, "what clients are told fits, whatever is said beside it"
            one = await Line.to(at)
            node.refusal = MessageTooLarge("another life of the node takes less")
            one.say(b"PUB a 1", b"x")
            assert await one.rest() == b"-ERR 'Maximum Payload Violation'\r\n"
            assert at.malformed["payload too large"] == 1

    run(case())
