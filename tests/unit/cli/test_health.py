"""``kinesis-spout health`` as probes and people use it."""

import json
import re
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from kinesis_spout.cli.app import app
from kinesis_spout.monitoring import MonitoringServer
from kinesis_spout.plain.record_spout import RecordSpout
from tests.support.consumer.world import FIRST, World


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


@pytest.fixture
def spout(world: World) -> RecordSpout:
    return world.spout(stalled_after_seconds=0.5, commit_interval_seconds=0.05)


def health(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["health", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_a_spout_that_works_is_alive_and_ready(world: World, spout: RecordSpout) -> None:
    with MonitoringServer("127.0.0.1:0", spout) as server:
        address = str(server.address)
        world.until(lambda: health("--http", address, "--ready")[0] == 0, "it is ready")
        assert health("--http", address) == (0, "", "alive\n")
        code, told, _ = health("--http", address, "--ready", "--json")
        assert code == 0
        assert json.loads(told)["answer"]["consumers"][0]["owned_shards"] == 1


def test_one_that_stands_still_is_alive_and_not_ready_and_the_shard_is_named(
    world: World, spout: RecordSpout
) -> None:
    world.put_in(FIRST, "a")
    with MonitoringServer("127.0.0.1:0", spout) as server:
        world.take(spout, 1)
        address = str(server.address)
        world.until(lambda: health("--http", address, "--ready")[0] == 1, "it is not ready")
        assert re.match(f"billing on orders {FIRST}: has not moved", health("--http", address, "--ready")[2])
        assert health("--http", address)[0] == 0


def test_where_nothing_answers_it_says_what_to_set() -> None:
    with MonitoringServer("127.0.0.1:0") as server:
        address = str(server.address)
    code, _, said = health("--http", address)
    assert code != 0
    assert f"expected an answer from http://{address}/livez" in said
    assert "is the setting by which a spout answers" in said


def test_a_proxy_of_the_environment_is_not_asked(spout: RecordSpout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with MonitoringServer("127.0.0.1:0", spout) as server:
        assert health("--http", str(server.address)) == (0, "", "alive\n")
