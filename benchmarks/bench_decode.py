"""A page of GetRecords decoded to Arrow columns, against boto3, in CPU seconds.

*Parse only*: the same bytes given to botocore's own parser and to ours. *End to end*: both ask one endpoint on
loopback, which answers with the same body; boto3 by ``client.get_records``, we by the getter that the spout
reads with. boto3's result is still dictionaries; making columns of them would come on top.

Ours is measured first, and the size with a goal before the others: botocore's parser leaves a heap behind that
no spout ever works on.
"""

from collections.abc import Iterator

import boto3
from botocore.parsers import ResponseParser, create_parser
from canned_kinesis import CannedKinesis, page_body, shard_name
from figures import Figure, cpu_seconds

from kinesis_spout.kinesis import KinesisShardLister, PollingShardGetter, decode_to_arrow
from kinesis_spout.testing import ManualClock
from shard_state import Position

RECORDS = 10_000
GOAL_BYTES = 1024
GOAL_RATIO = 8.0


def figures(*, quick: bool) -> Iterator[Figure]:
    sizes = [GOAL_BYTES] if quick else [GOAL_BYTES, 100, 10 * 1024]
    with CannedKinesis() as kinesis:
        for size in sizes:
            records = min(RECORDS, 10 * 1024 * 1024 // size)  # a reply holds 10 MiB at most
            repeats = 3 if quick else 7
            yield from _parse_only(records, size, repeats)
            yield from _end_to_end(kinesis, records, size, repeats)


def _parse_only(records: int, size: int, repeats: int) -> Iterator[Figure]:
    body = page_body(records, size)
    client = boto3.client("kinesis", region_name="us-east-1", endpoint_url="http://127.0.0.1")
    shape = client.meta.service_model.operation_model("GetRecords").output_shape
    assert shape is not None
    parser: ResponseParser = create_parser("json")
    reply = {
        "status_code": 200,
        "headers": {"content-type": "application/x-amz-json-1.1"},
        "body": body,
        "context": {},
    }
    assert len(parser.parse(reply, shape)["Records"]) == records
    assert decode_to_arrow(body, stream="s", shard_id="0").num_rows == records
    ours = cpu_seconds(lambda: decode_to_arrow(body, stream="s", shard_id="0"), repeats=repeats)
    theirs = cpu_seconds(lambda: parser.parse(reply, shape), repeats=repeats)
    yield from _compared("parse only", records, size, theirs=theirs, ours=ours)


def _end_to_end(kinesis: CannedKinesis, records: int, size: int, repeats: int) -> Iterator[Figure]:
    stream = f"page-{records}-{size}"
    settings = kinesis.settings
    plain = boto3.client(
        "kinesis",
        region_name=settings.region,
        endpoint_url=settings.endpoint_url,
        aws_access_key_id=settings.access_key,
        aws_secret_access_key=settings.secret_key,
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
