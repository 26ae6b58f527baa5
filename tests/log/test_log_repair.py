"""A damaged log is repaired from another replica, with just the entries that it had, or not at all."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from damage import KINDS, damage
from log_parts import at, delivered, installed, rows, store, transitional
from typer.testing import CliRunner

from ordercast.cli import app
from ordercast.errors import Damaged, NotThere
from ordercast.log import Replica
from ordercast.log.repair import mend
from ordercast.log.store import Delivered, Installed

PAYLOAD = "x" * 3000


def entries(begin: int, end: int) -> list[Delivered | Installed]:
    heads = {seq: b"beside %d" % seq for seq in range(begin, end) if seq % 5 == 0}
    return [delivered(seq, f"{seq} {PAYLOAD}", at_us=seq, head=heads.get(seq)) for seq in range(begin, end)]


def filled(path: Path, node: int, before: list[Delivered | Installed] | None = None) -> None:
    """A replica with some segments."""
    log = store(path, node, most_bytes=600_000)
    log.append(before or [])
    log.append([installed("8.1", 1, 2, first=not before)])
    for seq in range(1, 100, 3):
        log.append(entries(seq, seq + 3))
    log.close()


def test_what_is_missing_is_read_from_another_replica(tmp_path: Path) -> None:
    filled(tmp_path / "1", 1)
    filled(tmp_path / "2", 2, [installed("4.2", 2, first=True), delivered(1, "before node 1 came")])
    with Replica(str(tmp_path / "1")) as replica:
        whole = rows(replica, None, "8.1/99/0")
        assert whole[5]["head"] == b"beside 5"
    for seed in range(12):
        log = tmp_path / f"damaged {seed}"
        shutil.copytree(tmp_path / "1", log)
        done = damage(random.Random(seed), log, None, KINDS)
        again = store(log, most_bytes=600_000)
        made = [
            found
            for segment in again.finished
            if (found := mend(again, segment, [(str(tmp_path / "2"), None)]))
        ]
        assert all(found.source is not None for found in made), (done, made)
        assert not again.missing
        again.append([installed("20.1", 1, 2, first=True)])
        again.close()
        with Replica(str(log)) as replica:
            assert rows(replica, None, "8.1/99/0") == whole, done
            with pytest.raises(NotThere):
                replica.after(at("8.1/99/0"), 10)


def test_other_entries_between_the_same_positions_are_refused(tmp_path: Path) -> None:
    """In a partition two histories part and meet again: both hold the entries before and after."""
    for node, apart in ((1, "12.1"), (2, "14.2")):
        log = store(tmp_path / str(node), node)
        log.append([installed("8.1", 1, 2, first=True), delivered(1, "both")])
        log.append([transitional(f"10.{node}", node), installed(apart, node), delivered(1, f"of {node}")])
        log.append([installed("20.1", 1, 2), delivered(1, "both again")])
        log.close()
    (tail,) = (tmp_path / "1").glob("*.tail")
    data = tail.read_bytes()
    tail.write_bytes(data.replace(b"of 1", b"of 7"))
    log = store(tmp_path / "1", 1)
    (found,) = [
        found for segment in log.finished if (found := mend(log, segment, [(str(tmp_path / "2"), None)]))
    ]
    log.close()
    assert found.source is None
    assert "SplitAway" not in found.sentence
    assert "could not be repaired" in found.sentence
    with (
        Replica(str(tmp_path / "1")) as replica,
        pytest.raises(Damaged, match=r"after 12\.1/0/0, up to 12\.1/1/0"),
    ):
        rows(replica, "8.1/0/0", "20.1/1/0")


def test_a_log_is_checked_and_repaired_from_the_command_line(tmp_path: Path) -> None:
    for node in (1, 2):
        filled(tmp_path / str(node), node)
    log = tmp_path / "1"
    segment = sorted(log.glob("*.log"))[1]
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    run = CliRunner().invoke
    checked = run(app, ["log", str(log), "--check"])
    assert checked.exit_code == 1
    assert "entries after 8.1/" in checked.output
    assert "--repair" in checked.output
    repaired = run(app, ["log", str(log), "--repair", str(tmp_path / "2")])
    assert repaired.exit_code == 0, repaired.output
    assert run(app, ["log", str(log), "--check"]).exit_code == 0
    assert run(app, ["log", str(log), "--verify", str(tmp_path / "2")]).exit_code == 0


def test_a_file_that_is_cut_or_replaced_while_it_is_written_is_noticed(tmp_path: Path) -> None:
    log = store(tmp_path / "log", most_bytes=600_000)
    log.append([installed("8.1", 1, 2, first=True), *entries(1, 6)])
    log.append(entries(6, 7))
    (tail,) = (tmp_path / "log").glob("*.tail")
    with tail.open("r+b") as file:
        file.truncate(2000)
    log.append(entries(7, 8))
    assert "bytes, and the node has written" in log.problems[-1]
    with Replica(str(tmp_path / "log")) as replica:
        assert rows(replica, "8.1/6/0", "8.1/7/0")[0]["payload"].startswith(b"7 ")
        with pytest.raises(Damaged, match=r"up to 8\.1/6/0"):
            rows(replica, "8.1/0/0", "8.1/7/0")
    (tail,) = (tmp_path / "log").glob("*.tail")
    tail.unlink()
    (tmp_path / "log" / "head").unlink()
    log.append(entries(8, 9))
    assert "was deleted while" in log.problems[-1]
    with Replica(str(tmp_path / "log")) as replica:
        assert len(rows(replica, "8.1/6/0", "8.1/8/0")) == 2
    log.close()
