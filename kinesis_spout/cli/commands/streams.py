"""Commands for a stream itself: ``kinesis-spout tail``, ``put`` and ``fan-out``."""

import json as json_text
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

import typer

from kinesis_spout.cli.output import note, print_json, print_table, printable
from kinesis_spout.cli.shared_options import STREAM_ONLY, Json, Yes, configured, confirm
from kinesis_spout.model.clock import moment
from kinesis_spout.model.record import Record
from kinesis_spout.operations import streams
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.grammar.positions import ALLOWED

fan_out = typer.Typer(
    no_args_is_help=True,
    help="Show and end a stream's registered consumers.",
)


@configured("deaggregate", usual=STREAM_ONLY)
def tail(
    ctx: typer.Context,
    config: SpoutConfig,
    *,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="PLACE",
            help=f"{ALLOWED}.",
        ),
    ] = "latest",
    number: Annotated[
        int | None,
        typer.Option("-n", min=1, metavar="N", help="End after so many records; without it at Ctrl-C."),
    ] = None,
    shard: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Only this shard; repeatable.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each record.")] = False,
) -> None:
    """Print the records of a stream as they come.

    A line has the arrival, shard, sub-sequence number, partition key and data. It reads in addition to all
    consumers, and takes its share of what each shard gives in a second. Parents of split and merged shards come
    before their children. It stores nothing. It takes aggregated records apart unless --deaggregate is false;
    the sub-sequence number is the place of a user record in its record, "-" if there is none.
    """
    for record in streams.tail(ctx.obj, config, start, shard_ids=shard or (), count=number):
        typer.echo(json_text.dumps(streams.record_document(record)) if json else _line(record))


def _line(record: Record) -> str:
    arrived = "-" if record.arrival_timestamp is None else moment(record.arrival_timestamp)
    data = printable(record.data.decode(errors="backslashreplace"))
    sub = "-" if record.sub_sequence_number is None else record.sub_sequence_number
    return f"{arrived}  {record.shard_id}  {sub}  {printable(record.partition_key or '-')}  {data}"


@configured(usual=STREAM_ONLY)
def put(
    ctx: typer.Context,
    data: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DATA",
            help="A record each; without any, each line of standard input is a record.",
            show_default=False,
        ),
    ] = None,
    *,
    config: SpoutConfig,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="The partition key of all records; without it each has a random one.",
            show_default=False,
        ),
    ] = None,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="How often to put each record.")] = 1,
    json: Json = False,
) -> None:
    """Put records on a stream.

    Lines from a file or a pipe go in batches of up to 500, typed lines one by one.

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


@fan_out.command("list")
@configured()
def list_registered(ctx: typer.Context, config: SpoutConfig, *, json: Json = False) -> None:
    """List the stream's registered consumers, of all applications.

    Next: `kinesis-spout fan-out deregister` ends the one of this application, and what it costs.
    """
    consumers = streams.list_registered(ctx.obj, config)
    if json:
        print_json(
            [
                {"name": each.name, "arn": each.arn, "status": each.status, "created": each.created}
                for each in consumers
            ]
        )
    elif consumers:
        rows = [(each.name, each.status, moment(each.created), each.arn) for each in consumers]
        print_table(("consumer", "status", "registered", "ARN"), rows, whole={"consumer"})
    else:
        note(f"stream {config.stream} has no registered consumers")


@fan_out.command()
@configured()
def deregister(
    ctx: typer.Context,
    config: SpoutConfig,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="CONSUMER", help="As `fan-out list` shows it; the application's unless given."
        ),
    ] = None,
    *,
    yes: Yes = False,
) -> None:
    """End a registered consumer, and what it costs.

    Stop the application first: a consumer that runs would register it again with its next subscription. The
    progress stays in ZooKeeper; the application continues from it, by fan-out or by polling.
    """
    consumer = streams.find_registered(ctx.obj, config, name)
    confirm(f"end consumer {consumer!r} of stream {config.stream!r}", yes=yes)
    streams.deregister(ctx.obj, config, consumer)
    note(f"consumer {consumer!r} of stream {config.stream!r} is ended")
