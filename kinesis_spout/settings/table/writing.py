"""The options of writing: how rows become records, and where rows go that cannot."""

import re
from typing import Final
from urllib.parse import urlsplit

from kinesis_spout.settings.messages import NotAllowed
from kinesis_spout.settings.option import Option
from kinesis_spout.settings.table.connection import STREAM_NAME, WRITE
from kinesis_spout.settings.value_types import BYTES, KIB, MIB, SECONDS, Choice, Flag, Number, Text


def _dead_letters(url: str) -> None:
    scheme, separator, rest = url.partition("://")
    if not separator and re.match(r"[a-z][a-z0-9+.-]+:/", url):
        raise NotAllowed("two slashes after the scheme, or a path without one")
    if urlsplit(url).password is not None:
        raise NotAllowed("a URL without a password: it would show in logs and messages")
    if separator and scheme == "file" and not rest.startswith("/"):
        raise NotAllowed(f"three slashes before a local directory: file:///{rest}")
    if separator and scheme == "kinesis" and not re.fullmatch(STREAM_NAME, rest):
        raise NotAllowed("kinesis://<stream name>")


DEAD_LETTERS: Final = Text(refuse=_dead_letters)

WRITES: Final = (
    Option(
        setting="partition_key",
        name="partitionKeyColumn",
        uses=WRITE,
        type=Text(),
        unset="partitionKey",
        doc="The column whose text is the partition key.",
    ),
    Option(
        setting="max_records_per_call",
        name="maxRecordsPerCall",
        uses=WRITE,
        type=Number(at_least=1, at_most=500),
        default=500,
        doc="Records in one PutRecords call.",
    ),
    Option(
        setting="max_bytes_per_call",
        name="maxBytesPerCall",
        uses=WRITE,
        type=Number(unit=BYTES, at_least=MIB, at_most=10 * MIB),
        default=5 * MIB,
        doc="Bytes in one PutRecords call. AWS takes 10 MiB; older endpoints take 5.",
    ),
    Option(
        setting="deadline_seconds",
        name="deliveryTimeout",
        uses=WRITE,
        type=Number(python=float, unit=SECONDS, at_least=1),
        default=300.0,
        doc="How long a shard may take nothing, while its records are tried again, before the task fails.",
    ),
    Option(
        setting="order",
        name="order",
        uses=WRITE,
        type=Choice(choices=("unordered", "key")),
        default="unordered",
        doc="What holds of the order of a task's rows when Kinesis refuses some. `unordered`: a refused row may "
        "come behind later ones of its partition key, of the same call. `key`: a row waits until the one before "
        "it of its key is on the stream, so a call has one row of each key; with few keys that is slow, unless "
        "`aggregation` puts several rows into one record.",
    ),
    Option(
        setting="dead_letters",
        name="deadLetters",
        uses=WRITE,
        type=DEAD_LETTERS,
        unset="such a row fails the write",
        doc="Where rows go that Kinesis can never take (too large, no key): a directory or file:///directory, on "
        "the executor's own disk or one that all share, s3://bucket/prefix, or kinesis://stream.",
    ),
    Option(
        setting="aggregation",
        name="aggregation",
        aliases=("kinesis.sink.aggregationEnabled", "kinesis.executor.aggregationEnabled"),
        uses=WRITE,
        type=Flag(),
        default=False,
        doc="Several rows of one shard in one record, in the KPL's format, for consumers that take them apart: "
        "the KCL, Firehose, Lambda with AWS' aggregation modules. Reads of this library do not yet. Without the "
        "permission kinesis:ListShards each row is a record.",
    ),
    Option(
        setting="aggregate_bytes",
        name="aggregationMaxSize",
        uses=WRITE,
        type=Number(unit=BYTES, at_least=KIB, at_most=MIB),
        default=50 * KIB,
        doc="Bytes in one such record; 50k is the KPL's default. Only with `aggregation`.",
    ),
)
"""How rows become records."""
