"""What a Python worker does for the tasks with state that Spark gives it."""

from pathlib import Path

import pytest

from kinesis_spout.kinesis.retry_policy import CallRetryPolicy
from kinesis_spout.model.errors import StateUnavailable, StateUnreadable
from kinesis_spout.storm.state import partition
from kinesis_spout.storm.state.files import StateFiles
from kinesis_spout.storm.state.manifest import ComponentState, StateManifest, StateUpdate
from kinesis_spout.storm.state.partition import StateParts
from kinesis_spout.testing import ManualClock

EMPTY = StateManifest(topology="counts", life="abc", components={"count": ComponentState(parallelism=1)})


@pytest.fixture
def parts(tmp_path: Path) -> StateParts:
    return StateParts(str(tmp_path))


def count(parts: StateParts, manifest: StateManifest, *words: str) -> list[StateUpdate]:
    """Run a micro-batch."""
    state = parts.begin(manifest)("count", 0)
    for word in words:
        state.put(word, state.get(word, 0) + 1)
    return list(parts.end_batch())


def counted(parts: StateParts, manifest: StateManifest) -> dict[str, int]:
    return dict(parts.begin(manifest)("count", 0).items())


def test_what_was_put_is_there_for_whoever_begins_with_what_was_written(
    parts: StateParts, tmp_path: Path
) -> None:
    manifest = EMPTY.with_updates(count(parts, EMPTY, "a", "b", "a"))
    assert counted(parts, manifest) == {"a": 2, "b": 1}
    assert counted(StateParts(str(tmp_path)), manifest) == {"a": 2, "b": 1}


def test_a_micro_batch_that_is_run_again_finds_the_state_as_it_was_before(parts: StateParts) -> None:
    manifest = EMPTY.with_updates(count(parts, EMPTY, "a"))
    dropped = count(parts, manifest, "a", "poison")
    again = count(parts, manifest, "a")

    assert dropped != again
    assert counted(parts, manifest.with_updates(again)) == {"a": 2}


def test_a_worker_that_was_not_asked_for_some_micro_batches_catches_up(
    parts: StateParts, tmp_path: Path
) -> None:
    manifest = EMPTY.with_updates(count(parts, EMPTY, "a"))
    others = StateParts(str(tmp_path))
    for word in "bcd":
        manifest = manifest.with_updates(count(others, manifest, word))
    assert counted(parts, manifest) == {"a": 1, "b": 1, "c": 1, "d": 1}


def test_state_that_began_anew_under_the_same_name_is_not_taken_for_the_old_one(parts: StateParts) -> None:
    count(parts, EMPTY, "a")
    anew = StateManifest(topology="counts", life="def", components=EMPTY.components)
    assert counted(parts, anew) == {}


def test_a_micro_batch_without_changes_writes_nothing(parts: StateParts, tmp_path: Path) -> None:
    assert count(parts, EMPTY) == []
    assert list(tmp_path.rglob("*.arrow")) == []


class Unsteady:
    """Files whose storage fails some times. Mutable."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failures = 0
        write = StateFiles.write

        def unsteady(files: StateFiles, *arguments: object, **named: object) -> str:
            if self.failures:
                self.failures -= 1
                raise StateUnavailable("the storage does not answer")
            return write(files, *arguments, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(StateFiles, "write", unsteady)


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Unsteady:
    clock = ManualClock()
    retry_policy = CallRetryPolicy(
        deadline_seconds=20.0, first_backoff_seconds=0.2, backoff_cap_seconds=3.0, clock=clock
    )
    monkeypatch.setattr(partition, "_RETRY_POLICY", retry_policy)
    return Unsteady(monkeypatch)


def test_a_storage_that_fails_for_a_moment_is_tried_again(parts: StateParts, storage: Unsteady) -> None:
    storage.failures = 2
    assert counted(parts, EMPTY.with_updates(count(parts, EMPTY, "a"))) == {"a": 1}


def test_a_storage_that_goes_on_failing_fails_the_micro_batch(parts: StateParts, storage: Unsteady) -> None:
    storage.failures = 1_000
    with pytest.raises(StateUnavailable):
        count(parts, EMPTY, "a")


def test_a_file_that_is_gone_fails_the_micro_batch_and_is_never_taken_for_no_state(
    parts: StateParts, tmp_path: Path
) -> None:
    manifest = EMPTY.with_updates(count(parts, EMPTY, "a"))
    [file] = tmp_path.rglob("*.arrow")
    file.unlink()
    with pytest.raises(StateUnreadable, match="no such file"):
        counted(StateParts(str(tmp_path)), manifest)
