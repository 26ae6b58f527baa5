"""``ordercast lab report``: the page of an experiment, written again."""

from __future__ import annotations

from typing import Annotated

import typer

from ordercast.cli.lab import Master, claim_documents, show_advice, show_claims
from ordercast.cli.lab_fuzz import show_failures
from ordercast.cli.options import Json
from ordercast.cli.screen import STDOUT, answer
from ordercast.lab.campaign.conduct import FuzzCampaign
from ordercast.lab.laboratory import HOME, Laboratory
from ordercast.storage import Location


def report(
    experiment: Annotated[
        str, typer.Argument(help="An experiment's name, or its directory.", metavar="NAME|DIR|URI")
    ],
    master: Master = None,
    json: Json = False,
) -> None:
    """Write the report of an experiment again, from the results that are there."""
    from ordercast.spark.sessions import spark_session

    directory = Location.of(experiment)
    if directory.local is not None and not directory.is_directory():
        directory = Location.of(HOME / experiment)
    campaign = FuzzCampaign.reopen(directory)
    if campaign is not None:
        reported = campaign.report()
    else:
        lab = Laboratory.reopen(directory)
        with spark_session("lab", master) as spark:
            reported = lab.report(spark)
    if json:
        answer({"report": str(reported.page), "claims": claim_documents(reported), **reported.answer})
    else:
        show_claims(reported.claims)
        if campaign is not None:
            show_failures(reported)
        if reported.advice is not None:
            show_advice(reported.advice)
        STDOUT.print(f"report: {reported.page}", soft_wrap=True)
