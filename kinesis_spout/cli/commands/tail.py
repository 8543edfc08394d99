"""``kinesis-spout tail``: what is on a stream, as it comes, without becoming a consumer."""

import base64
import json as json_text
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kinesis_spout.cli.failures import NotFound, WrongArguments
from kinesis_spout.cli.output import note, printable
from kinesis_spout.cli.settings import STREAM_ONLY, configured
from kinesis_spout.model.clock import moment
from kinesis_spout.model.errors import KinesisError
from kinesis_spout.model.record import Record
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.grammar.positions import ALLOWED, parse_position_of_all_shards, resolved
from kinesis_spout.settings.messages import NotAllowed
from shard_state import Position, Shard

if TYPE_CHECKING:
    from kinesis_spout.cli.world import Stream, World
    from kinesis_spout.ports import ShardGetter

_PAGE_RECORDS: Final = 1_000


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

    It reads beside all consumers, and takes its share of what each shard gives in a second. Parents of split
    and merged shards come before their children. Nothing is stored. Aggregated records are taken apart unless
    --deaggregate is false; the sub-sequence number says where in its record a user record was, - stands for none.
    """
    world: World = ctx.obj
    position = _position(start, world.time())
    reader = _Reader(world.stream(config), position, shard or ())
    left = number
    while reader.is_reading and left != 0:
        # An aggregated record may hold more than are left.
        for record in islice(reader.read(_PAGE_RECORDS if left is None else min(left, _PAGE_RECORDS)), left):
            typer.echo(json_text.dumps(_document(record)) if json else _line(record))
            left = None if left is None else left - 1


def _position(start: str, now: float) -> Position:
    try:
        return resolved(parse_position_of_all_shards(start), now, start)
    except NotAllowed as error:
        raise WrongArguments(f"--from: {error}") from error


class _Reader:
    """Reads the shards of a stream in turn. Mutable: children are opened when their parents have ended.

    Args:
        stream: to read.
        start: where every shard is read from, those that come later too.
        chosen: only these shards; none means all.

    Raises:
        NotFound: a chosen shard is not listed.
    """

    def __init__(self, stream: "Stream", start: Position, chosen: Sequence[str]) -> None:
        self._stream = stream
        self._start = start
        self._children = not chosen
        listed = {shard.shard_id: shard for shard in stream.lister.list_shards()}
        unknown = sorted(set(chosen) - listed.keys())
        if unknown:
            raise NotFound(f"expected shards that the stream lists ({', '.join(listed)}), got {unknown[0]}")
        self._unopened = {shard_id: listed[shard_id] for shard_id in chosen or listed}
        self._open: dict[str, ShardGetter] = {}
        self._ended: set[str] = set()
        self._open_what_may_be()

    @property
    def is_reading(self) -> bool:
        """Whether anything can still come."""
        return bool(self._open)

    def read(self, limit: int) -> Iterator[Record]:
        """Read the shard that may be read soonest, waiting for it; give its next records, or none.

        Raises:
            KinesisError: one that no retry mends.
        """
        shard_id = min(self._open, key=lambda each: self._open[each].ready_at)
        try:
            page = self._open[shard_id].read(limit)
        except KinesisError as error:
            if not error.retriable:
                raise
            note(f"{shard_id} is read again: {error}")
            return
        if page.at_end:
            del self._open[shard_id]
            self._ended.add(shard_id)
            self._take_note_of(page.child_shards)
            self._open_what_may_be()
        yield from page.records

    def _take_note_of(self, children: Sequence[Shard]) -> None:
        if self._children:
            known = self._open.keys() | self._ended
            self._unopened |= {child.shard_id: child for child in children if child.shard_id not in known}

    def _open_what_may_be(self) -> None:
        """Open every shard of which no parent is still to be read."""
        before = self._unopened.keys() | self._open.keys()
        for shard in [shard for shard in self._unopened.values() if not before & set(shard.parents)]:
            self._open[shard.shard_id] = self._stream.open_getter(shard.shard_id, self._start)
            del self._unopened[shard.shard_id]


def _line(record: Record) -> str:
    arrived = "-" if record.arrival_timestamp is None else moment(record.arrival_timestamp)
    data = printable(record.data.decode(errors="backslashreplace"))
    sub = "-" if record.sub_sequence_number is None else record.sub_sequence_number
    return f"{arrived}  {record.shard_id}  {sub}  {printable(record.partition_key or '-')}  {data}"


def _document(record: Record) -> dict[str, Any]:
    try:
        text = record.data.decode()
    except UnicodeDecodeError:
        text = None
    return {
        "shard_id": record.shard_id,
        "sequence_number": record.sequence_number,
        "sub_sequence_number": record.sub_sequence_number,
        "partition_key": record.partition_key,
        "explicit_hash_key": record.explicit_hash_key,
        "arrival_timestamp": record.arrival_timestamp,
        "data_base64": base64.b64encode(record.data).decode(),
        "data_text": text,
    }
