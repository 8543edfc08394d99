from dataclasses import replace
from pathlib import Path

import pytest

from kinesis_spout.model.errors import CheckpointUnreadable, StreamRecreated
from kinesis_spout.zookeeper import Application
from kinesis_spout.zookeeper.progress.application import MAX_DEPLOYMENTS
from shard_state import Position, SequenceNumber, StartPositions
from tests.support.core.shards import everywhere

GOLDEN = Path(__file__).parents[3] / "golden"
STARTS = [
    Position.trim_horizon(),
    Position.at_timestamp(1_700_000_000.25),
    Position.after(SequenceNumber(10**55)),
    Position.at(SequenceNumber(7, 3)),
]


@pytest.mark.parametrize("start", STARTS, ids=str)
def test_what_is_encoded_is_decoded(start: Position) -> None:
    application = Application(stream_created=1_700_000_000.123, start=everywhere(start))
    assert Application.decode(application.encode(), "/place") == application


def test_the_deployments_that_began_again_are_stored_and_the_oldest_are_forgotten() -> None:
    application = Application(stream_created=5.5, start=everywhere(Position.trim_horizon()))
    for number in range(MAX_DEPLOYMENTS + 2):
        pending = application.begins_again(f"v{number}", everywhere(Position.at_timestamp(7.25)))
        assert Application.decode(pending.encode(), "/place") == pending
        application = replace(pending, begun=True)
    assert len(application.deployments) == MAX_DEPLOYMENTS
    assert application.deployments[0] == "v2"
    assert Application.decode(application.encode(), "/place") == application


FORMS = {
    "application_v1_arn": Application(
        stream_created=1_700_000_000.123,
        stream_arn="arn:aws:kinesis:eu-west-1:123456789012:stream/orders",
        start=everywhere(Position.trim_horizon()),
    ),
    "application_v1_trim_horizon": Application(
        stream_created=1_700_000_000.123, start=everywhere(Position.trim_horizon())
    ),
    "application_v1_deployments": Application(
        stream_created=5.5, start=everywhere(Position.at_timestamp(7.25)), deployments=("v1", "v2")
    ),
    "application_v1_positions_of_shards": Application(
        stream_created=1_700_000_000.123,
        start=StartPositions(
            default=Position.trim_horizon(),
            shards={
                "shardId-000000000000": Position.after(SequenceNumber(10**55)),
                "shardId-000000000001": Position.at(SequenceNumber(7, 3)),
                "shardId-000000000002": Position.after(SequenceNumber(7, 3)),
                "shardId-000000000003": Position.at_timestamp(7.25),
            },
        ),
    ),
    "application_v1_begins_again": Application(
        stream_created=5.5,
        start=StartPositions(
            default=Position.at_timestamp(7.25), shards={"shardId-000000000000": Position.trim_horizon()}
        ),
        deployments=("v1",),
        begun=False,
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_golden_files_are_what_is_written_and_stay_readable(form: str) -> None:
    golden = (GOLDEN / f"{form}.json").read_bytes().rstrip(b"\n")
    assert FORMS[form].encode() == golden
    assert Application.decode(golden, "/place") == FORMS[form]


def test_every_golden_file_is_tried() -> None:
    assert {path.stem for path in GOLDEN.glob("application_*.json")} == FORMS.keys()


@pytest.mark.parametrize(
    "stored",
    [
        b"x",
        b"",
        b'{"version":1,"stream_created":5,"start":{"type":"TRIM_HORIZON"},"deployments":"v1","begun":true}',
        b'{"version":1,"stream_created":5,"start":{"type":"TRIM_HORIZON"},"deployments":[1],"begun":true}',
        b'{"version":1,"stream_created":5,"start":{"type":"TRIM_HORIZON"},"deployments":["v1"],"begun":1}',
        b'{"version":1,"stream_created":5,"start":{"type":"TRIM_HORIZON"},"shards":{"a":1},"begun":true}',
        b'{"version":1,"stream_created":5,"start":{"type":"TRIM_HORIZON"},"shards":["a"],"begun":true}',
        b'{"version":1,"stream_created":5,"start":{"type":"TRIM_HORIZON"},"shards":{"a":{"type":"LATEST"}},"begun":true}',
        b'{"version":true,"stream_created":5,"start":{"type":"TRIM_HORIZON"},"begun":true}',
        b"[]",
        b"{}",
        b"null",
        b'{"version":2,"stream_created":5,"start":{"type":"TRIM_HORIZON"},"begun":true}',
        b'{"version":1,"stream_created":5,"start":{"type":"TRIM_HORIZON"},"begun":false}',
        b'{"version":1,"stream_created":5,"start":{"type":"SOMEWHERE"},"begun":true}',
        b'{"version":1,"stream_created":5,"start":{"type":"LATEST"},"begun":true}',
        b'{"version":1,"stream_created":5,"start":{"type":"AT_TIMESTAMP"},"begun":true}',
        b'{"version":1,"start":{"type":"TRIM_HORIZON"},"begun":true}',
        b"\xff",
        b"[" * 100_000,
        b'{"version":1,"stream_created":5,"start":{"type":"AT_TIMESTAMP","timestamp":Infinity},"begun":true}',
        b'{"version":1,"stream_created":5,"start":{"type":"AT_TIMESTAMP","timestamp":true},"begun":true}',
        b'{"version":1,"stream_created":1' + b"0" * 400 + b',"start":{"type":"TRIM_HORIZON"},"begun":true}',
    ],
    ids=lambda stored: repr(stored[:90]),
)
def test_anything_else_is_unreadable_and_names_its_place(stored: bytes) -> None:
    with pytest.raises(CheckpointUnreadable, match=r"^/place: "):
        Application.decode(stored, "/place")


def test_another_creation_time_is_another_stream() -> None:
    application = Application(stream_created=1_700_000_000.123, start=everywhere(Position.trim_horizon()))
    with pytest.raises(StreamRecreated, match="/place"):
        application.check_stream(1_700_000_060.0, "/place")


def test_a_creation_time_told_with_fewer_digits_is_the_same_stream() -> None:
    application = Application(stream_created=1_700_000_000.123, start=everywhere(Position.trim_horizon()))
    application.check_stream(1_700_000_000.0, "/place")
