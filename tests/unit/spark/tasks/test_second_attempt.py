"""What the second attempt of a task does: it says what came of the first, and runs no handler."""

import os
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark import TaskContext

from kinesis_spout.model.record import Record
from kinesis_spout.spark.pickled_handler import PickledHandler
from kinesis_spout.spark.tasks.handler_runner import RunSlices, _Folder
from kinesis_spout.spark.tasks.handlers import AnyHandler, RecordHandler
from kinesis_spout.spark.tasks.work import WorkResult, WorkSlice
from kinesis_spout.testing import InMemoryStream, ManualClock
from shard_state import Fate, Position, SliceKind, SlicePlan
from tests.unit.spark.driver.world import FIRST, StreamClient, task_settings

pytestmark = pytest.mark.no_second_run


@dataclass
class Attempt:
    """Where a task is told which attempt it is."""

    number: int

    def partitionId(self) -> int:  # noqa: N802 - as PySpark spells it
        return 0

    def attemptNumber(self) -> int:  # noqa: N802
        return self.number


class Machine:
    """Runs the attempts of one task, each in a process of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        self.folder = _Folder(name="notes", is_read_here=False)
        self.calls = folder / "calls"
        self._returned = folder / "returned"
        self._monkeypatch = monkeypatch
        self.settings = task_settings(StreamClient(InMemoryStream("orders", clock=ManualClock())))

    def run(self, number: int, work: WorkSlice, act: Callable[[Record], None]) -> list[WorkResult]:
        calls, returned = self.calls, self._returned

        def handle(record: Record) -> None:
            with calls.open("ab") as file:
                file.write(record.data)
            act(record)

        handler = PickledHandler[AnyHandler].of(RecordHandler(handle, lambda record: record))
        self.say_attempt(number)
        returned.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            try:
                results = list(RunSlices(self.settings, handler, self.folder)(iter([[work]])))
                returned.write_bytes(pickle.dumps(results))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        came: list[WorkResult] = pickle.loads(returned.read_bytes()) if returned.exists() else []
        return came

    def say_attempt(self, number: int) -> None:
        """Have Spark tell this process which attempt it is."""
        self._monkeypatch.setattr(TaskContext, "get", lambda: Attempt(number))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def work(count: int) -> WorkSlice:
    plan = SlicePlan(
        shard_id=FIRST,
        epoch=1,
        kind=SliceKind.CARRIED,
        limit=count,
        max_failures=count,
        position=Position.trim_horizon(),
    )
    records = [Record(data=str(at).encode(), sequence_number=str(at + 1)) for at in range(count)]
    return WorkSlice(plan=plan, records=tuple(records))


def dies_at_2(record: Record) -> None:
    if record.data == b"2":
        os._exit(3)


def test_it_blames_the_record_under_way_and_runs_no_handler(machine: Machine) -> None:
    assert machine.run(0, work(5), dies_at_2) == []
    (result,) = machine.run(1, work(5), dies_at_2)

    assert machine.calls.read_bytes() == b"012"
    assert (result.outcome.count, result.delivered, result.lost) == (3, 3, False)
    (failure,) = result.outcome.failures
    assert (failure.index, failure.fate) == (2, Fate.KILLED_WORKER)
    assert "died" in result.unfinished[0].error
    assert not machine.folder.path.exists()


def test_on_another_machine_it_says_that_nothing_is_known(machine: Machine) -> None:
    machine.run(0, work(5), dies_at_2)
    machine.folder.file(0).unlink()
    (result,) = machine.run(1, work(5), dies_at_2)

    assert (machine.calls.read_bytes(), result.lost) == (b"012", True)


def test_after_the_loss_of_the_whole_executor_no_record_is_blamed(machine: Machine) -> None:
    """Its workers had another parent: nobody knows what ended them."""
    go_between = os.fork()
    if go_between == 0:
        machine.run(0, work(5), dies_at_2)
        os._exit(0)
    os.waitpid(go_between, 0)
    (result,) = machine.run(1, work(5), dies_at_2)

    assert (machine.calls.read_bytes(), result.lost) == (b"012", True)


def test_beside_a_first_attempt_that_still_runs_it_blames_nobody(machine: Machine) -> None:
    """Spark may start another attempt of a slow task."""
    journal = machine.folder.open(0, 1, has_marks=False)
    assert journal is not None
    (result,) = machine.run(1, work(5), dies_at_2)

    assert result.lost
    journal.close()


def test_notes_are_made_where_the_driver_has_another_folder_for_temporary_files(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drivers = tmp_path / "of the driver"
    with monkeypatch.context() as on_the_driver:
        on_the_driver.setattr(tempfile, "tempdir", str(drivers))
        sent = pickle.dumps(_Folder(name="notes of a job", is_read_here=False))
    machine.folder = pickle.loads(sent)
    machine.run(0, work(5), dies_at_2)
    (result,) = machine.run(1, work(5), dies_at_2)

    assert not drivers.exists()
    (failure,) = result.outcome.failures
    assert (failure.index, failure.fate) == (2, Fate.KILLED_WORKER)


def test_a_task_that_ends_well_leaves_nothing_behind(machine: Machine) -> None:
    (result,) = machine.run(0, work(5), lambda _: None)

    assert result.outcome.count == 5
    assert not machine.folder.path.exists()


def test_where_no_notes_can_be_written_the_handler_is_run_all_the_same(machine: Machine) -> None:
    machine.folder.path.write_bytes(b"a file where the folder should be")
    (result,) = machine.run(0, work(5), lambda _: None)

    assert result.outcome.count == 5


class PlantedPickle:
    """Tells that it was unpickled."""

    def __init__(self, told: Path) -> None:
        self.told = told

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.told,)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder that is another user's")
def test_a_journal_in_a_folder_of_another_user_is_not_unpickled(
    machine: Machine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = tmp_path / "unpickled"
    machine.run(0, work(5), dies_at_2)
    planted = pickle.dumps(PlantedPickle(told))
    with machine.folder.file(0).open("ab") as file:
        file.write(len(planted).to_bytes(8, "little") + planted)
    os.chown(machine.folder.path, 65_534, 65_534)
    handler = PickledHandler[AnyHandler].of(RecordHandler(print, lambda record: record))
    machine.say_attempt(1)
    (result,) = RunSlices(machine.settings, handler, machine.folder)(iter([[work(5)]]))

    assert not told.exists()
    assert result.lost
    assert "user 65534" in caplog.text


@pytest.mark.parametrize("mode", [0o777, 0o755])
def test_no_journal_is_written_where_others_may_enter(machine: Machine, mode: int) -> None:
    machine.folder.path.mkdir()
    machine.folder.path.chmod(mode)
    (result,) = machine.run(0, work(5), lambda _: None)

    assert (result.outcome.count, list(machine.folder.path.iterdir())) == (5, [])
