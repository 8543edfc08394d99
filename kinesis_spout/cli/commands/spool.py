"""``kinesis-spout spool``: what producers have taken over and could not confirm."""

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kinesis_spout.cli.output import note, print_json, print_table
from kinesis_spout.cli.shared_options import STREAM_ONLY, Json, configured
from kinesis_spout.operations import spool as spools
from kinesis_spout.settings import SpoutConfig

spool = typer.Typer(
    no_args_is_help=True,
    help="Look at a producer's spool, and save what is whole of damaged files.",
)

_HEADINGS: Final = ("file", "state", "records", "bytes", "damage")

Folder = Annotated[
    Path,
    typer.Argument(metavar="FOLDER", help="The spool's folder, as the producer has it.", show_default=False),
]
Sound = Annotated[
    bool, typer.Option("--all", help="Also files that are not damaged, of producers that have ended.")
]


@spool.command("list")
def list_files(ctx: typer.Context, folder: Folder, *, json: Json = False) -> None:
    """List the files of a spool: whether a producer uses them, and how many records in them are whole.

    A producer that starts takes over what is left over. Next: `spool save` or `spool put` for what is damaged.
    """
    found = spools.list_files(ctx.obj, folder)
    if json:
        print_json(found)
    elif found:
        rows = [[str(value if value is not None else "-") for value in each.values()] for each in found]
        print_table(_HEADINGS, rows, whole={"file"})
    else:
        note(f"the spool in {folder} is empty")


@spool.command()
def save(
    ctx: typer.Context,
    folder: Folder,
    *,
    to: Annotated[
        Path,
        typer.Option(
            "--to", metavar="FILE", help="A new file, of one JSON object a line.", show_default=False
        ),
    ],
    sound: Sound = False,
    json: Json = False,
) -> None:
    """Write the records that are whole in damaged files to a file, then move those files aside (NAME.saved).

    Each line has `partition_key`, `explicit_hash_key` and `data` (base64). Records of files in use are left alone.
    """
    _print(spools.save(ctx.obj, folder, to, sound=sound), f"saved to {to}", json=json)


@spool.command()
@configured(usual=STREAM_ONLY)
def put(
    ctx: typer.Context, folder: Folder, config: SpoutConfig, *, sound: Sound = False, json: Json = False
) -> None:
    """Put the records that are whole in damaged files on their stream, then move those files aside (NAME.saved).

    Records can be put a second time: what was sent and not yet confirmed cannot be told from the rest.
    """
    done = spools.put(ctx.obj, config, folder, sound=sound)
    _print(done, f"put on stream {config.stream}", json=json)


def _print(done: list[dict[str, Any]], what: str, *, json: bool) -> None:
    if json:
        print_json(done)
    for each in done:
        note(f"{each['records']:,} records of {each['file']} {what}; the file is now {each['moved_to']}")
    if not done:
        note("no file is damaged, or none whose producer has ended: `kinesis-spout spool list` shows all")
