"""Another number of tasks: the same state, in a layout beside the old one."""

from pathlib import Path

import pytest

from kinesis_spout.model.errors import StateUnreadable
from kinesis_spout.storm.state.files import StateFiles
from kinesis_spout.storm.state.key_values import task_of
from kinesis_spout.storm.state.manifest import StateManifest
from kinesis_spout.storm.state.partition import StatePartition
from kinesis_spout.storm.state.versions import rescale

ROWS = {f"k{number}": number for number in range(500)} | {1: "one", (1, "a"): "two", None: "none"}


def content(files: StateFiles, manifest: StateManifest) -> dict[object, object]:
    found: dict[object, object] = {}
    for index in range(manifest.components["count"].parallelism):
        partition = StatePartition(files, manifest.place("count", index))
        partition.load(manifest.files("count", index))
        for key, value in partition.state.items():
            assert partition.state.get(key) == value, "it is this task's own"
            found[key] = value
    return found


def filled(files: StateFiles, parallelism: int) -> StateManifest:
    manifest = StateManifest(topology="counts", life="0f").with_components({"count": parallelism})
    for round_number in range(2):
        for index in range(parallelism):
            partition = StatePartition(files, manifest.place("count", index))
            partition.load(manifest.files("count", index))
            partition.state.put("k1", -1) if task_of("k1", parallelism) == index else None
            for key, value in ROWS.items():
                if task_of(key, parallelism) == index:
                    partition.state.put(key, value if round_number else "before")
            if round_number and task_of("gone", parallelism) == index:
                partition.state.delete("gone")
            update = partition.end_batch()
            manifest = manifest.with_updates([update] if update else [])
    return manifest


@pytest.mark.parametrize(("before", "after"), [(3, 7), (7, 3), (4, 1), (1, 4), (3, 3)])
@pytest.mark.parametrize("pass_bytes", [1, 10**9], ids=["many passes", "one pass"])
def test_all_keys_are_there_with_the_task_that_their_tuples_go_to(
    tmp_path: Path, before: int, after: int, pass_bytes: int
) -> None:
    files = StateFiles(str(tmp_path))
    old = filled(files, before)
    new = rescale(files, old, "count", after, pass_bytes=pass_bytes)
    assert new.components["count"].parallelism == after
    assert content(files, new) == ROWS
    assert content(files, old) == ROWS, "the old layout stays, for a crash before the commit"


def test_a_file_that_is_gone_is_an_error_and_no_smaller_state(tmp_path: Path) -> None:
    files = StateFiles(str(tmp_path))
    manifest = filled(files, 3)
    files.delete(min(manifest.paths()))
    with pytest.raises(StateUnreadable, match="no such file"):
        rescale(files, manifest, "count", 2)
