"""A consumer that notes when it was given a record of which shard, until its input ends.

Arguments: "plain" or "spark", the file for the notes, and the settings as JSON. A note is the system's monotonic
time, which all processes share, and the shard.
"""

import json
import sys
import threading
import time
from pathlib import Path
from typing import Final

from local_spark import local_session

from kinesis_spout import KinesisSpout, Record

READY: Final = "ready"
"""What is noted when it is about to join, in place of a shard."""
_STEP_SECONDS: Final = 0.005


class Notes:
    """Appends to a file, also from other processes. Can be pickled."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, record: Record) -> None:
        """Note a record's shard."""
        self.note(record.shard_id)

    def note(self, what: str) -> None:
        """Add a line."""
        with Path(self._path).open("ab", buffering=0) as notes:
            notes.write(f"{time.monotonic()} {what}\n".encode())


def main() -> None:
    kind, path, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    note, spout, ended = Notes(path), KinesisSpout(**settings), threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    if kind == "spark":
        with local_session() as spark:
            note.note(READY)
            with spout.foreach_record(spark, note):
                ended.wait()
        return
    note.note(READY)
    with spout.open() as tuples:
        while not ended.is_set():
            emitted = tuples.next_tuple()
            if emitted is None:
                time.sleep(_STEP_SECONDS)
                continue
            note(emitted.values)
            tuples.ack(emitted.message_id)


if __name__ == "__main__":
    main()
