"""A disk that is full: the node stops before it could use a number twice, and the others go on."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from group import Cluster

from ordercast.errors import StorageProblem

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("mount") is None, reason="a small disk is mounted, which needs root"
)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a few pages."""
    place = tmp_path / "disk"
    place.mkdir()
    small = ["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=32", "ordercast-test", str(place)]
    subprocess.run(small, check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Take all the room that is left."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1024))
        except OSError:
            pass
    return ballast


def test_a_full_disk_stops_the_node_and_not_the_group(tmp_path: Path, disk: Path) -> None:
    with Cluster(tmp_path, rate=100.0, safe=0.2) as group:
        one, two = group.start_all(2)
        three = group.start(3, data=str(disk / "data"))
        group.await_whole()
        group.await_progress()
        ballast = fill(disk)
        group.await_progress()  # a full disk alone changes nothing: nothing has to be written
        two.kill()  # a new ring has a new number, which has to be written
        ended = three.await_word("ended")
        assert ended["error"] == StorageProblem.__name__
        assert "No space left" in ended["message"]
        assert "Make room" in ended["message"]
        three.process.wait()
        group.await_configuration(one, {1})
        group.await_progress(members=[one])
        refused = group.start(3, data=str(disk / "data")).await_word("ready", "failed")
        assert refused.get("error") == StorageProblem.__name__, refused
        ballast.unlink()
        group.start(2)
        again = group.start(3, data=str(disk / "data"))
        assert again.ready["incarnation"] >= 1
        group.await_whole()
        group.await_progress()
        group.conclude()
