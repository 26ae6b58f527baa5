"""What is said beside a message: a key and headers, as they travel."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.client import wire
from ordercast.core.headers import KEY, head_of, headers_of, read_head, write_head

NAMES = st.text("abcXYZ-_09!~", min_size=1, max_size=10).filter(lambda name: name != KEY)
VALUES = st.text("abc:, ;09äß✓%", max_size=20).map(str.strip)


@given(st.none() | VALUES, st.dictionaries(NAMES, VALUES, max_size=4))
def test_a_key_and_headers_are_read_as_they_were_given(key: str | None, headers: dict[str, str]) -> None:
    head = head_of(key, headers)
    if head is None:
        assert key is None
        assert not headers
        return
    assert headers_of(head) == headers | ({} if key is None else {KEY: key})
    sent = read_head(head).headers
    assert sent == wire.write_headers(headers, key), "a client of NATS says the same"


@given(st.binary(max_size=60))
def test_any_head_can_be_read(data: bytes) -> None:
    assert isinstance(dict(headers_of(data)), dict)
    assert isinstance(dict(headers_of(write_head(None, data))), dict)


@pytest.mark.parametrize(
    ("key", "headers", "what"),
    [
        ("a\nb", {}, "the key has a line break"),
        (" a", {}, "blanks at an end"),
        (None, {"a b": "c"}, "no name of a header"),
        (None, {"a": "b\r"}, "the header a has"),
        ("k", {KEY: "k"}, "both are given"),
    ],
)
def test_what_cannot_be_said_is_refused(key: str | None, headers: dict[str, str], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        head_of(key, headers)


def test_a_key_is_a_text() -> None:
    with pytest.raises(TypeError, match="are texts"):
        head_of(b"key", None)  # type: ignore[arg-type]
