"""The shards of a stream, kept up to date in the background."""

import logging
import threading
from collections.abc import Iterable, Mapping

from kinesis_spout.kinesis.retry_policy import Action, Work, persistently, reaction_to
from kinesis_spout.model.clock import Clock
from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.ports import ShardLister, StreamSummary
from kinesis_spout.structured.offsets import ShardOffset, StreamOffset
from shard_state import Position, PositionType, Shard, StartPositions
from shard_state.checkpoint.checkpoint import UNSEEN
from shard_state.lineage import parents_first

_log = logging.getLogger(__name__)


class StreamShards:
    """Mutable; guarded by ``changed``. As ``ShardLister`` it also lists announced children."""

    def __init__(
        self,
        name: str,
        lister: ShardLister,
        *,
        changed: threading.Condition,
        period_seconds: float,
        clock: Clock,
    ) -> None:
        self.name = name
        self._lister = lister
        self._changed = changed
        self._period_seconds = period_seconds
        self._clock = clock
        self.listed: dict[str, Shard] = {}
        self._promised: dict[str, Shard] = {}
        """Children that a last page named, and no listing yet."""
        self.created = 0.0
        """When the stream was made, in seconds since the epoch; known once it is loaded."""
        self.failure: Exception | None = None
        """The error that ended listing."""

    def load(self) -> StreamSummary:
        """Transient errors are retried without limit. Raises StreamNotFound, AccessDenied at once."""
        work = f"the beginning of a query on {self.name}"
        summary = persistently(self._lister.summary, work, self._clock)
        self._take_in(summary, persistently(self._lister.list_shards, work, self._clock))
        return summary

    def load_once(self) -> None:
        self._take_in(self._lister.summary(), self._lister.list_shards())

    def _take_in(self, summary: StreamSummary, shards: Iterable[Shard]) -> None:
        with self._changed:
            self.created = summary.created
            self.listed = {shard.shard_id: shard for shard in shards}

    def refresh(self) -> float | None:
        try:
            shards = self._lister.list_shards()
        except KinesisSpoutError as error:
            if reaction_to(error, Work.QUERY).action is not Action.RETRY:
                self._ended_with(error)
                return None
            _log.warning("%s; the shards known before are read on", error)
            return self._clock.monotonic() + self._period_seconds
        except Exception as error:  # noqa: BLE001 - not hidden: the reader raises it
            self._ended_with(error)
            return None
        with self._changed:
            listed = {shard.shard_id: shard for shard in self._with_promised(shards)}
            if listed.keys() != self.listed.keys():
                self.listed = listed
                self._changed.notify_all()
        return self._clock.monotonic() + self._period_seconds

    def found(self, children: Iterable[Shard]) -> None:
        """Add the children that the last page of a closed shard names. The lock is held."""
        for child in children:
            if child.shard_id not in self.listed:
                self.listed[child.shard_id] = self._promised[child.shard_id] = child

    def summary(self) -> StreamSummary:
        return self._lister.summary()

    def list_shards(self) -> list[Shard]:
        """List again, and add what last pages named: a listing can lag behind them."""
        shards = self._lister.list_shards()
        with self._changed:
            return self._with_promised(shards)

    def _with_promised(self, shards: list[Shard]) -> list[Shard]:
        for shard in shards:
            self._promised.pop(shard.shard_id, None)
        return [*shards, *self._promised.values()]

    def first_offset(self, start: StartPositions, now: float) -> StreamOffset:
        return StreamOffset(
            created=self.created,
            shards={
                shard.shard_id: ShardOffset(
                    position=start.of_shard(shard.shard_id).resolved(now),
                    # A closed shard gets no more: at LATEST nothing of it is left, so nothing waits for it.
                    at_end=shard.closed and start.of_shard(shard.shard_id).type is PositionType.LATEST,
                    parents=self._parents(shard, ()),
                )
                for shard in self.listed.values()
            },
        )

    def brought_up_to_date(self, offset: StreamOffset) -> StreamOffset:
        """Add the shards that were born since, at their beginning; drop those at their end that are gone."""
        shards = {
            shard_id: shard
            for shard_id, shard in offset.shards.items()
            if not shard.at_end or shard_id in self.listed
        }
        left_out = self._left_out_before(shards)
        for shard in parents_first(self.listed.values()):
            if shard.shard_id not in shards:
                shards[shard.shard_id] = ShardOffset(
                    position=Position.trim_horizon().known_since(self._born_since(shard, shards)),
                    at_end=shard.shard_id in left_out,
                    parents=self._parents(shard, offset.shards),
                )
        return StreamOffset(created=offset.created, shards=shards)

    def _left_out_before(self, shards: Mapping[str, ShardOffset]) -> set[str]:
        """Ended shards left out before: ancestors of a shard in the offset, which were in it earlier."""
        found: set[str] = set()
        left = [parent for shard in shards.values() for parent in shard.parents]
        while left:
            shard_id = left.pop()
            if shard_id not in shards and shard_id not in found:
                found.add(shard_id)
                left += self.listed[shard_id].parents if shard_id in self.listed else ()
        return found

    def _born_since(self, shard: Shard, known: Mapping[str, ShardOffset]) -> float | None:
        """When a shard had no record yet: all its parents had ended when its first one came."""
        if any(parent not in known and parent not in self.listed for parent in shard.parents):
            return UNSEEN
        read = [known[parent].position.since for parent in shard.parents if parent in known]
        return max((since for since in read if since is not None), default=None)

    def anew(self) -> StreamOffset:
        return self.first_offset(StartPositions(default=Position.trim_horizon()), self._clock.time())

    def _parents(self, shard: Shard, known: Iterable[str]) -> tuple[str, ...]:
        # A parent that is neither listed nor known has outlived retention: it blocks nothing.
        return tuple(parent for parent in shard.parents if parent in self.listed or parent in known)

    def _ended_with(self, error: Exception) -> None:
        with self._changed:
            self.failure = error
            self._changed.notify_all()
