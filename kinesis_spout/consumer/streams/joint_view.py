"""What is told of several streams together: sums, the first that says something, shards with their stream."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from kinesis_spout.consumer.counters import Counters
from kinesis_spout.model.errors import InvalidConfig
from shard_state import BreakerPause, ShardStatus


class OneStream(Protocol):
    """What a door tells of one stream."""

    @property
    def counters(self) -> Counters:
        """What happened since its start."""
        ...

    @property
    def failures(self) -> dict[str, int]:
        """How often the user's code failed, by the kind of exception."""
        ...

    @property
    def breaker_pause(self) -> BreakerPause | None:
        """The state of a pause."""
        ...

    @property
    def last_error(self) -> Exception | None:
        """What is being retried."""
        ...

    def resume(self) -> bool:
        """End a pause."""
        ...

    def pause_shards(self, *shard_ids: str) -> None:
        """Pause shards as an operator does; all if none is named."""
        ...

    def resume_shards(self, *shard_ids: str) -> bool:
        """End such pauses; all if none is named."""
        ...

    @property
    def paused_shards(self) -> frozenset[str]:
        """The shards that are paused so."""
        ...


S = TypeVar("S", bound=OneStream)
S_co = TypeVar("S_co", bound=OneStream, covariant=True)


class Streams(Protocol[S_co]):
    """The streams that are looked at: a ``StreamSet``, or the spouts of a topology."""

    @property
    def current(self) -> Mapping[str, S_co]:
        """Those that are read now, by their names."""
        ...

    @property
    def gone(self) -> Mapping[str, BaseException]:
        """Those that are deleted, and how that was noticed."""
        ...


class JointView(Generic[S]):
    """Looks at streams. Mutable: it remembers what was counted of streams that are gone.

    Args:
        streams: which.
        called: what their names are called in messages.
    """

    def __init__(self, streams: Streams[S], called: str = "stream") -> None:
        self._streams = streams
        self._called = called
        self._past: list[Counters] = []

    def left(self, stream: S) -> None:
        """Keep what was counted of a stream that is not read any more."""
        self._past.append(stream.counters)

    @property
    def counters(self) -> Counters:
        """What happened on all streams since the start, those included that are gone."""
        return Counters.total([*self._past, *(stream.counters for stream in self._all)])

    @property
    def failures(self) -> dict[str, int]:
        """How often the user's code failed with each kind of exception, the most frequent first."""
        counts: Counter[str] = Counter()
        for stream in self._all:
            counts.update(stream.failures)
        return dict(counts.most_common())

    @property
    def breaker_pause(self) -> BreakerPause | None:
        """The state of the pause of the first stream that has one: each pauses by itself."""
        return next((stream.breaker_pause for stream in self._all if stream.breaker_pause is not None), None)

    def resume(self) -> bool:
        """End the pauses of all streams; False if there is none."""
        resumed = [stream.resume() for stream in self._all]
        return any(resumed)

    def pause_shards(self, shard_ids: Collection[str]) -> None:
        """Pause shards of some streams, as an operator does; all of all streams if none is named.

        Args:
            shard_ids: each as ``stream/shardId``.

        Raises:
            InvalidConfig: one is not a shard of a stream that is read.
            StoreUnavailable: ZooKeeper cannot be reached.
        """
        for stream, of_one in self._addressed(shard_ids):
            stream.pause_shards(*of_one)

    def resume_shards(self, shard_ids: Collection[str]) -> bool:
        """End such pauses; raises as ``pause_shards``. Tells whether there was one."""
        ended = [stream.resume_shards(*of_one) for stream, of_one in self._addressed(shard_ids)]
        return any(ended)

    @property
    def paused_shards(self) -> frozenset[str]:
        """The shards that are paused so, as ``stream/shardId``."""
        streams = self._streams.current.items()
        return frozenset(f"{name}/{shard}" for name, stream in streams for shard in stream.paused_shards)

    def _addressed(self, shard_ids: Collection[str]) -> list[tuple[S, list[str]]]:
        """Give the streams that are meant, each with its shards; all streams without any if none is named."""
        streams = self._streams.current
        if not shard_ids:
            return [(stream, []) for stream in streams.values()]
        addressed: dict[str, list[str]] = {}
        for shard_id in shard_ids:
            name, _, of_one = shard_id.partition("/")
            if name not in streams or not of_one:
                raise InvalidConfig(
                    f"expected a shard as {self._called}/shardId, of one of "
                    f"{', '.join(sorted(streams)) or 'none'}, got {shard_id!r}"
                )
            addressed.setdefault(name, []).append(of_one)
        return [(streams[name], of_one) for name, of_one in addressed.items()]

    @property
    def last_error(self) -> Exception | None:
        """What is being retried of the first stream that has such an error; else why a stream is gone."""
        retried = (stream.last_error for stream in self._all)
        gone = (error for error in self._streams.gone.values() if isinstance(error, Exception))
        return next((error for error in (*retried, *gone) if error is not None), None)

    @property
    def _all(self) -> Iterable[S]:
        return list(self._streams.current.values())


def of_stream(name: str, shards: Iterable[ShardStatus]) -> list[ShardStatus]:
    """Give the shards of a stream by names that no shard of another stream has: ``stream/shardId``."""
    return [replace(shard, shard_id=f"{name}/{shard.shard_id}") for shard in shards]
