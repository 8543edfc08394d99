"""What is monitored while all is well and while it is not: each application has a fault of its own.

Applications that read one stream do so on a real endpoint and a real ZooKeeper. Where the fault is one of the
stream, of the dead letters' place, or of many members, these are in memory.
"""

import itertools
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, Self

from kinesis_spout import KinesisProducer
from kinesis_spout.kinesis import ReadSettings
from kinesis_spout.model.errors import BufferFull
from kinesis_spout.model.handler import Reject
from kinesis_spout.monitoring import MonitoringServer
from kinesis_spout.plain.record_spout import RecordSpout
from kinesis_spout.plain.stream_tuples import Emitted
from kinesis_spout.producer.spool import DiskSpool
from kinesis_spout.testing import (
    InMemoryDeadLetterSink,
    InMemoryStream,
    InMemoryZooKeeper,
    ManualClock,
    in_memory_ports,
)
from kinesis_spout.zookeeper import EmbeddedZooKeeper
from tests.fault.watched_parts import Handler, Member, Query, Repeated, RunningTopology
from tests.support.kinesis.unkind.behaviours import Behaviour
from tests.support.kinesis.unkind.endpoint import UnkindEndpoint
from tests.support.kinesis.unkind.weather import PUTS, READS, THROTTLED
from tests.support.zookeeper.proxy import ZooKeeperProxy

EXPECTED: Final[Mapping[str, frozenset[str]]] = {
    "calm": frozenset(),
    "forgetful": frozenset({"OldestUnfinished"}),
    "stuck": frozenset({"NoProgress", "ShardStalled", "OldestUnfinished"}),
    "rejecting": frozenset({"DeadLetters", "ManyDeadLetters", "NewKindOfDeadLetter"}),
    "failing": frozenset({"HandlerFails"}),
    "paused": frozenset({"PausedByOperator"}),
    "cut": frozenset({"CommitsNotFresh", "RetriedError"}),
    "throttled": frozenset({"ReadsThrottled"}),
    "unstorable": frozenset(
        {"DeadLettersNotStored", "RetriedError", "NewKindOfDeadLetter", "OldestUnfinished"}
    ),
    "behind": frozenset({"LagGrows", "LagNearRetention"}),
    "trimmed": frozenset({"ShardsTrimmed"}),
    "churning": frozenset({"AssignmentChurn"}),
    "shrinking": frozenset({"MembersDropped"}),
    "ended": frozenset({"NoMember"}),
    "query-ended": frozenset({"QueryStopped"}),
    "query-stuck": frozenset({"QueryStuck"}),
    "query-behind": frozenset({"QueryLagGrows"}),
    "puts-fail": frozenset({"ProducerFailed"}),
    "puts-refused": frozenset({"ProducerRefused"}),
    "puts-spooled": frozenset({"SpoolGrows"}),
    "words": frozenset({"ComponentFails"}),
}
"""What must fire of each."""
ALSO: Final[Mapping[str, frozenset[str]]] = {
    "cut": frozenset({"ShardStalled", "OldestUnfinished", "NoProgress"}),
    "throttled": frozenset({"RetriedError"}),
    "trimmed": frozenset({"LagGrows"}),
    "churning": frozenset({"MembersDropped"}),
}
"""What may, if the fault lasts long enough. Nothing else may."""

APPLICATIONS: Final = frozenset(
    name for name in EXPECTED if not name.startswith(("query-", "puts-", "words"))
)

_HOUR: Final = 3600


class WatchedApplications:
    """A context manager: what is monitored, at ``addresses``."""

    def __init__(
        self, endpoint: UnkindEndpoint, zookeeper: EmbeddedZooKeeper, root: str, folder: Path
    ) -> None:
        self._endpoint = endpoint
        self._zookeeper = zookeeper
        self._root = root
        self._folder = folder
        self._opened = ExitStack()
        self._numbers = itertools.count()
        self._members: dict[str, Member] = {}
        self._others: dict[str, Member] = {}
        """The second members of some applications."""
        self._sinks: dict[str, InMemoryDeadLetterSink] = {}
        self._streams: dict[str, InMemoryStream] = {}
        self._zookeepers: dict[str, InMemoryZooKeeper] = {}
        self._producers: dict[str, KinesisProducer] = {}
        self._are_faulty = False

    @property
    def addresses(self) -> list[str]:
        return [str(server.address) for server in (self._server, self._second_server)]

    def __enter__(self) -> Self:
        with self._opened:
            self._server = self._opened.enter_context(MonitoringServer("127.0.0.1:0"))
            self._second_server = self._opened.enter_context(MonitoringServer("127.0.0.1:0"))
            self._open_real()
            self._open_in_memory()
            self._open_producers()
            self._open_others()
            self._every(0.3, self._put)
            self._opened = self._opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        # What is closed stores its last progress and letters.
        self._door.open_door()
        self._endpoint.switch_off()
        self._sinks["unstorable"].fail_writes(0)
        self._opened.close()

    # What is there

    def _open_real(self) -> None:
        self._stream = self._endpoint.create_stream(shards=4)
        self._door = self._opened.enter_context(ZooKeeperProxy(self._zookeeper.connect_string))
        for app in ("calm", "forgetful", "stuck", "rejecting", "paused"):
            self._add(app, self._real(app))
        # No retry is used up before so many records failed that this may be an outage, however slowly they come.
        self._add("failing", self._real("failing", retry_backoff_seconds=5.0))
        # A call without a connection fails after a quarter more than the session's time-out.
        self._add("cut", self._real("cut", zookeeper=self._door.connect_string, session_timeout_seconds=8.0))
        self._add(
            "throttled", self._real("throttled", endpoint_url=self._endpoint.url, stalled_after_seconds=60)
        )

    def _real(self, app: str, **settings: Any) -> RecordSpout:
        client = self._endpoint.kind_settings()
        chosen: dict[str, Any] = {
            "stream": self._stream,
            "region": client.region,
            "endpoint_url": client.endpoint_url,
            "aws_access_key_id": client.aws_access_key_id,
            "aws_secret_access_key": client.aws_secret_access_key,
            "zookeeper": self._zookeeper.connect_string,
            "zookeeper_root": self._root,
            "session_timeout_seconds": 20.0,
            "dead_letters": str(self._folder / app),
            **_settings(app),
        }
        return RecordSpout(scheme="text", **{**chosen, **settings})

    def _open_in_memory(self) -> None:
        for app in ("unstorable", "behind", "trimmed", "churning", "shrinking", "ended"):
            retention = 8.0 if app == "trimmed" else 24.0 * _HOUR
            self._streams[app] = InMemoryStream(f"stream-of-{app}", retention_seconds=retention)
            self._zookeepers[app] = InMemoryZooKeeper()
            self._sinks[app] = InMemoryDeadLetterSink()
            self._add(app, self._in_memory(app))
        for app in ("shrinking", "churning"):
            self._join(app)

    def _in_memory(self, app: str) -> RecordSpout:
        slow: dict[str, Any] = {"max_records_per_fetch": 1} if app in {"behind", "trimmed"} else {}
        ports = in_memory_ports(
            self._streams[app],
            self._zookeepers[app],
            self._sinks[app],
            settings=ReadSettings(fail_on_data_loss=False),
        )
        return RecordSpout(
            ports=ports, scheme="text", stream=self._streams[app].name, **_settings(app), **slow
        )

    def _add(self, app: str, spout: RecordSpout) -> None:
        member = self._members[app] = Member(spout)
        self._opened.callback(member.close)
        self._server.add(spout)

    def _join(self, app: str) -> None:
        member = self._others[app] = Member(self._in_memory(app))
        self._opened.callback(member.close)
        self._second_server.add(member.spout)

    def _leave(self, app: str) -> None:
        member = self._others.pop(app)
        self._second_server.remove(member.spout)
        member.close()

    def _open_producers(self) -> None:
        spool = self._opened.enter_context(DiskSpool(self._folder / "spool", stream="puts-spooled"))
        settings: dict[str, dict[str, Any]] = {
            "puts-fail": {"delivery_timeout_seconds": 1.0},
            "puts-refused": {"max_buffered_records": 10, "when_full": "refuse"},
            "puts-spooled": {"spool": spool, "max_buffered_bytes": 512 << 20},
        }
        for stream, chosen in settings.items():
            self._endpoint.create_stream(name=stream)
            client = self._endpoint.settings()
            producer = self._producers[stream] = KinesisProducer(
                stream,
                region=client.region,
                endpoint_url=client.endpoint_url,
                aws_access_key_id=client.aws_access_key_id,
                aws_secret_access_key=client.aws_secret_access_key,
                **chosen,
            )
            self._opened.callback(producer.close, 0)
            self._server.add(producer)

    def _open_others(self) -> None:
        self._queries = [Query(name) for name in ("query-ended", "query-stuck", "query-behind", "query-away")]
        self._topology = RunningTopology()
        for query in self._queries:
            self._server.add(query)
        self._server.add(self._topology)

    # What happens there

    def _every(self, seconds: float, call: Callable[[], object]) -> None:
        self._opened.callback(Repeated(call, seconds).close)

    def _put(self) -> None:
        """Some records for everyone."""
        numbers = [next(self._numbers) for _ in range(4)]
        self._endpoint.client().put_records(
            StreamName=self._stream,
            Records=[{"Data": str(number).encode(), "PartitionKey": f"key-{number}"} for number in numbers],
        )
        for stream in self._streams.values():
            stream.put(str(numbers[0]).encode(), "key")
        for name, producer in self._producers.items():
            size = 100_000 if self._are_faulty and name == "puts-spooled" else 10
            with suppress(BufferFull):
                for _ in range(4):
                    producer.put(bytes(size), f"key-{numbers[0]}")

    def begin_faults(self) -> None:
        """Have everything but ``calm`` go wrong, each in its way; see ``EXPECTED``."""
        self._are_faulty = True
        self._handle("forgetful", _ack_but_for_first_shard)
        self._handle("stuck", lambda _spout, _emitted: self._members["stuck"].hang())
        self._handle("rejecting", _reject_some)
        self._handle("failing", _fail)
        self._members["paused"].spout.pause_shards()
        self._door.close_door()
        self._endpoint.switch_on(Behaviour.ERROR, operations=READS, rate=0.5, code=THROTTLED)
        self._endpoint.switch_on(Behaviour.HTML, operations=PUTS, status=502)
        self._sinks["unstorable"].fail_writes(1_000_000)
        self._handle("unstorable", _reject_some)
        self._fall_behind()
        self._have_trimmed()
        self._every(
            1.0, lambda: self._leave("churning") if "churning" in self._others else self._join("churning")
        )
        self._leave("shrinking")
        ended = self._members["ended"]
        ended.close()
        stopped, stuck, behind, away = self._queries
        stopped.isActive = away.is_readable = False
        stuck.stands_since = behind.falls_back_since = self._topology.failing_since = time.time()

    def _handle(self, app: str, handler: Handler) -> None:
        self._members[app].handler = handler

    def _fall_behind(self) -> None:
        """Put more than is read, all of it an hour ago."""
        stream = self._streams["behind"]
        now, stream.clock = stream.clock, ManualClock(time.time() - _HOUR)
        for number in range(2_000):
            stream.put(str(number).encode(), "key")
        stream.clock = now

    def _have_trimmed(self) -> None:
        """Close a shard that has more than is read before retention takes it."""
        stream = self._streams["trimmed"]
        for number in range(2_000):
            stream.put(str(number).encode(), "key")
        (shard,) = stream.list_shards()
        stream.split(shard.shard_id)

    def proofs(self) -> Iterator[tuple[str, bool]]:
        """That the faults happened, as far as another than the monitor can say."""
        happened = self._endpoint.happened
        yield "reads were throttled", happened[Behaviour.ERROR] > 3
        yield "puts failed", happened[Behaviour.HTML] > 3
        yield "dead letters were written", any((self._folder / "rejecting").iterdir())
        yield "no dead letter could be written", not self._sinks["unstorable"].letters
        yield "the application is paused", bool(self._members["failing"].spout.trouble)


def _settings(app: str) -> dict[str, Any]:
    return {
        "app": app,
        "initial_position": "trim_horizon",
        "commit_interval_seconds": 0.1,
        "retry_backoff_seconds": 0.1,
        "stalled_after_seconds": 2.0,
        "shard_list_interval_seconds": 0.5,
        "retry_limit": 3,
        "fail_on_data_loss": False,
    }


def _ack_but_for_first_shard(spout: RecordSpout, emitted: Emitted) -> None:
    if "shardId-000000000000" not in emitted.message_id:
        spout.ack(emitted.message_id)


def _fail(spout: RecordSpout, emitted: Emitted) -> None:
    try:
        socket.create_connection(("127.0.0.1", 1))
    except ConnectionError as error:
        spout.fail(emitted.message_id, error)


def _reject_some(spout: RecordSpout, emitted: Emitted) -> None:
    if int(emitted.values) % 5:
        spout.ack(emitted.message_id)
    else:
        spout.fail(emitted.message_id, Reject("a round number"))
