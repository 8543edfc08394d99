"""A world of fakes for the commands, and a way to call them in it."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

from kinesis_spout.cli.app import app
from kinesis_spout.cli.output import Terminal
from kinesis_spout.kinesis import ReadSettings
from kinesis_spout.operations.stored_progress import StoredProgress
from kinesis_spout.operations.world import StreamAccess, World
from kinesis_spout.ports import CheckpointWrite, DeadLetterSink
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.testing import (
    InMemoryDeadLetterSink,
    InMemoryProcess,
    InMemoryShardGetter,
    InMemoryShardLister,
    InMemoryStream,
    InMemoryZooKeeper,
    ManualClock,
)
from shard_state import Checkpoint, Position
from tests.support.core.shards import everywhere

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

    from kinesis_spout.model.errors import KinesisSpoutError

SETTINGS = ("--stream", "orders", "--app", "billing")
START = everywhere(Position.trim_horizon())


class PutsRecords:
    """The one call of boto3's Kinesis client that a redrive makes, onto streams in memory."""

    def __init__(self) -> None:
        self.put: list[tuple[str, bytes]] = []
        self.keys: list[str] = []

    def put_records(self, **request: Any) -> dict[str, Any]:
        self.put += [(request["StreamName"], entry["Data"]) for entry in request["Records"]]
        self.keys += [entry["PartitionKey"] for entry in request["Records"]]
        results = [{"SequenceNumber": "1", "ShardId": "0"} for _ in request["Records"]]
        return {"FailedRecordCount": 0, "Records": results}


class FakeWorld(World):
    def __init__(self, shards: int = 2) -> None:
        super().__init__(Terminal())
        self.clock = ManualClock()
        self.kinesis = InMemoryStream("orders", shards=shards, clock=self.clock)
        self.zookeeper = InMemoryZooKeeper(self.clock.time)
        self.sink: DeadLetterSink = InMemoryDeadLetterSink()
        self.puts = PutsRecords()
        self.others: list[tuple[str, str]] = []
        """Other applications that have begun, each with its stream."""
        self.opened: list[str] = []
        """What the commands connected to."""
        self.problem: KinesisSpoutError | None = None
        """What a check finds."""
        self._operators = 0

    # What commands see

    @contextmanager
    def progress(self, config: SpoutConfig, *, begin: bool = False) -> Iterator[StoredProgress]:
        del begin
        assert config.stream_name == "orders"
        self.opened.append("progress")
        self._operators += 1
        process = self.zookeeper.process(f"operator-{self._operators}")
        with closing(process):
            progress = StoredProgress(
                store=process.store,
                coordinator=process.coordinator,
                group=process.group,
                applications=self.applications,
                other=lambda _app, _stream: progress,
            )
            yield progress

    def stream(self, config: SpoutConfig) -> StreamAccess:
        assert config.stream_name == "orders"
        self.opened.append("stream")
        return StreamAccess(
            lister=InMemoryShardLister(self.kinesis),
            open_getter=lambda shard_id, position: InMemoryShardGetter(
                self.kinesis, shard_id, position, settings=ReadSettings(deaggregate=config.deaggregate)
            ),
        )

    def names(self, config: SpoutConfig) -> list[str]:
        del config
        self.opened.append("names")
        return ["orders", "parcels"]

    def dead_letters(self, config: SpoutConfig) -> AbstractContextManager[DeadLetterSink]:
        assert config.app == "billing"
        self.opened.append("dead letters")
        return nullcontext(self.sink)

    def checks(self, config: SpoutConfig) -> Sequence[Callable[[], None]]:
        del config
        self.opened.append("check")
        return [self._check]

    def _check(self) -> None:
        if self.problem is not None:
            raise self.problem

    def client(self, config: SpoutConfig) -> "KinesisClient":
        del config
        self.opened.append("client")
        return self.puts  # type: ignore[return-value]

    def time(self) -> float:
        return self.clock.time()

    # What tests do

    def applications(self) -> list[tuple[str, str]]:
        return [*self.others, *([("billing", "orders")] if self.zookeeper.begun else [])]

    @property
    def shard_ids(self) -> list[str]:
        return [shard.shard_id for shard in self.kinesis.list_shards()]

    def consumer(self, name: str = "consumer") -> InMemoryProcess:
        """Let a consumer begin, or go on, and own nothing yet."""
        process = self.zookeeper.process(name)
        process.store.open(self.kinesis.summary().created, START, self.kinesis.list_shards())
        process.coordinator.join()
        return process

    def store(self, process: InMemoryProcess, shard_id: str, **progress: Any) -> None:
        """Let a consumer own a shard and store its progress."""
        acquired = process.coordinator.acquire(shard_id, Checkpoint(start=START.default))
        assert acquired is not None
        checkpoint = Checkpoint(start=acquired.start, epoch=acquired.epoch, **progress)
        result = process.store.commit([CheckpointWrite(shard_id=shard_id, checkpoint=checkpoint)])
        assert result.committed == {shard_id}

    def stored(self) -> dict[str, Checkpoint]:
        return dict(self.zookeeper.process("reader").store.load())

    def call(self, *arguments: str, exit_code: int = 0, given: bytes | None = None) -> tuple[str, str]:
        """Call a command, with this on its standard input; give its output and its error output."""
        result = CliRunner().invoke(app, [*arguments], input=given, obj=self)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == exit_code, f"{result.exit_code}: {result.output}"
        return result.stdout, result.stderr

    def json(self, *arguments: str, exit_code: int = 0) -> Any:
        return json.loads(self.call(*arguments, "--json", *SETTINGS, exit_code=exit_code)[0])
