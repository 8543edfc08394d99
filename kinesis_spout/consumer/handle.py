"""The handles of all doors, over the consumers that they have: a spout, a query, a topology.

Each stream has its own consumer, which knows nothing of the others. The counts of a handle are sums; where
several streams have a pause or an error that is being retried, the handle gives the first one's.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import ClassVar

from kinesis_spout.consumer.consumer import Consumer
from kinesis_spout.consumer.counters import Counters
from kinesis_spout.model.errors import InvalidConfig, KinesisSpoutError
from shard_state import ShardStatus, Trouble


class Handle(ABC):
    """Looks at what runs, also after its end, and lets it pause. Its methods may be called from any thread.

    With several streams a shard is called ``stream/shardId``; the only stream's, by its id.
    """

    _shard_form: ClassVar[str] = "stream/shardId"

    @abstractmethod
    def _consumers(self) -> Mapping[str, Consumer]:
        """The consumers of the streams that are read now, by the prefix of their shard ids."""

    @property
    def _is_over(self) -> bool:
        """True if it was closed: there is nothing to monitor any more."""
        return False

    def _counted_before(self) -> Iterable[Counters]:
        """The counts of streams that are not read any more."""
        return ()

    @property
    def gone(self) -> dict[str, BaseException]:
        """The streams that are deleted, and how that was noticed. They are looked for again."""
        return {}

    @property
    def counters(self) -> Counters:
        """The counts since the start on all streams, those included that are gone; as a copy."""
        counted = [consumer.counted() for consumer in self._consumers().values()]
        return Counters.total([*self._counted_before(), *counted])

    @property
    def failures(self) -> dict[str, int]:
        """The failures of records by kind of exception, the most frequent first.

        A kind is the exception's type and the line that raised it, or "no exception".
        """
        counts: Counter[str] = Counter()
        for consumer in self._consumers().values():
            with consumer.lock:
                counts.update(consumer.failures.counts)
        return dict(counts.most_common())

    @property
    def last_error(self) -> KinesisSpoutError | None:
        """An error that is being retried now, of storing or of reading; else why a stream is gone."""
        retried = (consumer.retried_error for consumer in self._consumers().values())
        gone = (error for error in self.gone.values() if isinstance(error, KinesisSpoutError))
        return next((error for error in (*retried, *gone) if error is not None), None)

    @property
    def uncommitted(self) -> int:
        """The records that are finished and not stored as such: at most so many come again after a kill now."""
        return sum(consumer.uncommitted for consumer in self._consumers().values())

    def shards(self) -> list[ShardStatus]:
        """Describe every known shard, parents before children."""
        return [
            shard._replace(shard_id=prefix + shard.shard_id) if prefix else shard
            for prefix, consumer in self._consumers().items()
            for shard in consumer.shards()
        ]

    @property
    def assigned(self) -> dict[str, int]:
        """The shards that are assigned to each living member, by the newest assignment that was read."""
        shards: Counter[str] = Counter()
        for consumer in self._consumers().values():
            shards.update(consumer.assigned)
        return dict(shards)

    # A handler that is at fault, for each stream separately

    @property
    def trouble(self) -> Trouble | None:
        """The trouble with a handler that is at fault; None while it is not. Each stream has its own.

        Records fail about as often when they are tried again, or as other records do. Their failures do not
        count then, for `max_spared_seconds`. If practically none pass, deliveries are slow until some do.
        """
        troubles = (consumer.trouble for consumer in self._consumers().values())
        return next((trouble for trouble in troubles if trouble is not None), None)

    def resume(self) -> bool:
        """Deliver as fast as before where deliveries are slow; False if none are."""
        resumed = [consumer.resume() for consumer in self._consumers().values()]
        return any(resumed)

    # Pauses by an operator

    def pause_shards(self, *shard_ids: str) -> None:
        """Pause shards for all members of the application, as an operator does; all shards if none is named.

        Their records in flight end normally and are stored; no other is handed out, retries included. The
        pause is kept in ZooKeeper, over restarts, until ``resume_shards`` or ``kinesis-spout resume``.
        Members notice within about a second.

        Raises:
            InvalidConfig: one is not a shard of a stream that is read.
            StoreUnavailable: ZooKeeper cannot be reached.
        """
        for consumer, of_one in self._addressed(shard_ids):
            consumer.pause_shards(of_one)

    def resume_shards(self, *shard_ids: str) -> bool:
        """End the pauses of shards that were paused by name; if none is named, all pauses of an operator.

        Returns:
            True if there was one.

        Raises:
            InvalidConfig, StoreUnavailable: as ``pause_shards``.
        """
        ended = [consumer.resume_shards(of_one) for consumer, of_one in self._addressed(shard_ids)]
        return any(ended)

    @property
    def paused_shards(self) -> frozenset[str]:
        """The shards of this member that an operator has paused and that are not done."""
        consumers = self._consumers().items()
        return frozenset(prefix + shard for prefix, consumer in consumers for shard in consumer.paused_shards)

    @property
    def paused_by_operator(self) -> str | None:
        """The shards of this member that an operator has paused, in words; the first stream's, or None."""
        said = (consumer.paused_by_operator for consumer in self._consumers().values())
        return next((text for text in said if text is not None), None)

    def _addressed(self, shard_ids: Collection[str]) -> list[tuple[Consumer, list[str]]]:
        """The consumers concerned, each with its shards; all of them without any if none is named."""
        consumers = self._consumers()
        if not shard_ids:
            return [(consumer, []) for consumer in consumers.values()]
        if consumers.keys() == {""}:
            return [(consumers[""], list(shard_ids))]
        addressed: dict[str, list[str]] = {}
        for shard_id in shard_ids:
            stream, slash, of_one = shard_id.rpartition("/")
            prefix = stream + slash
            if prefix not in consumers or not of_one:
                known = ", ".join(sorted(each.removesuffix("/") for each in consumers))
                raise InvalidConfig(
                    f"expected a shard as {self._shard_form}, of one of {known or 'none'}, got {shard_id!r}"
                )
            addressed.setdefault(prefix, []).append(of_one)
        return [(consumers[prefix], of_one) for prefix, of_one in addressed.items()]
