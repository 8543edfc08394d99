"""``kinesis-spout spool``: what producers have taken over and could not confirm."""

import base64
import json as json_text
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kinesis_spout.cli.failures import NotFound, WrongArguments
from kinesis_spout.cli.output import note, print_json, print_table
from kinesis_spout.cli.progress import progress
from kinesis_spout.cli.settings import STREAM_ONLY, configured
from kinesis_spout.model.errors import SpoolError
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.grammar.streams import is_same

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kinesis_spout.cli.world import World
    from kinesis_spout.producer.spool import Spooled

spool = typer.Typer(
    no_args_is_help=True,
    help="Look at a producer's spool, and save what is whole of damaged files.",
)

_HEADINGS: Final = ("file", "state", "records", "bytes", "damage")

Folder = Annotated[
    Path,
    typer.Argument(metavar="FOLDER", help="The spool's folder, as the producer has it.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Sound = Annotated[
    bool, typer.Option("--all", help="Also files that are not damaged, of producers that have ended.")
]


@spool.command("list")
def list_files(folder: Folder, *, json: Json = False) -> None:
    """List the files of a spool: whether a producer uses them, and how many records in them are whole.

    A producer that starts takes over what is left over. Next: `spool save` or `spool put` for what is damaged.
    """
    from kinesis_spout.producer.spool.salvage import records_in, reports  # noqa: PLC0415 - imports boto3

    _check_folder(folder)
    with progress("records read") as advance:
        found = [
            {
                "file": report.path.name,
                "state": report.state,
                "records": sum(1 for _ in _each(records_in(report.path), advance)),
                "size_bytes": report.size_bytes,
                "damage": report.damage or None,
            }
            for report in reports(folder)
        ]
    if json:
        print_json(found)
    elif found:
        rows = [[str(value if value is not None else "-") for value in each.values()] for each in found]
        print_table(_HEADINGS, rows, whole={"file"})
    else:
        note(f"the spool in {folder} is empty")


@spool.command()
def save(
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
    _check_folder(folder)
    try:
        descriptor = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise WrongArguments(f"--to: expected a file that can be made anew, got {error}") from error
    with os.fdopen(descriptor, "w") as file:

        def keep(records: "Iterable[Spooled]") -> None:
            try:
                for record in records:
                    file.write(_line(record))
                file.flush()
                os.fsync(descriptor)
            except OSError as error:
                raise SpoolError(
                    f"expected to write to {str(to)!r}, got {error}; nothing was moved"
                ) from error

        _end(_save_each(folder, keep, sound=sound), f"saved to {to}", json=json)


@spool.command()
@configured(usual=STREAM_ONLY)
def put(
    ctx: typer.Context, folder: Folder, config: SpoutConfig, *, sound: Sound = False, json: Json = False
) -> None:
    """Put the records that are whole in damaged files on their stream, then move those files aside (NAME.saved).

    Records may be put a second time: what was sent and not yet confirmed cannot be told from the rest.
    """
    from kinesis_spout.kinesis.patience import Patience  # noqa: PLC0415 - imports boto3
    from kinesis_spout.kinesis.write.record_putter import RecordPutter  # noqa: PLC0415

    stream = _check_folder(folder)
    if not is_same(config.stream, stream):
        raise WrongArguments(
            f"--stream: expected {stream!r}, whose spool is in {str(folder)!r}, got {config.stream!r}"
        )
    world: World = ctx.obj

    def send(records: "Iterable[Spooled]") -> None:
        putter = RecordPutter(world.client(config), config.stream, patience=Patience())
        for record in records:
            putter.add(record.entry)
        putter.drain()

    _end(_save_each(folder, send, sound=sound), f"put on stream {config.stream}", json=json)


def _save_each(
    folder: Path, keep: "Callable[[Iterable[Spooled]], None]", *, sound: bool
) -> list[dict[str, Any]]:
    from kinesis_spout.producer.spool.salvage import SAVED, reports, saving  # noqa: PLC0415 - imports boto3

    done: list[dict[str, Any]] = []
    with progress("records read") as advance:
        for report in reports(folder):
            if report.state == "in use" or (report.state == "left over" and not sound):
                continue
            with saving(report.path) as records:
                if records is None:  # a producer was quicker
                    continue
                counted = _Counted(_each(records, advance))
                keep(counted)
            done.append(
                {"file": report.path.name, "records": counted.count, "moved_to": f"{report.path.name}{SAVED}"}
            )
    return done


class _Counted:
    """Counts what is taken of an iterator. Mutable."""

    def __init__(self, records: "Iterable[Spooled]") -> None:
        self._records = records
        self.count = 0

    def __iter__(self) -> "Iterator[Spooled]":
        for record in self._records:
            self.count += 1
            yield record


def _end(done: list[dict[str, Any]], what: str, *, json: bool) -> None:
    if json:
        print_json(done)
    for each in done:
        note(f"{each['records']:,} records of {each['file']} {what}; the file is now {each['moved_to']}")
    if not done:
        note("no file is damaged, or none whose producer has ended: `kinesis-spout spool list` shows all")


def _line(record: "Spooled") -> str:
    key, data, hash_key, _ = record.entry
    values = {"partition_key": key, "explicit_hash_key": hash_key, "data": base64.b64encode(data).decode()}
    return json_text.dumps(values) + "\n"


def _check_folder(folder: Path) -> str:
    """Name the stream whose spool it is."""
    from kinesis_spout.producer.spool.folder import SpoolFolder  # noqa: PLC0415 - imports boto3

    stream = SpoolFolder(folder).stream()
    if stream is None:
        raise NotFound(
            f"expected the folder of a spool, got {str(folder)!r}, which has no stream.json: name the folder that "
            "the producer was given"
        )
    return stream


def _each(records: "Iterable[Spooled]", advance: "Callable[[int], None]") -> "Iterator[Spooled]":
    for record in records:
        advance(1)
        yield record
