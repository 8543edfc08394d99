"""Calls of GetRecords, in CPU seconds of the caller: one that returns nothing, and one that returns a whole page.

*In the I/O thread* is how a query polls many shards: no thread waits for each. A page is fetched and
decoded to records. boto3 and ours ask the same endpoint, and take turns, so that what else the machine does meets
both.
"""

import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
from canned_kinesis import CannedKinesis
from certificates import make_certificates
from figures import Figure, cpu_seconds

from kinesis_spout.kinesis import KinesisClientSettings
from kinesis_spout.kinesis.calls import RAW_BODY
from kinesis_spout.kinesis.io_thread import IO
from kinesis_spout.kinesis.read.page import decode_reply

RECORDS = 10_000
RECORD_BYTES = 1_024
GOAL_POLL = 50.0
"""Microseconds of CPU for a poll that returns nothing, over HTTP."""
GOAL_TLS_RATIO = 9.0
"""How many times cheaper than boto3 a page is fetched and decoded over TLS."""
_POLLS = 200
"""At a time: one is too short to be measured."""
_IN_IO_THREAD = "ours, in the I/O thread"


def figures(*, quick: bool) -> Iterator[Figure]:
    turns = 5 if quick else 11
    with tempfile.TemporaryDirectory() as directory:
        certificates = make_certificates(Path(directory))
        for scheme in ("HTTP", "TLS"):
            with CannedKinesis(certificates=certificates if scheme == "TLS" else None) as kinesis:
                settings = replace(kinesis.settings, ca_bundle=str(certificates.authority))
                yield from _polls(scheme, settings, turns)
                yield from _pages(scheme, settings, turns)


def _polls(scheme: str, settings: KinesisClientSettings, turns: int) -> Iterator[Figure]:
    arguments = {"ShardIterator": "shards-1-idle/0/0", "Limit": 10_000}
    theirs, ours = _boto3(settings), settings.create()
    ways = {
        "boto3.get_records": lambda: theirs.get_records(**arguments),
        "ours": lambda: ours.get_records(**arguments),
    }
    many: dict[str, Callable[[], object]] = {way: _many(call) for way, call in ways.items()}
    many[_IN_IO_THREAD] = lambda: IO.run(_polled(ours, arguments))
    taken = _by_turns(many, turns)
    ours.close()
    goals = {_IN_IO_THREAD: {"at_most": GOAL_POLL}} if scheme == "HTTP" else {}
    what = f"an empty poll over {scheme}"
    yield from _compared(what, taken, parts=_POLLS, unit="µs CPU/call", goals=goals)


def _pages(scheme: str, settings: KinesisClientSettings, turns: int) -> Iterator[Figure]:
    arguments = {"ShardIterator": f"page-{RECORDS}-{RECORD_BYTES}/0/0", "Limit": RECORDS}
    theirs, ours = _boto3(settings), settings.create()

    def decoded() -> None:
        reply: Any = ours.get_records(**arguments)
        page = decode_reply(reply[RAW_BODY], stream="s", shard_id="0")
        assert len(page.records) == RECORDS

    ways: dict[str, Callable[[], object]] = {
        "boto3.get_records": lambda: theirs.get_records(**arguments),
        "ours": decoded,
    }
    taken = _by_turns(ways, turns)
    ours.close()
    what = f"fetched over {scheme} and decoded, {RECORDS:,} records of {RECORD_BYTES:,} B"
    goals = {"ours": {"cheaper_at_least": GOAL_TLS_RATIO}} if scheme == "TLS" else {}
    yield from _compared(what, taken, parts=RECORDS, unit="µs CPU/record", goals=goals)


def _compared(
    what: str, taken: Mapping[str, float], *, parts: int, unit: str, goals: Mapping[str, dict[str, float]]
) -> Iterator[Figure]:
    """Show how long each way took for so many parts, compared with the first."""
    (reference, longest), *_ = taken.items()
    for way, seconds in taken.items():
        is_reference = way == reference
        yield Figure(
            what=f"{what}: {way}",
            value=seconds / parts * 1e6,
            unit=unit,
            reference="" if is_reference else reference,
            ratio=None if is_reference else longest / seconds,
            at_most=goals.get(way, {}).get("at_most"),
            cheaper_at_least=goals.get(way, {}).get("cheaper_at_least"),
        )


def _by_turns(ways: Mapping[str, Callable[[], object]], turns: int) -> dict[str, float]:
    """Give the median of each way's CPU seconds."""
    for call in ways.values():
        for _ in range(2):  # the first call of ours opens a connection
            call()
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(turns):
        for way, call in ways.items():
            taken[way].append(cpu_seconds(call, repeats=1))
    return {way: statistics.median(times) for way, times in taken.items()}


def _many(call: Callable[[], object]) -> Callable[[], None]:
    def calls() -> None:
        for _ in range(_POLLS):
            call()

    return calls


async def _polled(client: Any, arguments: dict[str, Any]) -> None:
    for _ in range(_POLLS):
        await client.get_records.exchange(**arguments)


def _boto3(settings: KinesisClientSettings) -> Any:
    return boto3.client(
        "kinesis",
        region_name=settings.region,
        endpoint_url=settings.endpoint_url,
        aws_access_key_id=settings.aws_access_key_id,
        aws_secret_access_key=settings.aws_secret_access_key,
        verify=settings.ca_bundle,
    )
