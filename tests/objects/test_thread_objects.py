"""Replicated objects, locks and elections with calls that block."""

from __future__ import annotations

import pytest

from ordercast import Conflict, Map, NodeClosed, Queue
from ordercast.threads import Node


def test_objects_are_used_without_an_event_loop() -> None:
    with Node(listen="127.0.0.1:0", protocol="total") as node:
        settings = node.replicate(Map(int), "settings", timeout=30)
        revision = settings.do(lambda settings: settings.put("a", 1))
        with pytest.raises(Conflict):
            settings.do(lambda settings: settings.create("a", 2))
        changes = settings.each(lambda settings: settings.watch(present=True))
        assert next(changes)[:4] == ("put", "a", 1, revision)
        assert settings.do(lambda settings: settings.delete("a"))
        assert next(changes).kind == "delete"
        assert settings.read(lambda settings: dict(settings.local)) == {}

        jobs = node.replicate(Queue(str), "jobs")
        jobs.do(lambda jobs: jobs.put("one"))
        with pytest.raises(ValueError, match="it fails"), jobs.block(lambda jobs: jobs.in_hand()) as job:
            raise ValueError(f"it fails: {job}")
        with jobs.block(lambda jobs: jobs.in_hand()) as job:
            assert job == "one"
        assert jobs.do(lambda jobs: jobs.take_now()) is None

        with node.lock("lock").held() as held:
            assert node.lock("lock").try_acquire() is None
            assert not held.lost
            assert not held.wait_lost(timeout=0.01)
            holder = node.lock("lock").holder()
            assert holder is not None
            assert holder.token == held.token
        assert held.wait_lost()
        election = node.election("leader", says="me")
        leaders = election.watch()
        assert next(leaders) is None
        with election.held():
            found = next(leaders)
            assert found is not None
            assert found == election.leader()
            assert found.says == "me"
    with pytest.raises(NodeClosed):
        settings.do(lambda settings: settings.get("a"))
