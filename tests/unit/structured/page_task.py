"""A worker's process for tests: fetches pages, keeps some, and looks again whether they are as they were.

A line of its input is an address and segments, pickled, as hexadecimal digits; the answer to it is "good", or what
was wrong. It forgets its connections when a line is empty.
"""

import pickle
import random
import sys
from typing import TYPE_CHECKING

from kinesis_spout.kinesis.arrow import SCHEMA
from kinesis_spout.structured import page_client
from tests.unit.structured.pages import sequences_of

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_AT_ONCE = 4
KEPT = 6


def main(width: int) -> None:
    kept: list[tuple[pa.RecordBatch, list[int]]] = []
    for line in sys.stdin:
        if not line.strip():
            page_client._connections.forget()
            continue
        address, segments = pickle.loads(bytes.fromhex(line))
        batches = list(page_client.fetch_segments(address, segments, SCHEMA, rows_at_once=ROWS_AT_ONCE))
        rows = sum(batch.num_rows for batch in batches)
        if len(kept) >= KEPT:
            kept.pop(random.randrange(KEPT))
        part = random.choice(batches).slice(1)
        kept.append((part, sequences_of(part)))
        is_good = rows == sum(segment.rows for segment in segments) and all(
            batch.column("data").to_pylist() == [str(number).zfill(width).encode() for number in sequences]
            for batch, sequences in (*kept, *((batch, sequences_of(batch)) for batch in batches))
        )
        sys.stdout.write("good\n" if is_good else f"{rows} rows, or others than they were\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
