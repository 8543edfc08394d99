"""``kinesis-spout put``: puts records on a stream, for trying things out."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

import typer

from kinesis_spout.cli.output import note, print_json
from kinesis_spout.cli.shared_options import STREAM_ONLY, Json, configured
from kinesis_spout.operations import streams
from kinesis_spout.settings import SpoutConfig


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
    json: Json = False,
) -> None:
    """Put records on a stream. From a file or a pipe they go in batches of up to 500, typed lines one by one.

    Next: `kinesis-spout tail` shows what is on the stream.
    """
    typed = not data and sys.stdin.isatty()
    if typed:
        note("each line is a record; Ctrl-D ends")
    total = len(data) * count if data else None
    records = _records(data or (), count)
    shards = streams.put(ctx.obj, config, records, key=key, total=total, at_once=typed)
    if json:
        print_json({"put": shards.total(), "shards": dict(sorted(shards.items()))})
        return
    where = ", ".join(f"{shard_id} {number:,}" for shard_id, number in sorted(shards.items()))
    note(f"records put: {shards.total():,}" + (f" ({where})" if where else ""))


def _records(data: Sequence[str], count: int) -> Iterator[bytes]:
    records: Iterable[bytes] = map(_encoded, data) if data else map(_without_end, sys.stdin.buffer)
    for record in records:
        for _ in range(count):
            yield record


def _encoded(text: str) -> bytes:
    """Give an argument as the bytes that it was."""
    return text.encode(errors="surrogateescape")


def _without_end(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")
