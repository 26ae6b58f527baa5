"""Applications that stop reading: the group waits for them, or goes on without them; memory does not grow."""

from __future__ import annotations

from pathlib import Path

from group import Cluster, wait_until

from ordercast.errors import Evicted

UNREAD = 200_000
SMALL = {"receive_buffer": UNREAD, "send_buffer": 100_000}
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


def test_who_does_not_read_for_too_long_is_evicted(tmp_path: Path) -> None:
    with Cluster(tmp_path, options=SMALL) as group:
        one, two, _ = group.start_all(3, options={**SMALL, "evict_after": 1.0})
        three = group.members[3]
        three.order("stop reading")
        sending = one.tell("send", count=3000, size=1000)
        ended = three.await_word("ended")
        assert ended["error"] == Evicted.__name__
        assert "evict_after" in ended["message"]
        three.process.wait()
        assert one.answer(sending)["sent"] == 3000
        group.await_configuration(one, {1, 2})
        group.start(3)
        group.await_whole()
        assert two.order("send", count=100)["sent"] == 100
        group.conclude()
