"""A driver process with streaming queries that stop amid a batch, for tests that kill it there.

``python -m tests.structured_driver QUERIES``: the JSON of a list of ``HeldQuery``. Each writes what its batches
have to its log, one line a batch, and holds in the batch ``hold_at``, whose line is then in the log: its offsets
are logged by Spark, its commit is not.
"""

import json
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame

from kinesis_spout.spark import session
from tests.structured_queries import Batch, Seen, seen, start


class HeldQuery(msgspec.Struct, frozen=True, kw_only=True):
    options: Mapping[str, str]
    checkpoint: str
    log: str
    hold_at: int

    @property
    def batches(self) -> list[Batch]:
        """What it wrote to its log so far."""
        path = Path(self.log)
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        whole = (json.loads(line) for line in lines if line.endswith("\n"))
        return [Batch(number=number, rows=[Seen(*row) for row in rows]) for number, rows in whole]

    @property
    def is_held(self) -> bool:
        return any(batch.number == self.hold_at for batch in self.batches)


def logging_sink(held: HeldQuery, holds: threading.Event) -> Callable[[DataFrame, int], None]:
    def log(frame: DataFrame, number: int) -> None:
        line = json.dumps([number, seen(frame)]) + "\n"
        with Path(held.log).open("a") as file:
            file.write(line)
        if number == held.hold_at:
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
