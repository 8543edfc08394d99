"""What the driver does with the versions of state around a job."""

import os
from pathlib import Path

from kinesis_spout.storm.state.manifest import StateManifest, StateUpdate
from kinesis_spout.storm.state.partition import StateParts
from kinesis_spout.storm.state.versions import KeyedState


def keyed_state(folder: Path, parallelism: int = 2) -> KeyedState:
    return KeyedState("counts", str(folder), {"count": parallelism})


def begun(state: KeyedState) -> StateManifest:
    manifest = state.begin()
    assert manifest is not None
    return manifest


def update(*files: str) -> list[StateUpdate]:
    return [StateUpdate(component="count", index=0, files=files)]


def test_a_job_begins_with_what_the_last_one_has_settled(tmp_path: Path) -> None:
    state = keyed_state(tmp_path)
    state.load(None)
    first = begun(state)
    assert state.settled(first, update("1-a"))
    assert begun(state).files("count", 0) == ("1-a",)


def test_without_shards_no_job_begins(tmp_path: Path) -> None:
    assert keyed_state(tmp_path).begin() is None


def test_a_job_whose_shards_were_lost_meanwhile_changes_nothing(tmp_path: Path) -> None:
    state = keyed_state(tmp_path)
    state.load(None)
    before = begun(state)
    state.lost()
    assert not state.settled(before, update("1-a"))
    state.load(None)
    assert not state.settled(before, update("1-a"))
    assert begun(state).files("count", 0) == ()


def test_what_was_committed_is_what_the_next_driver_begins_with(tmp_path: Path) -> None:
    state = keyed_state(tmp_path)
    state.load(None)
    state.settled(begun(state), update("1-a"))
    stored = state.attachment()
    assert stored is not None
    state.committed(stored)
    assert state.attachment() is None

    another = keyed_state(tmp_path)
    another.load(stored)
    assert begun(another).files("count", 0) == ("1-a",)


def test_state_of_another_parallelism_is_laid_out_anew_before_the_first_job(tmp_path: Path) -> None:
    state = keyed_state(tmp_path, parallelism=1)
    state.load(None)
    before = begun(state)
    parts = StateParts(str(tmp_path))
    counts = parts.begin(before)("count", 0)
    for word in "abcdefgh":
        counts.put(word, ord(word))
    state.settled(before, list(parts.end_batch()))

    another = keyed_state(tmp_path, parallelism=3)
    another.load(state.attachment())
    manifest = begun(another)

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
    manifest = begun(state)
    folder = tmp_path / manifest.place("count", 0).folder
    folder.mkdir(parents=True)
    for name in ("1-a", "1-dropped"):
        (folder / f"{name}.arrow").touch()
    for file in folder.iterdir():
        os.utime(file, (1, 1))
    state.settled(manifest, update("1-a"))
    stored = state.attachment()
    assert stored is not None

    begun(state)
    assert len(list(folder.iterdir())) == 2, "nothing is committed yet"
    state.committed(stored)
    begun(state)
    assert [file.name for file in folder.iterdir()] == ["1-a.arrow"]
