"""Keys that are wrong, missing, or changed while messages flow."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from group import Cluster, Member, wait_until

from ordercast import keys


def make(path: Path) -> str:
    keys.create(path)
    return str(path)


def greetings_dropped(member: Member) -> set[str]:
    return {reason for reason in member.drops if reason.startswith("greeting: ")}


@pytest.mark.parametrize(
    ("inside", "outside", "reason"),
    [
        pytest.param("a", "b", "greeting: unknown key", id="wrong key"),
        pytest.param("a", None, "greeting: unknown key", id="no key"),
        pytest.param(None, "b", "greeting: malformed", id="key where there is none"),
    ],
)
def test_who_has_another_key_never_gets_in(
    tmp_path: Path, inside: str | None, outside: str | None, reason: str
) -> None:
    files = {name: make(tmp_path / name) for name in "ab"} | {None: None}
    with Cluster(tmp_path, rate=50.0, key=files[inside]) as group:
        one, two = group.start_all(2)
        stranger = group.start(3, key=files[outside])
        wait_until(lambda: reason in greetings_dropped(one), f"{reason} is counted")
        wait_until(lambda: reason in greetings_dropped(two), f"{reason} is counted")
        group.await_configuration(stranger, {3})
        group.await_progress(200, [one, two])
        group.await_configuration(stranger, {3})
        assert not any(3 in told["members"] for member in (one, two) for told in member.regular)
        assert {report["status"]["sealed"] for report in (one.report(), two.report())} == {inside is not None}
        stranger.leave()
        group.conclude()


@pytest.mark.parametrize("cipher", ["aes-gcm", "chacha20-poly1305"])
def test_a_key_is_changed_while_messages_flow(tmp_path: Path, cipher: str) -> None:
    file = tmp_path / "key"
    with Cluster(tmp_path, rate=200.0, safe=0.2, key=make(file), options={"cipher": cipher}) as group:
        members = group.start_all(3)

        def noticed(times: int) -> bool:
            return all(
                member.log.read_text().count("the group key was changed") == times for member in members
            )

        before = len(members[0].regular)
        for step, change in enumerate((keys.add, keys.promote, keys.prune), start=1):
            change(file)
            wait_until(partial(noticed, step), "all have read the key file again")
            group.await_progress(200)
        for member in members:
            assert not [reason for reason in member.drops if "key" in reason or "authentic" in reason]
        print("configurations meanwhile:", len(members[0].regular) - before)
        group.conclude()


def test_a_node_with_the_old_key_stays_out_after_the_change(tmp_path: Path) -> None:
    file, old = tmp_path / "key", tmp_path / "old"
    make(file)
    old.touch(mode=0o600)
    old.write_text(file.read_text())
    keys.add(file)
    keys.promote(file)
    keys.prune(file)
    with Cluster(tmp_path, rate=50.0, key=str(file)) as group:
        one, two = group.start_all(2)
        late = group.start(3, key=str(old))
        wait_until(lambda: "greeting: unknown key" in greetings_dropped(one), "it is refused")
        group.await_configuration(late, {3})
        late.leave()
        group.await_progress(members=[one, two])
        group.conclude()
