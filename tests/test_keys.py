"""Keys are 32 bytes, files of them are for their owner alone, and mistakes say what to do."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast import keys
from ordercast.errors import KeyProblem
from ordercast.keys import KEY_SIZE, MOST_KEYS, PREFIX, Keyring, generate, key_id, written

some_keys = st.lists(st.binary(min_size=KEY_SIZE, max_size=KEY_SIZE), min_size=1, max_size=4, unique=True)
fluff = st.sampled_from(["", "   ", "# a comment", f"  # {PREFIX}not a key"])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "group.key"
    keys.create(path)
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def problem_of(path: Path) -> str:
    with pytest.raises(KeyProblem) as problem:
        Keyring.load(path)
    return str(problem.value)


def closed(path: Path, text: str | bytes) -> Path:
    """A file for its owner alone."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(0o600)
    return path


# --- text --------------------------------------------------------------------------------------


@given(some_keys, st.data())
def test_written_keys_are_read_again(some: list[bytes], data: st.DataObject) -> None:
    lines = []
    for key in some:
        lines += data.draw(st.lists(fluff, max_size=3))
        line = written(key) + data.draw(st.sampled_from(["", "=", " ", "  # the new one", "\r"]))
        lines.append(data.draw(st.sampled_from(["", "  "])) + line)
    keyring = Keyring.parse("\n".join(lines))
    assert keyring.keys == tuple(some)
    assert keyring.ids == tuple(map(key_id, some))


@given(st.text(max_size=80))
def test_any_text_is_a_keyring_or_a_problem(text: str) -> None:
    with pytest.raises(KeyProblem):
        Keyring.parse(PREFIX + text if len(text) < 43 else text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "There is no key in the text: make a new file"),
        ("# nothing\n\n", "There is no key in the text"),
        (PREFIX + "c2hvcnQ", "Line 1 of the text is no key: it should be ordercast-key-1: and 43 letters"),
        ("\n" + written(bytes(32)) + "A", "Line 2 of the text is no key"),
        (written(bytes(32))[:-1] + "!", "Line 1 of the text is no key"),
        (written(bytes(32)).removeprefix(PREFIX), "Line 1 of the text is no key"),
        (written(bytes(32)).replace("-1:", "-2:"), "Line 1 of the text is no key"),
        (f"{written(bytes(32))}\n{written(bytes(32))}=", "In the text: The same key is there twice"),
    ],
)
def test_a_wrong_text_is_a_problem_that_says_what_to_do(text: str, sentence: str) -> None:
    with pytest.raises(KeyProblem) as problem:
        Keyring.parse(text)
    assert str(problem.value).startswith(sentence)
    assert "AAAAAAAA" not in str(problem.value), "a key was shown"


def test_no_key_is_shown() -> None:
    key = generate()
    keyring = Keyring((key,))
    assert repr(keyring) == f"<Keyring {key_id(key):08x}>"
    assert written(key).removeprefix(PREFIX) not in repr(keyring)
    assert not hasattr(keyring, "__dict__")


def test_keyrings_are_checked_when_they_are_made() -> None:
    for wrong, sentence in (
        ((), "at least one key"),
        ((b"secret",), "32 bytes, not 6: .* a password will not do"),
        ((bytes(32), bytes(32)), "twice"),
        (tuple(generate() for _ in range(MOST_KEYS + 1)), "at most 16 keys, not 17: .*--prune"),
    ):
        with pytest.raises(KeyProblem, match=sentence):
            Keyring(wrong)


def test_keyrings_are_values() -> None:
    one, two = generate(), generate()
    assert Keyring((one, two)) == Keyring((one, two)) != Keyring((two, one))
    assert hash(Keyring((one,))) == hash(Keyring((one,)))
    assert len(Keyring((one, two))) == 2
    assert Keyring((one,)) != one


def test_what_is_meant_by_a_key(file: Path) -> None:
    keyring = Keyring.load(file)
    (key,) = keyring.keys
    for given_ in (keyring, key, written(key), f"\n{written(key)}\n", file, str(file)):
        assert Keyring.of(given_) == keyring
    with pytest.raises(KeyProblem, match="32 bytes, not 3"):
        Keyring.of(b"abc")
    with pytest.raises(KeyProblem, match="empty text: name a key file, or leave the key out"):
        Keyring.of("")
    with pytest.raises(KeyProblem, match="not of type int: pass the path"):
        Keyring.of(5)  # type: ignore[arg-type]


# --- files -------------------------------------------------------------------------------------


def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        keyring = keys.create(tmp_path / "group.key")
    finally:
        os.umask(before)
    assert mode(tmp_path / "group.key") == 0o600
    assert Keyring.load(tmp_path / "group.key") == keyring
    assert os.listdir(tmp_path) == ["group.key"], "something was left lying about"


def test_a_file_that_is_there_is_left_as_it_is(file: Path) -> None:
    before = file.read_bytes()
    with pytest.raises(KeyProblem, match=r"left as it is: name another file, or .*keygen --add"):
        keys.create(file)
    assert file.read_bytes() == before


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o620, 0o602, 0o610, 0o666, 0o777])
def test_a_file_that_others_may_use_is_refused(file: Path, bits: int) -> None:
    file.chmod(bits)
    sentence = problem_of(file)
    assert f"its mode is 0{bits:o}" in sentence
    assert f"`chmod 600 {file}`" in sentence
    for change in (keys.add, keys.promote, keys.prune):
        with pytest.raises(KeyProblem, match="chmod 600"):
            change(file)


def test_what_is_no_key_file(tmp_path: Path) -> None:
    assert "is a directory: name the key file in it" in problem_of(tmp_path)
    missing = tmp_path / "missing"
    assert f"There is no key file {missing}: make one with `ordercast keygen {missing}`" in problem_of(
        missing
    )
    assert "is no file: name a key file" in problem_of(Path("/dev/null"))
    assert "is not text" in problem_of(closed(tmp_path / "bytes", b"\xff\xfe"))
    assert "more than 65,536 bytes" in problem_of(closed(tmp_path / "long", "#" * 100_000))
    assert "There is no key in" in problem_of(closed(tmp_path / "empty", ""))
    assert "cannot be read" in problem_of(Path("a\0b"))
    wrong = closed(tmp_path / "wrong", f"# mine\n{written(generate())[:-4]}\n")
    assert f"Line 2 of {wrong} is no key" in problem_of(wrong)


def test_a_file_of_somebody_else(file: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    file.chmod(0)
    assert "may not be read by this user: run as its owner" in problem_of(file)


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(
        KeyProblem, match=r"cannot be written \(No such file or directory\): choose a directory"
    ):
        keys.create(tmp_path / "no" / "group.key")


def test_a_write_that_fails_leaves_everything_as_it_was(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    before = file.read_bytes()
    monkeypatch.setattr("os.fsync", full)
    for attempt, path in ((keys.add, file), (keys.create, file.parent / "new.key")):
        with pytest.raises(KeyProblem, match="No space left on device"):
            attempt(path)
    assert file.read_bytes() == before
    assert os.listdir(file.parent) == ["group.key"]


# --- rollover ----------------------------------------------------------------------------------


def test_a_rollover_in_three_steps(file: Path) -> None:
    (old,) = Keyring.load(file).keys
    added = keys.add(file)
    assert added == Keyring.load(file)
    assert added.keys[0] == old
    new = added.keys[1]
    assert keys.promote(file) == Keyring.load(file) == Keyring((new, old))
    assert keys.prune(file) == Keyring.load(file) == Keyring((new,))
    assert mode(file) == 0o600


def test_a_change_keeps_what_people_wrote(tmp_path: Path) -> None:
    one, two, three = map(written, (generate(), generate(), generate()))
    file = closed(tmp_path / "key", f"# ours\n{one} # first\n\n{two}\n# the rest\n{three}  # third\n# end")
    keys.promote(file)
    moved = f"# ours\n{three}  # third\n{one} # first\n\n{two}\n# the rest\n# end\n"
    assert file.read_text() == moved
    keys.prune(file)
    assert file.read_text() == f"# ours\n{three}  # third\n\n# the rest\n# end\n"


def test_a_change_keeps_mode_and_link(file: Path) -> None:
    file.chmod(0o400)
    link = file.parent / "link"
    link.symlink_to(file)
    assert len(keys.add(link)) == 2
    assert link.is_symlink()
    assert len(Keyring.load(file)) == 2
    assert mode(file) == 0o400


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file of somebody else")
def test_a_change_keeps_the_owner(file: Path) -> None:
    os.chown(file, 12345, 23456)
    keys.add(file)
    assert (file.stat().st_uid, file.stat().st_gid) == (12345, 23456)


def test_steps_that_make_no_sense(file: Path) -> None:
    before = file.read_bytes()
    with pytest.raises(KeyProblem, match="none to promote: begin with `ordercast keygen --add"):
        keys.promote(file)
    with pytest.raises(KeyProblem, match="none to forget: nothing was changed"):
        keys.prune(file)
    assert file.read_bytes() == before
    for _ in range(MOST_KEYS - 1):
        keys.add(file)
    with pytest.raises(KeyProblem, match=r"holds 16 keys already, which is the most: .*--prune"):
        keys.add(file)
