"""Tries doors, one after the other: puts the records of each phase, and waits until each has an outcome."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import boto3
import msgspec

from examples.demo.producer import make_stream
from kinesis_spout.dead_letters.sink_url import open_sink
from kinesis_spout.producer import KinesisProducer
from kinesis_spout.producer.spool import DiskSpool
from kinesis_spout.zookeeper import EmbeddedZooKeeper
from tests.fault.suite.consumers.delivery_log import Entry, read_delivery_log
from tests.fault.suite.trials.doors import FINISH, STOP, DoorJob
from tests.fault.suite.trials.evidence import LAST_PLACE, PhaseResult, TrialEvidence, TrialLetter
from tests.fault.suite.trials.plan import Door, Phase, TrialPlan, TrialRecord, drawn_records
from tests.fault.suite.trials.topology import trial_topology
from tests.support.kinesis.unkind.endpoint import UnkindEndpoint
from tests.support.kinesis.unkind.weather import producer_weather, reader_weather

if TYPE_CHECKING:
    from mypy_boto3_kinesis import KinesisClient

    from kinesis_spout.kinesis import KinesisClientSettings

REPOSITORY: Final = Path(__file__).parents[4]
_LOOK_SECONDS: Final = 0.1
_START_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 60.0
_MOST: Final = 0.9
_RECORDS_PER_CALL: Final = 50
"""Of a producer: so that there are enough calls to fail."""
_WARM_UP: Final = Phase(rate=0.0, per_second=None, records=20)
_PRODUCER_FACTOR: Final = 10
"""A producer is that much quicker than what handles records one by one."""

Show = Callable[[str], None]


@dataclass(kw_only=True)
class TrialWorld:
    """Endpoint and ZooKeeper of all trials. Mutable: made by ``trial_world``."""

    plan: TrialPlan
    folder: Path
    endpoint: "KinesisClientSettings"
    """Of who looks: it is kind."""
    kinesis: UnkindEndpoint
    zookeeper: EmbeddedZooKeeper
    show: Show
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run(self) -> list[TrialEvidence]:
        """Try the doors of the plan."""
        trials = [self._producer(door) for door in self.plan.doors if door not in LAST_PLACE]
        doors = [door for door in self.plan.doors if door in LAST_PLACE]
        waiting = [self._job(door) for door in doors]
        process: subprocess.Popen[bytes] | None = None
        while waiting:
            if process is None or process.poll() is not None:
                process = self._start(waiting)
            trials.append(_DoorTrial(self, waiting.pop(0), process).run())
        if process is not None:
            process.wait(_STOP_SECONDS)
        return trials

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _job(self, door: Door) -> DoorJob:
        folder = self.folder / door
        (folder / "failures").mkdir(parents=True)
        settings = {
            "stream": self.make_stream(door),
            "app": f"trial-{door}",
            "region": self.endpoint.region,
            "endpoint_url": self.kinesis.url,
            "aws_access_key_id": self.endpoint.aws_access_key_id,
            "aws_secret_access_key": self.endpoint.aws_secret_access_key,
            "zookeeper": self.zookeeper.connect_string,
            "initial_position": "trim_horizon",
            "session_timeout_seconds": 20.0,
            "commit_interval_seconds": 0.5,
            "idle_poll_interval_seconds": 0.2,
            "max_spared_seconds": 0,  # the judge counts attempts
        }
        return DoorJob(door=door, folder=str(folder), settings=settings)

    def make_stream(self, door: Door) -> str:
        stream = f"trial-{door}"
        make_stream(self.endpoint.create(), stream, self.plan.shards)
        return stream

    def _start(self, jobs: Sequence[DoorJob]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.fault.suite.trials.doors", msgspec.json.encode(jobs).decode()]
        with (self.folder / f"doors-{len(self.processes)}.out").open("wb") as output:
            process = subprocess.Popen(
                command, cwd=REPOSITORY, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        self.processes.append(process)
        return process

    # A producer

    def _producer(self, door: Door) -> TrialEvidence:
        stream, unconfirmed = self.make_stream(door), 0
        results: list[PhaseResult] = []
        ledger: list[TrialRecord] = []
        lost_before = self.kinesis.records_lost
        for phase in self.plan.phases(door):
            factor = _PRODUCER_FACTOR if phase.per_second is None else 1
            phase = replace(phase, records=factor * phase.records)  # noqa: PLW2901
            records = drawn_records(
                Random(f"{self.plan.seed}/{door}/{len(ledger)}"), door, phase, len(ledger)
            )
            self.show(f"{door}: {phase}")
            before, chances = self.kinesis.happened, self.kinesis.expected
            producer_weather(self.kinesis, phase.rate, f"{self.plan.seed}/{door}/{len(ledger)}")
            put = self.put(stream, records, phase, self.folder / stream if door is Door.SPOOL else None)
            self.kinesis.switch_off()
            left = len(records) - len(put.confirmed)
            results.append(
                PhaseResult(
                    phase=phase,
                    most_seconds=put.seconds_of(_MOST),
                    all_seconds=None if left else put.seconds_of(1.0),
                    without_outcome=left,
                    endpoint_faults=_new(self.kinesis.happened, before),
                    endpoint_chances=self.kinesis.expected - chances,
                )
            )
            unconfirmed += left
            ledger += put.confirmed
        return TrialEvidence(
            door=door,
            ledger=ledger,
            phases=results,
            unconfirmed=unconfirmed,
            on_stream=_on_stream(self.endpoint, stream),
            puts_lost=self.kinesis.records_lost - lost_before,
        )

    def put(self, stream: str, records: Sequence[TrialRecord], phase: Phase, spool: Path | None) -> "_Put":
        """Put records at the pace of their phase, and wait until the producer knows of each."""
        put = _Put()
        producer = KinesisProducer(
            stream,
            region=self.endpoint.region,
            endpoint_url=self.kinesis.url,
            aws_access_key_id=self.endpoint.aws_access_key_id,
            aws_secret_access_key=self.endpoint.aws_secret_access_key,
            spool=None if spool is None else DiskSpool(spool, stream=stream),
            max_records_per_call=_RECORDS_PER_CALL,
            delivery_timeout_seconds=self.plan.phase_seconds,
            close_timeout_seconds=self.plan.phase_seconds,
        )
        with producer:
            for record in records:
                ticket = producer.put(record.encode(), f"key-{record.number}")
                ticket.add_done_callback(lambda _: put.times.append(time.monotonic() - put.begun))
                put.tickets.append((record, ticket))
                if phase.per_second is not None:
                    time.sleep(1 / phase.per_second)
        return put


@dataclass(kw_only=True)
class _Put:
    """What a producer was given. Mutable."""

    begun: float = field(default_factory=time.monotonic)
    tickets: list[tuple[TrialRecord, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    """When records ended, in seconds."""

    @property
    def confirmed(self) -> list[TrialRecord]:
        return [record for record, ticket in self.tickets if ticket.done() and ticket.exception() is None]

    def seconds_of(self, share: float) -> float | None:
        """Say after how long such a share of all had ended."""
        count = round(share * len(self.tickets))
        return sorted(self.times)[count - 1] if len(self.times) >= count else None


class _DoorTrial:
    """One door, in a process that runs it. Mutable; ``run`` once."""

    def __init__(self, world: TrialWorld, job: DoorJob, process: subprocess.Popen[bytes]) -> None:
        self._world = world
        self._job = job
        self._process = process
        self._ledger: list[TrialRecord] = []
        self._unconfirmed = 0
        self._errors: list[str] = []

    def run(self) -> TrialEvidence:
        results = []
        is_warm = self._phase(_WARM_UP, _START_SECONDS).all_seconds is not None
        if not is_warm:
            self._errors.append(f"it did not handle {_WARM_UP.records} records in {_START_SECONDS:g} s")
        for phase in self._world.plan.phases(self._job.door) if is_warm else ():
            self._world.show(f"{self._job.door}: {phase}")
            results.append(self._phase(phase, self._world.plan.phase_seconds))
            if results[-1].all_seconds is None:
                break  # what is left of it would be blamed on the next
        is_over = is_warm and results[-1].all_seconds is not None
        has_stopped = self._stop(FINISH if is_over else STOP)
        return TrialEvidence(
            door=self._job.door,
            ledger=self._ledger,
            phases=results,
            entries=self._entries(),
            letters=self._letters(),
            happened=self._job.failing.happened(),
            counts=self._counts() if is_over and has_stopped else None,
            unconfirmed=self._unconfirmed,
            retry_limit=self._world.plan.retry_limit,
            errors=self._errors,
        )

    def _phase(self, phase: Phase, seconds: float) -> PhaseResult:
        plan, door, kinesis = self._world.plan, self._job.door, self._world.kinesis
        first = len(self._ledger) + self._unconfirmed
        records = drawn_records(Random(f"{plan.seed}/{door}/{first}"), door, phase, first)
        before, chances = kinesis.happened, kinesis.expected
        reader_weather(kinesis, phase.rate, f"{plan.seed}/{door}/{first}")
        begun = time.monotonic()
        put = self._world.put(self._job.settings["stream"], records, phase, None).confirmed
        self._ledger += put
        self._unconfirmed += len(records) - len(put)
        waiting, most_seconds = {record.number for record in put}, None
        deadline = time.monotonic() + seconds
        while True:
            waiting -= self._with_outcome()
            now = time.monotonic()
            if most_seconds is None and len(waiting) <= (1 - _MOST) * len(records):
                most_seconds = now - begun
            if not waiting or now > deadline or self._process.poll() is not None or self._job.error.exists():
                break
            time.sleep(_LOOK_SECONDS)
        kinesis.switch_off()
        return PhaseResult(
            phase=phase,
            most_seconds=most_seconds,
            all_seconds=None if waiting else now - begun,
            without_outcome=len(waiting),
            endpoint_faults=_new(kinesis.happened, before),
            endpoint_chances=kinesis.expected - chances,
        )

    def _with_outcome(self) -> set[int]:
        evidence = TrialEvidence(
            door=self._job.door, ledger=(), entries=self._entries(), letters=self._letters()
        )
        return set(evidence.handled) | evidence.lettered

    def _entries(self) -> list[Entry]:
        log = Path(self._job.failing.log)
        return read_delivery_log(log) if log.exists() else []

    def _letters(self) -> list[TrialLetter]:
        if not Path(self._job.dead_letters).exists():
            return []
        sink = open_sink(self._job.dead_letters)
        try:
            return [
                TrialLetter(
                    number=TrialRecord.decode(letter.data).number,
                    attempts=letter.attempts,
                    reason=letter.reason,
                )
                for letter in sink.read()
            ]
        finally:
            sink.close()

    def _counts(self) -> dict[str, int] | None:
        if self._job.door is not Door.TOPOLOGY:
            return None
        job = self._job
        return dict(trial_topology(job.failing, job.spout_settings, job.state).read_state("count"))

    def _stop(self, how: str) -> bool:
        """Have the door end; False if it has not in time, and its process was killed."""
        self._job.end.with_suffix(".new").write_text(how)
        self._job.end.with_suffix(".new").replace(self._job.end)
        deadline = time.monotonic() + _STOP_SECONDS
        while not self._job.stopped.exists() and self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        if self._job.error.exists():
            self._errors.append(f"it ended: {self._job.error.read_text().strip().splitlines()[-1][:300]}")
        if self._job.stopped.exists():
            return True
        self._errors.append(f"it did not stop within {_STOP_SECONDS:g} s")
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        return False


def _new(after: Counter[Any], before: Counter[Any]) -> dict[str, int]:
    return {str(kind): count for kind, count in (after - before).items()}


def _on_stream(endpoint: "KinesisClientSettings", stream: str) -> Counter[int]:
    """Read the whole stream, with nothing of what is tried."""
    client: KinesisClient = boto3.client(
        "kinesis",
        region_name=endpoint.region,
        endpoint_url=endpoint.endpoint_url,
        aws_access_key_id=endpoint.aws_access_key_id,
        aws_secret_access_key=endpoint.aws_secret_access_key,
    )
    found: Counter[int] = Counter()
    for shard in client.list_shards(StreamName=stream)["Shards"]:
        iterator = client.get_shard_iterator(
            StreamName=stream, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        while True:
            page = client.get_records(ShardIterator=iterator, Limit=10_000)
            if not page["Records"]:
                break
            found.update(TrialRecord.decode(record["Data"]).number for record in page["Records"])
            iterator = page["NextShardIterator"]
    return found


@contextmanager
def trial_world(plan: TrialPlan, folder: Path, show: Show) -> Iterator[TrialWorld]:
    """Start what the trials need, and end all of it afterwards."""
    with ExitStack() as opened:
        kinesis = opened.enter_context(UnkindEndpoint())
        endpoint = kinesis.kind_settings()
        zookeeper = opened.enter_context(EmbeddedZooKeeper(folder / "zookeeper"))
        world = TrialWorld(
            plan=plan, folder=folder, endpoint=endpoint, kinesis=kinesis, zookeeper=zookeeper, show=show
        )
        opened.callback(world.end)
        yield world
