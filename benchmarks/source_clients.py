"""Clients of Kinesis that read every record of a stream, one per run of this script.

python source_clients.py <client> <endpoint> <stream> <count> [<count> ...]

Each reads all shards from their beginning with its defaults, but for what keeps it from reading as fast as it
can, and does nothing with a record but look at its data, or parse it where its name says so. It says on standard
output when it has seen so many records, and runs on until its standard input is closed. The imports are inside:
each client runs in an environment of its own.
"""

import asyncio
import functools
import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

_REGION: Final = "us-east-1"
_CREDENTIALS: Final = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": _REGION,
}
_PAGE: Final = 10_000
_PAUSE_SECONDS: Final = 0.2
_HELD: Final = 800


class Seen:
    """Counts records and tells when a count is reached. Mutable, thread-safe."""

    def __init__(self, counts: Iterable[int]) -> None:
        self._left = sorted(counts)
        self._seen = 0
        self._lock = threading.Lock()

    def more(self, records: int) -> None:
        """Count so many more."""
        with self._lock:
            self._seen += records
            while self._left and self._seen >= self._left[0]:
                self._left.pop(0)
                print(self._seen, flush=True)  # more than the count: the check of it finds out


def look(data: bytes) -> None:
    """Do nothing with a record."""


def boto3_loop(endpoint: str, stream: str, seen: Seen, handle: Callable[[bytes], object] = look) -> None:
    """The loop of the tutorials: one shard after the other, dictionaries of records."""
    import boto3  # noqa: PLC0415

    client = boto3.client("kinesis", endpoint_url=endpoint)
    iterators = {
        shard["ShardId"]: client.get_shard_iterator(
            StreamName=stream, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        for shard in client.list_shards(StreamName=stream)["Shards"]
    }
    while True:
        found = 0
        for shard_id, iterator in iterators.items():
            reply = client.get_records(ShardIterator=iterator, Limit=_PAGE)
            iterators[shard_id] = reply["NextShardIterator"]
            for record in reply["Records"]:
                handle(record["Data"])
            found += len(reply["Records"])
            seen.more(len(reply["Records"]))
        if not found:
            time.sleep(_PAUSE_SECONDS)


def plain_spout(
    endpoint: str,
    stream: str,
    seen: Seen,
    *,
    order: str = "unordered",
    in_flight: int = 1,
    fails_each: int | None = None,
    holds_each: int | None = None,
) -> None:
    """The spout's own door for plain Python: tuples, each acked when so many are in flight.

    One in ``fails_each`` fails first. One in ``holds_each`` is acked when 800 like it are in flight, each of
    them before a hole.
    """
    import tempfile  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    from read_limits import lift_read_limits  # noqa: PLC0415

    from kinesis_spout import KinesisSpout  # noqa: PLC0415

    lift_read_limits()
    with tempfile.TemporaryDirectory() as directory:
        spout = KinesisSpout(
            stream=stream,
            app=stream,
            region=_REGION,
            endpoint_url=endpoint,
            initial_position="trim_horizon",
            zookeeper=os.environ["BENCHMARK_ZOOKEEPER"],
            dead_letters=str(Path(directory) / "dead-letters"),
            order=order,
            retry_backoff_seconds=0.05,
        )
        with spout.open() as tuples:
            out: deque[str] = deque()
            held: deque[str] = deque()
            count = number = 0
            for message_id, values in tuples:
                number += 1
                if fails_each and number % fails_each == 0 and values.attempt == 1:
                    tuples.fail(message_id)
                    continue
                if holds_each and number % holds_each == 0:
                    held.append(message_id)
                    if len(held) > _HELD:
                        tuples.ack(held.popleft())
                else:
                    out.append(message_id)
                    if len(out) >= in_flight:
                        tuples.ack(out.popleft())
                count += 1
                if count == 1000:
                    seen.more(count)
                    count = 0


def async_kinesis(endpoint: str, stream: str, seen: Seen) -> None:
    """PyPI: async-kinesis. Its rate limit, one read of a shard a second, is lifted."""
    from kinesis import Consumer  # type: ignore[import-not-found]  # noqa: PLC0415
    from kinesis.aggregators import SimpleAggregator  # type: ignore[import-not-found]  # noqa: PLC0415
    from kinesis.processors import Processor  # type: ignore[import-not-found]  # noqa: PLC0415
    from kinesis.serializers import Serializer  # type: ignore[import-not-found]  # noqa: PLC0415

    class Bytes(Processor, SimpleAggregator, Serializer):  # type: ignore[misc]
        def deserialize(self, data: bytes) -> bytes:
            return data

    async def read() -> None:
        async with Consumer(
            stream_name=stream,
            endpoint_url=endpoint,
            region_name=_REGION,
            processor=Bytes(),
            shard_fetch_rate=1000,
            sleep_time_no_records=_PAUSE_SECONDS,
        ) as consumer:
            while True:
                count = 0
                async for data in consumer:
                    _ = data
                    count += 1
                    if count == 1000:
                        seen.more(count)
                        count = 0
                seen.more(count)

    asyncio.run(read())


def kcl_rs(endpoint: str, stream: str, seen: Seen, handle: Callable[[bytes], object] = look) -> None:
    """PyPI: kcl-rs. It reads a shard every 0.2 s at most, which cannot be lifted; leases in DynamoDB."""
    import kcl_rs  # type: ignore[import-not-found]  # noqa: PLC0415

    class Processor(kcl_rs.RecordProcessorBase):  # type: ignore[misc]
        def initialize(self, initialize_input: Any) -> None:
            pass

        def process_records(self, process_records_input: Any) -> None:
            records = process_records_input.records
            for record in records:
                handle(record.data)
            seen.more(len(records))

        def lease_lost(self, lease_lost_input: Any) -> None:
            pass

        def shard_ended(self, shard_ended_input: Any) -> None:
            pass

        def shutdown_requested(self, shutdown_requested_input: Any) -> None:
            pass

    kcl_rs.Scheduler(
        stream_name=stream,
        application_name=stream,
        record_processor_factory=Processor,
        region=_REGION,
        endpoint_url=endpoint,
        initial_position="TRIM_HORIZON",
        access_key_id="test",
        secret_access_key="test",
        retrieval_mode="POLLING",
        idle_time_between_reads_millis=200,
    ).run()


CLIENTS: Final[dict[str, Callable[[str, str, Seen], None]]] = {
    "boto3": boto3_loop,
    "boto3, json.loads": functools.partial(boto3_loop, handle=json.loads),
    "spout": plain_spout,
    "spout, order=key": functools.partial(plain_spout, order="key"),
    "spout, order=shard": functools.partial(plain_spout, order="shard"),
    "spout, 20,000 in flight": functools.partial(plain_spout, in_flight=20_000),
    "spout, 5 % fail": functools.partial(plain_spout, fails_each=20),
    "spout, 800 holes": functools.partial(plain_spout, holds_each=100),
    "async-kinesis": async_kinesis,
    "kcl-rs": kcl_rs,
    "kcl-rs, json.loads": functools.partial(kcl_rs, handle=json.loads),
}


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)  # nothing of it is to be kept


if __name__ == "__main__":
    os.environ.update(_CREDENTIALS)
    threading.Thread(target=_end_with_input, daemon=True).start()
    CLIENTS[sys.argv[1]](sys.argv[2], sys.argv[3], Seen(map(int, sys.argv[4:])))
