"""The engine's settings."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

WORTH_A_JOB_BYTES: Final = 1024 * 1024
"""Pushed bytes that wait no longer: handling them costs more than the job does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    parallelism: Callable[[], int]
    """Returns how many tasks can run at a time now: executors come and go. Called by batch threads."""
    shards_per_task: int
    max_concurrent_batches: int
    records_per_fetch: int
    poll_seconds: float
    idle_poll_seconds: float
    """The longest pause between polls of a shard, while nothing comes."""
    max_buffered_bytes: int
    driver_reads_all: bool = False
    """Executors read nothing fresh, whatever the backlog: what is pushed, is pushed to the driver."""
    gather_seconds: float = 0.05
    """The time for which records wait for those of other shards, so that one job takes them all."""
    spacing_seconds: float = 0.12
    """The time between the beginnings of jobs that carry what was pushed. One costs about 50 ms of CPU, however
    few records it carries; a record waits for half the spacing at a steady trickle, and not at all when it comes
    alone."""
    batch_timeout_seconds: float | None
    quick_deaths: int = 16
    """Jobs that may die in a row, with nothing handled in between, before that is an outage: what it
    takes to halve 10,000 records down to one."""
    death_backoff_seconds: float = 0.5
    """The rest of a shard in an outage after a job of its slices died; twice as long after each further one."""
    death_backoff_cap_seconds: float = 30.0
    abandon_seconds: float = 30.0
    """The time for which a stop waits for cancelled batches."""

    def rest_after(self, deaths: int) -> float:
        """``deaths``: dead jobs since records were last handled. No rest while a killer is searched for."""
        in_outage = deaths - self.quick_deaths
        if in_outage <= 0:
            return 0.0
        return min(self.death_backoff_cap_seconds, self.death_backoff_seconds * 2.0 ** min(in_outage - 1, 8))
