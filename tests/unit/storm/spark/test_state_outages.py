"""Keyed state whose storage is away for a while: its records wait for it, and nothing is given up meanwhile."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest
from moto.server import ThreadedMotoServer

from kinesis_spout.kinesis.retry_policy import CallRetryPolicy
from kinesis_spout.model.clock import SystemClock
from kinesis_spout.model.errors import StateUnavailable, StateUnreadable
from kinesis_spout.spark.driver import query as driver_query
from kinesis_spout.storm import FailedException, KeyValueState, StatefulBolt, Tuple
from kinesis_spout.storm.spark import kept_runs
from kinesis_spout.storm.state import partition
from tests.support.consumer.s3_server import SECRET, a_session
from tests.support.waiting import wait_until
from tests.unit.spark.driver.world import task_settings
from tests.unit.storm.spark.test_driven_topologies import Words, World

FULL_BYTES = 4 * 1024 * 1024

Start = Callable[[str], World]


class Counts(StatefulBolt):
    """Counts words. Some are long, so that the state takes room."""

    def init_state(self, state: KeyValueState) -> None:
        self._state = state

    def execute(self, tup: Tuple) -> None:
        word = tup["word"]
        if word == "fails":
            self._state.put(word, (1, b""))
            raise FailedException("it changed the state before")
        count, _ = self._state.get(word, (0, b""))
        self._state.put(word, (count + 1, os.urandom(20_000) if word.startswith("long") else b""))
        self.collector.ack(tup)


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start the world, with its state at an address."""
    worlds: list[World] = []

    def started(address: str) -> World:
        world = World(address)
        in_memory = task_settings(world.client).client
        monkeypatch.setattr(driver_query, "client_settings", lambda _: in_memory)
        worlds.append(world)
        return world

    short = CallRetryPolicy(
        deadline_seconds=0.1, first_backoff_seconds=0.05, backoff_cap_seconds=0.05, clock=SystemClock()
    )
    monkeypatch.setattr(partition, "_RETRY_POLICY", short)
    yield started
    for world in worlds:
        world.close()
    kept_runs._kept.clear()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={FULL_BYTES}", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("who runs this test may not mount a small disk")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def outlives(world: World, why: str, outage: Callable[[], None], end_of_outage: Callable[[], None]) -> None:
    """Count a word before an outage, one in it, and one after it."""
    world.put("before")
    with world.run(Words(), Counts(), "word", retry_limit=0) as query:
        query.processAllAvailable()
        outage()
        world.put("in it")
        wait_until(lambda: isinstance(query.last_error, StateUnavailable), "the outage is seen")
        assert why in str(query.last_error)
        wait_until(lambda: len(world.spark.jobs) >= 3, "it was tried again")
        end_of_outage()
        world.put("after")
        query.processAllAvailable()
        assert query.exception() is None
    assert {word: count for word, (count, _) in world.state().items()} == {
        "before": 1,
        "in it": 1,
        "after": 1,
    }
    assert not world.dead_letters.letters


@pytest.mark.parametrize("is_remembered", [True, False])
def test_records_wait_while_the_folder_of_the_state_is_not_there(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, is_remembered: bool
) -> None:
    folder, away = tmp_path / "state", tmp_path / "away"

    def unmount() -> None:
        folder.rename(away)
        if not is_remembered:
            kept_runs._kept.clear()  # The workers of before are gone, too.

    def mount() -> None:
        away.rename(folder)

    outlives(start(str(folder)), "is it mounted", unmount, mount)
    assert "could not run, and is tried again" in caplog.text


def test_records_that_run_one_by_one_wait_as_well_and_are_not_to_blame(start: Start, tmp_path: Path) -> None:
    folder, away = tmp_path / "state", tmp_path / "away"
    world = start(str(folder))
    world.put("before")
    with world.run(Words(), Counts(), "word", retry_limit=1) as query:
        query.processAllAvailable()
        world.put("fails", "beside it")  # From now on records run one by one for a while.
        query.processAllAvailable()
        folder.rename(away)
        kept_runs._kept.clear()
        world.put("in it", "in it, too")
        wait_until(lambda: isinstance(query.last_error, StateUnavailable), "the outage is seen")
        away.rename(folder)
        query.processAllAvailable()
    assert {letter.data for letter in world.dead_letters.letters} == {b"fails"}
    assert set(world.state()) == {"before", "beside it", "in it", "in it, too"}


def test_records_wait_while_nothing_can_be_written_where_the_state_is(start: Start, tmp_path: Path) -> None:
    folder, away = tmp_path / "state", tmp_path / "away"

    def replace() -> None:
        folder.rename(away)
        folder.write_text("a file where the folder should be")

    def put_back() -> None:
        folder.unlink()
        away.rename(folder)

    outlives(start(str(folder)), "Not a directory", replace, put_back)


def test_records_wait_while_the_disk_of_the_state_is_full(start: Start, small_disk: Path) -> None:
    world, filler = start(str(small_disk / "state")), small_disk / "filler"

    def fill() -> None:
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        files = len(list((small_disk / "state").rglob("*.arrow")))
        world.put("long 1", "long 2")
        wait_until(lambda: len(world.spark.jobs) >= 3, "it was tried several times")
        assert len(list((small_disk / "state").rglob("*.arrow"))) <= files + 1, "half files are removed"

    world.put("before")
    with world.run(Words(), Counts(), "word", retry_limit=0) as query:
        query.processAllAvailable()
        fill()
        wait_until(lambda: "No space left" in str(query.last_error), "the reason is told")
        filler.unlink()
        query.processAllAvailable()
        assert query.exception() is None
    assert {word: count for word, (count, _) in world.state().items()} == {
        "before": 1,
        "long 1": 1,
        "long 2": 1,
    }
    assert not world.dead_letters.letters


def test_records_wait_while_the_s3_of_the_state_does_not_answer(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDOFTHETESTS")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    servers = [ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)]
    servers[0].start()
    host, port = servers[0].get_host_and_port()
    client = a_session().client("s3", endpoint_url=f"http://{host}:{port}")
    client.create_bucket(Bucket="outage", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    client.close()
    where = quote(f"{host}:{port}", safe="")
    address = f"s3://outage/state?region=eu-west-1&scheme=http&endpoint_override={where}"

    def come_back() -> None:
        servers.append(ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False))
        servers[-1].start()

    outlives(start(address), "cannot be written", servers[0].stop, come_back)
    servers[-1].stop()


def test_damaged_state_ends_the_query_with_the_truth(start: Start, tmp_path: Path) -> None:
    world = start(str(tmp_path / "state"))
    world.put("before")
    with world.run(Words(), Counts(), "word") as query:
        query.processAllAvailable()
        [file] = (tmp_path / "state").rglob("*.arrow")
        file.write_bytes(file.read_bytes()[:-1])
        kept_runs._kept.clear()
        world.put("after")
        wait_until(lambda: query.exception() is not None, "the query ends")
        error = query.exception()
    assert isinstance(error, StateUnreadable)
    assert "a checksum" in str(error)
    assert "imports" not in str(error)
