"""Pauses by an operator over several streams, whose shards are called ``stream/shardId``."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Protocol, TypeVar

from kinesis_spout.errors import InvalidConfig


class PausableStream(Protocol):
    """A door to one stream."""

    @property
    def paused_shards(self) -> frozenset[str]:
        """What an operator has paused."""
        ...

    def pause_shards(self, *shard_ids: str) -> None:
        """Pause shards, or all."""
        ...

    def resume_shards(self, *shard_ids: str) -> bool:
        """Resume shards, or all."""
        ...


S = TypeVar("S", bound=PausableStream)


def pause_all(streams: Mapping[str, S], shard_ids: Collection[str]) -> None:
    """Pause shards of several streams, or all streams that there are now.

    Raises:
        InvalidConfig: one is not a shard of any of them.
    """
    for stream, of_stream in _by_stream(streams, shard_ids).items():
        streams[stream].pause_shards(*of_stream)


def resume_all(streams: Mapping[str, S], shard_ids: Collection[str]) -> bool:
    """Resume shards of several streams, or all of all; tell whether any was paused.

    Raises:
        InvalidConfig: one is not a shard of any of them.
    """
    resumed = [
        streams[stream].resume_shards(*of_stream)
        for stream, of_stream in _by_stream(streams, shard_ids).items()
    ]
    return any(resumed)


def paused_of_all(streams: Mapping[str, S]) -> frozenset[str]:
    """Name what is paused, as ``stream/shardId``."""
    return frozenset(
        f"{name}/{shard_id}" for name, stream in streams.items() for shard_id in stream.paused_shards
    )


def _by_stream(streams: Mapping[str, S], shard_ids: Collection[str]) -> dict[str, list[str]]:
    if not shard_ids:
        return {stream: [] for stream in streams}
    found: defaultdict[str, list[str]] = defaultdict(list)
    for named in shard_ids:
        stream, _, shard_id = named.partition("/")
        if stream not in streams or not shard_id:
            known = ", ".join(sorted(streams)) or "none"
            raise InvalidConfig(
                f"expected a shard as stream/shardId, of one of the streams ({known}), got {named!r}"
            )
        found[stream].append(shard_id)
    return dict(found)
