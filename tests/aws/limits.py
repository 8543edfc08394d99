"""Limits that AWS keeps and emulators do not."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from kinesis_spout.kinesis.calls import translated
from kinesis_spout.kinesis.io_thread import IO
from kinesis_spout.kinesis.read.reply_getter import RecordsForm, get_records
from kinesis_spout.model.errors import Throttled
from tests.aws.check import Check, check
from tests.aws.scene import Scene, expect

_NO_LIMIT: Final = "emulators throttle nothing"


@check(
    "more than five reads a second are throttled, and the reader goes on with its iterator",
    emulators=_NO_LIMIT,
)
def _read_throttle(scene: Scene) -> None:
    getter = scene.getter()
    getter.read(1)
    iterator, shard_id = getter.cursor.iterator or "", scene.lister.list_shards()[0].shard_id

    def is_throttled(_: int) -> bool:
        try:
            with translated("GetRecords"):
                call = get_records(
                    scene.client,
                    iterator,
                    1,
                    RecordsForm(scene.stream, shard_id),
                    stream=scene.stream,
                    shard_id=shard_id,
                )
                IO.run(call)
        except Throttled:
            return True
        return False

    with ThreadPoolExecutor(10) as threads:
        expect(any(threads.map(is_throttled, range(60))), "expected a throttle in 60 calls, got none")
    (last,) = scene.put_numbered("after-throttle", 1)
    scene.read_until(getter, last)


@check(
    "MillisBehindLatest grows while a record waits",
    emulators="theirs is the gap to the newest record, and stands still",
)
def _behind(scene: Scene) -> None:
    getter = scene.getter()
    first = getter.read(1).millis_behind_latest
    time.sleep(3)
    second = scene.getter().read(1).millis_behind_latest
    expect(second >= first + 2_000, f"expected 2 s more than {first} ms, got {second} ms")


@check("more than a shard takes in a second is put again until all of it is there")
def _write_throttle(scene: Scene) -> None:
    payloads = [f"heavy-{number}-".encode() + bytes(400_000) for number in range(8)]
    scene.put(payloads)
    scene.read_until(scene.getter(), *payloads)


CHECKS: Final[tuple[Check, ...]] = (_read_throttle, _behind, _write_throttle)
