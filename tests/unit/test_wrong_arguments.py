"""A plausible wrong argument to a public name gives one error, which names the argument and what is expected."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from kinesis_spout import (
    InvalidConfig,
    KinesisProducer,
    KinesisSpout,
    RetryLater,
    SpoutConfig,
    open_ports,
    testing,
)
from kinesis_spout.monitoring import MonitoringServer
from kinesis_spout.plain.record_spout import RecordSpout
from kinesis_spout.recipes import LeaderCareer, QueueCoordinator, stand_for
from kinesis_spout.spark import each_record, register

CONFIG = SpoutConfig.of(stream="orders", app="billing", region="eu-west-1")
ANY = cast("Any", object())


def wrong(given: object) -> Any:
    """The argument as a type checker would not let it pass."""
    return given


def spout() -> KinesisSpout:
    return KinesisSpout("orders", app="billing", region="eu-west-1")


def producer(**settings: Any) -> KinesisProducer:
    return KinesisProducer("orders", region="eu-west-1", **settings)


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "a config first": (
        lambda: KinesisSpout(wrong(CONFIG)),
        r"got a SpoutConfig: write KinesisSpout\(config=...\)",
    ),
    "settings as a dict": (
        lambda: RecordSpout(wrong({"app": "x"})),
        r'got a dict: .*RecordSpout\("orders", ...\)',
    ),
    "a path as config": (
        lambda: KinesisSpout(config=wrong("a.toml")),
        r"config: .*got a str: .*load\(path\)",
    ),
    "the stream twice": (
        lambda: KinesisSpout("a", stream="b", app="c"),
        r"stream: expected it once, got 'a' first",
    ),
    "a number": (lambda: KinesisSpout(wrong(3), app="c"), r"stream: expected a stream name .*, got 3"),
    "a function as listener": (
        lambda: KinesisSpout("a", app="b", listener=wrong(print)),
        r"listener: expected a SpoutListener, got a builtin",
    ),
    "text as ports": (
        lambda: KinesisSpout("a", app="b", ports=wrong("x")),
        r"ports: .*open_ports\(config\).*a str",
    ),
    "a stream to open_ports": (
        lambda: open_ports(wrong("orders")),
        r"config: expected a SpoutConfig.* got a str",
    ),
    "a config first, to put": (
        lambda: KinesisProducer(wrong(CONFIG)),
        r"got a SpoutConfig: write KinesisProducer\(config=...\)",
    ),
    "a dict as config, to put": (lambda: producer(config={}), r"config: expected a SpoutConfig, got a dict"),
    "a region as client": (
        lambda: producer(client="eu-west-1"),
        r'client: .*boto3.client\("kinesis"\).*got a str',
    ),
    "a path as spool": (
        lambda: producer(spool="/tmp"),
        r"spool: .*DiskSpool\(directory, stream=...\).*got a str",
    ),
    "a number as dead letters": (
        lambda: producer(dead_letters=3),
        r"dead_letters: expected a directory.*got an int",
    ),
    "text as on_failure": (lambda: producer(on_failure="log"), r"on_failure: expected a function.*got a str"),
    "no handler": (
        lambda: spout().foreach_record(ANY, wrong(None)),
        r"handler: expected a function, got None",
    ),
    "arguments swapped": (
        lambda: spout().foreach_arrow(wrong(print), ANY),
        r"handler: expected a function, got an obj",
    ),
    "a name as handler": (
        lambda: spout().foreach_batch(ANY, wrong("f")),
        r"handler: expected a function, got a str",
    ),
    "no session": (
        lambda: spout().foreach_record(wrong("x"), print),
        r"expected a running classic SparkSession, got str",
    ),
    "no session to register": (lambda: register(wrong("x")), r"spark: expected a SparkSession, got a str"),
    "records for a handler": (
        lambda: each_record(wrong([b""]), app="x", dead_letters="x"),
        r"handler: expected a function, got a list",
    ),
    "run, swapped": (
        lambda: testing.run(wrong([b""]), wrong(print)),
        r"handler: expected a function, got a list",
    ),
    "a function that leads": (
        lambda: LeaderCareer(wrong(print), ANY),
        r"leader: expected a Leader, got a builtin",
    ),
    "a number as name": (lambda: stand_for(wrong(3)), r"name='3' cannot be a name in ZooKeeper"),
    "text as a lease": (
        lambda: QueueCoordinator(lease_seconds=wrong("1")),
        r"lease_seconds: expected a number above 0, got '1'",
    ),
    "a port alone": (lambda: MonitoringServer(wrong(9464)), r"http: expected host:port, .* got 9464"),
    "a host alone": (lambda: MonitoringServer("localhost"), r"http: expected host:port, .* got 'localhost'"),
    "a name as delay": (
        lambda: RetryLater(wrong("5")),
        r"RetryLater\(seconds\) with finite seconds >= 0, got '5'",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_argument_is_named_with_what_is_expected(what: str) -> None:
    call, said = WRONG[what]
    with pytest.raises(ValueError, match=said) as caught:
        call()
    assert isinstance(caught.value, InvalidConfig) or "RetryLater" in said
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [KinesisSpout, RecordSpout])
def test_the_stream_may_be_given_first(kind: type[RecordSpout]) -> None:
    assert kind("orders", app="billing").config == kind(stream="orders", app="billing").config
    assert kind(["orders", "refunds"], app="billing").config.streams == ("orders", "refunds")
