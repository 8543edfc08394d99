"""``kinesis-spout tail``: what is on a stream, as it comes, without becoming a consumer."""

import json as json_text
from typing import Annotated

import typer

from kinesis_spout.cli.output import printable
from kinesis_spout.cli.shared_options import STREAM_ONLY, configured
from kinesis_spout.model.clock import moment
from kinesis_spout.model.record import Record
from kinesis_spout.operations import streams
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.grammar.positions import ALLOWED


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
        int | None, typer.Option("-n", min=1, help="End after so many records; unset: at Ctrl-C.")
    ] = None,
    shard: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Only this shard; repeatable.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each record.")] = False,
) -> None:
    """Print the records of a stream as they come: arrival, shard, sub-sequence number, partition key, data.

    It reads in addition to all consumers, and takes its share of what each shard gives in a second. Parents
    of split and merged shards come before their children. Nothing is stored. Aggregated records are taken
    apart unless --deaggregate is false; the sub-sequence number says where in its record a user record was, -
    stands for none.
    """
    for record in streams.tail(ctx.obj, config, start, shard_ids=shard or (), count=number):
        typer.echo(json_text.dumps(streams.record_document(record)) if json else _line(record))


def _line(record: Record) -> str:
    arrived = "-" if record.arrival_timestamp is None else moment(record.arrival_timestamp)
    data = printable(record.data.decode(errors="backslashreplace"))
    sub = "-" if record.sub_sequence_number is None else record.sub_sequence_number
    return f"{arrived}  {record.shard_id}  {sub}  {printable(record.partition_key or '-')}  {data}"
