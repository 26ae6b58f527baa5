"""``ordercast keygen``: the key of a group, and how it is changed while the group runs."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from ordercast import keys
from ordercast.cli.options import Json
from ordercast.cli.screen import STDOUT, answer, refuse, verdict
from ordercast.errors import KeyProblem
from ordercast.keys import Keyring

TO_STDOUT = "-"


def keygen(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The key file; - prints a new key to stdout instead.")
    ] = "ordercast.key",
    add: Annotated[
        bool, typer.Option("--add", help="First step of a change: a further key, accepted but not used.")
    ] = False,
    promote: Annotated[
        bool, typer.Option("--promote", help="Second step: the last key seals, the others are accepted.")
    ] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Last step: all keys but the first are forgotten.")
    ] = False,
    json: Json = False,
) -> None:
    """Make a group key: a new file, that its owner alone can read, for every node of the group.

    A key is changed while the group runs in three steps: --add, --promote, --prune. After each the file
    goes to every node, before the next is taken.
    """
    steps = [name for name, wanted in (("add", add), ("promote", promote), ("prune", prune)) if wanted]
    if len(steps) > 1:
        refuse(f"--{steps[0]} and --{steps[1]} are separate steps: the file goes to every node in between.")
    if file == TO_STDOUT:
        if steps:
            refuse(f"--{steps[0]} changes a key file: name it in the place of {TO_STDOUT}.")
        _print_key(json)
        return
    step = steps[0] if steps else "new"
    try:
        keyring = {"new": keys.create, "add": keys.add, "promote": keys.promote, "prune": keys.prune}[step](
            file
        )
    except KeyProblem as problem:
        refuse(str(problem))
    done, following = _told(step, file, keyring)
    if json:
        names = _names(keyring)
        answer({"file": file, "step": step, "keys": names, "seals_with": names[0], "next": following})
    else:
        STDOUT.print(verdict(True, escape(done)), soft_wrap=True)
        STDOUT.print(f"  {escape(following)}", soft_wrap=True)


def _print_key(json: bool) -> None:
    keyring = Keyring((keys.generate(),))
    line = keys.written(keyring.keys[0])
    if json:
        answer({"key": line, "keys": _names(keyring)})
    else:
        print(line)


def _names(keyring: Keyring) -> list[str]:
    return [f"{key_id:08x}" for key_id in keyring.ids]


def _told(step: str, file: str, keyring: Keyring) -> tuple[str, str]:
    """What was done, and what comes next."""
    first, *others = _names(keyring)
    copy = f"Next: copy {file} to every node of the group"
    taken_up = "when all of them have taken it up"
    match step:
        case "new":
            return (
                f"{file} holds a new key, {first}; only you can read it.",
                f'{copy}, and name it in each configuration: key = "{file}".',
            )
        case "add":
            return (
                f"{file} accepts a new key, {others[-1]}; {first} still seals.",
                f"{copy}; {taken_up}, run: ordercast keygen --promote {file}",
            )
        case "promote":
            return (
                f"{file} seals with {first} now; {_listed(others)} still accepted.",
                f"{copy}; {taken_up}, run: ordercast keygen --prune {file}",
            )
    return (
        f"{file} holds {first} alone; no other key is accepted any more.",
        f"{copy}; {taken_up}, the change of keys is complete.",
    )


def _listed(names: list[str]) -> str:
    return f"{names[0]} is" if len(names) == 1 else f"{', '.join(names)} are"
