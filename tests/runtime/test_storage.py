"""What a node must not forget: whole or not at all, durable, one process at a time, and said in words."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ordercast.errors import ConfigProblem, StorageProblem
from ordercast.runtime import incarnations
from ordercast.runtime.storage import DataDirectory, Memory, Storage

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")


def refusal(path: Path, id: int | None = None) -> str:
    with pytest.raises(StorageProblem) as caught:
        DataDirectory.open(path, id)
    return str(caught.value)


def python(script: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands at 2020-01-01 and 1000.25 seconds, and goes on by sleeping."""
    now = [1_577_836_800 + 1000.25]
    monkeypatch.setattr(incarnations, "time", time)
    monkeypatch.setattr(time, "time", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.append(now.pop() + seconds))
    return now


# --- who, and which life -----------------------------------------------------------------------


def test_an_identifier_made_up_here_stays_and_its_lives_count_from_nothing(tmp_path: Path) -> None:
    seen = set()
    for life in range(3):
        directory = DataDirectory.open(tmp_path / "data")
        seen.add(directory.id)
        assert directory.incarnation == life
        directory.close()
    assert len(seen) == 1
    assert 0 < seen.pop() < 2**31


def test_two_directories_make_up_two_identifiers(tmp_path: Path) -> None:
    with_ids = [DataDirectory.open(tmp_path / name) for name in ("a", "b")]
    assert with_ids[0].id != with_ids[1].id


def test_a_node_told_its_identifier_counts_its_lives_by_the_clock(tmp_path: Path, clock: list[float]) -> None:
    lives = []
    for _ in range(2):
        directory = DataDirectory.open(tmp_path / "data", 7)
        lives.append(directory.incarnation)
        directory.close()
    assert lives == [1000, 1001]
    assert DataDirectory.open(tmp_path / "other disk", 7).incarnation == 1001


def test_a_life_by_the_clock_begins_when_its_second_is_over(clock: list[float]) -> None:
    assert [Memory(7).incarnation for _ in range(3)] == [1000, 1001, 1002]
    assert clock == [1_577_836_800 + 1003]


def test_a_clock_before_2020_is_refused(clock: list[float]) -> None:
    clock[:] = [5.0]
    with pytest.raises(StorageProblem, match="set the clock"):
        Memory(7)


def test_a_node_known_to_be_new_begins_at_nothing(tmp_path: Path) -> None:
    DataDirectory.initialise(tmp_path, 7)
    directory = DataDirectory.open(tmp_path, 7)
    assert (directory.id, directory.incarnation, directory.crashed) == (7, 0, False)
    assert Memory(7, new=True).incarnation == 0


def test_no_directory_is_prepared_twice(tmp_path: Path) -> None:
    DataDirectory.initialise(tmp_path, 7)
    with pytest.raises(StorageProblem, match=r"data directory of node 7 already: give a new node an empty"):
        DataDirectory.initialise(tmp_path, 8)


def test_another_identifier_than_the_stored_one_is_refused_with_both_named(tmp_path: Path) -> None:
    DataDirectory.initialise(tmp_path, 7)
    assert "belongs to node 7, and this node was told that it is node 8" in refusal(tmp_path, 8)
    assert DataDirectory.open(tmp_path).id == 7


@pytest.mark.parametrize("id", [0, -1, 2**31])
def test_what_cannot_be_an_identifier_is_refused(tmp_path: Path, id: int) -> None:
    with pytest.raises(ConfigProblem, match="from 1 to 2147483647"):
        DataDirectory.open(tmp_path, id)
    with pytest.raises(ConfigProblem):
        Memory(id)


def test_the_incarnation_is_on_disk_before_the_life_begins(tmp_path: Path) -> None:
    DataDirectory.initialise(tmp_path, 7)
    for life in range(3):
        child = python(
            """
            import os, signal, sys, pathlib
            from ordercast.runtime.storage import DataDirectory
            print(DataDirectory.open(pathlib.Path(sys.argv[1])).incarnation, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
            """,
            tmp_path,
        )
        assert child.communicate()[0] == f"{life}\n"


def test_a_life_that_ended_without_a_word_crashed_and_one_that_halted_did_not(tmp_path: Path) -> None:
    seen = []
    for halted in (False, True, False):
        directory = DataDirectory.open(tmp_path)
        seen.append(directory.crashed)
        directory.close(halted=halted)
    assert seen == [False, True, False]


# --- what the machine persists -----------------------------------------------------------------


def test_what_was_persisted_last_is_there_in_the_next_life(tmp_path: Path) -> None:
    directory: Storage = DataDirectory.open(tmp_path)
    assert directory.stored is None
    for data in (b"one", b"", b"x" * 100_000):
        directory.persist(data)
        assert directory.stored == data
        directory.close()
        directory = DataDirectory.open(tmp_path)
        assert directory.stored == data


def test_memory_keeps_it_for_one_life() -> None:
    memory: Storage = Memory()
    assert (memory.incarnation, memory.stored, memory.crashed) == (0, None, False)
    memory.persist(b"one")
    assert memory.stored == b"one"
    memory.close()
    assert Memory(memory.id, new=True).stored is None


def test_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "data"
    DataDirectory.open(path).persist(b"one")
    assert path.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o077 for file in path.iterdir()} == {0}


def test_a_kill_in_the_middle_leaves_the_one_or_the_other(tmp_path: Path) -> None:
    """SIGKILL at any moment of persisting: what is read is whole, and never older than what was said."""
    DataDirectory.initialise(tmp_path, 7)
    stream = random.Random("kill in the middle")
    for _ in range(12):
        child = python(
            """
            import sys, pathlib
            from ordercast.runtime.storage import DataDirectory
            directory = DataDirectory.open(pathlib.Path(sys.argv[1]))
            number = int.from_bytes((directory.stored or bytes(8))[:8], "big")
            while True:
                number += 1
                directory.persist(number.to_bytes(8, "big") * 4096)
                print(number, flush=True)
            """,
            tmp_path,
        )
        assert child.stdout is not None
        said = [int(child.stdout.readline())]
        time.sleep(stream.random() / 20)
        child.send_signal(signal.SIGKILL)
        said += [int(line) for line in child.communicate()[0].split("\n")[:-1]]
        directory = DataDirectory.open(tmp_path)
        assert directory.stored is not None
        number = int.from_bytes(directory.stored[:8], "big")
        assert directory.stored == number.to_bytes(8, "big") * 4096
        assert number in (said[-1], said[-1] + 1)
        assert not list(tmp_path.glob("*.new"))
        directory.close()


def test_what_a_crash_left_half_written_is_removed(tmp_path: Path) -> None:
    DataDirectory.initialise(tmp_path, 7)
    (tmp_path / "state.new").write_bytes(b"half")
    assert DataDirectory.open(tmp_path).stored is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "node.json", "node.json.copy"]


# --- one process at a time ---------------------------------------------------------------------


def test_a_second_process_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    child = python(
        """
        import sys, time, pathlib
        from ordercast.runtime.storage import DataDirectory
        directory = DataDirectory.open(pathlib.Path(sys.argv[1]))
        print("open", flush=True)
        time.sleep(600)
        """,
        tmp_path,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        said = refusal(tmp_path)
        assert said == f"{tmp_path} is in use by process {child.pid}; give each node its own data directory."
    finally:
        child.kill()
        child.communicate()
    assert DataDirectory.open(tmp_path).crashed


def test_two_nodes_of_one_process_cannot_share_a_directory_either(tmp_path: Path) -> None:
    first = DataDirectory.open(tmp_path)
    assert f"in use by process {os.getpid()}" in refusal(tmp_path)
    first.close()
    first.close()
    assert DataDirectory.open(tmp_path).id == first.id
    with pytest.raises(StorageProblem, match="is closed"):
        first.persist(b"late")


# --- disks that fail ---------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=32", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small disk: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@as_root
def test_a_full_disk_stops_the_node_and_keeps_what_was_stored(small_disk: Path) -> None:
    directory = DataDirectory.open(small_disk / "data")
    directory.persist(b"one")
    (small_disk / "filler").write_bytes(bytes(64 * 1024 - 6 * 4096))
    with pytest.raises(StorageProblem, match="No space left on device") as caught:
        directory.persist(b"x" * 100_000)
    assert "could break uniqueness" in str(caught.value)
    assert "Make room" in str(caught.value)
    with pytest.raises(StorageProblem, match="No space left on device"):
        directory.persist(b"small enough now")  # nobody knows what the disk holds: no second try
    directory.close()
    (small_disk / "filler").unlink()
    assert DataDirectory.open(small_disk / "data").stored == b"one"


@as_root
def test_a_disk_full_from_the_start_is_refused_before_a_life_begins(small_disk: Path) -> None:
    DataDirectory.initialise(small_disk / "data", 7)
    with (small_disk / "filler").open("wb", 0) as filler:
        while filler.write(bytes(4096)) == 4096 and os.statvfs(small_disk).f_bfree:
            pass
    assert "No space left on device" in refusal(small_disk / "data")
    (small_disk / "filler").unlink()
    assert DataDirectory.open(small_disk / "data").incarnation == 0


@as_root
def test_a_read_only_disk_is_refused(small_disk: Path) -> None:
    DataDirectory.initialise(small_disk / "data", 7)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    said = refusal(small_disk / "data")
    assert "Read-only file system" in said
    assert "Make the directory writable" in said


def test_a_limit_on_file_sizes_stops_the_node_as_a_full_disk_does(tmp_path: Path) -> None:
    child = python(
        """
        import resource, sys, pathlib
        from ordercast.errors import StorageProblem
        from ordercast.runtime.storage import DataDirectory
        directory = DataDirectory.open(pathlib.Path(sys.argv[1]))
        directory.persist(b"one")
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            directory.persist(bytes(5000))
        except StorageProblem as problem:
            print(problem)
        """,
        tmp_path,
    )
    said = child.communicate()[0]
    assert f"{tmp_path}/state: File too large" in said
    assert "Make room" in said
    assert DataDirectory.open(tmp_path).stored == b"one"


def test_a_directory_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data"
    DataDirectory.initialise(path, 7)
    child = python(
        """
        import os, sys, pathlib
        from ordercast.errors import StorageProblem
        from ordercast.runtime.storage import DataDirectory
        path = pathlib.Path(sys.argv[1])
        os.chdir(path)
        os.chmod(path, 0o555)
        if os.geteuid() == 0:  # whom no mode keeps out
            os.setgid(65534)
            os.setuid(65534)
        try:
            DataDirectory.open(pathlib.Path("."))
        except StorageProblem as problem:
            print(problem)
        """,
        path,
    )
    said = child.communicate()[0]
    path.chmod(0o700)
    assert "Permission denied" in said
    assert "Make the directory writable for the user that runs the node" in said


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_an_error_of_the_disk_at_any_step_stops_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    directory = DataDirectory.open(tmp_path)
    directory.persist(b"one")

    def fails(*_: object) -> int:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fails)
        with pytest.raises(StorageProblem, match=r"state: Input/output error.*on another one"):
            directory.persist(b"two")
    with pytest.raises(StorageProblem, match="Input/output error"):
        directory.persist(b"three")
    directory.close(halted=True)
    assert DataDirectory.open(tmp_path).stored == b"one"


def test_a_disk_that_takes_little_at_a_time_gets_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = DataDirectory.open(tmp_path)
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:7]))
    directory.persist(b"x" * 100)
    directory.close()
    assert DataDirectory.open(tmp_path).stored == b"x" * 100


# --- files that are not as they were written ---------------------------------------------------


@pytest.mark.parametrize("damage", [b"", b"OCS1", b"something else entirely"])
def test_a_damaged_state_is_refused_with_what_to_do(tmp_path: Path, damage: bytes) -> None:
    directory = DataDirectory.open(tmp_path)
    directory.persist(b"one")
    directory.close()
    for name in ("state", "state.copy"):
        (tmp_path / name).write_bytes(damage)
    said = refusal(tmp_path)
    assert f"{tmp_path}/state is damaged (its checksum does not fit)" in said
    assert "Restore the file from a copy" in said


def test_every_flipped_bit_of_the_state_is_seen(tmp_path: Path) -> None:
    directory = DataDirectory.open(tmp_path)
    directory.persist(b"one")
    directory.close()
    whole = (tmp_path / "state").read_bytes()
    (tmp_path / "state.copy").unlink()
    for bit in range(8 * len(whole)):
        (tmp_path / "state").write_bytes(
            (int.from_bytes(whole, "big") ^ 1 << bit).to_bytes(len(whole), "big")
        )
        refusal(tmp_path)


@pytest.mark.parametrize(
    "damage", [b"", b"{", b'{"id": 0, "incarnation": 0}', b'{"id": 7, "incarnation": -9}']
)
def test_a_damaged_identity_is_refused(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "node.json").write_bytes(damage)
    assert "node.json is damaged" in refusal(tmp_path, 7)


@pytest.mark.parametrize("name", ["node.json", "node.json.copy", "state", "state.copy"])
@pytest.mark.parametrize("how", ["lost", "cut", "flipped", "older"])
def test_what_is_wrong_with_one_file_its_copy_makes_up_for(tmp_path: Path, name: str, how: str) -> None:
    directory = DataDirectory.open(tmp_path, protocol="totem")
    directory.persist(b"one")
    older = (tmp_path / name).read_bytes()
    directory.begin_next_life()
    directory.persist(b"two")
    directory.close()
    file = tmp_path / name
    data = file.read_bytes()
    if how == "lost":
        file.unlink()
    else:
        wrong = {"cut": data[:-3], "flipped": data[:9] + bytes((data[9] ^ 1,)) + data[10:], "older": older}
        file.write_bytes(wrong[how])
    again = DataDirectory.open(tmp_path)
    assert (again.id, again.incarnation, again.stored) == (directory.id, 2, b"two")
    again.close()
    assert file.read_bytes() == (tmp_path / f"{name.removesuffix('.copy')}.copy").read_bytes()


def test_lives_are_numbered_up_to_a_bound(tmp_path: Path) -> None:
    directory = DataDirectory.open(tmp_path)
    directory.incarnation = 2**31 - 2
    assert directory.begin_next_life() == 2**31 - 1
    directory.close()
    assert "lives are numbered up to 2147483647" in refusal(tmp_path)


def test_a_directory_of_another_protocol_is_refused(tmp_path: Path) -> None:
    DataDirectory.open(tmp_path, protocol="totem").close()
    with pytest.raises(StorageProblem, match="runs protocol totem, and this one is to run cm: start it with"):
        DataDirectory.open(tmp_path, protocol="cm")


def test_a_state_without_an_identity_is_refused(tmp_path: Path) -> None:
    directory = DataDirectory.open(tmp_path)
    directory.persist(b"one")
    directory.close()
    (tmp_path / "node.json").unlink()
    (tmp_path / "node.json.copy").unlink()
    assert "does not say whose: restore node.json" in refusal(tmp_path, directory.id)


def test_a_file_is_no_data_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "is not a directory" in refusal(tmp_path / "file")
    DataDirectory.open(tmp_path)  # and a refusal keeps nothing locked


# --- lives in one process -----------------------------------------------------------------------


def test_the_next_life_in_the_same_process_has_the_next_incarnation_and_it_is_durable(tmp_path: Path) -> None:
    directory = DataDirectory.open(tmp_path, None)
    directory.persist(b"kept")
    assert directory.begin_next_life() == directory.incarnation == 1
    assert directory.stored == b"kept"
    directory.close()
    again = DataDirectory.open(tmp_path)
    assert (again.incarnation, again.stored, again.crashed) == (2, b"kept", True)


def test_a_disk_that_fails_begins_no_life(tmp_path: Path) -> None:
    directory = DataDirectory.open(tmp_path, None)
    directory.close()
    with pytest.raises(StorageProblem):
        directory.begin_next_life()
    assert directory.incarnation == 0


def test_a_life_without_a_directory_follows_the_last_or_the_clock(clock: list[float]) -> None:
    told, made = Memory(7), Memory()
    told.persist(b"kept")
    first = told.incarnation
    assert told.begin_next_life() > first
    assert told.stored == b"kept"
    assert made.begin_next_life() == 1
    assert Memory(7).incarnation > told.incarnation, "a later process has another one still"


@pytest.mark.parametrize("forget", [True, False])
def test_a_life_after_one_that_others_know_forgets_the_state_only_if_told_to(
    tmp_path: Path, forget: bool
) -> None:
    storage = DataDirectory.open(tmp_path / "data", 3)
    storage.persist(b"vote")
    assert storage.begin_life_after(41, forget) == 42
    storage.close()
    again = DataDirectory.open(tmp_path / "data", 3)
    assert again.incarnation == 43
    assert again.stored == (None if forget else b"vote")
    again.close()
