"""The producer's spool: appends under each policy, in CPU seconds and a second, and how many share one fsync.

Records are appended one by one, and 500 at once. Each is confirmed later, in hundreds, as a producer does whose
calls succeed. What a disk takes for an fsync is measured beside it: appends a second under ``record`` follow from
that, and differ from machine to machine.
"""

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from figures import Figure, Step

from kinesis_spout.kinesis.write.put_records import Entry
from kinesis_spout.producer.spool import DiskSpool, Durability

SIZES = (100, 1024)
THREADS = (1, 8)
CONFIRMED_AT_ONCE = 500
GOALS = {(Durability.INTERVAL, 100, 1): 10.0, (Durability.RECORD, 100, 8): 60.0}
"""Microseconds of CPU, by policy, size and threads."""
APPENDS = {Durability.RECORD: 2_000, Durability.INTERVAL: 20_000, Durability.SYSTEM: 10_000}


def figures(*, quick: bool) -> Iterator[Figure | Step]:
    with tempfile.TemporaryDirectory(
        prefix="bench-spool-", dir=os.environ.get("BENCH_SPOOL_FOLDER")
    ) as folder:
        yield Figure(
            what="an fsync of 4 KiB on this disk",
            value=_fsync_seconds(Path(folder) / "probe", 20 if quick else 200) * 1e6,
            unit="µs",
        )
        for durability in Durability:
            for size in SIZES[:1] if quick else SIZES:
                for threads in THREADS:
                    yield Step(f"{durability}, {size} B, {threads} threads")
                    appends = APPENDS[durability] // (10 if quick else 1)
                    place = Path(folder) / f"{durability}-{size}-{threads}"
                    yield from _appended(place, durability, size, threads, appends)
                yield Step(f"{durability}, {size} B, {CONFIRMED_AT_ONCE} at once")
                yield _appended_at_once(Path(folder) / f"{durability}-{size}-at-once", durability, size)


def _appended(
    folder: Path, durability: Durability, size: int, threads: int, appends: int
) -> Iterator[Figure]:
    what = f"{durability}: {size} B, {threads} thread{'s'[: threads > 1]}"
    with DiskSpool(folder, stream="orders", durability=durability) as spool:
        _work(spool, size, threads, appends // 10)
        wall, cpu = time.perf_counter(), time.process_time()
        _work(spool, size, threads, appends)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    yield Figure(
        what=f"{what}: CPU of an append",
        value=cpu / appends * 1e6,
        unit="µs",
        at_most=GOALS.get((durability, size, threads)),
    )
    yield Figure(what=f"{what}: appends", value=appends / wall, unit="/s")


def _appended_at_once(folder: Path, durability: Durability, size: int) -> Figure:
    entries = [Entry("customer-4711", bytes(size))] * CONFIRMED_AT_ONCE
    with DiskSpool(folder, stream="orders", durability=durability) as spool:

        def work(times: int) -> None:
            for _ in range(times):
                first = spool.append(*entries)
                spool.confirm(range(first, first + len(entries)))

        work(4)
        cpu = time.process_time()
        work(40)
        cpu = time.process_time() - cpu
    return Figure(
        what=f"{durability}: {size} B, {CONFIRMED_AT_ONCE} at once: CPU of a record",
        value=cpu / (40 * CONFIRMED_AT_ONCE) * 1e6,
        unit="µs",
    )


def _work(spool: DiskSpool, size: int, threads: int, appends: int) -> None:
    def append() -> None:
        numbers = []
        for _ in range(appends // threads):
            numbers.append(spool.append(Entry("customer-4711", bytes(size))))
            if len(numbers) == CONFIRMED_AT_ONCE:
                spool.confirm(numbers)
                numbers = []
        spool.confirm(numbers)

    workers = [threading.Thread(target=append) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def _fsync_seconds(file: Path, times: int) -> float:
    with file.open("wb", buffering=0) as opened:
        started = time.perf_counter()
        for _ in range(times):
            opened.write(bytes(4096))
            os.fsync(opened.fileno())
        return (time.perf_counter() - started) / times
