"""Everything a run is made of: endpoint, ZooKeeper, proxies, consumers, producer; real, and on this machine."""

import os
import signal
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from examples.demo.producer import make_stream
from kinesis_spout.dead_letters.sink_url import open_sink
from kinesis_spout.kinesis import KinesisShardLister
from kinesis_spout.zookeeper import EmbeddedZooKeeper
from kinesis_spout.zookeeper.paths import DEFAULT_ROOT, Paths
from shard_state import Shard
from tests.fault.suite.consumers.delivery_log import Entry, RecordId, read_delivery_log
from tests.fault.suite.consumers.prober import Prober, free_address
from tests.fault.suite.consumers.supervised import SupervisedConsumer
from tests.fault.suite.failure_rates import MIXED
from tests.fault.suite.judgement.evidence import Event, Evidence, Letter, Sample
from tests.fault.suite.judgement.transaction_log import TransactionLogFollower
from tests.fault.suite.judgement.zookeeper_history import ZooKeeperHistory
from tests.fault.suite.producer import Producer
from tests.fault.suite.small_disk import small_disk
from tests.support.kinesis.unkind.behaviours import Behaviour
from tests.support.kinesis.unkind.endpoint import UnkindEndpoint
from tests.support.zookeeper.proxy import ZooKeeperProxy
from tests.support.zookeeper.server import java_processes

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

APP: Final = "billing"
_TICK_MILLIS: Final = 200
_SUBSCRIPTION_SECONDS: Final = 12.0
"""AWS: five minutes."""
_HOLD_SESSIONS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run is like; with the seed, what is done in it."""

    seed: int
    events: int
    """How many faults, at most."""
    seconds: float
    """For how long faults are injected, at most."""
    least_records: int = 0
    """And for longer, until so many records were put."""
    pace: float = 1.0
    """How long the pauses between faults are, as a factor."""
    consumers: int = 3
    """Of the plain door,"""
    on_spark: int = 0
    """and of the micro-batch door."""
    shards: int = 4
    session_seconds: float = 3.0
    records_per_second: float = 32.0
    failure_rates: Sequence[float] = MIXED
    """At which handlers raise, in turn."""
    retry_limit: int = 5
    every_kind: bool = False
    """Whether it goes on until each kind of fault has happened, and is no good if one has not."""
    alone_seconds: float = 15.0
    """For so long one fault at a time, then"""
    combined_seconds: float = 45.0
    """for so long all that come together, and again."""
    settle_seconds: float = 420.0
    """Within which everything is to be finished after the last fault: to a consumer whose last records failed, by
    chance, that may be an outage for five minutes."""
    may_mount: bool = False
    """Whether ZooKeeper gets a small disk of its own, where that is allowed: one that can be filled."""
    breaks_livez: bool = False
    """Whether consumers ask ZooKeeper when they are asked whether they are alive: the judge must see it."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Of the consumers, beside those that the suite needs."""

    @property
    def reads_by_fan_out(self) -> bool:
        """Whether shards are pushed to the consumers."""
        return self.settings.get("consumer_mode") == "efo"


class World:
    """Mutable. Made by ``made``; whoever made it ends it."""

    def __init__(self, plan: Plan, folder: Path, opened: ExitStack) -> None:
        self.plan = plan
        self.kinesis = opened.enter_context(UnkindEndpoint())
        self.kinesis.set_subscriptions(
            lasts_seconds=_SUBSCRIPTION_SECONDS,
            poll_seconds=0.1,
            heartbeat_seconds=1.0,
        )
        self.kinesis.switch_on(Behaviour.LIMITS)
        self.endpoint = self.kinesis.kind_settings()
        """Of who puts and looks."""
        self.samples: list[Sample] = []
        self._folder = folder
        self.client: KinesisClient = self.endpoint.create()
        self.stream = f"orders-{uuid.uuid4().hex[:8]}"
        make_stream(self.client, self.stream, plan.shards)
        self.disk = opened.enter_context(small_disk(folder / "zookeeper")) if plan.may_mount else None
        """Of ZooKeeper; None where none is mounted, which cannot be full then."""
        self.zookeeper = opened.enter_context(
            EmbeddedZooKeeper(folder / "zookeeper", tick_millis=_TICK_MILLIS)
        )
        self.history = ZooKeeperHistory(Paths(root=DEFAULT_ROOT, app=APP, stream=self.stream))
        self._follower = TransactionLogFollower(folder / "zookeeper" / "data" / "version-2")
        opened.callback(self._follower.close)
        self.sink_fault = folder / "sink"
        (folder / "exits").mkdir()
        self.consumers = [
            self._consumer(f"c{number}", opened, on_spark=False) for number in range(1, plan.consumers + 1)
        ]
        self.consumers += [
            self._consumer(f"s{number}", opened, on_spark=True) for number in range(1, plan.on_spark + 1)
        ]
        self.prober = Prober(self.consumers)
        self.producer = Producer(
            self.client, self.stream, f"{plan.seed}/records", plan.records_per_second, plan.failure_rates
        )

    def look(self) -> None:
        """Take in what happened, and start again what has ended."""
        self.history.take(self._follower.poll())
        for consumer in self.consumers:
            consumer.tend()

    def sample(self) -> None:
        self.samples.extend(sample for consumer in self.consumers if (sample := consumer.sample()))

    @property
    def is_whole(self) -> bool:
        """Whether every consumer runs, and is a member; those on Spark aside, which take long to start."""
        return all(self._is_member(consumer) for consumer in self.consumers if not consumer.on_spark)

    @property
    def is_complete(self) -> bool:
        """The same, of all."""
        return all(self._is_member(consumer) for consumer in self.consumers)

    def absent(self) -> list[str]:
        """Name the consumers that are no members, and what each said last."""
        return [
            f"{each.life} was none, and said last: {each.last_words()}"
            for each in self.consumers
            if not self._is_member(each)
        ]

    def _is_member(self, consumer: SupervisedConsumer) -> bool:
        return consumer.is_open and consumer.pid in self.history.member_pids()

    @property
    def is_settled(self) -> bool:
        """Whether what is stored says that everything that was put is finished."""
        last: dict[str, int] = {}
        for put in self.producer.ledger:
            last[put.record.shard] = max(last.get(put.record.shard, 0), put.record.sequence)
        stored = self.history.latest
        return all(
            shard in stored and stored[shard].checkpoint.base.number >= sequence
            for shard, sequence in last.items()
        )

    def unfinished_shards(self) -> list[str]:
        """Say of each shard that is not finished who owns it, and who is there: for who looks into it."""
        lives = {consumer.pid: consumer.life for consumer in self.consumers}
        owners = {shard: lives[pid] for pid in lives if pid for shard in self.history.owned_by(pid)}
        put = {each.record.shard for each in self.producer.ledger}
        over = {shard for shard, stored in self.history.latest.items() if stored.checkpoint.is_shard_end}
        members = sorted(lives.get(pid, f"process {pid}") for pid in self.history.member_pids())
        leader = self.history.leader_pid()
        return [
            f"members {', '.join(members)}; leader {lives.get(leader, f'process {leader}')}",
            *(f"{shard} is owned by {owners.get(shard, 'nobody')}" for shard in sorted(put - over)),
        ]

    def zookeeper_signal(self, number: signal.Signals) -> bool:
        """Send a signal to ZooKeeper's own process; False if there is none just now."""
        processes = self.zookeeper_pids()
        for pid in processes:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return bool(processes)

    def zookeeper_pids(self) -> list[int]:
        return java_processes(self.zookeeper.data_dir)

    def open_shards(self) -> list[Shard]:
        """List the open shards by their hash keys: neighbours are adjacent."""
        shards = KinesisShardLister(self.client, self.stream).list_shards()
        return sorted((shard for shard in shards if not shard.closed), key=lambda shard: shard.hash_range)

    def evidence(self, events: Sequence[Event]) -> Evidence:
        """Collect what is known, once everything has ended."""
        self.history.take(self._follower.poll())
        shards = KinesisShardLister(self.client, self.stream).list_shards()
        sink = open_sink(str(self._folder / "dead-letters"))
        try:
            letters = [
                Letter(
                    record=RecordId(letter.shard_id, int(letter.sequence_number)),
                    attempts=letter.attempts,
                    reason=letter.reason,
                )
                for letter in sink.read()
            ]
        finally:
            sink.close()
        return Evidence(
            ledger=self.producer.ledger,
            entries=self._entries(),
            checkpoints=self.history.checkpoints,
            ownerships=self.history.ownerships,
            letters=letters,
            parents={shard.shard_id: shard.parents for shard in shards},
            pids={life: pid for consumer in self.consumers for life, pid in consumer.pids.items()},
            events=events,
            samples=self.samples,
            probes=self.prober.probes,
            retry_limit=self.plan.retry_limit,
        )

    def _entries(self) -> list[Entry]:
        logs = [self._folder / f"{life}.log" for consumer in self.consumers for life in consumer.pids]
        entries = [entry for log in logs if log.exists() for entry in read_delivery_log(log)]
        return sorted(entries, key=lambda entry: entry.time)

    def _consumer(self, name: str, opened: ExitStack, *, on_spark: bool) -> SupervisedConsumer:
        plan = self.plan
        settings = {
            "stream": self.stream,
            "app": APP,
            "session_timeout_seconds": plan.session_seconds,
            "initial_position": "trim_horizon",
            "commit_interval_seconds": 0.5,
            "region": self.endpoint.region,
            "endpoint_url": self.kinesis.url,
            "aws_access_key_id": self.endpoint.aws_access_key_id,
            "aws_secret_access_key": self.endpoint.aws_secret_access_key,
            "dead_letters": str(self._folder / "dead-letters"),
            "order": "key",
            "retry_limit": plan.retry_limit,
            "max_spared_seconds": 0,  # the judge counts attempts
            "retry_backoff_seconds": 0.2,
            "retry_backoff_cap_seconds": 1.0,
            # A job on Spark needs this long to start its workers, on a busy machine, before it handles anything.
            "message_timeout_seconds": 30.0 if on_spark else 3.0,
            "shard_list_interval_seconds": 2.0,
            "http": free_address(),
            **plan.settings,
        }
        job = {
            "sink": str(self.sink_fault),
            "exits": str(self._folder / "exits"),
            "hang_seconds": 4.0,
            "breaks_livez": plan.breaks_livez,
            "hold_seconds": _HOLD_SESSIONS * plan.session_seconds,
        }
        proxy = opened.enter_context(ZooKeeperProxy(self.zookeeper.connect_string))
        consumer = SupervisedConsumer(
            name, on_spark=on_spark, folder=self._folder, zookeeper=proxy, settings=settings, job=job
        )
        opened.callback(consumer.close)
        return consumer


@contextmanager
def made(plan: Plan, folder: Path) -> Iterator[World]:
    """Make a world in an empty folder, and end all of it afterwards."""
    with ExitStack() as opened:
        yield World(plan, folder, opened)
