"""``kinesis-spout put``: records onto a stream, for trying things out."""

import sys
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kinesis_spout.cli.output import note, print_json
from kinesis_spout.cli.progress import progress
from kinesis_spout.cli.settings import STREAM_ONLY, configured
from kinesis_spout.cli.world import PATIENCE_SECONDS, unheard
from kinesis_spout.settings import SpoutConfig

if TYPE_CHECKING:
    from kinesis_spout.cli.world import World
    from kinesis_spout.model.errors import KinesisSpoutError
    from kinesis_spout.producer import KinesisProducer, Ticket

_BUFFERED: Final = 5_000
"""Records read ahead of Kinesis: one shard takes them well within ``PATIENCE_SECONDS``, which counts for each."""
_INTERRUPTED_SECONDS: Final = 2.0
"""How long what was read may take to be sent after Ctrl-C."""
_LINGER_SECONDS: Final = 0.05


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
    from kinesis_spout.producer import KinesisProducer  # noqa: PLC0415 - imports boto3

    world: World = ctx.obj
    typed = not data and sys.stdin.isatty()
    if typed:
        note("each line is a record; Ctrl-D ends")
    shards: Counter[str] = Counter()
    failed: list[KinesisSpoutError] = []
    # What the producer logs of each try, the error says at the end.
    total = len(data) * count if data else None
    with unheard("kinesis_spout.producer"), progress("records put", total, hidden=typed) as advance:

        def ended(ticket: "Ticket") -> None:
            error = ticket.exception()
            if error is not None:
                failed.append(error)
                return
            shards[ticket.result().shard_id] += 1
            advance(1)

        # One call at a time keeps the order of the lines.
        with (
            KinesisProducer(
                config.stream,
                client=world.client(config),
                max_concurrent_calls=1,
                max_buffered_records=_BUFFERED,
                linger_seconds=0 if typed else _LINGER_SECONDS,
                delivery_timeout_seconds=PATIENCE_SECONDS,
                close_timeout_seconds=PATIENCE_SECONDS,
            ) as producer,
            _interruption_told(producer),
        ):
            for partition_key, record in _records(data or (), key, count):
                producer.put(record, partition_key).add_done_callback(ended)
                if typed:
                    producer.flush()
                if failed:
                    break
            else:
                producer.flush()  # how long that takes is for PATIENCE_SECONDS of each record to say
    if failed:
        if shards:
            note(f"records put before the failure: {shards.total():,}")
        raise failed[0]
    _tell(shards, json=json)


@contextmanager
def _interruption_told(producer: "KinesisProducer") -> Iterator[None]:
    """After Ctrl-C, send what was read for a moment, and say how much is on the stream."""
    try:
        yield
    except KeyboardInterrupt:
        producer.close(_INTERRUPTED_SECONDS)
        note(f"records put before the interruption: {producer.counts().sent:,}")
        raise


def _tell(shards: "Counter[str]", *, json: bool) -> None:
    if json:
        print_json({"put": shards.total(), "shards": dict(sorted(shards.items()))})
        return
    where = ", ".join(f"{shard_id} {number:,}" for shard_id, number in sorted(shards.items()))
    note(f"records put: {shards.total():,}" + (f" ({where})" if where else ""))


def _records(data: Sequence[str], key: str | None, count: int) -> Iterator[tuple[str, bytes]]:
    """Give each record with its key."""
    records: Iterable[bytes] = map(_encoded, data) if data else map(_without_end, sys.stdin.buffer)
    for record in records:
        for _ in range(count):
            yield key or uuid.uuid4().hex, record


def _encoded(text: str) -> bytes:
    """Give an argument as the bytes that it was."""
    return text.encode(errors="surrogateescape")


def _without_end(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")
