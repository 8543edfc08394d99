"""The options of writing: how rows become records, and where rows go that cannot."""

import re
from typing import Final
from urllib.parse import urlsplit

from kinesis_spout.settings.grammar.streams import STREAM_NAME
from kinesis_spout.settings.grammar.value_types import FLAG, KIB, MIB, choice, seconds, size, text, whole
from kinesis_spout.settings.messages import NotAllowed
from kinesis_spout.settings.option import option
from kinesis_spout.settings.table.connection import WRITE


def _dead_letters(url: str) -> None:
    scheme, separator, rest = url.partition("://")
    if not separator and re.match(r"[a-z][a-z0-9+.-]+:/", url):
        raise NotAllowed("two slashes after the scheme, or a path without one")
    try:
        password = urlsplit(url).password
    except ValueError as error:
        raise NotAllowed("a path, or a URL that can be parsed") from error
    if password is not None:
        raise NotAllowed("a URL without a password: it would show in logs and messages")
    if separator and scheme == "file" and not rest.startswith("/"):
        raise NotAllowed(f"three slashes before a local directory: file:///{rest}")
    if separator and scheme == "kinesis" and not re.fullmatch(STREAM_NAME, rest):
        raise NotAllowed("kinesis://<stream name>")


DEAD_LETTERS: Final = text(check=_dead_letters)

WRITES: Final = (
    option("partitionKeyColumn", WRITE, text(), setting="partition_key", unset="partitionKey",
        doc="The column whose text is the partition key."),
    option("maxRecordsPerCall", WRITE, whole(1, 500), 500, doc="Records in one PutRecords call."),
    option("maxBytesPerCall", WRITE, size(MIB, 10 * MIB), 5 * MIB,
        doc="Bytes in one PutRecords call. AWS takes 10 MiB; older endpoints take 5."),
    option("deliveryTimeout", WRITE, seconds(1), 300.0, setting="deadline_seconds",
        doc="How long a shard may refuse everything, while its records are tried again, before the task fails."),
    option("order", WRITE, choice("unordered", "key"), "unordered",
        doc="What holds of the order of a task's rows when Kinesis refuses some. `unordered`: a refused "
            "row may come behind later ones of its partition key, of the same call. `key`: a row waits "
            "until the one before it of its key is on the stream, so a call has one row of each key; with "
            "few keys that is slow, unless `aggregation` puts several rows into one record."),
    option("deadLetters", WRITE, DEAD_LETTERS, unset="such a row fails the write",
        doc="Where rows go that Kinesis can never take (too large, no key): a directory or "
            "file:///directory, on the executor's own disk or one that all share, s3://bucket/prefix, or "
            "kinesis://stream."),
    option("aggregation", WRITE, FLAG, False,
        aliases=("kinesis.sink.aggregationEnabled", "kinesis.executor.aggregationEnabled"),
        doc="Several rows of one shard in one record, in the KPL's format, for consumers that take them "
            "apart: this library, the KCL, Firehose, Lambda with AWS' aggregation modules. "
            "Without the permission kinesis:ListShards each row is a record."),
    option("aggregationMaxSize", WRITE, size(KIB, MIB), 50 * KIB, setting="aggregate_bytes",
        doc="Bytes in one such record; 50k is the KPL's default. Only with `aggregation`."),
)  # fmt: skip
"""How rows become records."""
