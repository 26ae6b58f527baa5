from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from ordercast.cli.keygen import keygen
from ordercast.keys import PREFIX, Keyring


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str, code: int = 0) -> tuple[str, str]:
    """What the command says to stdout and to stderr."""
    app = typer.Typer()
    app.command()(keygen)
    result = CliRunner().invoke(app, list(words), env={"COLUMNS": "80"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout, result.stderr


def document(*words: str) -> Any:
    return json.loads(run(*words, "--json")[0])


def name(key_id: int) -> str:
    return f"{key_id:08x}"


def test_a_new_file(here: Path) -> None:
    said, _ = run()
    file = here / "ordercast.key"
    keyring = Keyring.load(file)
    assert said.startswith(
        f"✓ ordercast.key holds a new key, {name(keyring.ids[0])}; only you can read it.\n"
    )
    assert "Next: copy ordercast.key to every node of the group" in said
    assert 'key = "ordercast.key"' in said
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert PREFIX not in said
    _, err = run(code=2)
    assert "ordercast.key is there already and was left as it is" in err
    assert Keyring.load(file) == keyring


def test_a_key_to_stdout(here: Path) -> None:
    first, second = run("-")[0], run("-")[0]
    assert first != second
    assert first.count("\n") == 1
    assert len(Keyring.of(first)) == 1
    found = document("-")
    assert found["keys"] == [name(Keyring.of(found["key"]).ids[0])]
    assert not list(here.iterdir())


def test_a_change_of_keys() -> None:
    run("group.key")
    (old,) = Keyring.load("group.key").ids
    said, _ = run("--add", "group.key")
    new = Keyring.load("group.key").ids[1]
    assert f"✓ group.key accepts a new key, {name(new)}; {name(old)} still seals." in said
    assert said.endswith("run: ordercast keygen --promote group.key\n")
    said, _ = run("--promote", "group.key")
    assert f"✓ group.key seals with {name(new)} now; {name(old)} is still accepted." in said
    assert said.endswith("run: ordercast keygen --prune group.key\n")
    said, _ = run("--prune", "group.key")
    assert f"✓ group.key holds {name(new)} alone; no other key is accepted any more." in said
    assert said.endswith("the change of keys is complete.\n")
    assert Keyring.load("group.key").ids == (new,)


def test_a_change_of_keys_for_programs() -> None:
    made = document()
    assert made["file"] == "ordercast.key"
    assert made["step"] == "new"
    old = made["seals_with"]
    added = document("--add")
    assert added["seals_with"] == old
    assert added["keys"][0] == old
    run("--add")
    promoted = document("--promote")
    assert promoted["seals_with"] == promoted["keys"][0] not in added["keys"]
    assert set(added["keys"]) < set(promoted["keys"])
    pruned = document("--prune")
    assert pruned["keys"] == [promoted["seals_with"]]
    assert pruned["next"].startswith("Next: copy ordercast.key")


def test_several_old_keys_are_all_named() -> None:
    run()
    run("--add")
    run("--add")
    said, _ = run("--promote")
    _, one, two = Keyring.load("ordercast.key").ids
    assert f"{name(one)}, {name(two)} are still accepted." in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--add",), "There is no key file ordercast.key: make one with `ordercast keygen ordercast.key`"),
        (
            ("--add", "--prune"),
            "--add and --prune are separate steps: the file goes to every node in between.",
        ),
        (("--promote", "-"), "--promote changes a key file: name it in the place of -."),
        (("no/such.key",), "no/such.key cannot be written (No such file or directory): choose a directory"),
        (("open.key", "--add"), "close it with `chmod 600 open.key`"),
        (("one.key", "--promote"), "begin with `ordercast keygen --add one.key`"),
        (("one.key", "--prune"), "none to forget"),
    ],
)
def test_mistakes_say_what_to_do(here: Path, words: tuple[str, ...], sentence: str) -> None:
    run("one.key")
    run("open.key")
    (here / "open.key").chmod(0o644)
    out, err = run(*words, code=2)
    assert not out
    assert sentence in err
