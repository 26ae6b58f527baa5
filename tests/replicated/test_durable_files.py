"""The files of an object: what was synced is there after any crash, and after damage it is not made up."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from zlib import crc32

import pytest

from hunts import rounds
from ordercast.directory import DiskDirectory
from ordercast.errors import Damaged, StorageProblem
from ordercast.memory_directory import Crashed, MemoryDirectory
from ordercast.replicated.durable.files import ObjectFiles
from ordercast.replicated.durable.frames import SLOTS
from ordercast.replicated.durable.heads import START, Entry, Head

SMALL = 600


class History:
    """What was appended, as a test knows it: the state after each position."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.heads = [START]
        self.data = [b""]

    def more(self, count: int) -> list[Entry]:
        made = []
        for _ in range(count):
            data = self.chance.randbytes(self.chance.choice((0, 1, 30, 90, 2000)))
            head = Head(1 + len(self.heads) // 7, len(self.heads), crc32(data, self.heads[-1].checksum))
            self.heads.append(head)
            self.data.append(data)
            made.append(Entry(head, data))
        return made

    def slices(self, position: int) -> list[bytes]:
        return [b"state %d" % position, *self.data[: position + 1]]


def opened(directory: MemoryDirectory, segment_bytes: int = SMALL) -> ObjectFiles:
    return ObjectFiles(directory, "bank", 3, segment_bytes=segment_bytes)


class Run:
    """Commits, snapshots and states of others, drawn; how far the disk said that it has all."""

    def __init__(self, seed: int, segment_bytes: int = SMALL) -> None:
        self.history = History(seed)
        self.chance = self.history.chance
        self.directory = MemoryDirectory()
        self.synced = START
        self.segment_bytes = segment_bytes
        self.open()

    def open(self) -> None:
        self.files = opened(self.directory, self.segment_bytes)

    def steps(self, count: int) -> None:
        for _ in range(count):
            kind = self.chance.random()
            if kind < 0.7:
                entries = self.history.more(self.chance.randint(1, 4))
                self.files.commit(entries)
            elif kind < 0.9:
                self._snapshot(self.files.head.position, replace=False)
            else:  # the state of another replica, which is further
                self.history.more(3)
                self._snapshot(len(self.history.heads) - 1, replace=True)
            self.synced = self.files.head

    def small_commits(self) -> None:
        """Until the process ends; now and then something else."""
        while True:
            self.files.commit(self.history.more(1))
            self.synced = self.files.head
            if self.chance.random() < 0.02:
                self.steps(3)

    def _snapshot(self, position: int, replace: bool) -> None:
        written = self.files.new_snapshot(self.history.heads[position])
        if not replace and self.chance.random() < 0.5:
            self.files.commit(self.history.more(2))
            self.synced = self.files.head
        for part in self.history.slices(position):
            written.write(part)
        written.finish()
        (self.files.replace if replace else self.files.adopt)(written)

    def check(self, files: ObjectFiles, at_least: Head) -> None:
        """It has what was synced, and what it has is right."""
        found = files.found
        assert found.damage is None, found.damage
        assert files.head >= at_least
        self.check_content(files)
        assert (found.head or START) == files.head

    def check_content(self, files: ObjectFiles) -> None:
        found = files.found
        at = 0
        if found.snapshot is not None:
            at = found.snapshot.head.position
            assert found.snapshot.head == self.history.heads[at]
            assert list(files.snapshot()) == self.history.slices(at)
        for entry in found.entries:
            at += 1
            assert entry == Entry(self.history.heads[at], self.history.data[at])
        if found.damage is None:
            assert files.head == self.history.heads[at]


@pytest.mark.parametrize("seed", range(30))
def test_all_is_read_back(seed: int) -> None:
    run = Run(seed)
    for _ in range(4):
        run.steps(8)
        run.files = opened(run.directory)
        run.check(run.files, run.synced)
        assert not run.files.found.notices


@pytest.mark.parametrize("lost", [False, True])
def test_a_crash_at_any_instruction_leaves_what_was_synced(lost: bool) -> None:
    for seed in range(12):
        whole = Run(seed)
        whole.steps(14)
        for at in range(1 + seed % 3, whole.directory.calls, 3):
            run = Run(seed)
            run.directory.crash_at = at
            with pytest.raises(Crashed):
                run.steps(14)
            run.directory.crash(random.Random(at) if lost else None)
            run.files = opened(run.directory)
            told = run.files.head  # what was being written may be there, and is on disk from here on
            run.directory.crash(random.Random(seed))
            run.files = opened(run.directory)
            assert run.files.head == told
            # the history has what was being written, too
            run.check(run.files, run.synced)
            keep = run.files.head.position
            del run.history.heads[keep + 1 :], run.history.data[keep + 1 :]
            run.synced = run.files.head
            run.steps(5)
            again = opened(run.directory)
            run.check(again, run.synced)


@pytest.mark.parametrize("segment_bytes", [5_000, 1_000_000])
def test_what_the_head_alone_has_is_in_the_log_before_others_are_in_its_place(segment_bytes: int) -> None:
    for seed in range(60):
        run = Run(seed, segment_bytes)
        run.steps(3)
        for _ in range(3):
            run.directory.crash_at = run.directory.calls + run.chance.randint(1, 300)
            with pytest.raises(Crashed):
                run.small_commits()
            run.directory.crash(random.Random(seed))
            run.open()
            run.check(run.files, run.synced)
            run.synced = run.files.head
            keep = run.synced.position
            del run.history.heads[keep + 1 :], run.history.data[keep + 1 :]


def test_a_small_commit_is_one_sync() -> None:
    run = Run(1, segment_bytes=1_000_000)
    run.files.commit(run.history.more(1))
    syncs: list[str] = []
    sync = run.directory.sync

    def counted(name: str) -> None:
        syncs.append(name)
        sync(name)

    run.directory.sync = counted  # type: ignore[method-assign]
    for _ in range(10 * SLOTS + 1):
        run.history.heads.append(Head(1, len(run.history.heads), 0))
        run.files.commit([Entry(run.history.heads[-1], b"x" * 100)])
    assert (syncs.count("head"), len(syncs)) == (10 * SLOTS + 1, 10 * SLOTS + 1 + 10)


def test_a_crash_while_it_is_opened_after_a_crash() -> None:
    for seed in range(60):
        run = Run(seed)
        run.directory.crash_at = run.chance.randint(8, 40)
        with pytest.raises(Crashed):
            run.steps(40)
        run.directory.crash(random.Random(seed))
        for further in range(1, 5):
            run.directory.crash_at = run.directory.calls + further
            with suppress(Crashed):
                opened(run.directory)
            run.directory.crash(random.Random(seed + further))
        run.check(opened(run.directory), run.synced)


# --- damage -------------------------------------------------------------------------------------


def damage(directory: MemoryDirectory, older: MemoryDirectory, chance: random.Random) -> str:
    """Damage one file somewhere; says how."""
    name = chance.choice([name for name in directory.names() if name != "writer"])
    data = directory.content(name)
    kind = chance.choice(("cut", "flip", "zero", "missing", "older", "longer", "copied"))
    match kind:
        case "cut":
            del data[chance.randrange(len(data)) :]
        case "flip":
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        case "zero":
            begin = chance.randrange(len(data))
            end = min(len(data), begin + chance.choice((1, 64, 4096, 9000)))
            data[begin:end] = bytes(end - begin)
        case "missing":
            directory.remove(name)
        case "older":
            if name in older.names():
                data[:] = older.content(name)
        case "longer":
            data += chance.randbytes(100)
        case "copied":
            data[:] = directory.content(chance.choice(directory.names()))
    return f"{kind} {name}"


def check_damaged(seed: int) -> tuple[str, bool]:
    """Damage the files of a run: either nothing is lost, or it is said. Then take the state of another."""
    run = Run(seed, segment_bytes=SMALL if seed % 2 else 100_000)
    run.steps(run.chance.randint(1, 15))
    older = run.directory.copy()
    run.steps(run.chance.randint(1, 15))
    what = damage(run.directory, older, run.chance)
    run.directory = run.directory.copy()
    run.files = files = opened(run.directory)
    run.check_content(files)
    if files.found.damage is None:
        run.check(files, run.synced)
        run.steps(3)
        run.check(opened(run.directory), run.synced)
        return what, False
    assert files.found.head is None
    assert "memory/" in files.found.damage or "entries" in files.found.damage
    with pytest.raises(StorageProblem, match="another replica"):
        files.commit(run.history.more(1))
    # it stays damaged until the state is there as a whole
    run.files = opened(run.directory)
    slices = len(run.history.slices(len(run.history.heads) - 1))
    run.directory.crash_at = run.directory.calls + slices + run.chance.randint(-2, 14)
    with suppress(Crashed):
        run._snapshot(len(run.history.heads) - 1, replace=True)
    run.directory.crash(random.Random(seed) if seed % 2 else None)
    run.files = files = opened(run.directory)
    run.check_content(files)
    if files.found.damage is None:
        assert files.head == run.history.heads[-1]
    run._snapshot(len(run.history.heads) - 1, replace=True)
    run.synced = files.head
    assert files.found.damage is None
    run.check(opened(run.directory), run.synced)
    run.steps(3)
    run.check(opened(run.directory), run.synced)
    return what, True


def test_damage_is_noticed_and_never_read_as_data() -> None:
    found = [check_damaged(seed) for seed in range(150)]
    assert {what.split()[0] for what, said in found if said} >= {"cut", "flip", "zero", "missing", "older"}


@pytest.mark.campaign
def test_random_damages() -> None:
    for seed in range(1000, 1000 + rounds(30, 1000)):
        check_damaged(seed)


# --- on a disk ----------------------------------------------------------------------------------


def test_files_of_a_real_directory(tmp_path: Path) -> None:
    path = tmp_path / "objects" / "bank"
    history = History(1)
    files = ObjectFiles(DiskDirectory(path), "bank", 3)
    files.commit(history.more(5))
    with pytest.raises(StorageProblem, match="in use by process"):
        DiskDirectory(path)
    written = files.new_snapshot(files.head)
    for part in history.slices(5):
        written.write(part)
    written.finish()
    files.adopt(written)
    files.commit(history.more(2))
    files.close()
    with pytest.raises(StorageProblem, match="is closed"):
        files.commit(history.more(1))
    del history.heads[8:], history.data[8:]
    files = ObjectFiles(DiskDirectory(path), "bank", 3)
    assert files.found.damage is None
    assert files.head == history.heads[7]
    assert list(files.snapshot()) == history.slices(5)
    assert [entry.data for entry in files.found.entries] == history.data[6:]
    assert sorted(each.name for each in path.iterdir()) == [
        *("000000000001.state", "000000000002.wal", "head", "writer"),
    ]
    (path / "000000000001.state").write_bytes(b"")
    with pytest.raises(Damaged, match="has 0 bytes, and was written with"):
        list(files.snapshot())
    files.close()


def test_the_directory_of_another_is_refused() -> None:
    directory = MemoryDirectory()
    ObjectFiles(directory, "bank", 3).commit(History(1).more(1))
    with pytest.raises(StorageProblem, match="holds the object bank of node 3, and this is bank of node 4"):
        ObjectFiles(directory, "bank", 4)


def test_a_disk_that_refuses_once_is_not_asked_again() -> None:
    run = Run(5)
    run.steps(5)
    run.directory.full = True
    with pytest.raises(StorageProblem, match="no space"):
        run.files.commit(run.history.more(1))
    run.directory.full = False
    with pytest.raises(StorageProblem, match="no space"):
        run.files.commit(run.history.more(1))
    run.check(opened(run.directory), run.synced)


def test_entries_follow_each_other() -> None:
    files = ObjectFiles(MemoryDirectory(), "bank", 3)
    history = History(2)
    history.more(1)
    with pytest.raises(ValueError, match="entry 2 cannot follow 0"):
        files.commit(history.more(1))
    with pytest.raises(ValueError, match="not on disk yet"):
        files.adopt(_finished(files, Head(1, 9, 0)))


def _finished(files: ObjectFiles, head: Head):  # type: ignore[no-untyped-def]
    written = files.new_snapshot(head)
    written.finish()
    return written
