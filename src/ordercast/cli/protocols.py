"""``ordercast protocols``: what there is to choose from."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from ordercast.catalogue import LabProtocol, lab_protocol
from ordercast.cli.options import Json
from ordercast.cli.screen import STDOUT, answer
from ordercast.core.wire import DROPS
from ordercast.protocols import PROTOCOLS


def protocols(json: Json = False) -> None:
    """Compare the protocols: who orders, when a message is delivered, what is tolerated, when to choose it.

    One is chosen with --protocol in other commands, with `protocol` in a configuration and with protocol= in
    the API. All nodes of a group run the same.
    """
    if json:
        answer({"protocols": [_document(lab_protocol(name)) for name in PROTOCOLS]})
        return
    STDOUT.print(_ordering())
    STDOUT.print()
    STDOUT.print(_promises())


def _ordering() -> Table:
    """How the protocol orders messages, and when to choose it."""
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    table.add_column("protocol", style="bold", no_wrap=True)
    for name in ("ordered by", "hops to delivery", "choose it for"):
        table.add_column(name, overflow="fold")
    for each in PROTOCOLS.values():
        table.add_row(each.name, each.about.ordered, each.about.hops, each.about.choose)
    return table


def _promises() -> Table:
    """What is promised: the same for several of them."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for each in PROTOCOLS.values():
        about = each.about
        words = (about.agreed, about.safe, about.tolerates, each.promises.replace("-", " "))
        alike.setdefault(words, []).append(each.name + (" *" if each.levels else ""))
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    table.caption = "*: a message may also ask for a level of resilience, how many members have to have it"
    table.caption_justify = "left"
    for name in ("protocol", "agreed: delivered", "safe: delivered", "goes on without", "promises"):
        table.add_column(name, overflow="fold", style="bold" if name == "protocol" else "")
    for alike_words, names in alike.items():
        table.add_row(", ".join(names), *alike_words)
    return table


def _document(known: LabProtocol) -> dict[str, Any]:
    protocol = known.product
    return {
        "name": protocol.name,
        "summary": protocol.summary,
        **protocol.about._asdict(),
        "promises": protocol.promises,
        "properties": list(known.checks),
        "levels": protocol.levels,
        "primary_partition": protocol.primary_partition,
        "revives": protocol.revives,
        "survives_amnesia": protocol.survives_amnesia,
        "states": list(map(str, protocol.states)),
        "settings": list(protocol.settings.__struct_fields__),
        "packet_kinds": [kind._asdict() for kind in protocol.kinds.values()],
        "drop_reasons": [drop._asdict() for drop in (*DROPS, *protocol.drops)],
        "statistics": [statistic._asdict() for statistic in protocol.statistics],
    }
