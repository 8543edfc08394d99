"""Keyed state against dictionaries: whatever happens, what is stored is the state of a commit, whole.

Micro-batches run on workers that may be any number of versions behind; they break off, are dropped, or run again;
commits lose their answers or never arrive; drivers crash, lose their shards, come back with another number of
tasks, crash while they lay the state out anew; garbage is collected whenever that is allowed.
"""

import math
import tempfile
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kinesis_spout.storm.state import manifest as manifest_module
from kinesis_spout.storm.state import versions as versions_module
from kinesis_spout.storm.state.files import StateFiles
from kinesis_spout.storm.state.key_values import task_of
from kinesis_spout.storm.state.manifest import PartitionPlace, StateManifest, StateUpdate
from kinesis_spout.storm.state.partition import StatePartition
from kinesis_spout.storm.state.versions import KeyedState as VersionsOfState
from kinesis_spout.storm.state.versions import collect_garbage, rescale

pytestmark = pytest.mark.no_second_run

BOLT = "count"
WORKERS = 3
KEYS = st.one_of(st.integers(0, 6), st.sampled_from(["a", ("a", 1), ((1, 2),)]))
VALUES = st.one_of(st.none(), st.integers(), st.sampled_from([1, 10, 100, 1000]).map(lambda size: "x" * size))
PUT = st.tuples(KEYS, VALUES.map(lambda value: ("put", value)))
CHANGES = st.lists(st.one_of(PUT, st.tuples(KEYS, st.just(("delete", None)))), min_size=1, max_size=6)
CHOICES = st.lists(st.integers(0, WORKERS - 1), min_size=3, max_size=3)
PARALLELISM = st.integers(1, 3)


class KeyedState(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.small_bytes, manifest_module.SMALL_BYTES = manifest_module.SMALL_BYTES, 0  # type: ignore[misc]
        self.pass_bytes, versions_module.PASS_BYTES = versions_module.PASS_BYTES, 2_000  # type: ignore[misc]
        self.folder = tempfile.TemporaryDirectory()
        self.files = StateFiles(self.folder.name)
        self.workers: list[dict[PartitionPlace, StatePartition]] = [{} for _ in range(WORKERS)]
        self.stored: bytes | None = None
        self.contents: dict[bytes | None, dict[Any, Any]] = {None: {}}
        """What each manifest that was offered is to hold."""
        self.expected: dict[Any, Any] = {}

    @initialize(parallelism=PARALLELISM)
    def starts(self, parallelism: int) -> None:
        self.versions = VersionsOfState("counts", self.folder.name, {BOLT: parallelism})
        self.versions.load(self.stored)
        self.expected = dict(self.contents[self.stored])

    @property
    def current(self) -> StateManifest:
        manifest = self.versions.begin()
        assert manifest is not None
        return manifest

    def run_batch(self, changes: list[tuple[Any, tuple[str, Any]]], choices: list[int]) -> list[StateUpdate]:
        updates = []
        manifest = self.current
        parallelism = manifest.components[BOLT].parallelism
        for index in range(parallelism):
            place = manifest.place(BOLT, index)
            worker = self.workers[choices[index]]
            partition = worker.setdefault(place, StatePartition(self.files, place))
            partition.load(manifest.files(BOLT, index))
            for key, (what, value) in changes:
                if task_of(key, parallelism) == index:
                    assert partition.state.get(key, "absent") == self.seen(changes, key, partition)
                    partition.state.put(key, value) if what == "put" else partition.state.delete(key)
            update = partition.end_batch()
            if update is not None:
                updates.append(update)
        return updates

    def seen(self, changes: list[tuple[Any, tuple[str, Any]]], key: Any, partition: StatePartition) -> Any:
        """What a bolt must see now: what it put itself in this micro-batch, else what is expected."""
        del changes
        if key in partition.state.changes:
            return dict(partition.state.items()).get(key, "absent")
        return self.expected.get(key, "absent")

    @rule(batches=st.lists(st.tuples(CHANGES, CHOICES), min_size=1, max_size=4))
    def micro_batches_settle(self, batches: list[tuple[list[Any], list[int]]]) -> None:
        for changes, choices in batches:
            self.a_micro_batch_settles(changes, choices)

    @rule()
    def a_commit_is_answered(self) -> None:
        self.commits(arrives=True, answered=True)

    def a_micro_batch_settles(self, changes: list[Any], choices: list[int]) -> None:
        began_with = self.current
        assert self.versions.settled(began_with, self.run_batch(changes, choices))
        for key, (what, value) in changes:
            if what == "put":
                self.expected[key] = value
            else:
                self.expected.pop(key, None)

    @rule(changes=CHANGES, choices=CHOICES)
    def a_micro_batch_is_dropped(self, changes: list[Any], choices: list[int]) -> None:
        self.run_batch(changes, choices)

    @rule(key=KEYS, worker=st.integers(0, WORKERS - 1))
    def a_task_breaks_off(self, key: Any, worker: int) -> None:
        manifest = self.current
        place = manifest.place(BOLT, task_of(key, manifest.components[BOLT].parallelism))
        partition = self.workers[worker].setdefault(place, StatePartition(self.files, place))
        partition.load(manifest.files(BOLT, place.index))
        partition.state.put(key, "broken off")

    @rule(arrives=st.booleans(), answered=st.booleans())
    def commits(self, arrives: bool, answered: bool) -> None:  # noqa: FBT001
        data = self.versions.attachment()
        if data is None:
            return
        self.contents[data] = dict(self.expected)
        if arrives:
            self.stored = data
        if arrives and answered:
            self.versions.committed(data)

    @rule(parallelism=PARALLELISM)
    def the_driver_crashes_and_another_starts(self, parallelism: int) -> None:
        self.starts(parallelism)

    @rule()
    def the_shards_are_lost_and_acquired_again(self) -> None:
        began_with = self.current
        self.versions.lost()
        assert not self.versions.settled(began_with, [])
        self.starts(self.versions._parallelism[BOLT])

    @rule(parallelism=PARALLELISM)
    def a_driver_crashes_while_it_lays_the_state_out_anew(self, parallelism: int) -> None:
        rescale(self.files, self.current, BOLT, parallelism)

    @rule(worker=st.integers(0, WORKERS - 1))
    def a_worker_is_replaced(self, worker: int) -> None:
        self.workers[worker] = {}

    @rule()
    def garbage_is_collected(self) -> None:
        collect_garbage(self.files, self.versions.kept(), modified_before=math.inf)

    @invariant()
    def what_is_stored_is_what_it_was_when_it_was_offered(self) -> None:
        if self.stored is not None:
            assert self.read(StateManifest.decode(self.stored)) == self.contents[self.stored]

    @invariant()
    def the_current_state_is_as_expected(self) -> None:
        if hasattr(self, "versions"):
            assert self.read(self.current) == self.expected

    def read(self, manifest: StateManifest) -> Mapping[Any, Any]:
        """Read all of a state as a worker does that knows nothing."""
        found: dict[Any, Any] = {}
        for index in range(manifest.components[BOLT].parallelism):
            partition = StatePartition(self.files, manifest.place(BOLT, index))
            partition.load(manifest.files(BOLT, index))
            found |= dict(partition.state.items())
        return found

    def teardown(self) -> None:
        manifest_module.SMALL_BYTES = self.small_bytes  # type: ignore[misc]
        versions_module.PASS_BYTES = self.pass_bytes  # type: ignore[misc]
        self.folder.cleanup()


TestKeyedState = KeyedState.TestCase
TestKeyedState.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)
