"""How the engine goes about its work."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What the engine takes from the configuration and from Spark."""

    parallelism: int
    """Tasks that can run at a time."""
    shards_per_task: int
    max_concurrent_batches: int
    records_per_fetch: int
    poll_seconds: float
    idle_poll_seconds: float
    """How rare polls of a shard get while nothing comes."""
    max_buffered_bytes: int
    gather_seconds: float = 0.05
    """How long records wait for those of other shards, so that one job takes them all."""
    batch_timeout_seconds: float | None
    death_backoff_seconds: float = 0.5
    """How long a shard rests after a job of its slices died; twice as long after each further one."""
    death_backoff_cap_seconds: float = 30.0
    abandon_seconds: float = 30.0
    """How long a stop waits for batches after it has cancelled them."""
