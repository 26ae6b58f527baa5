"""``ordercast lab report``: the page of an experiment, written again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ordercast.cli.lab import Master, claim_documents, show_claims
from ordercast.cli.options import Json
from ordercast.cli.screen import SAY, answer
from ordercast.lab.laboratory import HOME, Laboratory


def report(
    experiment: Annotated[
        str, typer.Argument(help="An experiment's name, or its directory.", metavar="NAME|DIR")
    ],
    master: Master = None,
    json: Json = False,
) -> None:
    """Write the report of an experiment again, from the results that are there."""
    from ordercast.spark.session import spark_session

    directory = Path(experiment)
    if not directory.is_dir():
        directory = HOME / experiment
    lab = Laboratory.reopen(directory)
    with spark_session("lab", master) as spark:
        reported = lab.report(spark)
    if json:
        answer({"report": str(reported.page), "claims": claim_documents(reported), **reported.answer})
    else:
        show_claims(reported.claims)
        SAY.print(f"report: {reported.page}", soft_wrap=True)
