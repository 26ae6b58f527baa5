"""`ordercast.threads.Client`: the same with calls that block."""

from __future__ import annotations

import threading

import pytest
from nats_servers import LONG_S, Server

import ordercast
from ordercast import threads
from ordercast.client.settings import ClientSettings


def test_sending_and_receiving(server: Server, subject: str) -> None:
    with threads.Client(server.address) as client:
        joined = client.join(f"{subject}.>", log=False)
        for number in range(10):
            client.send(f"{subject}.a", b"%d" % number, headers={"N": str(number)})
        client.flush(LONG_S)
        found = []
        for message in joined:
            found.append(message.payload)
            if len(found) == 3:
                break
        for batch in joined.batches():
            found += [message.payload for message in batch]
            if len(found) == 10:
                break
        assert found == [b"%d" % number for number in range(10)]
        assert (joined.logged, joined.last_seq) == (False, None)
        assert (client.address, client.connections) == (server.address, 1)
        assert "server_id" in client.info
        joined.leave()
        assert list(joined) == []


def test_safe_messages(server: Server, logged: str) -> None:
    with threads.Client(server.address, session=logged) as client:
        first = client.send(logged, b"one", safe=True, timeout=LONG_S)
        client.send(logged, b"two", safe=True)
        assert client.number == 3
        joined = client.join(logged, start=first.seq)
        for message in joined:
            if message.payload == b"two":
                break
        assert joined.last_seq == message.seq


def test_requests(server: Server, subject: str) -> None:
    with threads.Client(server.address) as one, threads.Client(server.address) as other:
        service = other.join(subject, queue="q")

        def serve() -> None:
            for request in service:
                other.respond(request, request.payload.upper())

        serving = threading.Thread(target=serve)
        serving.start()
        try:
            assert one.request(subject, b"ask", timeout=LONG_S).payload == b"ASK"
        finally:
            service.leave()
            serving.join()


def test_a_client_that_is_closed(server: Server) -> None:
    client = threads.Client(server.address)
    with pytest.raises(ordercast.ClientClosed, match="with Client"):
        client.send("a", b"")
    client.start()
    with pytest.raises(ordercast.ClientClosed, match="started before"):
        client.start()
    client.stop()
    client.stop()
    with pytest.raises(ordercast.ClientClosed, match="make a new Client"):
        client.send("a", b"")


def test_nobody_there() -> None:
    with pytest.raises(ordercast.NotConnected):
        threads.Client("127.0.0.1:1", connect_timeout=0.05).start()


def test_both_clients_take_the_same_arguments() -> None:
    told = ordercast.Client.__init__.__annotations__
    assert set(told) == {"servers", "environment", "return", *ClientSettings.__annotations__}
    mirrored = {name for name in vars(ordercast.Client) if not name.startswith("_")} - {"session"}
    assert mirrored <= set(vars(threads.Client))
