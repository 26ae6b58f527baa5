"""A process that writes a log is killed at any moment; others read it meanwhile and afterwards."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from log_parts import at, delivered, installed, rows, store, told

from ordercast.errors import StorageProblem, Unreachable
from ordercast.log import Position, Replica

WRITER = """
import sys
from pathlib import Path
from log_parts import delivered, installed, store
log = store(Path(sys.argv[1]), most_bytes=int(sys.argv[2]))
log.append([installed("4.1", 1, 2, first=True)])
print("open", flush=True)
for seq in range(1, 100_000):
    texts = [f"{seq} {slot} " + "x" * (seq % 700) for slot in range(1 + seq % 4)]
    log.append([delivered(seq, *texts)])
"""
LONG_S = 60.0


def writing(path: Path, most_bytes: int = 2**30) -> subprocess.Popen[str]:
    """A process that writes as fast as it can, once it has begun."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(most_bytes)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


def killed(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def check_whole(replica: Replica) -> Position:
    """The log is a prefix of what the process wrote, packets whole and in order; its end."""
    head = replica.bounds().head
    assert head is not None
    expected = 1
    slots: list[int] = []
    for row in rows(replica, "4.1/0/0", str(head)):
        seq, slot = row["seq"], row["slot"]
        assert row["payload"] == f"{seq} {slot} ".encode() + b"x" * (seq % 700)
        if seq != expected:
            assert (seq, slots) == (expected + 1, list(range(1 + expected % 4)))
            expected, slots = seq, []
        slots.append(slot)
    assert slots == list(range(1 + head.seq % 4))
    return head


def test_a_killed_writer_leaves_a_prefix_and_the_next_one_goes_on(tmp_path: Path) -> None:
    chance = random.Random(5)
    for attempt in range(3):
        path = tmp_path / str(attempt)
        process = writing(path)
        time.sleep(chance.uniform(0.0, 0.4))
        killed(process)
        with Replica(str(path)) as replica:
            head = check_whole(replica) if replica.bounds().entries > 1 else at("4.1/0/0")
        log = store(path)
        assert log.head == head
        log.append([installed("8.1", 1, first=True), delivered(1, "again")])
        with Replica(str(path)) as replica:
            assert told(rows(replica, "8.1/0/0", "8.1/1/0")) == ["8.1/1/0 again"]
            assert replica.bounds().entries == 2 + len(rows(replica, None, str(head)))
        log.close()


def test_another_process_reads_while_the_log_grows_and_is_trimmed(tmp_path: Path) -> None:
    process = writing(tmp_path / "log", most_bytes=2**20)
    try:
        with Replica(str(tmp_path / "log")) as replica:
            place = Position(4, 1, 0, 0)
            read, deadline = 0, time.monotonic() + LONG_S
            while read < 2000:
                assert time.monotonic() < deadline, f"only {read} entries were read"
                end = replica.after(place, 50)
                if end is None:
                    continue
                found = rows(replica, str(place), str(end))
                assert found
                assert all(
                    row["payload"].startswith(f"{row['seq']} {row['slot']} ".encode()) for row in found
                )
                places = [(row["seq"], row["slot"]) for row in found]
                assert places == sorted(places)
                read += len(found)
                place = end
                if replica.bounds().oldest is not None and read % 7 == 0:
                    bounds = replica.bounds()
                    assert bounds.head is not None
                    place = max(place, bounds.head)
            with pytest.raises(StorageProblem, match=f"written by process {process.pid}"):
                store(tmp_path / "log")
    finally:
        killed(process)


def ran(script: str, log: Path) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own; the log's directory is its argument."""
    command = [sys.executable, "-c", script, str(log)]
    here = Path(__file__).parent
    return subprocess.run(command, capture_output=True, text=True, cwd=here, timeout=LONG_S, check=False)


def test_a_full_disk_stops_the_node_in_words_and_what_was_there_stays(tmp_path: Path) -> None:
    """Files of this process are kept from growing, as a full disk keeps them."""
    script = """
import resource, signal, sys
from pathlib import Path
from log_parts import delivered, installed, store
from ordercast.errors import StorageProblem
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, 1_500_000))
log = store(Path(sys.argv[1]))
log.append([installed("4.1", 1, 2, first=True)])
seq = 0
try:
    while seq < 1000:
        seq += 1
        log.append([delivered(seq, "x" * 10_000)])
except StorageProblem as error:
    print(seq - 1, error)
"""
    said = ran(script, tmp_path / "log")
    assert said.returncode == 0, said.stderr
    last, _, sentence = said.stdout.partition(" ")
    assert "The node stops, because its log would have a hole" in sentence
    assert "Make room, or keep less" in sentence
    with Replica(str(tmp_path / "log")) as replica:
        assert replica.bounds().head == Position(4, 1, int(last), 0)
        assert len(rows(replica, "4.1/0/0", f"4.1/{last}/0")) == int(last)


def test_a_directory_that_may_not_be_written_stops_the_node(tmp_path: Path) -> None:
    with pytest.raises(StorageProblem, match="cannot be written"):
        store(Path("/proc/ordercast-log"))
    with pytest.raises(Unreachable):
        Replica("/proc/ordercast-log")


def test_a_node_that_keeps_and_serves_a_log_does_not_load_pandas(tmp_path: Path) -> None:
    """Which would take a second of the node's time, and memory for good, wherever it is installed."""
    script = """
import sys
from pathlib import Path
from log_parts import at, delivered, installed, store
from ordercast.log.selection import Selection
from ordercast.log.view import View
log = store(Path(sys.argv[1]))
log.append([installed("4.1", 1, 2, first=True)])
for seq in range(1, 40):
    log.append([delivered(seq, "x" * seq, "y"), delivered(seq, "z", slot=2, group="other")])
view = View(log.path)
assert view.bounds().entries == 118
assert view.after(at("4.1/3/1"), 5) == at("4.1/5/0")
assert sum(
    piece.end - piece.begin
    for piece in view.pieces(at("4.1/3/1"), at("4.1/20/0"), Selection(("other",)))
)
print("pandas" in sys.modules)
"""
    said = ran(script, tmp_path / "log")
    assert said.stdout == "False\n", said
