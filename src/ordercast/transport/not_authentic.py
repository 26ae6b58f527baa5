"""What the ciphers raise. They come with the extra `seal`, imported where a key is used."""

from __future__ import annotations


def not_authentic() -> type[Exception]:
    """What a cipher raises when what it opens was not sealed with its key."""
    from cryptography.exceptions import InvalidTag

    return InvalidTag
