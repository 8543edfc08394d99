"""The manifest: which files are the state, stored with a checksum."""

import pytest

from kinesis_spout.model.errors import StateUnreadable
from kinesis_spout.storm.state.manifest import ComponentState, PartitionPlace, StateManifest, StateUpdate
from shard_state.stored_form import sealed

EMPTY = StateManifest(topology="counts", life="0f").with_components({"count": 4})
FULL = EMPTY.with_updates(
    [
        StateUpdate(component="count", index=0, files=("1-aa", "2-bb")),
        StateUpdate(component="count", index=3, files=("7-cc",)),
    ]
)


def test_what_is_stored_is_read_back() -> None:
    assert StateManifest.decode(FULL.encode()) == FULL
    assert StateManifest.decode(EMPTY.encode()) == EMPTY


def test_the_time_that_it_was_made_at_never_goes_back_and_is_unknown_in_one_of_before() -> None:
    later = EMPTY.with_updates([], 7.5).with_updates([], 3.0)
    assert StateManifest.decode(later.encode()).time == 7.5
    before = sealed({"version": 1, "topology": "counts", "life": "0f", "components": {}})
    assert StateManifest.decode(before).time == 0.0


@pytest.mark.parametrize("time", ["noon", None, float("inf")])
def test_a_time_that_is_none_is_an_error(time: object) -> None:
    stored = sealed({"version": 1, "topology": "counts", "life": "0f", "time": time, "components": {}})
    with pytest.raises(StateUnreadable, match="expected a time in seconds since the epoch"):
        StateManifest.decode(stored)


def test_an_update_says_all_files_of_its_part_and_leaves_the_others() -> None:
    after = FULL.with_updates([StateUpdate(component="count", index=0, files=("3-dd",))])
    assert (after.files("count", 0), after.files("count", 1), after.files("count", 3)) == (
        ("3-dd",),
        (),
        ("7-cc",),
    )
    assert FULL.files("count", 0) == ("1-aa", "2-bb"), "a manifest never changes"


def test_a_part_without_keys_has_no_files() -> None:
    after = FULL.with_updates([StateUpdate(component="count", index=3, files=())])
    assert after.components["count"].files == {0: ("1-aa", "2-bb")}


def test_a_bolt_without_files_takes_the_parallelism_of_now_and_one_with_files_keeps_its_own() -> None:
    assert EMPTY.with_components({"count": 9}).components["count"] == ComponentState(parallelism=9)
    assert FULL.with_components({"count": 9}) is FULL


def test_the_state_of_a_bolt_that_is_gone_is_kept_for_its_return() -> None:
    other = FULL.with_components({"sum": 2})
    assert set(other.components) == {"count", "sum"}
    assert other.files("count", 3) == ("7-cc",)


def test_every_file_has_a_path_of_its_own_below_the_folder_of_its_state() -> None:
    assert FULL.paths() == {
        "counts/0f/count/4/0/1-aa.arrow",
        "counts/0f/count/4/0/2-bb.arrow",
        "counts/0f/count/4/3/7-cc.arrow",
    }


@pytest.mark.parametrize("name", ["a/b", "..", ".", "a%2Fb", "ü", "a b"])
def test_no_name_of_a_component_leads_to_another_folder(name: str) -> None:
    place = PartitionPlace(topology="counts", life="0f", component=name, parallelism=4, index=0)
    segments = place.folder.split("/")
    assert len(segments) == 5
    assert not {".", ".."} & {*segments}
    other = PartitionPlace(topology="counts", life="0f", component="a", parallelism=4, index=0)
    assert place.folder != other.folder


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"{}",
        b"null",
        b"[1]",
        FULL.encode()[:-1],
        FULL.encode().replace(b"2-bb", b"2-bc"),
        FULL.encode().replace(b'"parallelism":4', b'"parallelism":5'),
        FULL.encode() + b" ",
    ],
)
def test_what_cannot_be_read_is_an_error_and_no_empty_state(stored: bytes) -> None:
    with pytest.raises(StateUnreadable, match="checkpoints reset") as unreadable:
        StateManifest.decode(stored)
    assert not unreadable.value.retriable


def test_a_newer_version_asks_for_an_upgrade() -> None:
    with pytest.raises(StateUnreadable, match="upgrade"):
        StateManifest.decode(
            FULL.encode().replace(b'"version": 1', b'"version":2').replace(b'"version":1', b'"version":2')
        )
