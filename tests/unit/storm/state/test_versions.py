"""Which version of the state is in force, which one is to be committed, and which ones are kept."""

import pickle
from pathlib import Path
from typing import Any

import pytest

from kinesis_spout.model.errors import StateUnreadable
from kinesis_spout.storm.state import versions as versions_module
from kinesis_spout.storm.state.files import StateFiles
from kinesis_spout.storm.state.manifest import StateManifest, StateUpdate
from kinesis_spout.storm.state.versions import KeyedState, rescale

pytestmark = pytest.mark.no_second_run


@pytest.fixture(autouse=True)
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return str(tmp_path)


def begun(state: KeyedState) -> StateManifest:
    manifest = state.begin()
    assert manifest is not None
    return manifest


def loaded(stored: bytes | None = None, parallelism: int = 2) -> tuple[KeyedState, StateManifest]:
    state = KeyedState("counts", str(Path.cwd()), {"count": parallelism})
    state.load(stored)
    return state, begun(state)


def update(*files: str) -> list[StateUpdate]:
    return [StateUpdate(component="count", index=0, files=files)]


def offered(versions: KeyedState) -> bytes:
    data = versions.attachment()
    assert data is not None
    return data


def test_a_state_that_begins_has_a_folder_that_no_other_state_had() -> None:
    assert loaded()[1].life != loaded()[1].life


def test_what_was_committed_is_not_offered_again_until_it_changes() -> None:
    versions, empty = loaded()
    data = offered(versions)
    versions.committed(data)
    assert versions.attachment() is None
    assert versions.settled(empty, update("1-a"))
    assert StateManifest.decode(offered(versions)).files("count", 0) == ("1-a",)


def test_what_was_loaded_is_not_offered() -> None:
    versions, _ = loaded()
    again, _ = loaded(offered(versions))
    assert again.attachment() is None


def test_a_micro_batch_without_changes_counts_and_changes_nothing() -> None:
    versions, empty = loaded()
    versions.committed(offered(versions))
    assert versions.settled(empty, [])
    assert versions.attachment() is None


def test_what_changes_during_a_commit_is_offered_with_the_next() -> None:
    versions, empty = loaded()
    versions.settled(empty, update("1-a"))
    data = offered(versions)
    versions.settled(begun(versions), update("1-a", "2-b"))
    versions.committed(data)
    assert StateManifest.decode(offered(versions)).files("count", 0) == ("1-a", "2-b")


def test_a_micro_batch_that_began_with_another_state_does_not_count() -> None:
    versions, empty = loaded()
    versions.lost()
    assert versions.begin() is None
    assert not versions.settled(empty, update("1-a"))
    versions.load(None)
    assert not versions.settled(empty, update("1-a"))


def test_a_commit_that_ends_after_the_state_was_lost_changes_nothing() -> None:
    versions, empty = loaded()
    versions.settled(empty, update("1-a"))
    data = offered(versions)
    versions.lost()
    versions.load(None)
    versions.committed(data)
    assert versions.attachment() is not None


def test_all_that_may_be_stored_is_kept_until_it_is_known() -> None:
    versions, empty = loaded()
    versions.committed(offered(versions))
    manifest = empty
    for name in ("1-a", "2-b", "3-c"):
        assert versions.settled(manifest, update(name))
        manifest = begun(versions)
        data = offered(versions)  # and nobody says what became of it
    names = [each.files("count", 0) for each in versions.kept()]
    assert names == [(), ("1-a",), ("2-b",), ("3-c",)]
    versions.committed(data)
    assert [each.files("count", 0) for each in versions.kept()] == [("3-c",)]


def outgrown() -> tuple[KeyedState, bytes]:
    """Give a state whose bolt has another number of tasks than when it was stored."""
    versions, empty = loaded()
    name = StateFiles(versions.address).write(empty.place("count", 0), 1, {"a": pickle.dumps(1)})
    versions.settled(empty, update(name))
    return KeyedState("counts", versions.address, {"count": 3}), offered(versions)


def test_the_layout_for_another_parallelism_is_what_is_committed_next() -> None:
    again, stored = outgrown()
    again.load(stored)
    assert begun(again).components["count"].parallelism == 3
    assert StateManifest.decode(offered(again)).components["count"].parallelism == 3


@pytest.mark.parametrize("is_acquired_again", [False, True])
def test_a_layout_of_a_state_that_was_lost_meanwhile_replaces_nothing(
    monkeypatch: pytest.MonkeyPatch, *, is_acquired_again: bool
) -> None:
    again, stored = outgrown()

    def loses(*arguments: Any) -> StateManifest:
        again.lost()
        if is_acquired_again:
            again.load(stored)
        return rescale(*arguments)

    again.load(stored)
    monkeypatch.setattr(versions_module, "rescale", loses)
    assert again.begin() is None
    monkeypatch.undo()
    assert (again.begin() is not None) is is_acquired_again


def test_the_state_of_another_topology_is_refused() -> None:
    versions, _ = loaded()
    other = KeyedState("sums", str(Path.cwd()), {})
    with pytest.raises(StateUnreadable, match="'counts'"):
        other.load(offered(versions))


def test_a_state_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(StateUnreadable):
        loaded(b"{")
