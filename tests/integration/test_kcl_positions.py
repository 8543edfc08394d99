"""The script of the guide from the KCL: positions out of a lease table, and back into it, with moto's DynamoDB."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import boto3
import pytest
from botocore.exceptions import ClientError

from examples.migrations.kcl import positions as script
from kinesis_spout.kinesis.aggregated_record import UserRecord
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.testing import InMemoryStream, ManualClock, run
from tests.support.kinesis.endpoints import KinesisEndpoint

pytestmark = pytest.mark.no_second_run

FIRST: Final = "shardId-000000000000"
SECOND: Final = "shardId-000000000001"
NUMBER: Final = "49590338271490256608559692538361571095921575989136588898"


# What is taken over


def leases_of(**checkpoints: str) -> dict[str, dict[str, str]]:
    """A lease for each shard, named by its last digit: ``_0="SHARD_END"``, or ``_0="4966:1"``."""
    leases = {}
    for digit, checkpoint in checkpoints.items():
        sequence, _, sub = checkpoint.partition(":")
        shard = f"shardId-{int(digit[1:]):012d}"
        leases[shard] = {"leaseKey": shard, "checkpoint": sequence, "checkpointSubSequenceNumber": sub or "0"}
    return leases


def in_memory(shards: int = 1) -> InMemoryStream:
    return InMemoryStream(shards=shards, clock=ManualClock())


def parents_in(stream: InMemoryStream) -> dict[str, list[str]]:
    listed = {shard.shard_id: shard for shard in stream.list_shards()}
    return {name: sorted(set(shard.parents) & listed.keys()) for name, shard in listed.items()}


def taken_over(stream: InMemoryStream, leases: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Give what a consumer handles that begins where the KCL stood, in no order."""
    begin = script.positions(leases, parents_in(stream))
    assert isinstance(stream.clock, ManualClock)
    stream.clock.advance(60)  # what is at its end has ended before now
    outcomes = run(lambda _: None, stream, initial_position=json.dumps(begin))
    assert all(each.acked for each in outcomes)
    return sorted(each.record.data.decode() for each in outcomes)


def put(stream: InMemoryStream, shard: str, *payloads: str) -> list[str]:
    """Put records into a shard; give their sequence numbers."""
    (first, _) = next(each.hash_range for each in stream.list_shards() if each.shard_id == shard)
    return [
        stream.put(data.encode(), "key", explicit_hash_key=str(first)).sequence_number for data in payloads
    ]


def test_each_shard_goes_on_at_its_checkpoint_whose_record_comes_again_in_case_it_has_others_inside() -> None:
    stream = in_memory(shards=2)
    _, done, _ = put(stream, FIRST, "a0", "a1", "a2")
    put(stream, SECOND, "b0", "b1")
    assert taken_over(stream, leases_of(_0=done, _1="TRIM_HORIZON")) == ["a1", "a2", "b0", "b1"]


def test_inside_an_aggregated_record_only_what_was_done_is_left_out() -> None:
    stream = in_memory()
    users = stream.put_aggregated(UserRecord(data=data, partition_key="key") for data in (b"a", b"b", b"c"))
    assert taken_over(stream, leases_of(_0=f"{users[0].sequence_number}:1")) == ["c"]


@pytest.mark.parametrize("removed", [False, True])
def test_a_shard_that_was_split_and_is_done_is_not_read_again_also_if_the_kcl_has_removed_its_lease(
    *, removed: bool
) -> None:
    stream = in_memory()
    put(stream, FIRST, "old")
    stream.split(FIRST)
    (done,) = put(stream, SECOND, "done")
    put(stream, SECOND, "left")
    put(stream, "shardId-000000000002", "right")
    leases = leases_of(_0="SHARD_END", _1=done, _2="TRIM_HORIZON")
    if removed:
        del leases[FIRST]
    assert taken_over(stream, leases) == ["done", "left", "right"]


def test_a_shard_that_was_split_since_the_kcl_stopped_is_read_to_its_end_and_then_its_children() -> None:
    stream = in_memory()
    (done,) = put(stream, FIRST, "done")
    put(stream, FIRST, "rest")
    stream.split(FIRST)
    put(stream, SECOND, "child")
    stream.split(SECOND)
    put(stream, "shardId-000000000003", "grandchild")
    assert taken_over(stream, leases_of(_0=done)) == ["child", "done", "grandchild", "rest"]


def test_shards_that_were_merged_go_on_each_at_its_own_checkpoint() -> None:
    stream = in_memory(shards=2)
    (done,) = put(stream, FIRST, "done")
    put(stream, SECOND, "other")
    stream.merge(FIRST, SECOND)
    put(stream, "shardId-000000000002", "child")
    assert taken_over(stream, leases_of(_0=done, _1="SHARD_END")) == ["child", "done"]


# What is refused


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(SystemExit) as refused:
        act()
    assert isinstance(refused.value.code, str)
    assert "\n" not in refused.value.code
    return refused.value.code


def test_half_a_lease_table_is_refused() -> None:
    stream = in_memory(shards=2)
    parents = parents_in(stream)
    assert f"{SECOND} has no lease" in refusal(lambda: script.positions(leases_of(_0=NUMBER), parents))


def test_the_table_of_another_stream_is_refused() -> None:
    parents = parents_in(in_memory())
    message = refusal(lambda: script.positions(leases_of(_7=NUMBER), parents))
    assert "the table of another stream" in message


@pytest.mark.parametrize("sentinel", ["LATEST", "AT_TIMESTAMP"])
def test_a_lease_without_a_checkpoint_is_refused_unless_it_is_said_where_it_begins(sentinel: str) -> None:
    parents = parents_in(in_memory())
    leases = leases_of(_0=sentinel)
    assert f"{FIRST} is at {sentinel}" in refusal(lambda: script.positions(leases, parents))
    assert script.positions(leases, parents, "2026-01-01T00:00:00Z") == {FIRST: "2026-01-01T00:00:00Z"}


# The table itself

TABLE: Final = "billing-leases"


class LeaseTable:
    """A lease table of the KCL, in moto's DynamoDB."""

    def __init__(self) -> None:
        self.dynamodb = boto3.client("dynamodb")
        if TABLE in self.dynamodb.list_tables()["TableNames"]:
            self.dynamodb.delete_table(TableName=TABLE)
        self.dynamodb.create_table(
            TableName=TABLE,
            KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )

    def put(self, key: str, checkpoint: str, sub: int = 0, **more: dict[str, str]) -> None:
        row = {
            "leaseKey": {"S": key},
            "checkpoint": {"S": checkpoint},
            "checkpointSubSequenceNumber": {"N": str(sub)},
            "leaseCounter": {"N": "17"},
            "ownerSwitchesSinceCheckpoint": {"N": "0"},
        }
        self.dynamodb.put_item(TableName=TABLE, Item=row | more)

    def put_other(self, key: str, **row: dict[str, str]) -> None:
        self.dynamodb.put_item(TableName=TABLE, Item={"leaseKey": {"S": key}, **row})

    def row(self, key: str) -> dict[str, Any]:
        found: dict[str, Any] = self.dynamodb.get_item(TableName=TABLE, Key={"leaseKey": {"S": key}})["Item"]
        return found


@pytest.fixture
def table(moto_server: KinesisEndpoint, monkeypatch: pytest.MonkeyPatch) -> LeaseTable:
    monkeypatch.setenv("AWS_ENDPOINT_URL", str(moto_server.settings.endpoint_url))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    return LeaseTable()


@pytest.fixture
def stream(moto_server: KinesisEndpoint) -> str:
    return moto_server.create_stream(shards=2)


@pytest.mark.endpoint
def test_what_the_script_prints_is_an_initial_position(
    table: LeaseTable, stream: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table.put(FIRST, NUMBER, 3, leaseOwner={"S": "worker-1"})
    table.put(SECOND, "TRIM_HORIZON")
    # Since 3.5 one table may have everything.
    table.put_other("worker-1", entityType={"S": "WORKER_METRICS"})
    table.put_other("Migration3.0", mv={"S": "CLIENT_VERSION_3X"})
    script.main([TABLE, stream], watch_seconds=0)
    printed = capsys.readouterr().out
    assert json.loads(printed) == {FIRST: f"after_sequence_number {NUMBER}:3"}
    config = SpoutConfig.of(stream=stream, app="billing", initial_position=printed)
    assert NUMBER in str(config.initial_position)


@pytest.mark.endpoint
def test_of_a_table_of_several_streams_only_the_leases_of_the_one_are_taken(
    table: LeaseTable, stream: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, checkpoint in ((stream, NUMBER), ("another", "7")):
        for shard in (FIRST, SECOND):
            key = f"123456789012:{name}:1700000000"
            table.put(f"{key}:{shard}", checkpoint, streamName={"S": key}, shardId={"S": shard})
    script.main([TABLE, stream], watch_seconds=0)
    printed = json.loads(capsys.readouterr().out)
    assert printed == dict.fromkeys((FIRST, SECOND), f"after_sequence_number {NUMBER}:0")


@pytest.mark.endpoint
def test_a_table_without_leases_is_refused(table: LeaseTable, stream: str) -> None:
    table.put_other("worker-1", entityType={"S": "WORKER_METRICS"})
    assert f"in the table {TABLE}, found none" in refusal(lambda: script.main([TABLE, stream], 0))


@pytest.mark.endpoint
def test_a_table_that_is_not_there_is_said_so(table: LeaseTable, stream: str) -> None:
    assert "nowhere" in refusal(lambda: script.main(["nowhere", stream], 0))
    table.put(FIRST, NUMBER)
    assert "no-such-stream" in refusal(lambda: script.main([TABLE, "no-such-stream"], 0))


@pytest.mark.endpoint
def test_while_a_worker_of_the_kcl_renews_its_leases_nothing_is_taken_over(
    table: LeaseTable, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.put(FIRST, NUMBER)
    table.put(SECOND, NUMBER)
    renews = SimpleNamespace(sleep=lambda _: table.put(SECOND, NUMBER, leaseCounter={"N": "18"}))
    monkeypatch.setattr(script, "time", renews)
    message = refusal(lambda: script.main([TABLE, stream]))
    assert f"these leases changed: {SECOND}." in message


@pytest.mark.endpoint
def test_on_the_way_back_open_shards_get_our_checkpoints_and_others_stay_as_the_kcl_left_them(
    table: LeaseTable, stream: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table.put(FIRST, NUMBER)
    table.put(SECOND, "SHARD_END")
    ours = tmp_path / "checkpoints.json"
    stored = {FIRST: f"{int(NUMBER) + 5}:2", SECOND: "SHARD_END", "shardId-000000000002": NUMBER}
    shards = [{"shard_id": name, "checkpoint": checkpoint} for name, checkpoint in stored.items()]
    ours.write_text(json.dumps({"shards": shards}))
    script.main([TABLE, stream, "--back", str(ours)], watch_seconds=0)
    assert table.row(FIRST)["checkpoint"] == {"S": str(int(NUMBER) + 5)}
    assert table.row(FIRST)["checkpointSubSequenceNumber"] == {"N": "2"}
    assert table.row(SECOND)["checkpoint"] == {"S": "SHARD_END"}
    assert capsys.readouterr().err.count("left as it is") == 2


@pytest.mark.endpoint
def test_on_the_way_back_a_lease_that_a_worker_has_renewed_meanwhile_is_not_changed(
    table: LeaseTable, stream: str
) -> None:
    table.put(FIRST, NUMBER)
    table.put(SECOND, NUMBER)
    leases = script.read_leases(table.dynamodb, TABLE, stream)
    table.put(FIRST, NUMBER, leaseCounter={"N": "18"})
    document = {"shards": [{"shard_id": FIRST, "checkpoint": "9"}]}
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        script.set_back(table.dynamodb, TABLE, leases, document)
    assert table.row(FIRST)["checkpoint"] == {"S": NUMBER}


@pytest.mark.endpoint
def test_checkpoints_that_cannot_be_read_change_no_lease(
    table: LeaseTable, stream: str, tmp_path: Path
) -> None:
    table.put(FIRST, NUMBER)
    empty = tmp_path / "checkpoints.json"
    empty.touch()
    for path in (empty, tmp_path / "missing.json"):
        given = [TABLE, stream, "--back", str(path)]
        assert path.name in refusal(partial(script.main, given, 0))
    assert table.row(FIRST)["checkpoint"] == {"S": NUMBER}
