"""Files that no manifest names are deleted, once nobody can be about to name them."""

import logging
import math
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from kinesis_spout.storm.state import versions
from kinesis_spout.storm.state.files import StateFiles
from kinesis_spout.storm.state.manifest import StateManifest, StateUpdate
from kinesis_spout.storm.state.versions import KeyedState, collect_garbage

EMPTY = StateManifest(topology="counts", life="0f").with_components({"count": 1})
PLACE = EMPTY.place("count", 0)


@pytest.fixture
def files(tmp_path: Path) -> StateFiles:
    return StateFiles(str(tmp_path))


def manifest(*names: str) -> StateManifest:
    return EMPTY.with_updates([StateUpdate(component="count", index=0, files=names)])


def left(files: StateFiles) -> set[str]:
    return {path.stem for path in Path(files.address).rglob("*.arrow")}


def test_what_a_manifest_names_is_kept_and_the_rest_is_deleted(files: StateFiles) -> None:
    one, two, three = (files.write(PLACE, number, {}) for number in range(3))
    assert collect_garbage(files, [manifest(one), manifest(three)], modified_before=math.inf) == 1
    assert left(files) == {one, three}
    del two


def test_what_is_young_is_left_alone(files: StateFiles) -> None:
    old, young = (files.write(PLACE, number, {}) for number in range(2))
    now = time.time()
    os.utime(Path(files.address, PLACE.path(old)), (now - 100, now - 100))
    assert collect_garbage(files, [EMPTY], modified_before=now - 50) == 1
    assert left(files) == {young}


def test_the_files_of_another_state_are_left_alone(files: StateFiles) -> None:
    other = StateManifest(topology="counts", life="1e").with_components({"count": 1})
    name = files.write(other.place("count", 0), 1, {})
    assert collect_garbage(files, [EMPTY], modified_before=math.inf) == 0
    assert left(files) == {name}


def test_what_cannot_be_deleted_is_said_and_is_no_error(
    files: StateFiles, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(path)

    name = files.write(PLACE, 1, {})
    monkeypatch.setattr(files, "delete", refuse)
    caplog.set_level(logging.WARNING)
    assert collect_garbage(files, [EMPTY], modified_before=math.inf) == 0
    assert name in caplog.text


def test_it_is_looked_for_once_a_minute_and_only_what_is_older_than_the_commit_by_far(
    files: StateFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [time.time()]
    monkeypatch.setattr(versions, "time", SimpleNamespace(time=lambda: clock[0]))
    monkeypatch.setattr(versions, "STRAGGLER_SECONDS", 10.0)
    state = KeyedState("counts", files.address, {"count": 1})
    state.load(manifest().encode())

    def commit(seconds_later: float, *names: str) -> set[str]:
        clock[0] += seconds_later
        began_with = state.begin()
        assert began_with is not None
        state.settled(began_with, [StateUpdate(component="count", index=0, files=names)])
        offered = state.attachment()
        assert offered is not None
        state.committed(offered)
        state.begin()
        return left(files)

    old = files.write(PLACE, 1, {})
    assert commit(0, "a") == {old}, "as young as what a straggler writes"
    assert commit(59, "b") == {old}, "looked for a moment ago"
    assert commit(2, "c") == set()
