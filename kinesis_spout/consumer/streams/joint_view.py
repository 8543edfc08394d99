"""What is told of several streams together: sums, the first that says something, shards with their stream."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from kinesis_spout.consumer.counters import Counters
from kinesis_spout.consumer.streams.stream_set import StreamSet
from shard_state import Pause, ShardStatus


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
    def pause(self) -> Pause | None:
        """The state of a pause."""
        ...

    @property
    def last_error(self) -> Exception | None:
        """What is being retried."""
        ...

    def resume(self) -> bool:
        """End a pause."""
        ...


S = TypeVar("S", bound=OneStream)


class JointView(Generic[S]):
    """Looks at the streams of a set. Mutable: it remembers what was counted of streams that are gone."""

    def __init__(self, streams: StreamSet[S]) -> None:
        self._streams = streams
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
    def pause(self) -> Pause | None:
        """The state of the pause of the first stream that has one: each pauses by itself."""
        return next((stream.pause for stream in self._all if stream.pause is not None), None)

    def resume(self) -> bool:
        """End the pauses of all streams; False if there is none."""
        resumed = [stream.resume() for stream in self._all]
        return any(resumed)

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
