"""Reads with GetRecords, from every position."""

import time
from typing import Any, Final

from kinesis_spout.kinesis import KinesisShardLister
from kinesis_spout.kinesis.calls import translated
from kinesis_spout.model.errors import DataLoss, ExpiredIterator, StreamNotFound
from shard_state import Position, SequenceNumber
from tests.aws.check import Check, check
from tests.aws.scene import CheckFailed, Scene, expect

_ITERATOR_SECONDS: Final = 310.0


@check("records of every size come back whole, each once, by growing sequence numbers")
def _whole(scene: Scene) -> None:
    payloads = [b"", b"\x00\xff", b"x" * 1_000_000, *(f"whole-{number}".encode() for number in range(600))]
    scene.put(payloads)
    records = scene.read_until(scene.getter(), *payloads)
    expect(
        sorted(record.data for record in records) == sorted(payloads),
        f"expected {len(payloads)} records as they were put, got {len(records)}",
    )
    numbers = [record.sequence for record in records]
    expect(numbers == sorted(set(numbers)), "expected growing sequence numbers")


@check("columns hold what records hold")
def _columns(scene: Scene) -> None:
    (last,) = scene.put_numbered("columns", 1)
    records = scene.read_until(scene.getter(), last)
    getter = scene.getter()
    rows: list[dict[str, Any]] = []
    while len(rows) < len(records):
        rows.extend(getter.read_arrow(10_000).batch.to_pylist())
    expect(
        [(row["sequenceNumber"], row["data"]) for row in rows]
        == [(record.sequence_number, record.data) for record in records],
        f"expected the {len(records)} records as columns, got {len(rows)} others",
    )


@check("an iterator can be used again, and gives the same records")
def _iterator_again(scene: Scene) -> None:
    getter = scene.getter()
    getter.read(1)
    time.sleep(1)
    replies: list[Any] = []
    for _ in range(2):
        replies.append(scene.getter(getter.position, cursor=getter.cursor).read(1).records)
        time.sleep(1)
    expect(replies[0] == replies[1], "expected the same records twice")


@check("AT_TIMESTAMP begins with the record that arrived then")
def _at_timestamp(scene: Scene) -> None:
    scene.put_numbered("earlier", 3)
    time.sleep(1.1)
    (later,) = scene.put_numbered("later", 1)
    arrival = scene.read_until(scene.getter(), later)[-1].arrival_timestamp
    if arrival is None:
        raise CheckFailed("expected a record with the time of its arrival, got one without")
    first = scene.read_until(scene.getter(Position.at_timestamp(arrival)), later)[0]
    expect(first.data == later, f"expected {later!r} first, got {first.data[:40]!r}")


@check("a reader at LATEST misses nothing that is put after it")
def _latest(scene: Scene) -> None:
    getter = scene.getter(Position.latest())
    payloads = scene.put_numbered("latest", 5)
    scene.read_until(getter, *payloads)


@check("a stream is found by its ARN, and calls may name it")
def _by_arn(scene: Scene) -> None:
    arn = scene.lister.summary().arn
    expect(KinesisShardLister(scene.client, arn).summary().name == scene.stream, "expected the same stream")
    (last,) = scene.put_numbered("by-arn", 1)
    scene.read_until(scene.getter(stream=arn), last)


@check("a stream that is not there is an error that says so")
def _no_stream(scene: Scene) -> None:
    try:
        KinesisShardLister(scene.client, f"{scene.stream}-not").summary()
    except StreamNotFound:
        return
    raise CheckFailed("expected StreamNotFound, got a summary")


@check(
    "a sequence number of no record is refused, and no position silently becomes another",
    emulators="moto takes any number, and kinesis-mock answers ResourceNotFound, AWS InvalidArgument",
)
def _foreign_number(scene: Scene) -> None:
    try:
        scene.getter(Position.after(SequenceNumber(1))).read(1)
    except DataLoss:
        return
    raise CheckFailed("expected DataLoss, got a page")


@check("an iterator expires after five minutes, and the reader goes on where it was", asks="expiry")
def _expiry(scene: Scene) -> None:
    (before,) = scene.put_numbered("expiry", 1)
    getter = scene.getter()
    scene.read_until(getter, before)
    iterator = getter.cursor.iterator or ""
    time.sleep(_ITERATOR_SECONDS)
    (after,) = scene.put_numbered("after-expiry", 1)
    expect(
        [record.data for record in scene.read_until(getter, after)] == [after],
        "expected only what was put since",
    )
    try:
        with translated("GetRecords"):
            scene.client.get_records(ShardIterator=iterator, Limit=1)
    except ExpiredIterator:
        return
    raise CheckFailed(f"expected ExpiredIterator {_ITERATOR_SECONDS:g} s later, got a page")


CHECKS: Final[tuple[Check, ...]] = (
    _whole, _columns, _iterator_again, _at_timestamp, _latest, _by_arn, _no_stream, _foreign_number,
    _expiry,
)  # fmt: skip
