"""What a `Client` can be told by name, for the type checker: a name that is none is found before it runs."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TypedDict


class ClientSettings(TypedDict, total=False):
    """The arguments of `Client` behind its servers; it says what each of them means."""

    user: str
    password: str
    token: str
    tls: ssl.SSLContext | str | Path | None
    name: str
    session: str | None
    number: int
    connect_timeout: float
    give_up_after: float | None
    ping_interval: float
