"""The programs that the guides show: each before and each after gets the same records, and does the same.

A program before runs on the true library, in a Python of its own: `make test-migrations` installs them there.
"""

import base64
import importlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import pytest

from kinesis_spout import Record
from kinesis_spout.storm import TopologyBuilder
from kinesis_spout.storm.local import LocalTopology
from kinesis_spout.storm.spark.tree_delivery import SpoutValues
from kinesis_spout.testing import run
from kinesis_spout.zookeeper import EmbeddedZooKeeper
from tests.support.kinesis.endpoints import KinesisEndpoint
from tests.support.storm.multilang_host import BareHost, hosted
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from kinesis_spout.storm import Topology

ROOT: Final = Path(__file__).parents[2]
PROGRAMS: Final = ROOT / "examples/migrations"
DRIVERS: Final = Path(__file__).parent / "migrations"
LIBRARIES: Final = ROOT / ".venv-migrations/bin/python"
needs_libraries = pytest.mark.skipif(
    not LIBRARIES.exists(), reason="the libraries of the programs before are not here: make test-migrations"
)
STREAM_SHARD: Final = "shardId-000000000000"


# The KCL and Lambda: orders into a ledger

ORDERS: Final = [
    '{"id": "o-1", "cents": 1250}',
    '{"id": "o-2", "cents": -1}',
    "not an order",
    '{"id": "o-3", "cents": 900}',
    '{"id": "o-1", "cents": 1300}',
]
BOOKED: Final = {"o-1": 1300, "o-3": 900}
GIVEN_UP: Final = {ORDERS[1], ORDERS[2]}


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "ledger.db"
    monkeypatch.setenv("LEDGER", str(path))
    return path


def booked(ledger: Path) -> dict[str, int]:
    if not ledger.exists():
        return {}
    with closing(sqlite3.connect(ledger)) as opened:
        if not opened.execute("SELECT name FROM sqlite_master").fetchall():
            return {}
        return dict(opened.execute("SELECT id, cents FROM orders"))


@pytest.mark.second_environment
@needs_libraries
def test_the_kcl_books_orders_gives_the_bad_ones_up_and_checkpoints_at_the_end_of_the_shard(
    ledger: Path, tmp_path: Path
) -> None:
    given_up = tmp_path / "given-up.jsonl"
    environment = {**os.environ, "LEDGER": str(ledger), "GIVEN_UP": str(given_up)}
    with Daemon(environment) as daemon:
        daemon.do("initialize", shardId=STREAM_SHARD, sequenceNumber="TRIM_HORIZON", subSequenceNumber=0)
        records = [
            {
                "action": "record",
                "data": base64.b64encode(order.encode()).decode(),
                "partitionKey": "key",
                "sequenceNumber": str(number),
                "subSequenceNumber": 0,
                "approximateArrivalTimestamp": 1_767_225_600_000,
            }
            for number, order in enumerate(ORDERS)
        ]
        daemon.do("processRecords", records=records, millisBehindLatest=0)
        assert daemon.checkpoints == 0
        daemon.do("shardEnded")
    assert daemon.checkpoints == 1
    assert booked(ledger) == BOOKED
    assert {json.loads(line)["data"] for line in given_up.read_text().splitlines()} == GIVEN_UP


class Daemon:
    """Does with a record processor as the KCL's MultiLangDaemon does. Mutable."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.checkpoints = 0
        self._process = subprocess.Popen(
            [LIBRARIES, PROGRAMS / "kcl/before.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )

    def do(self, action: str, **more: Any) -> None:
        """Ask for an action, and grant every checkpoint until it is done."""
        self._say({"action": action, **more})
        while (heard := self._hear()) != {"action": "status", "responseFor": action}:
            assert heard["action"] == "checkpoint"
            self.checkpoints += 1
            self._say(
                {"action": "checkpoint", "sequenceNumber": heard["sequenceNumber"], "subSequenceNumber": 0}
            )

    def _say(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def _hear(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip():
                return json.loads(line)
        raise EOFError("the record processor has ended")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        finally:
            self._process.kill()
            assert self._process.stdout is not None
            self._process.stdout.close()


@pytest.mark.endpoint
@pytest.mark.zookeeper
def test_the_program_after_the_kcl_books_the_same_orders_and_stops_at_sigterm(
    ledger: Path,
    tmp_path: Path,
    moto_server: KinesisEndpoint,
    zookeeper_server: EmbeddedZooKeeper,
    fresh_root: str,
) -> None:
    stream = moto_server.create_stream()
    for order in ORDERS:
        moto_server.client().put_record(StreamName=stream, Data=order.encode(), PartitionKey="key")
    letters = tmp_path / "dead-letters"
    settings = {
        "stream": stream, "app": "billing", "initial_position": "trim_horizon", "dead_letters": letters,
        "zookeeper": zookeeper_server.connect_string, "zookeeper_root": fresh_root,
    }  # fmt: skip
    environment = {f"KINESIS_SPOUT_{name.upper()}": str(value) for name, value in settings.items()}
    process = subprocess.Popen(
        [sys.executable, PROGRAMS / "kcl/after.py"],
        env={**os.environ, **aws_environment(moto_server), **environment},
    )
    try:
        wait_until(
            lambda: (
                process.poll() is not None
                or (booked(ledger) == BOOKED and len(dead_letters(letters)) == len(GIVEN_UP))
            ),
            "all orders booked or given up",
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait(60)
    assert dead_letters(letters) == GIVEN_UP


def dead_letters(folder: Path) -> set[str]:
    lines = [line for file in folder.glob("**/*.jsonl") for line in file.read_text().splitlines()]
    return {base64.b64decode(json.loads(line)["data"]).decode() for line in lines}


def test_the_function_of_lambda_books_orders_and_blocks_its_shard_at_a_bad_one_until_its_retries_are_used_up(
    ledger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = program("aws_lambda", "before").handler
    assert event_source_mapping(handler, ORDERS, maximum_retry_attempts=2) == GIVEN_UP
    assert booked(ledger) == BOOKED
    assert capsys.readouterr().out.count("negative amount") == 3


@pytest.mark.parametrize(("module", "call"), [("after", "book"), ("unchanged", "call")])
def test_the_handler_after_lambda_books_the_same_orders(
    module: str, call: str, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "before", program("aws_lambda", "before"))  # as in its folder
    outcomes = run(getattr(program("aws_lambda", module), call), ORDERS, retry_limit=2)
    assert {each.record.data.decode() for each in outcomes.dead_lettered} == GIVEN_UP
    assert len(outcomes.acked) == len(ORDERS) - len(GIVEN_UP)
    assert booked(ledger) == BOOKED


def event_source_mapping(handler: Any, payloads: Sequence[str], maximum_retry_attempts: int) -> set[str]:
    """Do as Lambda does, with ReportBatchItemFailures; gives what went to the destination on failure."""
    records = [
        {
            "eventID": f"{STREAM_SHARD}:{number}",
            "kinesis": {"data": base64.b64encode(data.encode()).decode(), "sequenceNumber": str(number)},
        }
        for number, data in enumerate(payloads)
    ]
    discarded = set()
    attempts: Counter[int] = Counter()
    at = 0
    while at < len(records):
        failures = handler({"Records": records[at:]}, None)["batchItemFailures"]
        at = min((int(each["itemIdentifier"]) for each in failures), default=len(records))
        if failures:
            attempts[at] += 1
            if attempts[at] > maximum_retry_attempts:
                discarded.add(payloads[at])
                at += 1
    return discarded


# streamparse, bytewax and faust: what topologies come to

SALES: Final = [
    {"lines": [{"product": "tea", "pieces": 2}, {"product": "cup", "pieces": 1}]},
    {"lines": [{"product": "tea", "pieces": 3}]},
    {"lines": [{"product": "cup", "pieces": 5}, {"product": "pot", "pieces": 1}]},
]
SOLD: Final = {"tea": 5, "cup": 6, "pot": 1}


@pytest.mark.endpoint
def test_the_topology_of_streamparse_counts_what_was_sold(
    moto_server: KinesisEndpoint, tmp_path: Path
) -> None:
    orders = "orders"
    if orders not in moto_server.client().list_streams()["StreamNames"]:
        moto_server.create_stream(name=orders)
    for order in SALES:
        moto_server.client().put_record(
            StreamName=orders, Data=json.dumps(order).encode(), PartitionKey="key"
        )
    environment = aws_environment(moto_server) | {"PYTHONPATH": str(PROGRAMS / "streamparse")}

    def component(name: str) -> Any:
        folder = tmp_path / name
        folder.mkdir()
        return hosted("-m", "streamparse.run", f"before.{name}", directory=folder, environment=environment)

    with component("Orders") as spout, component("Lines") as lines, component("Sold") as sold:
        for host in (spout, lines, sold):
            host.shake_hands()
        read: list[Any] = []
        wait_until(lambda: len(grown(read, emitted(spout.ask("next")))) == len(SALES), "all orders read")
        shop = [values for order in read for values in passed(lines, order)]
        counts = [tuple(each) for values in shop for each in passed(sold, values)]
    assert dict(counts) == SOLD


def grown(values: list[Any], more: list[Any]) -> list[Any]:
    values += more
    return values


def emitted(messages: Sequence[Any]) -> list[Any]:
    return [each["tuple"] for each in messages if each["command"] == "emit"]


def passed(bolt: BareHost, values: Sequence[Any]) -> list[Any]:
    """Give a bolt a tuple; give what it emits before it acks."""
    bolt.say({"id": "1", "comp": "from", "stream": "default", "task": 1, "tuple": values})
    heard = []
    while (message := bolt.hear()) != {"command": "ack", "id": "1"}:
        heard.append(message)
    return emitted(heard)


def test_the_bolts_of_streamparse_count_the_same_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    topology = program("streamparse", "unchanged").sales().build("sales")
    result = topology.run_local([json.dumps(order)] for order in SALES)
    assert not result.failed
    assert dict(map(tuple, result.emitted["sold"]["default"])) == SOLD


def test_the_topology_after_streamparse_counts_the_same_and_an_order_without_lines_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    local, values = local_topology(monkeypatch, "streamparse", "sales")
    result = local.run(map(values, [*SALES, {"lines": []}]))
    assert local.state["sold"] == SOLD
    assert result.reasons == ["lines: an order without lines"]


PAYMENTS: Final = [
    {"account": account, "cents": cents, "at": f"2026-01-01T{at}+00:00"}
    for account, cents, at in [
        ("ann", 500, "00:00:01"),
        ("bob", 700, "00:00:30"),
        ("ann", -600, "00:00:40"),
        ("ann", 100, "00:00:59.9"),
        ("ann", 900, "00:01:01"),
        ("bob", -800, "00:02:00"),
        ("bob", 100, "00:03:20"),
    ]
]
MINUTES: Final = ["ann 0 600", "ann 1 900", "bob 0 700", "bob 3 100"]
OVERDRAFTS: Final = ["ann -100", "bob -100"]


@pytest.mark.second_environment
@needs_libraries
@pytest.mark.endpoint
def test_the_dataflow_of_bytewax_sums_payments_by_account_and_minute(moto_server: KinesisEndpoint) -> None:
    stream = moto_server.create_stream()
    for payment in PAYMENTS:
        data = json.dumps(payment).encode()
        moto_server.client().put_record(StreamName=stream, Data=data, PartitionKey="key")
    environment = aws_environment(moto_server)
    assert printed_before("bytewax", stream, environment=environment) == MINUTES


def test_the_topology_after_bytewax_prints_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 1_767_225_600.0  # the first minute of 2026
    local, values = local_topology(monkeypatch, "bytewax", "totals", clock=lambda: now)
    local.run(map(values, PAYMENTS))
    now += 3_600  # an idle hour, whose ticks close what is open
    local.run([])
    assert sorted(capsys.readouterr().out.splitlines()) == MINUTES


@pytest.mark.second_environment
@needs_libraries
def test_the_agent_of_faust_warns_of_overdrafts() -> None:
    payments = "\n".join(json.dumps(each) for each in PAYMENTS)
    assert printed_before("faust", given=payments) == [*OVERDRAFTS, "last -1"]


def test_the_topology_after_faust_warns_of_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    local, values = local_topology(monkeypatch, "faust", "overdrafts")
    local.run(map(values, PAYMENTS))
    assert sorted(capsys.readouterr().out.splitlines()) == OVERDRAFTS
    assert local.state["balance"] == {"ann": 900, "bob": 0}


def printed_before(
    library: str, *arguments: str, given: str = "", environment: Mapping[str, str] | None = None
) -> list[str]:
    """Run a program before in the Python that has its library; give its lines, sorted."""
    done = subprocess.run(
        [LIBRARIES, DRIVERS / f"run_{library}.py", *arguments],
        env={**os.environ, "PYTHONPATH": str(PROGRAMS / library), **(environment or {})},
        input=given,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(done.stdout.splitlines())


def local_topology(
    monkeypatch: pytest.MonkeyPatch, library: str, function: str, clock: Any = None
) -> tuple[LocalTopology, Callable[[Any], Sequence[Any]]]:
    """Give a topology without Spark, and what makes its spout's values of a record with this JSON."""
    given(monkeypatch)
    spouts: list[SpoutValues] = []
    set_spout = TopologyBuilder.set_spout

    def seen(self: TopologyBuilder, name: str, spout: Any, *, fields: Sequence[str]) -> None:
        spouts.append(SpoutValues(spout._scheme, fields))
        set_spout(self, name, spout, fields=fields)

    monkeypatch.setattr(TopologyBuilder, "set_spout", seen)
    topology: Topology = getattr(program(library, "after"), function)()
    (values,) = spouts
    return topology.local(clock), lambda content: values(
        Record(data=json.dumps(content).encode(), sequence_number="1")
    )


def given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set what a spout must be told; nothing is read with it."""
    monkeypatch.setenv("KINESIS_SPOUT_STREAM", "payments")
    monkeypatch.setenv("KINESIS_SPOUT_APP", "migrated")


def program(library: str, module: str) -> Any:
    return importlib.import_module(f"examples.migrations.{library}.{module}")


def aws_environment(endpoint: KinesisEndpoint) -> dict[str, str]:
    """The settings of an endpoint as boto3 takes them."""
    return {
        "AWS_ENDPOINT_URL": str(endpoint.settings.endpoint_url),
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }
