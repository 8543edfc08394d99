"""``kinesis-spout put``: records onto a stream, for trying things out."""

import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from kinesis_spout.cli.output import note, print_json
from kinesis_spout.cli.settings import STREAM_ONLY, configured
from kinesis_spout.settings import SpoutConfig

if TYPE_CHECKING:
    from kinesis_spout.cli.world import World
    from kinesis_spout.kinesis.write.put_records import Entry, Puttable


@configured(usual=STREAM_ONLY)
def put(
    ctx: typer.Context,
    data: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DATA]...",
            help="A record each; without any, each line of standard input is one.",
            show_default=False,
        ),
    ] = None,
    *,
    config: SpoutConfig,
    key: Annotated[
        str | None,
        typer.Option(help="The partition key of all; unset: a random one for each.", show_default=False),
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="How often to put each record.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Put records on a stream. From a file or a pipe they go in batches of up to 500, typed lines one by one.

    Next: `kinesis-spout tail` shows what is on the stream.
    """
    from kinesis_spout.kinesis.patience import Patience  # noqa: PLC0415 - imports boto3
    from kinesis_spout.kinesis.write.record_putter import RecordPutter  # noqa: PLC0415

    world: World = ctx.obj
    typed = not data and sys.stdin.isatty()
    if typed:
        note("each line is a record; Ctrl-D ends")
    shards: Counter[str] = Counter()
    with _progress(len(data) * count if data else None, hidden=typed) as advance:

        def taken(_record: "Puttable", shard_id: str) -> None:
            shards[shard_id] += 1
            advance(1)

        putter = RecordPutter(world.client(config), config.stream, patience=Patience(), on_taken=taken)
        for entry in _entries(data or (), key, count):
            putter.add(entry)
            if typed:
                putter.drain()
        putter.drain()
    if json:
        print_json({"put": shards.total(), "shards": dict(sorted(shards.items()))})
    else:
        where = ", ".join(f"{shard_id} {number:,}" for shard_id, number in sorted(shards.items()))
        note(f"records put: {shards.total():,}" + (f" ({where})" if where else ""))


def _entries(data: Sequence[str], key: str | None, count: int) -> Iterator["Entry"]:
    from kinesis_spout.kinesis.write.put_records import Entry  # noqa: PLC0415 - imports boto3

    records: Iterable[bytes] = map(_encoded, data) if data else map(_without_end, sys.stdin.buffer)
    for record in records:
        for _ in range(count):
            yield Entry(key or uuid.uuid4().hex, record)


def _encoded(text: str) -> bytes:
    """Give an argument as the bytes that it was."""
    return text.encode(errors="surrogateescape")


def _without_end(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")


@contextmanager
def _progress(total: int | None, *, hidden: bool) -> Iterator[Callable[[int], None]]:
    """Show on a terminal how many records are on the stream; give what tells it of more."""
    console = Console(stderr=True)
    with Progress(
        SpinnerColumn(),
        TextColumn("records put"),
        MofNCompleteColumn(),
        console=console,
        transient=True,
        disable=hidden or not console.is_terminal,
    ) as progress:
        task = progress.add_task("put", total=total)
        yield lambda count: progress.advance(task, count)
