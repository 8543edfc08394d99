"""Makes the getters of a stream's shards."""

import random
import threading
from typing import TYPE_CHECKING

from kinesis_spout.kinesis.lister import KinesisShardLister
from kinesis_spout.kinesis.pace import Pacing
from kinesis_spout.kinesis.read.fan_out.pushed_getter import FanOutShardGetter, FanOutStream
from kinesis_spout.kinesis.read.polled_getter import FRESH, Cursor, PollingShardGetter
from kinesis_spout.kinesis.read.read_settings import DEFAULT, ReadSettings
from kinesis_spout.kinesis.read.user_records import HashKeys
from kinesis_spout.kinesis.retry_policy import Jitter
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.ports import ShardLister
from shard_state import Position

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient


class ShardGetters:
    """Opens getters of one stream's shards. Thread-safe; ``close`` it if it opens any that are pushed."""

    def __init__(
        self,
        client: "KinesisClient",
        stream: str,
        settings: ReadSettings = DEFAULT,
        *,
        lister: ShardLister | None = None,
        clock: Clock | None = None,
        jitter: Jitter = random.random,
    ) -> None:
        self._client = client
        self._stream = stream
        self._settings = settings
        self._clock = clock or SystemClock()
        self._lister = lister or KinesisShardLister(client, stream, clock=self._clock, jitter=jitter)
        self._jitter = jitter
        self._fan_out: FanOutStream | None = None
        self._lock = threading.Lock()

    def open(
        self, shard_id: str, position: Position, *, hash_keys: HashKeys | None, pacing: Pacing | None = None
    ) -> PollingShardGetter | FanOutShardGetter:
        """Open a getter as the settings say: polled, or pushed to their registered consumer."""
        if self._settings.fan_out_consumer is None:
            return self.polled(shard_id, position, hash_keys=hash_keys, pacing=pacing)
        with self._lock:
            if self._fan_out is None:
                self._fan_out = FanOutStream(
                    self._client,
                    self._stream,
                    self._settings,
                    consumer_name=self._settings.fan_out_consumer,
                    lister=self._lister,
                    clock=self._clock,
                    jitter=self._jitter,
                )
        return self._fan_out.getter(shard_id, position, hash_keys=hash_keys)

    def polled(
        self,
        shard_id: str,
        position: Position,
        *,
        hash_keys: HashKeys | None = None,
        pacing: Pacing | None = None,
        cursor: Cursor = FRESH,
    ) -> PollingShardGetter:
        return PollingShardGetter(
            self._client,
            stream=self._stream,
            shard_id=shard_id,
            position=position,
            lister=self._lister,
            settings=self._settings,
            hash_keys=hash_keys,
            pacing=pacing,
            cursor=cursor,
            clock=self._clock,
            jitter=self._jitter,
        )

    def close(self) -> None:
        if self._fan_out is not None:
            self._fan_out.close()
