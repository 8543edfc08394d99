"""The housekeeper's chores: what is due when, and how the tries at it go."""

import logging
from collections.abc import Callable
from typing import Final

from kinesis_spout.consumer.consumer_state import ConsumerState
from kinesis_spout.consumer.owning.commits import Commits
from kinesis_spout.consumer.owning.following import Following
from kinesis_spout.consumer.owning.leading import Leading
from kinesis_spout.consumer.trouble_reports import TroubleReports, most_frequent
from kinesis_spout.kinesis.retry_policy import CallRetryPolicy, Tries, Work
from kinesis_spout.model.errors import KinesisSpoutError

FIRST_SECONDS: Final = 1.0
CAP_SECONDS: Final = 10.0
"""Between the tries at a chore."""
LOOK_AROUND_SECONDS: Final = 0.5
"""A lost session is noticed within so long."""
_LOOK_AT_LEAVING_SECONDS: Final = 0.05
"""Between two checks whether what is in flight of a leaving shard has ended."""

_log = logging.getLogger(__name__)


class Chores:
    """Mutable; the housekeeper's, but for ``to_dead_letter``, the letter writer's. Times are monotonic seconds."""

    def __init__(
        self,
        state: ConsumerState,
        leading: Leading,
        following: Following,
        commits: Commits,
        *,
        resume: Callable[[], bool],
    ) -> None:
        self._state = state
        self._leading = leading
        self._following = following
        self._commits = commits
        self._reports = TroubleReports(state.config, state.ports.coordinator)
        self._resume = resume
        self.since: float | None = None
        """When the round that is under way began; None between two rounds."""
        retry_policy = CallRetryPolicy.without_end(state.ports.clock, first=FIRST_SECONDS, cap=CAP_SECONDS)
        self.commit_at = 0.0
        self.to_lead = Tries(retry_policy, "to list and assign the shards", Work.CONSUME)
        self.to_follow = Tries(retry_policy, "to acquire shards", Work.CONSUME)
        self.to_report = Tries(retry_policy, "to say what this member reads", Work.CONSUME)
        self.to_commit = Tries(retry_policy, "to commit", Work.CONSUME)
        self.to_dead_letter = Tries(retry_policy, "to write dead letters", Work.CONSUME)
        self.to_tell = Tries(retry_policy, "to tell of pauses", Work.CONSUME)

    def do(self, now: float) -> float:
        self.since = now
        try:
            return self._do(now)
        finally:
            self.since = None

    def _do(self, now: float) -> float:
        """Do what is due; return when more is."""
        self._following.take_lost()
        is_leaving = self.share(now)
        if now >= max(self.commit_at, self.to_commit.until):
            self.commit_at = now + self._state.config.commit_interval_seconds
            if not self.tried(self.to_commit, self._commits.commit):
                self.commit_at = self.to_commit.until
            self._tell_back_pressure()
        if now >= self.to_tell.until:
            self.tried(self.to_tell, self._tell_of_trouble)
        look_seconds = _LOOK_AT_LEAVING_SECONDS if is_leaving else LOOK_AROUND_SECONDS
        commit_at = max(self.commit_at, self.to_commit.until)
        return min(commit_at, max(self._leading.due_at, self.to_lead.until), now + look_seconds)

    def share(self, now: float) -> bool:
        """Say what this member reads, lead, and follow. Returns whether some shards are to be handed over."""
        if now >= self.to_report.until:
            self.tried(self.to_report, lambda: self._state.sharing.report(now))
        if now >= self.to_lead.until:
            self.tried(self.to_lead, lambda: self._leading.lead(now))
        if now >= self.to_follow.until:
            self.tried(self.to_follow, lambda: self._following.follow(now))
        with self._state.lock:
            is_leaving = bool(self._state.sharing.leaving)
        if is_leaving and now >= self.to_commit.until:
            self.tried(self.to_commit, lambda: self._following.hand_over(now, self._commits.commit))
        return is_leaving

    def _tell_of_trouble(self) -> None:
        with self._state.lock:
            trouble = self._state.manager.blame.trouble(self._state.now)
            mostly = "" if trouble is None else most_frequent(self._state.failures)
        if (trouble is not None or self._reports.are_shown) and self._reports.show(trouble, mostly):
            self._resume()

    def _tell_back_pressure(self) -> None:
        with self._state.lock:
            states = [
                (shard_id, self._state.manager.shard(shard_id)) for shard_id in self._state.manager.owned
            ]
            congested = [shard_id for shard_id, state in states if state is not None and state.is_congested]
            is_full = self._state.listener is not None and self._state.listener.is_full
        self._state.log.looked(congested, is_full=is_full)

    def tried(self, tries: Tries, chore: Callable[[], None]) -> bool:
        try:
            chore()
        except KinesisSpoutError as error:
            wait = tries.failed(error)
            self._state.last_error = error
            _log.warning("%s; trying again in %.1f s", error, wait)
            return False
        if tries.failures:
            tries.succeeded()
            self._state.last_error = None
        return True
