"""Files by path and by URI: the same here and in a store, which is an S3 server."""

from __future__ import annotations

from pathlib import Path

import pytest

from ordercast.storage import Location, StorageError


@pytest.fixture(params=["here", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """A directory that nobody has made."""
    if request.param == "here":
        return Location.of(tmp_path / "some" / "where")
    return Location.of(request.getfixturevalue("store").format(f"{tmp_path.name}/some/where"))


def test_what_is_put_is_there_whole(place: Location) -> None:
    file = place / "one/two.txt"
    assert not place.exists()
    assert place.names() == set()
    file.put(b"first")
    file.put(b"second")
    assert file.read() == b"second"
    with file.open() as opened:
        opened.seek(2)
        assert opened.read(3) == b"con"
    assert (file.is_file(), file.is_directory()) == (True, False)
    assert (place.is_file(), place.is_directory()) == (False, True)
    assert file.parent == place / "one"


def test_a_directory_is_listed_by_name(place: Location) -> None:
    for name in ("b", "a", "deeper/c"):
        (place / name).put(name.encode())
    assert [(entry.location.name, entry.is_directory, entry.size) for entry in place.entries()] == [
        ("a", False, 1),
        ("b", False, 1),
        ("deeper", True, 0),
    ]
    assert place.names() == {"a", "b", "deeper"}
    assert next((place / "deeper").entries()).location.read() == b"deeper/c"


def test_what_is_removed_is_gone_and_may_be_removed_again(place: Location) -> None:
    (place / "a").put(b"a")
    for _ in range(2):
        (place / "a").remove()
        assert not (place / "a").exists()
    with pytest.raises(FileNotFoundError):
        (place / "a").read()


def test_a_uri_leads_back(place: Location) -> None:
    (place / "a").put(b"a")
    assert Location.of((place / "a").uri).read() == b"a"
    assert "secret" not in str(place)


@pytest.mark.parametrize(
    ("said", "store", "path"),
    [
        ("lab/dtp", "", "lab/dtp"),
        ("/lab/dtp", "", "/lab/dtp"),
        ("file:///lab/a%20b", "", "/lab/a b"),
        ("s3a://bucket/a/b/", "s3://bucket", "a/b"),
        ("s3://bucket", "s3://bucket", ""),
        ("abfs://box@account.dfs.core.windows.net/a", "abfss://box@account.dfs.core.windows.net", "a"),
        ("hdfs://name:8020/a/b", "hdfs://name:8020", "a/b"),
        ("s3://key:secret@bucket/a?region=x", "s3://key:secret@bucket?region=x", "a"),
    ],
)
def test_paths_and_uris(said: str, store: str, path: str) -> None:
    assert Location.of(said) == Location(store, path)


def test_a_scheme_that_nobody_knows_is_refused() -> None:
    with pytest.raises(StorageError, match="nothing is known of ftp: give a path, or a URI that begins with"):
        Location.of("ftp://host/file")
