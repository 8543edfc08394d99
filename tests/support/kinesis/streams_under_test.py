"""One view of "a stream and its readers" for the contract suites, over the fakes and the endpoints."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol, cast

import pytest

from kinesis_spout.kinesis import KinesisShardLister, PollingShardGetter, ReadSettings
from kinesis_spout.kinesis.retry_policy import Action, reaction_to
from kinesis_spout.model.clock import Clock, SystemClock
from kinesis_spout.model.errors import KinesisError
from kinesis_spout.model.record import Record
from kinesis_spout.ports import Page, ShardGetter, ShardLister
from kinesis_spout.testing import InMemoryShardGetter, InMemoryShardLister, InMemoryStream, ManualClock
from shard_state import Position, SequenceNumber
from tests.support.kinesis.endpoints import KinesisEndpoint
from tests.support.kinesis.in_memory_client import CODES, InMemoryKinesisClient
from tests.support.kinesis.pushed_stream import FanOutServer, serve, subscribed
from tests.support.kinesis.unkind.behaviours import Behaviour
from tests.support.kinesis.unkind.endpoint import UnkindEndpoint
from tests.support.kinesis.unkind.weather import reader_weather
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

POLLED = "reads that are calls"
FIRST_SHARD = "shardId-000000000000"


class StreamUnderTest(Protocol):
    name: str

    @property
    def clock(self) -> Clock: ...

    def needs(self, *abilities: str) -> None: ...
    def put(self, *payloads: bytes, key: str = "key") -> list[SequenceNumber]: ...
    def split(self, shard_id: str) -> None: ...
    def merge(self, shard_id: str, adjacent_shard_id: str) -> None: ...
    def delete(self) -> None: ...
    def lister(self) -> ShardLister: ...
    def getter(
        self, position: Position, *, shard_id: str = FIRST_SHARD, fail_on_data_loss: bool = True
    ) -> ShardGetter: ...


class FakeStream:
    """The stream in memory, read by the getter in memory. It can do what no endpoint does on demand."""

    def __init__(self, shards: int) -> None:
        self.clock = ManualClock()
        self.stream = InMemoryStream(shards=shards, clock=self.clock)
        self.name = self.stream.name

    def needs(self, *abilities: str) -> None:
        """It lacks nothing."""

    def put(self, *payloads: bytes, key: str = "key") -> list[SequenceNumber]:
        return [self.stream.put(payload, key).sequence for payload in payloads]

    def split(self, shard_id: str) -> None:
        self.stream.split(shard_id)

    def merge(self, shard_id: str, adjacent_shard_id: str) -> None:
        self.stream.merge(shard_id, adjacent_shard_id)

    def delete(self) -> None:
        self.stream.delete()

    def lister(self) -> ShardLister:
        return InMemoryShardLister(self.stream)

    def getter(
        self, position: Position, *, shard_id: str = FIRST_SHARD, fail_on_data_loss: bool = True
    ) -> ShardGetter:
        return InMemoryShardGetter(
            self.stream, shard_id, position, settings=ReadSettings(fail_on_data_loss=fail_on_data_loss)
        )

    def trim(self, up_to: SequenceNumber) -> None:
        self.stream.trim(FIRST_SHARD, up_to)

    def expire_iterators(self) -> None:
        self.stream.expire_iterators()

    def refuse_sequence_numbers(self) -> None:
        self.stream.refuse_sequence_numbers()

    def fail_next(self, error: KinesisError) -> None:
        self.stream.fail_next(error)


class PolledFakeStream(FakeStream):
    """The stream in memory, read by the real getter through a client in memory."""

    def getter(
        self, position: Position, *, shard_id: str = FIRST_SHARD, fail_on_data_loss: bool = True
    ) -> ShardGetter:
        return PollingShardGetter(
            cast("KinesisClient", InMemoryKinesisClient(self.stream)),
            stream=self.name,
            shard_id=shard_id,
            position=position,
            lister=self.lister(),
            settings=ReadSettings(fail_on_data_loss=fail_on_data_loss),
            clock=self.clock,
        )


class LeapingClock(SystemClock):
    """The machine's clock, but that sleeping takes no time: it leaps instead."""

    def __init__(self) -> None:
        self._leapt_seconds = 0.0

    def time(self) -> float:
        return super().time() + self._leapt_seconds

    def monotonic(self) -> float:
        return super().monotonic() + self._leapt_seconds

    def sleep(self, seconds: float) -> None:
        self._leapt_seconds += max(0.0, seconds)

    async def pause(self, seconds: float) -> None:
        self.sleep(seconds)


class PushedFakeStream(FakeStream):
    """The stream in memory, read by the fan-out getter over HTTP from a service that pushes it."""

    def __init__(self, shards: int, server: FanOutServer, opened: ExitStack) -> None:
        self.clock = LeapingClock()  # type: ignore[assignment]  # sockets need real time
        self.stream = InMemoryStream(shards=shards, clock=self.clock)
        self.name = self.stream.name
        self.service = serve(self.stream, server, opened)
        self.fan_out = subscribed(self.stream, server, opened, clock=self.clock)

    def needs(self, *abilities: str) -> None:
        if POLLED in abilities:
            pytest.skip("what is pushed is not paced by the reader")

    def fail_next(self, error: KinesisError) -> None:
        self.service.fail_next(CODES[type(error)])

    def getter(
        self, position: Position, *, shard_id: str = FIRST_SHARD, fail_on_data_loss: bool = True
    ) -> ShardGetter:
        self.fan_out.settings = ReadSettings(fail_on_data_loss=fail_on_data_loss)
        getter = self.fan_out.getter(shard_id, position)
        return _ReadWhenPushed(getter, self.service, self.stream, shard_id)


class _ReadWhenPushed:
    """Waits for what is on its way, so that a page is what a polling getter would get."""

    def __init__(
        self, getter: ShardGetter, service: FanOutServer, stream: InMemoryStream, shard_id: str
    ) -> None:
        self._getter = getter
        self._service = service
        self._stream = stream
        self._shard_id = shard_id
        self._news = threading.Event()
        getter.when_ready(self._news.set)

    @property
    def position(self) -> Position:
        return self._getter.position

    @property
    def ready_at(self) -> float:
        return self._getter.ready_at

    def read(self, limit: int) -> Page:
        begun = time.monotonic()
        while True:
            self._news.clear()
            page = self._getter.read(limit)
            waited = time.monotonic() - begun
            if page.records or page.at_end or self._is_all(waited) or waited > 30:
                return page
            self._news.wait(0.02)

    def _is_all(self, waited: float) -> bool:
        """Tell whether nothing is on its way; where the stream cannot say so, because nothing came for a while."""
        position = self._getter.position
        try:
            page = InMemoryShardGetter(self._stream, self._shard_id, position).read(1)
        except KinesisError:
            is_known = False
        else:
            if page.records or page.at_end:
                return False
            is_known = position != Position.latest()
        return waited > (0.2 if is_known else 1.0) and self._service.is_caught_up(self._shard_id)

    def when_ready(self, call: Callable[[], None]) -> None:
        self._getter.when_ready(call)

    def close(self) -> None:
        self._getter.close()


class EndpointStream:
    """A stream of a real endpoint, read by the real getter."""

    def __init__(
        self,
        endpoint: KinesisEndpoint,
        shards: int,
        *,
        name: str | None = None,
        clock: SystemClock | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.clock = clock or SystemClock()
        self.name = endpoint.create_stream(shards=shards, name=name)
        self._client = self._reading = endpoint.client()
        self._last: dict[str, str] = {}

    def needs(self, *abilities: str) -> None:
        self.endpoint.needs(*abilities)

    def put(self, *payloads: bytes, key: str = "key") -> list[SequenceNumber]:
        numbers = []
        for payload in payloads:
            ordering: dict[str, Any] = (
                {"SequenceNumberForOrdering": self._last[key]} if key in self._last else {}
            )
            reply = self._client.put_record(StreamName=self.name, Data=payload, PartitionKey=key, **ordering)
            self._last[key] = reply["SequenceNumber"]
            numbers.append(SequenceNumber.parse(reply["SequenceNumber"]))
        return numbers

    def split(self, shard_id: str) -> None:
        first, last = next(
            shard.hash_range for shard in self.lister().list_shards() if shard.shard_id == shard_id
        )
        middle = str((first + last + 1) // 2)
        self._client.split_shard(StreamName=self.name, ShardToSplit=shard_id, NewStartingHashKey=middle)
        self._last.clear()
        self.endpoint.wait_active(self.name)

    def merge(self, shard_id: str, adjacent_shard_id: str) -> None:
        self._client.merge_shards(
            StreamName=self.name, ShardToMerge=shard_id, AdjacentShardToMerge=adjacent_shard_id
        )
        self._last.clear()
        self.endpoint.wait_active(self.name)

    def delete(self) -> None:
        self._client.delete_stream(StreamName=self.name)

        def is_gone() -> bool:
            try:
                self._client.describe_stream_summary(StreamName=self.name)
            except self._client.exceptions.ResourceNotFoundException:
                return True
            return False

        wait_until(is_gone, f"stream {self.name} to be gone")

    def lister(self) -> ShardLister:
        return KinesisShardLister(self._reading, self.name, clock=self.clock)

    def getter(
        self, position: Position, *, shard_id: str = FIRST_SHARD, fail_on_data_loss: bool = True
    ) -> ShardGetter:
        return PollingShardGetter(
            self._reading,
            stream=self.name,
            shard_id=shard_id,
            position=position,
            lister=self.lister(),
            settings=ReadSettings(fail_on_data_loss=fail_on_data_loss),
            clock=self.clock,
        )


class QuickClock(SystemClock):
    """The machine's clock, but that waiting takes no time. Its time of day is the endpoint's."""

    def __init__(self) -> None:
        self._waited_seconds = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self._waited_seconds

    def sleep(self, seconds: float) -> None:
        self._waited_seconds += max(0.0, seconds)

    async def pause(self, seconds: float) -> None:
        self.sleep(seconds)


class UnkindStream(EndpointStream):
    """A stream of the unkind endpoint, which is kind to it but at this rate.

    Then a page comes as any reader gets it: again after an error that may pass, and after an empty page in a
    backlog.
    """

    def __init__(self, unkind: UnkindEndpoint, shards: int, *, rate: float = 0.0, seed: str = "") -> None:
        endpoint = KinesisEndpoint(name="the unkind endpoint", settings=unkind.kind_settings())
        super().__init__(endpoint, shards, clock=QuickClock())
        # Another setting is another client: over a connection that had bad weather a late "408" may still come.
        self._reading = unkind.settings(read_timeout_seconds=20.0 if rate else 19.0).connect()
        self._unkind = unkind
        self._is_kind = not rate
        if rate:
            reader_weather(unkind, rate, seed, stream=self.name)

    def getter(
        self, position: Position, *, shard_id: str = FIRST_SHARD, fail_on_data_loss: bool = True
    ) -> ShardGetter:
        getter = super().getter(position, shard_id=shard_id, fail_on_data_loss=fail_on_data_loss)
        return getter if self._is_kind else _ReadAgain(getter, self.clock)

    def trim(self, up_to: SequenceNumber) -> None:
        self._unkind.trim(self.name, FIRST_SHARD, str(up_to.number + 1))

    def expire_iterators(self) -> None:
        self._unkind.switch_on(Behaviour.EXPIRED_ITERATORS, stream=self.name)

    def fail_next(self, error: KinesisError) -> None:
        code = CODES[type(error)]
        self._unkind.switch_on(
            Behaviour.ERROR, operations=["GetRecords"], stream=self.name, times=1, code=code
        )

    def refuse_sequence_numbers(self) -> None:
        self._unkind.switch_on(
            Behaviour.ERROR,
            operations=["GetShardIterator"],
            stream=self.name,
            times=1,
            code="InvalidArgumentException",
        )


class _ReadAgain:
    """Reads on after what may pass, at once."""

    def __init__(self, getter: ShardGetter, clock: Clock) -> None:
        self._getter = getter
        self._clock = clock

    @property
    def position(self) -> Position:
        return self._getter.position

    @property
    def ready_at(self) -> float:
        return self._getter.ready_at

    def read(self, limit: int) -> Page:
        for _ in range(100):
            try:
                page = self._getter.read(limit)
            except KinesisError as error:
                if reaction_to(error).action is not Action.RETRY:
                    raise
                continue
            if page.records or page.at_end or not page.millis_behind_latest:
                return page
        return pytest.fail("expected a page within 100 reads")

    def when_ready(self, call: Callable[[], None]) -> None:
        self._getter.when_ready(call)

    def close(self) -> None:
        self._getter.close()


MakeStream = Callable[..., StreamUnderTest]


@pytest.fixture(params=["fake", "polled_fake", "pushed_fake", "unkind, kind"])
def fake_stream(
    request: pytest.FixtureRequest, fan_out_server: FanOutServer, opened: ExitStack
) -> FakeStream | UnkindStream:
    """Give a stream of one shard that trims, expires iterators and fails when told to.

    No emulator does: retention takes a day at least, iterators live five minutes or for ever, and there is no
    fault injection.
    """
    if request.param == "unkind, kind":
        return UnkindStream(request.getfixturevalue("unkind"), 1)
    return _in_memory(request.param, fan_out_server, opened)


@pytest.fixture(params=["fake", "polled_fake", "pushed_fake"])
def aging_stream(
    request: pytest.FixtureRequest, fan_out_server: FanOutServer, opened: ExitStack
) -> FakeStream:
    """Give a stream of one shard, with a retention, in which days pass at once."""
    return _in_memory(request.param, fan_out_server, opened)


def _in_memory(kind: str, fan_out_server: FanOutServer, opened: ExitStack) -> FakeStream:
    match kind:
        case "fake":
            return FakeStream(1)
        case "polled_fake":
            return PolledFakeStream(1)
        case _:
            return PushedFakeStream(1, fan_out_server, opened)


@pytest.fixture(scope="session")
def fan_out_server() -> Iterator[FanOutServer]:
    """Give one server, and so one boto3 client, which costs a second; each test has it serve its own service."""
    with FanOutServer() as server:
        yield server


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    """Give what closes, after the test, whatever was opened for it."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture(
    params=[
        "fake",
        "polled_fake",
        "pushed_fake",
        "unkind",
        "unkind, kind",
        "moto_in_process",
        "moto_server",
        "kinesis_local",
    ],
)
def make_stream(request: pytest.FixtureRequest, opened: ExitStack) -> MakeStream:
    """Give a function that makes a stream with so many ``shards``, under each implementation."""
    if request.param == "fake":
        return lambda *, shards=1: FakeStream(shards)
    if request.param == "polled_fake":
        return lambda *, shards=1: PolledFakeStream(shards)
    if request.param.startswith("unkind"):
        unkind: UnkindEndpoint = request.getfixturevalue("unkind")
        rate = 0.3 if request.param == "unkind" else 0.0
        return lambda *, shards=1: UnkindStream(unkind, shards, rate=rate, seed=request.node.name)
    if request.param == "pushed_fake":
        server: FanOutServer = request.getfixturevalue("fan_out_server")
        return lambda *, shards=1: PushedFakeStream(shards, server, opened)
    endpoint: KinesisEndpoint = request.getfixturevalue(request.param)
    return lambda *, shards=1: EndpointStream(endpoint, shards)


def read_all(getter: ShardGetter, count: int, *, pages: int = 50) -> list[Record]:
    """Read until ``count`` records came; an empty page on the way is normal."""
    records: list[Record] = []
    for _ in range(pages):
        records.extend(getter.read(10_000).records)
        if len(records) >= count:
            return records
    return pytest.fail(f"expected {count} records within {pages} pages, got {len(records)}")


def read_to_end(getter: ShardGetter, *, pages: int = 50) -> list[Page]:
    """Read until the shard's end."""
    read = []
    for _ in range(pages):
        read.append(getter.read(10_000))
        if read[-1].at_end:
            return read
    return pytest.fail(f"expected the end of the shard within {pages} pages")
