"""Which version of the state is in force, which one is to be committed, and which ones are kept."""

import pytest

from kinesis_spout.model.errors import StateUnreadable
from kinesis_spout.storm.state import StateManifest, StateUpdate, StateVersions


def loaded(stored: bytes | None = None, parallelism: int = 2) -> tuple[StateVersions, StateManifest]:
    versions = StateVersions("counts", {"count": parallelism})
    versions.load(stored)
    assert versions.current is not None
    return versions, versions.current


def update(*files: str) -> list[StateUpdate]:
    return [StateUpdate(component="count", index=0, files=files)]


def offered(versions: StateVersions) -> bytes:
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
    first = versions.current
    assert first is not None
    versions.settled(first, update("1-a", "2-b"))
    versions.committed(data)
    assert StateManifest.decode(offered(versions)).files("count", 0) == ("1-a", "2-b")


def test_a_micro_batch_that_began_with_another_state_does_not_count() -> None:
    versions, empty = loaded()
    versions.lost()
    assert versions.current is None
    assert not versions.settled(empty, update("1-a"))
    versions.load(None)
    assert not versions.settled(empty, update("1-a"))
    assert not versions.replaced(empty, empty)


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
        assert versions.current is not None
        manifest = versions.current
        data = offered(versions)  # and nobody says what became of it
    names = [each.files("count", 0) for each in versions.kept()]
    assert names == [(), ("1-a",), ("2-b",), ("3-c",)]
    versions.committed(data)
    assert [each.files("count", 0) for each in versions.kept()] == [("3-c",)]


def test_another_parallelism_shows_as_outgrown_until_the_layout_is_replaced() -> None:
    versions, empty = loaded()
    versions.settled(empty, update("1-a"))
    again, manifest = loaded(offered(versions), parallelism=3)
    assert again.outgrown == {"count": 3}
    assert again.replaced(manifest, manifest.with_component("count", 3, update("1-x")))
    assert again.outgrown == {}
    assert StateManifest.decode(offered(again)).components["count"].parallelism == 3


def test_the_state_of_another_topology_is_refused() -> None:
    versions, _ = loaded()
    other = StateVersions("sums", {})
    with pytest.raises(StateUnreadable, match="'counts'"):
        other.load(offered(versions))


def test_a_state_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(StateUnreadable):
        loaded(b"{")
