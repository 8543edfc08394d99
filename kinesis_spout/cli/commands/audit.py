"""``kinesis-spout audit``: who changed what, when and why."""

from typing import Final

import typer

from kinesis_spout.cli.output import note, print_json, print_table
from kinesis_spout.cli.shared_options import Json, Streams, configured
from kinesis_spout.operations.audit import read_audit
from kinesis_spout.settings import SpoutConfig

_HEADINGS: Final = ("when", "who", "door", "what", "of", "why")


@configured(streams=Streams.EACH)
def audit(ctx: typer.Context, config: SpoutConfig, *, json: Json = False) -> None:
    """List what operators changed: pauses, resumes, drains, resets, redrives; the oldest first.

    Each change of the command line and of the web page is one entry. The last 1,000 of an application on a
    stream are kept, in ZooKeeper.
    """
    documents = [entry.document() for entry in read_audit(ctx.obj, config)]
    if json:
        print_json(documents)
    elif documents:
        rows = [[str(value) or "-" for value in document.values()] for document in documents]
        print_table(_HEADINGS, rows, cutting={"who"})
    else:
        note("no operator has changed anything yet")
