"""Applications that stop reading: their group waits for them, but not for ever; memory does not grow."""

from __future__ import annotations

from pathlib import Path

from group import Cluster, wait_until

UNREAD = 200_000
SMALL = {"receive_buffer": UNREAD, "send_buffer": 100_000, "evict_after": 60.0}
"""Buffers that are full soon."""


def test_a_reader_that_stops_holds_the_senders_up_and_lets_them_go_on(tmp_path: Path) -> None:
    with Cluster(tmp_path, options=SMALL) as group:
        one, two, three = group.start_all(3)
        three.order("stop reading")
        before = three.report()["rss_mb"]
        held = one.order("send", count=100_000, size=1000, timeout=2.0)
        assert held.get("error") == "SendTimeout", held
        assert held["holder"] == 3
        assert "node 3 does not keep up" in held["message"]
        held = three.order("send", count=100_000, size=1000, timeout=1.0)
        assert held.get("error") == "SendTimeout", held
        assert held["holder"] == 3
        assert "application of this node itself" in held["message"]
        report = three.report()
        assert report["status"]["unread_bytes"] > UNREAD / 2
        assert report["rss_mb"] < before + 40, "memory grows though nobody reads"
        sending = two.tell("send", count=2000, size=1000)
        three.order("go on")
        assert two.answer(sending)["sent"] == 2000
        wait_until(lambda: three.report()["status"]["unread_bytes"] < UNREAD / 2, "all is read")
        group.conclude()


def test_who_does_not_read_for_too_long_is_dropped_and_its_node_stays(tmp_path: Path) -> None:
    with Cluster(tmp_path, options=SMALL) as group:
        one, two, _ = group.start_all(3, options={**SMALL, "evict_after": 1.0})
        three = group.members[3]
        three.order("stop reading")
        assert one.order("send", count=3000, size=1000)["sent"] == 3000, "the others go on"
        three.order("go on")
        evicted = three.await_word("evicted")
        assert "evict_after" in evicted["message"]
        assert evicted["messages"] <= evicted["count"] < 3000, "it got what it had, and no more"
        assert two.order("send", count=100)["sent"] == 100
        assert three.order("send", count=100)["sent"] == 100
        assert set(three.report()["status"]["configuration"]["members"]) == {1, 2, 3}
