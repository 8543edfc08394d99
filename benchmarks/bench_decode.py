"""A page of GetRecords decoded to Arrow columns, against boto3, in CPU seconds.

*Parse only*: the same bytes given to botocore's own parser and to ours. *End to end*: both ask one endpoint on
loopback, which answers with the same body; boto3 by ``client.get_records``, we by the getter that the spout
reads with. boto3's result is still dictionaries; making columns of them would come on top.

*To records*: the same bytes given to the native decoder, against Python's. They take turns, so that what else the
machine does meets both.

*Aggregated*: bodies with the KPL's aggregated records of so many user records each, taken apart to Arrow columns
and to records, against AWS' own module, which is given what botocore's parser made of them. *Tracked* adds what
the tracker does for such a page, handed out and acked as one slice. What a page
*without* aggregates costs is compared between looking for them and not looking.

Ours is measured first, and the size with a goal before the others: botocore's parser leaves a heap behind that
no spout ever works on.
"""

import base64
import statistics
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import boto3
from botocore.model import Shape
from botocore.parsers import ResponseParser, create_parser
from canned_kinesis import CannedKinesis, aggregated_page_body, page_body, shard_name
from figures import Figure, cpu_seconds

from kinesis_spout.kinesis import KinesisShardLister, PollingShardGetter, ReadSettings, native
from kinesis_spout.kinesis.read.arrow import ArrowForm, ArrowPage, sequence_at
from kinesis_spout.kinesis.read.page import decode_reply
from kinesis_spout.kinesis.read.user_records import taken_apart
from kinesis_spout.testing import ManualClock
from shard_state import Checkpoint, InflightRecordTracker, Position, SequenceNumber

RECORDS = 10_000
GOAL_BYTES = 1024
GOAL_RATIO = 8.0
GOALS = {
    ("natively", 100): 0.19,
    ("natively", 1024): 0.37,
    ("natively", 10 * 1024): 1.64,
}
"""Microseconds of CPU for a record of so many bytes."""
USER_BYTES = 100
GOAL_PER_CARRIER = 100
GOAL_USER_RECORD = 1.0
"""Microseconds of CPU for a user record to Arrow, tracker and all."""
_TRACKED = "to Arrow and tracked"
LOOK_RATIO = 0.95
"""Looking for aggregates takes no more than a twentieth of a page without them; it takes a hundredth."""


def figures(*, quick: bool) -> Iterator[Figure]:
    sizes = [GOAL_BYTES] if quick else [GOAL_BYTES, 100, 10 * 1024]
    with CannedKinesis() as kinesis:
        for size in sizes:
            records = min(RECORDS, 10 * 1024 * 1024 // size)  # a reply holds 10 MiB at most
            repeats = 3 if quick else 7
            yield from _parse_only(records, size, repeats)
            yield from _to_records(records, size, repeats)
            yield from _end_to_end(kinesis, records, size, repeats)
    yield _looked_for(7 if quick else 31)
    for per_carrier in (100,) if quick else (1_000, 100, 10):
        yield from _aggregated(per_carrier, 3 if quick else 7)


def _parse_only(records: int, size: int, repeats: int) -> Iterator[Figure]:
    body = page_body(records, size)
    parser: ResponseParser = create_parser("json")
    shape, reply = _reply_shape(), _http_reply(body)
    assert len(parser.parse(reply, shape)["Records"]) == records
    form = ArrowForm(stream="s", shard_id="0")
    assert form.decode(body).batch.num_rows == records
    ours = cpu_seconds(lambda: form.decode(body), repeats=repeats)
    theirs = cpu_seconds(lambda: parser.parse(reply, shape), repeats=repeats)
    yield from _compared("parse only", records, size, theirs=theirs, ours=ours)


def _to_records(records: int, size: int, repeats: int) -> Iterator[Figure]:
    body = page_body(records, size)
    native_decoder = native.decoder

    def in_python() -> object:
        native.decoder = None
        try:
            return decode_reply(body, stream="s", shard_id="0")
        finally:
            native.decoder = native_decoder

    ways: dict[str, Callable[[], object]] = {"in Python": in_python}
    if native_decoder is not None:
        ways["natively"] = lambda: decode_reply(body, stream="s", shard_id="0")
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(repeats):
        for way, decode in ways.items():
            times[way].append(cpu_seconds(decode, repeats=1))
    python = statistics.median(times["in Python"])
    for way, taken in times.items():
        yield Figure(
            what=f"parse only, {records:,} records of {size:,} B: to records, {way}",
            value=statistics.median(taken) / records * 1e6,
            unit="µs CPU/record",
            reference="" if way == "in Python" else "in Python",
            ratio=None if way == "in Python" else python / statistics.median(taken),
            at_most=GOALS.get((way, size)),
        )


def _end_to_end(kinesis: CannedKinesis, records: int, size: int, repeats: int) -> Iterator[Figure]:
    stream = f"page-{records}-{size}"
    settings = kinesis.settings
    plain = boto3.client(
        "kinesis",
        region_name=settings.region,
        endpoint_url=settings.endpoint_url,
        aws_access_key_id=settings.aws_access_key_id,
        aws_secret_access_key=settings.aws_secret_access_key,
    )
    iterator = f"{stream}/0/0"
    client = settings.connect()
    getter = PollingShardGetter(
        client,
        stream=stream,
        shard_id=shard_name(0),
        position=Position.trim_horizon(),
        lister=KinesisShardLister(client, stream),
        clock=ManualClock(),  # reads are not paced here: they are what is measured
    )
    ours = cpu_seconds(lambda: getter.read_arrow(records), repeats=repeats)
    theirs = cpu_seconds(lambda: plain.get_records(ShardIterator=iterator, Limit=records), repeats=repeats)
    yield from _compared("end to end", records, size, theirs=theirs, ours=ours)


def _looked_for(repeats: int) -> Figure:
    """Measure what it costs a page without aggregates that they are looked for."""
    body = page_body(RECORDS, USER_BYTES)
    looking, not_looking = (
        ArrowForm(stream="s", shard_id="0", settings=ReadSettings(deaggregate=deaggregate))
        for deaggregate in (True, False)
    )
    # By turns, so that what else the machine does meets both.
    looked, not_looked = (
        min(times)
        for times in zip(
            *(
                (
                    cpu_seconds(lambda: looking.decode(body), repeats=1),
                    cpu_seconds(lambda: not_looking.decode(body), repeats=1),
                )
                for _ in range(repeats)
            ),
            strict=True,
        )
    )
    return Figure(
        what=f"parse only, {RECORDS:,} records of {USER_BYTES:,} B: to Arrow, aggregates looked for",
        value=looked / RECORDS * 1e6,
        unit="µs CPU/record",
        reference="not looked for",
        ratio=not_looked / looked,
        cheaper_at_least=LOOK_RATIO,
    )


def _aggregated(per_carrier: int, repeats: int) -> Iterator[Figure]:
    body = aggregated_page_body(RECORDS, USER_BYTES, per_carrier)
    form = ArrowForm(stream="s", shard_id="0")
    assert form.decode(body).batch.num_rows == RECORDS
    assert len(taken_apart(decode_reply(body).records).records) == RECORDS
    to_arrow = cpu_seconds(lambda: form.decode(body), repeats=repeats)
    tracked = cpu_seconds(lambda: _track(form.decode(body)), repeats=repeats)
    to_records = cpu_seconds(lambda: taken_apart(decode_reply(body).records), repeats=repeats)
    parser: ResponseParser = create_parser("json")
    shape = _reply_shape()
    deaggregate = aws_deaggregate()

    def by_aws() -> int:
        records = parser.parse(_http_reply(body), shape)["Records"]
        # It takes records as Lambda gives them: their data in base64.
        return len(
            deaggregate(
                [
                    {
                        "kinesis": {
                            "kinesisSchemaVersion": "1.0",
                            "sequenceNumber": record["SequenceNumber"],
                            "approximateArrivalTimestamp": record["ApproximateArrivalTimestamp"],
                            "data": base64.b64encode(record["Data"]),
                        }
                    }
                    for record in records
                ]
            )
        )

    assert by_aws() == RECORDS
    theirs = cpu_seconds(by_aws, repeats=min(3, repeats))
    reference = "botocore's parser and aws_kinesis_agg"
    page = f"aggregated, {RECORDS:,} user records of {USER_BYTES} B, {per_carrier:,} in each"
    yield Figure(what=f"{page}: {reference}", value=theirs / RECORDS * 1e6, unit="µs CPU/record")
    for what, ours in (
        ("to Arrow", to_arrow),
        (_TRACKED, tracked),
        ("to records", to_records),
    ):
        yield Figure(
            what=f"{page}: {what}",
            value=ours / RECORDS * 1e6,
            unit="µs CPU/record",
            reference=reference,
            ratio=theirs / ours,
            at_most=GOAL_USER_RECORD if what == _TRACKED and per_carrier == GOAL_PER_CARRIER else None,
        )


def _track(reply: ArrowPage) -> None:
    """Hand the rows of a page out and ack them, as a slice that comes back without failures."""
    batch, subs = reply.batch, reply.sub_sequence_number
    assert subs is not None
    first, last = (
        SequenceNumber(sequence_at(batch, row).number, subs[row].as_py()) for row in (0, batch.num_rows - 1)
    )
    tracker = InflightRecordTracker(Checkpoint(start=Position.trim_horizon()))
    tracker.emitted_span(first, last, batch.num_rows)
    tracker.settle(first, ())
    assert tracker.base == last


def _reply_shape() -> Shape:
    client = boto3.client("kinesis", region_name="us-east-1", endpoint_url="http://127.0.0.1")
    shape = client.meta.service_model.operation_model("GetRecords").output_shape
    assert shape is not None
    return shape


def _http_reply(body: bytes) -> dict[str, Any]:
    return {
        "status_code": 200,
        "headers": {"content-type": "application/x-amz-json-1.1"},
        "body": body,
        "context": {},
    }


def aws_deaggregate() -> Callable[[list[Any]], list[Any]]:
    """Give the function of AWS' package, which changes ``sys.path`` and has code of an older protobuf."""
    path = list(sys.path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from aws_kinesis_agg.deaggregator import deaggregate_records  # noqa: PLC0415 - see above
    finally:
        sys.path[:] = path
    function: Callable[[list[Any]], list[Any]] = deaggregate_records
    return function


def _compared(how: str, records: int, size: int, *, theirs: float, ours: float) -> Iterator[Figure]:
    page = f"{how}, {records:,} records of {size:,} B"
    reference = "botocore's parser" if how == "parse only" else "boto3.get_records"
    yield Figure(what=f"{page}: {reference}", value=theirs / records * 1e6, unit="µs CPU/record")
    yield Figure(
        what=f"{page}: to Arrow",
        value=ours / records * 1e6,
        unit="µs CPU/record",
        reference=reference,
        ratio=theirs / ours,
        cheaper_at_least=GOAL_RATIO if size == GOAL_BYTES else None,
    )
