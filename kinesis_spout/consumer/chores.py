"""When the consumer's chores are due, and the tries at each."""

from typing import Final

from kinesis_spout.kinesis.retry_policy import RetryPolicy, Tries, Work
from kinesis_spout.model.clock import Clock

FIRST_SECONDS: Final = 1.0
CAP_SECONDS: Final = 10.0


class Chores:
    """When each chore is due, and how its tries went. Mutable; times are the clock's monotonic ones."""

    def __init__(self, clock: Clock) -> None:
        retry_policy = RetryPolicy.without_end(clock, first=FIRST_SECONDS, cap=CAP_SECONDS)
        self.lead_at = 0.0
        self.commit_at = 0.0
        self.leading = Tries(retry_policy, "to list and assign the shards", Work.CONSUME)
        self.following = Tries(retry_policy, "to acquire shards", Work.CONSUME)
        self.reporting = Tries(retry_policy, "to say what this member reads", Work.CONSUME)
        self.committing = Tries(retry_policy, "to commit", Work.CONSUME)
        self.dead_lettering = Tries(retry_policy, "to write dead letters", Work.CONSUME)
        self.pausing = Tries(retry_policy, "to tell of pauses", Work.CONSUME)
