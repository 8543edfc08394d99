"""What ``run`` finds out before it starts Spark."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kinesis_spout.model.errors import (
    DeadLetterError,
    InvalidConfig,
    KinesisSpoutError,
    StoreError,
    StoreUnavailable,
)
from kinesis_spout.operations.stored_progress import StoredProgress
from kinesis_spout.operations.world import World
from kinesis_spout.settings import SpoutConfig
from tests.unit.cli.fake_world import SETTINGS, FakeWorld


@pytest.fixture(autouse=True)
def _in_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


class EnsembleIsAway(World):
    is_reached = False

    @contextmanager
    def progress(self, config: SpoutConfig, *, begin: bool = False) -> Iterator[StoredProgress]:
        if not self.is_reached:
            raise StoreUnavailable(f"nobody answers at {config.zookeeper_hosts}")
        with super().progress(config, begin=begin) as progress:
            yield progress


def found(world: World | None = None, **settings: Any) -> KinesisSpoutError | None:
    """Give what the first check that fails says; the stream, which comes last, is not asked."""
    config = SpoutConfig.of(
        **{"stream": "orders", "app": "billing", "region": "eu-west-1", "dead_letters": "dead", **settings}
    )
    *checks, _ = (world or World()).checks(config)
    for check in checks:
        try:
            check()
        except KinesisSpoutError as error:
            return error
    return None


def test_a_place_where_all_can_be_written_is_good_and_stays_as_it_was(tmp_path: Path) -> None:
    assert found() is None
    assert list(tmp_path.iterdir()) == []


def test_the_embedded_zookeeper_needs_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    error = found()
    assert isinstance(error, InvalidConfig)
    assert "no java in JAVA_HOME" in str(error)


def test_the_embedded_zookeeper_needs_a_directory_that_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    error = found(zookeeper="embedded:file/data")
    assert isinstance(error, StoreError)
    assert f"cannot use its directory {tmp_path}/file/data" in str(error)


def test_an_ensemble_must_answer() -> None:
    error = found(EnsembleIsAway(), zookeeper="zk:2181")
    assert isinstance(error, StoreUnavailable)
    assert "zk:2181" in str(error)


def test_dead_letters_need_a_directory_that_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    error = found(dead_letters="file/dead")
    assert isinstance(error, DeadLetterError)
    assert "file/dead" in str(error)


def test_dead_letters_need_a_place_that_is_known() -> None:
    assert isinstance(found(dead_letters="https://host/dead"), InvalidConfig)


@pytest.mark.parametrize(
    ("problem", "exit_code"),
    [(StoreUnavailable("nobody answers"), 4), (DeadLetterError("no room"), 6)],
)
def test_what_would_end_the_start_is_refused_before_spark_starts(
    problem: KinesisSpoutError, exit_code: int
) -> None:
    world = FakeWorld()
    world.problem = problem
    _, err = world.call("run", "json:loads", *SETTINGS, exit_code=exit_code)
    assert err.startswith(f"error: {problem}")


@pytest.mark.parametrize("door", ["--arrow", "--dataframe"])
@pytest.mark.parametrize(
    ("option", "value", "expected"), [("--order", "key", "unordered"), ("--concurrency", "8", "1")]
)
def test_what_the_door_does_not_have_is_refused_before_spark_starts(
    door: str, option: str, value: str, expected: str
) -> None:
    _, err = FakeWorld().call("run", "json:loads", door, option, value, *SETTINGS, exit_code=2)
    assert f"{option}: expected {expected} with {door}, got {value}" in err.replace("'", "")


def test_a_guarantee_that_spark_cannot_give_is_refused_before_it_starts() -> None:
    asked = ("run", "json:loads", "--guarantee", "at_most_once", *SETTINGS)
    _, err = FakeWorld().call(*asked, exit_code=2)
    assert "--guarantee: expected at_least_once or none on Spark, got 'at_most_once'" in err
