"""A driver process with streaming queries that stop amid a batch, for tests that kill it there.

``python -m tests.support.spark.structured_driver QUERIES``: a JSON list of ``HeldQuery``. Each writes what its
batches have to its log, one line a batch, and holds in one of them, whose line is then the last: its offsets are
logged by Spark, its commit is not.
"""

import json
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame

from kinesis_spout.spark import session
from tests.support.spark.structured_queries import Batch, Seen, seen, start


class HeldQuery(msgspec.Struct, frozen=True, kw_only=True):
    options: Mapping[str, str]
    checkpoint: str
    log: str
    hold_at: int
    """The first batch that it may hold in."""
    hold_with_rows: bool
    """Whether it holds in a batch that has rows."""

    @property
    def batches(self) -> list[Batch]:
        """What it wrote to its log so far."""
        path = Path(self.log)
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        whole = (json.loads(line) for line in lines if line.endswith("\n"))
        return [Batch(number=number, rows=[Seen(*row) for row in rows]) for number, rows in whole]

    @property
    def is_held(self) -> bool:
        return any(self.holds_in(batch) for batch in self.batches)

    def holds_in(self, batch: Batch) -> bool:
        return batch.number >= self.hold_at and (bool(batch.rows) or not self.hold_with_rows)


def logging_sink(held: HeldQuery, holds: threading.Event) -> Callable[[DataFrame, int], None]:
    def log(frame: DataFrame, number: int) -> None:
        batch = Batch(number=number, rows=seen(frame))
        with Path(held.log).open("a") as file:
            file.write(json.dumps([batch.number, batch.rows]) + "\n")
        if held.holds_in(batch):
            holds.set()
            threading.Event().wait()

    return log


def main() -> None:
    queries = msgspec.json.decode(sys.argv[1], type=list[HeldQuery])
    spark = session("killed", "local[2]", spark__ui__enabled="false", spark__driver__bindAddress="127.0.0.1")
    spark.sparkContext.setLogLevel("OFF")
    for held in queries:
        # One after the other: a source's process has ten seconds to start in, also on a busy machine.
        holds = threading.Event()
        query = start(spark, dict(held.options), Path(held.checkpoint), logging_sink(held, holds))
        while not holds.wait(0.1):
            if not query.isActive:
                query.awaitTermination()  # raises what it ended with
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
