"""A driver process with a topology that counts words, for tests that kill it, or what works for it.

``python -m tests.support.storm.topology_driver JOB``: the JSON of a ``Job``.
"""

import sys
import threading
from pathlib import Path
from typing import Any

import msgspec

from kinesis_spout.spark import session
from kinesis_spout.storm.spark import job as spark_job
from tests.support.spark.micro_batch_world import DeliveryLog
from tests.support.storm.faulty_topology import Faults, faulty_word_count

CONTRADICTED = "contradicted"
"""What is noted each time when tasks had seen different runs of a task."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    folder: str
    """For what happens, on a disk that all processes share."""
    log: str
    master: str
    spout: dict[str, Any]
    conf: dict[str, str] = {}
    archive: str | None = None
    """Shipped by the driver once Spark runs."""
    tallies: dict[str, str] = {}
    """Shell bolts that count, too, with the names of their files."""

    @property
    def faults(self) -> Faults:
        return Faults(folder=Path(self.folder))

    @property
    def end(self) -> Path:
        """Once this file is there the driver finishes what is on the stream, and ends."""
        return Path(self.folder, "end")

    @property
    def acked_file(self) -> Path:
        return Path(self.folder, "acked")

    def acked(self) -> int:
        """Say how many sentences the driver has acked."""
        return int(self.acked_file.read_text() or 0) if self.acked_file.exists() else 0


def main() -> None:
    job = msgspec.json.decode(sys.argv[1], type=Job)
    _watch_contradictions(job.faults)
    local = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    conf = {key.replace(".", "__"): value for key, value in (local | job.conf).items()}
    spark = session("word count", job.master, **conf)
    spark.sparkContext.setLogLevel("OFF")
    if job.archive is not None:
        spark.sparkContext.addArchive(job.archive)
    waiting = threading.Event()
    counting = faulty_word_count(job.faults, DeliveryLog(Path(job.log)), job.spout, job.tallies)
    with counting.run(spark) as query:
        (spout,) = query.spouts.values()
        while query.isActive and not job.end.exists():
            waiting.wait(0.05)
            fresh = job.acked_file.with_suffix(".new")
            fresh.write_text(str(spout.counters.acked))
            fresh.replace(job.acked_file)
        query.processAllAvailable()
    spark.stop()


def _watch_contradictions(faults: Faults) -> None:
    names = vars(spark_job)
    contradict = names["contradict"]

    def watched(seen: Any) -> bool:
        found: bool = contradict(seen)
        if found:
            faults.note(CONTRADICTED, "a job")
        return found

    names["contradict"] = watched


if __name__ == "__main__":
    main()
