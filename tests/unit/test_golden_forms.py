"""The stored forms of release 0.1.0 that no other test has. They stay readable for ever.

Golden files of checkpoints, assignments, members, marks, dead letters and windows are with the tests of these.
"""

import json
import pickle
import shutil
from pathlib import Path

import msgspec
import pytest

from kinesis_spout.dead_letters.stored_letters import LetterMark, decoded_mark, encoded_mark
from kinesis_spout.kinesis.write.put_records import Entry
from kinesis_spout.model.errors import StoreError
from kinesis_spout.model.record import LetterOutcome
from kinesis_spout.operations.audit import AuditEntry
from kinesis_spout.producer.spool import DiskSpool
from kinesis_spout.recipes.coalescing.key_nodes import StoredLine
from kinesis_spout.recipes.coalescing.line import Line, State
from kinesis_spout.storm.state.files import StateFiles
from kinesis_spout.storm.state.key_values import Result, ResultKey, read_value
from kinesis_spout.storm.state.manifest import PartitionPlace, StateManifest, StateUpdate
from kinesis_spout.structured.offsets import QueryOffset, ReadRange, ShardOffset, StreamOffset
from shard_state import Position, SequenceNumber

GOLDEN = Path(__file__).parents[1] / "golden"

PLACE = PartitionPlace(topology="counts", life="0f", component="count", parallelism=2, index=1)
STATE_FILE = "7-93f13a047104b8"
MANIFEST = (
    StateManifest(topology="counts", life="0f")
    .with_components({"count": 2})
    .with_updates([StateUpdate(component="count", index=1, files=(STATE_FILE,))], 1_730_000_000.5)
)
WITH_FAILED_RESULTS = MANIFEST.with_updates(
    [StateUpdate(component="count", index=1, files=(STATE_FILE,), sent=(7, 8))], 1_730_000_001.5, {8, 9}
)
MARKS = {
    "first": LetterMark(message_id="orders/shardId-000000000000/495903", died_at=1_730_000_000.5),
    "outcome": LetterMark(
        message_id="orders/shardId-000000000000/495903",
        died_at=1_730_000_000.5,
        outcome=LetterOutcome.DISMISSED,
    ),
}
"""The oldest first."""
LINES = {
    "works": StoredLine(Line(State.PROCESS, "s1-1"), renewals=2),
    "waits": StoredLine(Line(State.BLOCK, "s1-1", "s2-4", b"payload\n2", 3)),
}
AUDIT = AuditEntry(
    at=1_730_000_000.5,
    who="ann@host",
    door="command line",
    what="pause",
    of="shardId-000000000000",
    why="fix",
)
OFFSET = QueryOffset(
    streams={
        "orders": StreamOffset(
            created=1_730_000_000.0,
            shards={
                "shardId-000000000000": ShardOffset(
                    position=Position.after(SequenceNumber(495_903)),
                    at_end=True,
                    read=ReadRange(first=SequenceNumber(495_901), rows=3),
                ),
                "shardId-000000000001": ShardOffset(
                    position=Position.trim_horizon(), parents=("shardId-000000000000",)
                ),
            },
        )
    },
    unlogged=True,
    deaggregated=True,
    began=1_730_000_000.5,
)
SPOOLED = [Entry("key-1", b"one", None), Entry("key-ä", b"\0three\xff", str(2**128 - 1))]


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes().removesuffix(b"\n")


@pytest.mark.parametrize(("form", "manifest"), [("v1", MANIFEST), ("v1_failed_results", WITH_FAILED_RESULTS)])
def test_the_manifest_of_keyed_state(form: str, manifest: StateManifest) -> None:
    stored = golden(f"state_manifest_{form}.json")
    assert StateManifest.decode(stored) == manifest
    assert manifest.encode() == stored


def test_a_result_of_a_bolt_with_state() -> None:
    kept = {ResultKey(7): Result("default", ["a", 1], None, tries=2, not_before=9.5)}
    assert pickle.loads(golden("result_v1.pickle")) == kept


def test_a_file_of_keyed_state(tmp_path: Path) -> None:
    there = tmp_path / PLACE.path(STATE_FILE)
    there.parent.mkdir(parents=True)
    shutil.copy(GOLDEN / "state_file_v1.arrow", there)
    file, rows = StateFiles(str(tmp_path)).read(PLACE, STATE_FILE)
    assert list(rows) == ["cow", ("jumped", 2), "over"]
    assert [read_value("k", value) if value else None for value in rows.values()] == [7, {"last": 1.5}, None]
    assert file.after == ("5-00000000aabbcc",)


@pytest.mark.parametrize("form", MARKS)
def test_the_mark_of_a_letter(form: str) -> None:
    assert decoded_mark("file", golden(f"letter_mark_{form}.json")) == MARKS[form]


def test_the_newest_mark_is_what_is_written() -> None:
    form, mark = list(MARKS.items())[-1]
    assert encoded_mark(mark.letter_id, mark.outcome) == golden(f"letter_mark_{form}.json")


@pytest.mark.parametrize("form", LINES)
def test_a_coalescing_key(form: str) -> None:
    stored = (GOLDEN / f"coalescing_key_v1_{form}").read_bytes()
    assert StoredLine.decode(stored, "/key") == LINES[form]
    assert LINES[form].encode() == stored


def test_a_coalescing_key_of_a_later_release_is_read_without_what_is_new_in_it_but_not_in_a_newer_version() -> (
    None
):
    head, _, payload = (GOLDEN / "coalescing_key_v1_waits").read_bytes().partition(b"\n")

    def stored(**changes: object) -> bytes:
        return json.dumps({**json.loads(head), **changes}).encode() + b"\n" + payload

    assert StoredLine.decode(stored(of_a_later_release=7), "/key") == LINES["waits"]
    with pytest.raises(
        StoreError, match=r"/key: expected .* of version 1 at most, got version 2: .* upgrade"
    ):
        StoredLine.decode(stored(version=2), "/key")


def test_an_audit_entry() -> None:
    stored = golden("audit_v1.json")
    assert msgspec.json.decode(stored, type=AuditEntry) == AUDIT
    assert msgspec.json.encode(AUDIT) == stored


def test_an_offset_in_sparks_checkpoint() -> None:
    document = json.loads(golden("offset_v1.json"))
    assert QueryOffset.from_document(document, ["orders"]) == OFFSET
    assert OFFSET.as_document() == document
    later = json.loads(golden("offset_v1.json")) | {"of_a_later_release": 7}
    assert QueryOffset.from_document(later, ["orders"]) == OFFSET


def test_a_spool(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "spool_v2", tmp_path / "spool")
    with DiskSpool(tmp_path / "spool", stream="orders") as spool:
        assert [record.entry for record in spool.recovered(10)] == SPOOLED
        spool.append(*SPOOLED)
    stored, written = sorted((tmp_path / "spool").glob("*.spool/*.jsonl"))
    assert [line for line in stored.read_bytes().split(b"\n") if line.strip(b"\t")] == (
        written.read_bytes().splitlines()
    )
