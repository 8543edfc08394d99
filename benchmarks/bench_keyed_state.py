"""What keyed state of topologies costs: a get and put, the end of a micro-batch, and to load it.

    python benchmarks/bench_keyed_state.py [keys] [changes]

One part on the local disk, keys as text, values as whole numbers. Prints one line a figure.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from kinesis_spout.storm.state.files import StateFiles
from kinesis_spout.storm.state.manifest import PartitionPlace
from kinesis_spout.storm.state.partition import StatePartition

KEYS = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
CHANGES = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
PLACE = PartitionPlace(topology="bench", life="0", component="count", parallelism=1, index=0)


def timed(what: str, work: Callable[[], object], per: int = 0) -> object:
    began = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - began
    each = f", {seconds / per * 1e6:.2f} us each" if per else ""
    print(f"{what}: {seconds * 1e3:,.1f} ms{each}")
    return result


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = StateFiles(folder)
        partition = StatePartition(files, PLACE)
        partition.load(())
        state = partition.state
        keys = [f"customer-{number:07}" for number in range(KEYS)]

        def count(chosen: list[str]) -> None:
            for key in chosen:
                state.put(key, state.get(key, 0) + 1)

        timed(f"get and put of {KEYS:,} new keys", lambda: count(keys), KEYS)
        update = timed(f"end of the micro-batch, {KEYS:,} new keys", partition.end_batch, KEYS)
        assert update is not None
        names = update.files  # type: ignore[attr-defined]
        size_bytes = sum(each.stat().st_size for each in Path(folder).rglob("*.arrow"))
        print(f"file: {size_bytes / 1e6:.1f} MB")
        timed("to take over what was just written", lambda: partition.load(names))
        chosen = keys[:: KEYS // CHANGES][:CHANGES]
        for _ in range(3):
            timed(f"get and put of {CHANGES:,} stored keys", lambda: count(chosen), CHANGES)
            timed("the same once more in the micro-batch", lambda: count(chosen), CHANGES)
            update = timed(f"end of the micro-batch, {CHANGES:,} changed keys", partition.end_batch, CHANGES)
            names = update.files  # type: ignore[union-attr]
            timed(f"to take it over ({len(names)} files)", partial(partition.load, names))
        timed(
            f"to load {KEYS:,} keys in another worker", lambda: StatePartition(files, PLACE).load(names), KEYS
        )


if __name__ == "__main__":
    main()
