"""What checks work on: a stream that belongs to them, and the ways to it."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kinesis_spout.kinesis import KinesisClientSettings, KinesisShardLister, PollingShardGetter
from kinesis_spout.kinesis.retry_policy import CallRetryPolicy
from kinesis_spout.kinesis.write.put_records import Entry
from kinesis_spout.kinesis.write.record_putter import put_all
from kinesis_spout.model.clock import SystemClock
from kinesis_spout.model.errors import Throttled, Unavailable
from kinesis_spout.ports import ShardGetter
from shard_state import Position

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

    from kinesis_spout.model.record import Record

PATIENCE_SECONDS: Final = 180.0
"""AWS takes half a minute to create, split or merge; on a bad day more."""


class CheckFailed(Exception):  # noqa: N818 - what a check says
    """What was expected, and what came."""


def expect(condition: object, what: str) -> None:
    """Go on if something is as expected.

    Raises:
        CheckFailed: it is not; with the text.
    """
    if not condition:
        raise CheckFailed(what)


def wait_until(condition: Callable[[], bool], what: str, *, seconds: float = PATIENCE_SECONDS) -> None:
    """Return when the condition holds.

    Raises:
        CheckFailed: it does not within ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        expect(time.monotonic() < deadline, f"waited {seconds:g} s in vain for {what}")
        time.sleep(0.2)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A stream with one shard at first, nobody else's; checks come one after the other and share it."""

    stream: str
    kinesis: KinesisClientSettings
    settings: dict[str, Any]
    """The same, as settings of a spout."""
    options: dict[str, str]
    """The same, as options of ``format("kinesis")``."""
    folder: Path
    """For what a check has to keep for a while."""

    @cached_property
    def client(self) -> "KinesisClient":
        """How the stream is reached."""
        return self.kinesis.connect()

    @cached_property
    def lister(self) -> KinesisShardLister:
        """Names the shards."""
        return KinesisShardLister(self.client, self.stream)

    def put(self, payloads: Iterable[bytes]) -> None:
        """Put records, each under its number as key; what is throttled is put again."""
        entries = [Entry(str(number), payload) for number, payload in enumerate(payloads)]
        retry_policy = CallRetryPolicy(deadline_seconds=PATIENCE_SECONDS, clock=SystemClock())
        put_all(self.client, self.stream, entries, retry_policy)

    def put_numbered(self, name: str, count: int) -> list[bytes]:
        """Put so many records that no other check puts, and give their data."""
        payloads = [f"{name}-{number}".encode() for number in range(count)]
        self.put(payloads)
        return payloads

    def getter(
        self, position: Position | None = None, *, shard_id: str | None = None, **more: Any
    ) -> PollingShardGetter:
        """Read a shard; without a name, the stream's only one."""
        return PollingShardGetter(
            self.client,
            shard_id=shard_id or self.lister.list_shards()[0].shard_id,
            position=position or Position.trim_horizon(),
            lister=self.lister,
            **{"stream": self.stream, **more},
        )

    def read_until(self, getter: ShardGetter, *wanted: bytes) -> "list[Record]":
        """Read forward until these records came, in whatever order."""
        missing = set(wanted)
        records: list[Record] = []

        def has_it() -> bool:
            try:
                page = getter.read(10_000)
            except (Throttled, Unavailable):
                return False  # the next read waits as long as it must
            records.extend(page.records)
            missing.difference_update(record.data for record in page.records)
            return not missing

        wait_until(has_it, f"{len(wanted)} records, {wanted[-1][:40]!r} among them")
        return records

    def wait_active(self) -> None:
        """Wait until AWS has made what it was asked to make of the stream."""

        def is_active() -> bool:
            reply = self.client.describe_stream_summary(StreamName=self.stream)
            return reply["StreamDescriptionSummary"]["StreamStatus"] == "ACTIVE"

        wait_until(is_active, f"stream {self.stream} to be active")
