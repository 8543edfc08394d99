"""What the driver does with the versions of state around a job."""

import os
from pathlib import Path

import pytest

from kinesis_spout.spark.tasks.jobs import HandlerRaised
from kinesis_spout.storm.spark.keyed_state import KeyedState
from kinesis_spout.storm.spark.tasks.state_parts import StateParts
from kinesis_spout.storm.state import StateManifest, StateUpdate


def keyed_state(folder: Path, parallelism: int = 2) -> KeyedState:
    return KeyedState("counts", str(folder), {"count": parallelism})


def update(*files: str) -> list[StateUpdate]:
    return [StateUpdate(component="count", index=0, files=files)]


def test_a_job_begins_with_what_the_last_one_has_settled(tmp_path: Path) -> None:
    state = keyed_state(tmp_path)
    state.load(None)
    first = state.begin()
    assert state.settled(first, update("1-a"))
    assert state.begin().files("count", 0) == ("1-a",)


def test_without_shards_no_job_begins(tmp_path: Path) -> None:
    with pytest.raises(HandlerRaised, match="the shards of the micro-batch were lost"):
        keyed_state(tmp_path).begin()


def test_a_job_whose_shards_were_lost_meanwhile_changes_nothing(tmp_path: Path) -> None:
    state = keyed_state(tmp_path)
    state.load(None)
    before = state.begin()
    state.lost()
    assert not state.settled(before, update("1-a"))
    state.load(None)
    assert not state.settled(before, update("1-a"))
    assert state.begin().files("count", 0) == ()


def test_what_was_committed_is_what_the_next_driver_begins_with(tmp_path: Path) -> None:
    state = keyed_state(tmp_path)
    state.load(None)
    state.settled(state.begin(), update("1-a"))
    stored = state.attachment()
    assert stored is not None
    state.committed(stored)
    assert state.attachment() is None

    another = keyed_state(tmp_path)
    another.load(stored)
    assert another.begin().files("count", 0) == ("1-a",)


def test_state_of_another_parallelism_is_laid_out_anew_before_the_first_job(tmp_path: Path) -> None:
    state = keyed_state(tmp_path, parallelism=1)
    state.load(None)
    before = state.begin()
    parts = StateParts(str(tmp_path))
    counts = parts.begin(before)("count", 0)
    for word in "abcdefgh":
        counts.put(word, ord(word))
    state.settled(before, [block.update for block in parts.end_batch()])

    another = keyed_state(tmp_path, parallelism=3)
    another.load(state.attachment())
    manifest = another.begin()

    assert manifest.components["count"].parallelism == 3
    open_state = StateParts(str(tmp_path)).begin(manifest)
    found = dict(item for index in range(3) for item in open_state("count", index).items())
    assert found == {word: ord(word) for word in "abcdefgh"}
    # And this layout is what is committed next.
    stored = another.attachment()
    assert stored is not None
    assert StateManifest.decode(stored) == manifest


def test_files_that_no_version_names_are_deleted_after_a_commit(tmp_path: Path) -> None:
    state = keyed_state(tmp_path, parallelism=1)
    state.load(None)
    manifest = state.begin()
    folder = tmp_path / manifest.place("count", 0).folder
    folder.mkdir(parents=True)
    for name in ("1-a", "1-dropped"):
        (folder / f"{name}.arrow").touch()
    for file in folder.iterdir():
        os.utime(file, (1, 1))
    state.settled(manifest, update("1-a"))
    stored = state.attachment()
    assert stored is not None

    state.begin()
    assert len(list(folder.iterdir())) == 2, "nothing is committed yet"
    state.committed(stored)
    state.begin()
    assert [file.name for file in folder.iterdir()] == ["1-a.arrow"]
