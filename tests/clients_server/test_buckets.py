"""Key-value buckets as JetStream has them, by hand; nodes on a network in memory and in virtual time."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest
from bucket_clients import SETTINGS, AskingClient, Refused
from bucket_store import SERVING, Store, at_one_node, refusal

from hunts import rounds
from ordercast.clients.buckets import requests as requests_module
from ordercast.clients.buckets.bucket import Stored
from ordercast.clients.buckets.held import ANSWER_S
from ordercast.clients.buckets.settings import MOST_BYTES
from ordercast.clients.flow_control import FLOW_BYTES
from ordercast.errors import ConfigProblem, NodeClosed, Unanswered
from ordercast.testing import Cluster, run

WATCH = {"deliver_subject": "out", "deliver_policy": "last_per_subject", "idle_heartbeat": 5_000_000_000}
REQUESTS = rounds(3_000, 300_000, "ORDERCAST_BUCKET_REQUESTS")
"""Malformed requests that are sent."""


async def watched(client: AskingClient, name: str = "w", **more: Any) -> asyncio.Queue[Any]:
    """What comes to one who watches bucket `b`."""
    come = client.subscribed["out"] = asyncio.Queue()
    await client.api(f"CONSUMER.CREATE.KV_b.{name}", {"stream_name": "KV_b", "config": WATCH | more})
    return come


# --- what there is not ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wanted",
    [
        {"mirror": {"name": "KV_c"}},
        {"sources": [{"name": "KV_c"}]},
        {"republish": {"src": ">", "dest": "x.>"}},
        {"placement": {"cluster": "c"}},
        {"subject_delete_marker_ttl": 1_000_000_000},
        {"retention": "workqueue"},
        {"discard": "old"},
        {"compression": "s2"},
        {"subjects": ["orders.>"]},
        {"max_msgs": 5},
        {"max_msgs_per_subject": 0},
        {"max_msgs_per_subject": 65},
        {"max_bytes": MOST_BYTES + 1},
        {"num_replicas": 6},
        {"name": "KV_other"},
        {"sealed": True},
        {"something new": 1},
        {"max_age": -1},
        {"max_age": "1s"},
    ],
)
def test_settings_that_there_are_not_are_refused(wanted: dict[str, Any]) -> None:
    async def case(client: AskingClient) -> None:
        assert await refusal(client.create("c", **wanted)) in (10003, 10060)
        assert await refusal(client.api("STREAM.INFO.KV_c")) == 10059
        assert await refusal(client.api("STREAM.UPDATE.KV_b", SETTINGS | wanted)) in (10003, 10060)

    at_one_node(case)


@pytest.mark.parametrize("storage", ["file", "memory", None])
def test_who_asks_for_files_reads_that_a_bucket_is_in_memory(storage: str | None) -> None:
    async def case(client: AskingClient) -> None:
        asked = {} if storage is None else {"storage": storage}
        for _ in range(2):  # the second time it is there
            created = await client.api("STREAM.CREATE.KV_c", SETTINGS | asked)
            assert created["config"]["storage"] == "memory"
        await client.api("STREAM.UPDATE.KV_c", SETTINGS | asked)
        assert (await client.api("STREAM.INFO.KV_c"))["config"]["storage"] == "memory"
        account = await client.api("INFO")
        assert account["storage"] == 0

    at_one_node(case)


@pytest.mark.parametrize(
    ("wanted", "number"),
    [
        ({"deliver_subject": None}, 10003),
        ({"deliver_subject": "a.*"}, 10079),
        ({"ack_policy": "explicit"}, 10003),
        ({"durable_name": "d"}, 10003),
        ({"deliver_group": "q"}, 10003),
        ({"filter_subject": "$KV.>.x"}, 10003),
        ({"opt_start_seq": 5}, 10094),
        ({"deliver_policy": "by_start_time", "opt_start_time": "noon"}, 10003),
        ({"idle_heartbeat": 5}, 10083),
    ],
)
def test_consumers_that_there_are_not_are_refused(wanted: dict[str, Any], number: int) -> None:
    async def case(client: AskingClient) -> None:
        config = {name: value for name, value in (WATCH | wanted).items() if value is not None}
        asked = client.api("CONSUMER.CREATE.KV_b.w", {"stream_name": "KV_b", "config": config})
        assert await refusal(asked) == number

    at_one_node(case)


def test_requests_that_there_are_not_are_refused() -> None:
    async def case(client: AskingClient) -> None:
        await client.put("b", "k", b"1")
        for what, question, number in (
            ("STREAM.MSG.DELETE.KV_b", {"seq": 1}, 10057),
            ("STREAM.SNAPSHOT.KV_b", {}, 10003),
            ("CONSUMER.DURABLE.CREATE.KV_b.d", {}, 10003),
            ("CONSUMER.MSG.NEXT.KV_b.d", {}, 10003),
            ("CONSUMER.INFO.KV_b.nobody", {}, 10014),
            ("CONSUMER.DELETE.KV_b.nobody", {}, 10014),
            ("STREAM.PURGE.KV_b", {"seq": 2, "keep": 1}, 10003),
            ("STREAM.PURGE.KV_b", {"seq": "2"}, 10003),
            ("STREAM.CREATE.KV_a*b", SETTINGS, 10003),
            ("STREAM.DELETE.KV_c", "", 10059),
            ("CONSUMER.CREATE.KV_c", {"config": WATCH}, 10059),
        ):
            assert await refusal(client.api(what, question)) == number, what
        for value, number in (("x", 10165), ("0s", 10165), ("-1", 10165), ("", 10165)):
            assert await refusal(client.put("b", "k", b"", Nats_TTL=value)) == number, value
        for name, value, number in (
            ("Nats_Rollup", "all", 10003),
            ("Nats_Expected_Stream", "KV_c", 10060),
            ("Nats_Expected_Last_Sequence", "1", 10003),
            ("Nats_Expected_Last_Subject_Sequence", "one", 10003),
            ("Nats_Incr", "1", 10003),
        ):
            assert await refusal(client.put("b", "k", b"", **{name: value})) == number, name
        assert await refusal(client.put("c", "k", b"")) == 503, "nobody listens"
        assert await refusal(client.put("b", "*", b"")) == 503
        found = await client.get("b", "k")
        assert found is not None
        assert found[1] == b"1"
        await client.create("plain", allow_msg_ttl=False, allow_rollup_hdrs=False)
        assert await refusal(client.put("plain", "k", b"", Nats_TTL="1")) == 10166
        assert await refusal(client.put("plain", "k", b"", Nats_Rollup="sub")) == 10111

    at_one_node(case)


WORDS = (
    *("$JS", "API", "STREAM", "CONSUMER", "DIRECT", "MSG", "GET", "NEXT", "CREATE", "UPDATE", "INFO"),
    *("DELETE", "PURGE", "NAMES", "LIST", "DURABLE", "KV_b", "KV_c", "KV_", "$KV", "b", "c", "k", "w", ">"),
    *("*", "ACK", "FC"),
)
BODIES = (
    *(b"", b"{}", b"[]", b"null", b"5", b'"x"', b"{", b"\xff", b"[" * 3000, b'{"seq":1}', b'{"seq":-1}'),
    *(b'{"seq":1e300}', b'{"last_by_subj":"$KV.b.k"}', b'{"last_by_subj":5}'),
    *(b'{"next_by_subj":"$KV.b.>","seq":2}', b'{"config":{"deliver_subject":"out"}}', b'{"config":null}'),
    *(b'{"filter":"$KV.b.>","keep":1}', b'{"filter":".."}', b'{"subjects_filter":">","offset":99999999}'),
    *(b'{"subject":"..","offset":3}', json.dumps(SETTINGS).encode()),
    b'{"config":{"deliver_subject":"out","filter_subjects":["$KV.b.*",">"],"headers_only":true}}',
)
HEADERS = (
    *(b"", b"", b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n", b"\xff\xfe"),
    *(b"NATS/1.0\r\nNats-TTL: 9\r\n\r\n", b"NATS/1.0\r\nNats-Msg-Id: \xff\r\n\r\n"),
    *(b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n",),
    b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: " + b"9" * 30 + b"\r\n\r\n",
)


@pytest.mark.campaign
def test_malformed_requests_are_answered_and_nothing_is_raised(caplog: pytest.LogCaptureFixture) -> None:
    async def case(client: AskingClient) -> None:
        client.subscribed["out"] = asyncio.Queue()
        chance = random.Random(1)
        answered = 0
        for _ in range(REQUESTS // 10):
            questions: list[asyncio.Queue[Any]] = []
            for _ in range(10):
                begin = chance.choice((["$JS", "API"], ["$JS", "API"], ["$KV"], ["$JS", "FC"]))
                words = [*begin, *chance.choices(WORDS, k=chance.randrange(1, 7))]
                body, headers = chance.choice(BODIES), chance.choice(HEADERS)
                if body and chance.random() < 0.2:
                    at = chance.randrange(len(body))
                    body = body[:at] + bytes([chance.randrange(256)]) + body[at + 1 :]
                reply = f"r{len(questions)}"
                client.subscribed[reply] = asyncio.Queue()
                if client.say(".".join(words), body, headers, reply) and begin != ["$JS", "FC"]:
                    questions.append(client.subscribed[reply])
            for question in questions:
                _, told, answer, _ = await asyncio.wait_for(question.get(), 2 * ANSWER_S)
                answered += 1
                assert told or json.loads(answer)
        assert answered > REQUESTS / 5
        if "KV_b" in (await client.api("STREAM.NAMES"))["streams"]:  # else it was deleted on the way
            await client.api("STREAM.DELETE.KV_b")
        await client.create("b")
        assert await client.put("b", "k", b"") > 0

    at_one_node(case)
    assert not [each for each in caplog.records if each.levelname in ("ERROR", "CRITICAL")]


# --- time -----------------------------------------------------------------------------------------


def test_values_end_when_their_time_is_over_and_not_before() -> None:
    async def case(client: AskingClient) -> None:
        await client.put("b", "old", b"1")
        await asyncio.sleep(5)
        await client.put("b", "new", b"1")
        await client.put("b", "short", b"1", Nats_TTL="2s")
        await client.put("b", "kept", b"1", Nats_TTL="never")
        come = await watched(client, deliver_policy="new")
        for seconds, there in ((1.5, "old new short kept"), (3, "old new kept"), (4, "new kept"), (3, "")):
            await asyncio.sleep(seconds)
            found = [key for key in ("old", "new", "short", "kept") if await client.get("b", key)]
            assert found == there.split(), seconds
        told = [come.get_nowait() for _ in range(come.qsize())]
        assert told
        assert all(headers.startswith(b"NATS/1.0 100") for _, headers, _, _ in told), (
            "no more than heartbeats"
        )

    at_one_node(case, max_age=10_000_000_000)


def test_a_key_with_a_time_to_live_of_its_own_ends_in_a_bucket_without_one() -> None:
    async def case(client: AskingClient) -> None:
        await client.put("b", "lease", b"1", Nats_TTL="1h1m1s")
        await asyncio.sleep(3_600)
        assert await client.get("b", "lease")
        await asyncio.sleep(62)
        assert await client.get("b", "lease") is None
        assert await client.put("b", "lease", b"2", Nats_Expected_Last_Subject_Sequence=0) > 0

    at_one_node(case)


def test_a_message_that_is_repeated_within_the_window_is_put_once() -> None:
    async def case(client: AskingClient) -> None:
        first = await client.put("b", "k", b"1", Nats_Msg_Id="x")
        assert await client.put("b", "k", b"2", Nats_Msg_Id="x") == first
        await asyncio.sleep(61)
        assert await client.put("b", "k", b"2", Nats_Msg_Id="x") > first

    at_one_node(case, duplicate_window=60_000_000_000)


# --- watching -------------------------------------------------------------------------------------


def test_one_who_watches_is_told_that_nothing_came_and_forgotten_when_it_is_gone() -> None:
    async def case(client: AskingClient) -> None:
        await client.put("b", "k", b"1")
        come = await watched(client)
        subject, _, body, reply = await come.get()
        assert (subject, body) == ("$KV.b.k", b"1")
        assert reply.split(b".")[2:4] == [b"KV_b", b"w"]
        assert reply.endswith(b".0"), "nothing else is pending"
        started = asyncio.get_running_loop().time()
        _, headers, _, _ = await come.get()
        assert b"100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\n" in headers
        assert asyncio.get_running_loop().time() - started <= 10
        client.requests.look()
        assert (await client.api("CONSUMER.NAMES.KV_b"))["consumers"] == ["w"]
        del client.subscribed["out"]
        for _ in range(20):
            client.requests.look()
            await asyncio.sleep(1)
        assert (await client.api("CONSUMER.NAMES.KV_b"))["consumers"] == []
        assert await refusal(client.api("CONSUMER.INFO.KV_b.w")) == 10014

    at_one_node(case)


def test_flow_control_holds_back_what_a_client_has_not_handled() -> None:
    async def case(client: AskingClient) -> None:
        for number in range(50):
            await client.put("b", f"k{number}", bytes(100_000))
        come = await watched(client, flow_control=True)
        got = 0
        questions: list[bytes] = []
        while got < 50:
            _, headers, body, reply = await come.get()
            if body:
                got += 1
                assert got * 100_000 < 2.3 * FLOW_BYTES * (len(questions) + 1)
            elif b"FlowControl Request" in headers:
                questions.append(reply)
                await asyncio.sleep(1)
                assert client.say(reply.decode(), b"")
        assert len(questions) >= 3

    at_one_node(case)


def test_what_vanished_before_it_was_given_is_not_pending() -> None:
    async def case(client: AskingClient) -> None:
        for number in range(5):
            await client.put("b", f"k{number}", b"1")
        config = {"stream_name": "KV_b", "config": WATCH}
        told = await client.api("CONSUMER.CREATE.KV_b.w", config)
        assert told["num_pending"] == 5
        await client.api("STREAM.PURGE.KV_b", {"filter": "$KV.b.k1"})
        await client.put("b", "k2", b"2", Nats_Rollup="sub")
        await client.put("b", "k5", b"1")
        assert (await client.api("CONSUMER.INFO.KV_b.w"))["num_pending"] == 5
        come = client.subscribed["out"] = asyncio.Queue()
        client.requests.drained(client)  # type: ignore[arg-type]
        given = [await come.get() for _ in range(5)]
        assert [each[0] for each in given] == [f"$KV.b.k{number}" for number in (0, 3, 4, 2, 5)]
        assert [each[3].split(b".")[-1] for each in given] == [b"4", b"3", b"2", b"1", b"0"]

    at_one_node(case)


def test_a_consumer_begins_where_it_is_told() -> None:
    async def case(client: AskingClient) -> None:
        revisions = [await client.put("b", key, b"1") for key in ("a", "b", "a", "c")]
        cases: tuple[tuple[dict[str, Any], list[int]], ...] = (
            ({"deliver_policy": "all"}, revisions),
            ({"deliver_policy": "last"}, revisions[3:]),
            ({"deliver_policy": "last_per_subject"}, revisions[1:]),
            ({"deliver_policy": "new"}, []),
            ({"deliver_policy": "by_start_sequence", "opt_start_seq": revisions[2]}, revisions[2:]),
            ({"filter_subject": "$KV.b.a", "deliver_policy": "all"}, [revisions[0], revisions[2]]),
            ({"filter_subjects": ["$KV.b.a", "$KV.*.c"]}, revisions[2:]),
            ({"filter_subject": "$KV.c.>"}, []),
        )
        for number, (config, expected) in enumerate(cases):
            come = await watched(client, f"w{number}", **config)
            await client.put("b", "zzz", b"end")
            found: list[int] = []
            while "filter_subject" not in str(config) or len(found) < len(expected):
                subject, _, _, reply = await come.get()
                if subject.endswith("zzz"):
                    break
                found.append(int(reply.split(b".")[5]))
            assert found == expected, config
            await client.api(f"CONSUMER.DELETE.KV_b.w{number}")
            await client.api("STREAM.PURGE.KV_b", {"filter": "$KV.b.zzz"})

    at_one_node(case)


# --- several nodes --------------------------------------------------------------------------------


def test_outside_the_primary_partition_it_is_said_so_at_once_and_watching_goes_on_later() -> None:
    async def main() -> None:
        async with Cluster(3, seed=3, voters=(1, 2, 3)) as cluster:
            stores = [await Store.open(node) for node in cluster.nodes]
            one, two, _ = (store.client for store in stores)
            await one.create("b")
            await one.put("b", "k", b"1")
            come = await watched(one)
            assert (await come.get())[2] == b"1"
            cluster.network.partition({1})
            loop = asyncio.get_running_loop()
            started = loop.time()
            with pytest.raises(Unanswered):
                await one.put("b", "k", b"2")
            assert loop.time() - started <= ANSWER_S
            await cluster.together(2, 3)
            while cluster.nodes[0].status()["primary"]:
                await asyncio.sleep(0.1)
            for what in (
                one.put("b", "k", b"3"),
                one.get("b", "k"),
                one.api("STREAM.NAMES"),
                one.create("c"),
            ):
                started = loop.time()
                with pytest.raises(Unanswered, match="primary partition"):
                    await what
                assert loop.time() - started < 0.1
            await two.put("b", "k", b"4")
            await two.put("b", "other", b"5")
            cluster.network.heal()
            await cluster.together()
            found: dict[str, bytes] = {}
            while found != {"$KV.b.k": b"4", "$KV.b.other": b"5"}:
                subject, headers, body, _ = await come.get()
                if not headers:
                    found[subject] = body
            for store in stores:
                store.requests.close()

    run(main())


def test_nothing_is_acknowledged_that_a_minority_of_the_serving_nodes_holds() -> None:
    async def main() -> None:
        async with Cluster(3, seed=6, protocol="total") as cluster:
            serving = [await node.join(SERVING) for node in cluster.nodes[1:]]
            first = await Store.open(cluster.nodes[0])
            with pytest.raises(Unanswered, match="no answer within"):
                await first.client.create("b")
            second = await Store.open(cluster.nodes[1])
            await first.client.create("b")
            await first.client.put("b", "k", b"1")
            second.requests.close()
            await cluster.nodes[1].stop()
            with pytest.raises(Unanswered, match="no answer within"):
                await first.client.put("b", "k", b"2")
            third = await Store.open(cluster.nodes[2])
            await first.client.put("b", "k", b"3")
            assert (await third.client.get("b", "k") or (0, b""))[1] == b"3"
            first.requests.close()
            third.requests.close()
            assert serving

    run(main())


def test_a_bucket_that_was_deleted_half_way_is_there_no_longer() -> None:
    """Who deletes a bucket closes it first; then its name is free. It may die in between."""

    async def main() -> None:
        async with Cluster(3, seed=4, protocol="total") as cluster:
            stores = [await Store.open(node) for node in cluster.nodes]
            one, two, three = (store.client for store in stores)
            await one.create("b")
            await one.put("b", "k", b"1")
            await (await stores[0].requests.held.find("b")).bucket.close()
            assert await two.get("b", "k") is None
            assert await refusal(two.api("STREAM.INFO.KV_b")) == 10059
            assert await refusal(three.put("b", "k", b"2")) == 503
            await one.create("b")
            stores[2].requests.held.look = lambda: None  # type: ignore[method-assign] # it does not hear of it
            await one.put("b", "k", b"2")
            await two.api("STREAM.DELETE.KV_b")
            with pytest.raises((Refused, Unanswered)):
                await three.put("b", "k", b"lost")
            del stores[2].requests.held.look
            await one.create("b")
            await (await stores[1].requests.held.find("b")).bucket.close()
            await three.create("b")
            assert await one.get("b", "k") is None
            await one.put("b", "k", b"3")
            assert (await two.get("b", "k") or (0, b""))[1] == b"3"
            for store in stores:
                store.requests.close()

    run(main())


def test_a_client_may_wait_for_so_many_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests_module, "MOST_REQUESTS", 20)
    monkeypatch.setattr(requests_module, "MOST_WAITING", 10_000)

    async def case(client: AskingClient) -> None:
        for size, most in ((1, 20), (4_000, 2)):
            puts = (client.put("b", "k", bytes(size)) for _ in range(50))
            results = await asyncio.gather(*puts, return_exceptions=True)
            assert sum(isinstance(each, int) for each in results) == most
            assert sum(isinstance(each, Unanswered) for each in results) == 50 - most
        await client.put("b", "k", b"again")

    at_one_node(case)


def test_a_program_at_a_node_uses_buckets_too() -> None:
    """`Node.bucket` is for nodes that serve clients; here the same without a server."""

    async def main() -> None:
        async with Cluster(2, seed=5, protocol="total") as cluster:
            with pytest.raises(ConfigProblem, match="nodes that serve clients"):
                await cluster.nodes[0].bucket("b")
            stores = [await Store.open(node) for node in cluster.nodes]
            held, client = stores[0].requests.held, stores[1].client
            bucket = await held.open("b", 2)
            assert await held.open("b", 5) is bucket
            stored = await bucket.put("k", b"1")
            assert await client.get("b", "k") == (stored.revision, b"1")
            await client.put("b", "k", b"2")
            await bucket.sync()
            entry = bucket.get("k")
            assert entry is not None
            assert entry.value == b"2"
            await bucket.delete("k")
            assert await client.get("b", "k") is None
            assert bucket.get("k") is None
            with pytest.raises(ConfigProblem, match="no name of a bucket"):
                await held.open("a.b", 1)
            with pytest.raises(ConfigProblem, match="history of more than 64"):
                await held.open("c", 65)
            await client.api("STREAM.DELETE.KV_b")
            while not bucket.closed:
                await asyncio.sleep(0.1)
            (result,) = await asyncio.gather(bucket.put("k", b"1"), return_exceptions=True)
            assert isinstance(result, NodeClosed | Unanswered) or result == Stored(0, "closed")
            for store in stores:
                store.requests.close()

    run(main())
