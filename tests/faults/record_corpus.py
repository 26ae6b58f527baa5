"""Records the corpus anew: ``python record_corpus.py``, as root, after the format of packets has changed.

A group of three forms, sends, loses a member and gets it back; of each kind of datagram a few are kept,
from a group without a key (``plain``) and from one with a key (``sealed``).
"""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path

from group import Cluster
from wire import Datagram, Ear, save

from ordercast import keys
from ordercast.transport.greetings import GREETING_MAGIC
from ordercast.transport.segments import HEADER, HEADER_SIZE

A_KIND = 4


def kind(datagram: Datagram) -> object:
    """What tells datagrams apart without a key."""
    data = datagram.data
    if data.startswith(GREETING_MAGIC):
        return "greeting or challenge", data[len(GREETING_MAGIC)]
    _, index, count, length, _, _ = HEADER.unpack_from(data)
    first = data[HEADER_SIZE : HEADER_SIZE + 4]
    what = first if first.startswith(b"OC") else (datagram.to % 2, length // 64)
    return what if not index else "later part", count > 1


def record(directory: Path, key: str | None) -> list[bytes]:
    ear = Ear()
    heard: list[Datagram] = []
    with Cluster(directory, rate=30.0, safe=0.3, key=key) as group:
        group.start(1).await_word("ready")
        ports: set[int] = set()
        listener = threading.Thread(target=lambda: heard.extend(ear.listen(_All(), 8.0)), daemon=True)
        listener.start()
        members = group.start_all(3)
        members[0].order("send", count=5, size=4000)
        group.await_progress()
        members[2].kill()
        group.await_whole()
        group.start(3)
        group.await_whole()
        group.settle()
        for member in group.living:
            port = int(member.address.rpartition(":")[2])
            ports |= {port, port + 1}
        group.await_whole()
        listener.join()
    ear.close()
    kept: dict[object, list[bytes]] = {}
    for datagram in heard:
        if datagram.to in ports and datagram.source in ports:
            some = kept.setdefault(kind(datagram), [])
            if len(some) < A_KIND:
                some.append(datagram.data)
    print({str(what): len(some) for what, some in kept.items()})
    return [data for some in kept.values() for data in some]


class _All(set[int]):
    """Every port."""

    def __contains__(self, port: object) -> bool:
        return True


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        save("plain", record(Path(place), None))
    with tempfile.TemporaryDirectory() as place:
        keys.create(Path(place) / "key")
        save("sealed", record(Path(place), str(Path(place) / "key")))


if __name__ == "__main__":
    main()
