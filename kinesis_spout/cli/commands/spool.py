"""``kinesis-spout spool``: what producers have taken over and could not confirm."""

from pathlib import Path
from typing import Annotated, Final

import typer

from kinesis_spout.cli.output import note, print_json, print_table
from kinesis_spout.cli.shared_options import Json
from kinesis_spout.operations import spool as spools

spool = typer.Typer(
    no_args_is_help=True,
    help="Look at a producer's spool.",
)

_HEADINGS: Final = ("file", "state", "records", "bytes", "damage")

Folder = Annotated[
    Path,
    typer.Argument(metavar="FOLDER", help="The spool's folder, as the producer has it.", show_default=False),
]


@spool.command("list")
def list_files(ctx: typer.Context, folder: Folder, *, json: Json = False) -> None:
    """List the files of a spool, and their whole records.

    A producer that starts takes over the files that no producer uses. It puts the whole records of a damaged
    file, and then sets the file aside.
    """
    found = spools.list_files(ctx.obj, folder)
    if json:
        print_json(found)
    elif found:
        rows = [[str(value if value is not None else "-") for value in each.values()] for each in found]
        print_table(_HEADINGS, rows, whole={"file"})
    else:
        note(f"the spool in {folder} is empty")
