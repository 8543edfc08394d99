"""Clients of Kinesis that put records, one per run of this script, and the CPU that it takes them.

python put_clients.py <client> <endpoint> <stream> <size in bytes> <count>

Each puts some records first, which are not measured, then so many more, and waits until all are on the stream. It
says on standard output how many CPU seconds (all threads) that took, and how many of them the caller's
``put``. The imports are inside: each client may run with packages of its own.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, Final

_WARM_UP: Final = 20_000
_WARM_UP_OF_DISKS: Final = 500
_KEYS: Final = 10_000
_AT_ONCE: Final = 5_000
"""How many records are put together."""

Records = list[tuple[str, bytes]]
Taken = tuple[float, float]
"""CPU seconds: of everything, and of the caller's thread until the last ``put`` had returned."""


def _records(count: int, size_bytes: int) -> Records:
    data = os.urandom(size_bytes + count)
    return [(f"customer-{number % _KEYS:06}", data[number : number + size_bytes]) for number in range(count)]


def boto3_loop(endpoint: str, stream: str, count: int, size_bytes: int) -> Taken:
    """One thread, and calls of 500 records: as cheap as boto3 gets."""
    import boto3  # noqa: PLC0415

    client = boto3.client("kinesis", endpoint_url=endpoint)

    def put(records: Records) -> None:
        for at in range(0, len(records), 500):
            batch = [{"Data": data, "PartitionKey": key} for key, data in records[at : at + 500]]
            reply = client.put_records(StreamName=stream, Records=batch)
            assert not reply["FailedRecordCount"]

    return _measured(put, count, size_bytes)


def _ours(
    endpoint: str, stream: str, count: int, size_bytes: int, *, spool: Any = None, **options: Any
) -> Taken:
    from kinesis_spout import KinesisProducer  # noqa: PLC0415

    with KinesisProducer(stream, endpoint_url=endpoint, spool=spool, **options) as producer:

        def put(records: Records) -> float:
            started = time.thread_time()
            put_one = producer.put
            for key, data in records:
                put_one(data, key)
            in_caller = time.thread_time() - started
            producer.flush()
            return in_caller

        warm_up = _WARM_UP if spool is None else _WARM_UP_OF_DISKS
        taken = _measured(put, count, size_bytes, warm_up)
    counts = producer.counts()
    assert counts.sent == counts.put == count + warm_up, counts
    return taken


def producer_plain(*arguments: Any) -> Taken:
    """Ours with its defaults."""
    return _ours(*arguments)


def producer_ordered(*arguments: Any) -> Taken:
    """Ours, with the order of keys."""
    return _ours(*arguments, order="key")


def producer_aggregated(*arguments: Any) -> Taken:
    """Ours, several records in one."""
    return _ours(*arguments, aggregation=True)


def _ours_many(
    endpoint: str, stream: str, count: int, size_bytes: int, *, spool: Any = None, **options: Any
) -> Taken:
    from kinesis_spout import KinesisProducer  # noqa: PLC0415

    with KinesisProducer(stream, endpoint_url=endpoint, spool=spool, **options) as producer:

        def put(records: list[tuple[bytes, str]]) -> float:
            started = time.thread_time()
            for at in range(0, len(records), _AT_ONCE):
                producer.put_many(records[at : at + _AT_ONCE])
            in_caller = time.thread_time() - started
            producer.flush()
            return in_caller

        taken = _measured(put, count, size_bytes, turned=_turned)
    counts = producer.counts()
    assert counts.sent == counts.put == count + _WARM_UP, counts
    return taken


def _turned(records: Records) -> list[tuple[bytes, str]]:
    return [(data, key) for key, data in records]


def producer_many(*arguments: Any) -> Taken:
    """Ours, records put together, with one ticket."""
    return _ours_many(*arguments)


def producer_many_aggregated(*arguments: Any) -> Taken:
    """The same, several records in one."""
    return _ours_many(*arguments, aggregation=True)


def producer_send_aggregated(endpoint: str, stream: str, count: int, size_bytes: int) -> Taken:
    """Ours, several records in one, without tickets."""
    from kinesis_spout import KinesisProducer  # noqa: PLC0415

    with KinesisProducer(stream, endpoint_url=endpoint, aggregation=True) as producer:

        def put(records: Records) -> float:
            started = time.thread_time()
            send = producer.send
            for key, data in records:
                send(data, key)
            in_caller = time.thread_time() - started
            producer.flush()
            return in_caller

        taken = _measured(put, count, size_bytes)
    counts = producer.counts()
    assert counts.sent == counts.put == count + _WARM_UP, counts
    return taken


def _spooled(
    durability: str,
    endpoint: str,
    stream: str,
    count: int,
    size_bytes: int,
    *,
    put: Callable[..., Taken] = _ours,
) -> Taken:
    from kinesis_spout.producer.spool import DiskSpool  # noqa: PLC0415

    with tempfile.TemporaryDirectory(dir=".") as folder:  # a disk, where the system's folder may be memory
        spool = DiskSpool(folder, stream=stream, durability=durability)
        return put(endpoint, stream, count, size_bytes, spool=spool)


def producer_spool_record(*arguments: Any) -> Taken:
    """Ours with a spool: durability "record"."""
    return _spooled("record", *arguments)


def producer_spool_interval(*arguments: Any) -> Taken:
    """Ours with a spool: durability "interval"."""
    return _spooled("interval", *arguments)


def producer_spool_system(*arguments: Any) -> Taken:
    """Ours with a spool: durability "system"."""
    return _spooled("system", *arguments)


def producer_many_spool_record(*arguments: Any) -> Taken:
    """Ours, records put together, with a spool: durability "record"."""
    return _spooled("record", *arguments, put=_ours_many)


def async_kinesis(endpoint: str, stream: str, count: int, size_bytes: int) -> Taken:
    """async-kinesis' producer with its defaults, but without its own rate limits; text, as it takes no bytes."""
    from kinesis.processors import StringProcessor  # type: ignore[import-not-found]  # noqa: PLC0415

    return asyncio.run(_async_kinesis(endpoint, stream, count, size_bytes, StringProcessor()))


def async_kinesis_aggregated(endpoint: str, stream: str, count: int, size_bytes: int) -> Taken:
    """The same, several records in one, in the KPL's format."""
    from kinesis.processors import KPLStringProcessor  # noqa: PLC0415

    return asyncio.run(_async_kinesis(endpoint, stream, count, size_bytes, KPLStringProcessor()))


async def _async_kinesis(endpoint: str, stream: str, count: int, size_bytes: int, processor: Any) -> Taken:
    from kinesis import Producer  # type: ignore[import-not-found]  # noqa: PLC0415

    async with Producer(
        stream_name=stream,
        endpoint_url=endpoint,
        region_name="us-east-1",
        processor=processor,
        put_rate_limit_per_shard=1_000_000,
        put_bandwidth_limit_per_shard=10_000_000,
    ) as producer:

        async def put(records: list[tuple[str, str]]) -> float:
            started = time.thread_time()
            for key, data in records:
                await producer.put(data, partition_key=key)
            in_caller = time.thread_time() - started
            await producer.flush()
            return in_caller

        await put(_texts(_WARM_UP, size_bytes))
        records = _texts(count, size_bytes)
        started = time.process_time()
        in_caller = await put(records)
        return time.process_time() - started, in_caller


def _texts(count: int, size_bytes: int) -> list[tuple[str, str]]:
    return [(key, data.hex()[:size_bytes]) for key, data in _records(count, size_bytes)]


def _measured(
    put: Callable[[Any], float | None],
    count: int,
    size_bytes: int,
    warm_up: int = _WARM_UP,
    turned: Callable[[Records], Any] = list,
) -> Taken:
    put(turned(_records(warm_up, size_bytes)))
    records = turned(_records(count, size_bytes))
    started = time.process_time()
    in_caller = put(records)
    return time.process_time() - started, in_caller or 0.0


CLIENTS: Final = {
    each.__name__: each
    for each in (
        boto3_loop,
        producer_plain,
        producer_ordered,
        producer_aggregated,
        producer_many,
        producer_many_aggregated,
        producer_send_aggregated,
        producer_spool_record,
        producer_spool_interval,
        producer_spool_system,
        producer_many_spool_record,
        async_kinesis,
        async_kinesis_aggregated,
    )
}


if __name__ == "__main__":
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    name, endpoint_, stream_, size_, count_ = sys.argv[1:]
    print(json.dumps(CLIENTS[name](endpoint_, stream_, int(count_), int(size_))))
