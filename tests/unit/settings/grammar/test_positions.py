"""One grammar of positions: a text means the same at every door, or is refused at every door."""

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.operations.checkpoints import parse_target
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.source_options import BatchReadOptions, StreamReadOptions
from shard_state import SHARD_START, Checkpoint, Position, SequenceNumber, StartPositions

NOW: Final = 2_000_000_000.0
NOON: Final = 1769860800.0  # 2026-01-31T12:00:00Z
NUMBER: Final = "49590338271490256608559692538361571095921575989136588898"


def of_spout(text: str) -> Position:
    return SpoutConfig.of(stream="orders", app="billing", initial_position=text).start.resolved(NOW).default


def of_variable(text: str) -> Position:
    environ = {"KINESIS_SPOUT_INITIAL_POSITION": text}
    return SpoutConfig.load(environ=environ, stream="orders", app="billing").start.resolved(NOW).default


def of_stream_read(text: str) -> Position:
    options = {"streamName": "orders", "initialPosition": text}
    return StreamReadOptions.of(options).start.resolved(NOW).default


def of_batch_read(text: str) -> Position:
    return BatchReadOptions.of({"streamName": "orders", "endingPosition": text}).end.resolved(NOW).default


def of_reset(text: str) -> Position:
    return parse_target(text, NOW)


def spout(**settings: Any) -> SpoutConfig:
    chosen: dict[str, Any] = {"stream": "orders", "app": "billing", **settings}
    if "start_again" in settings:
        chosen["deployment"] = "v2"
    return SpoutConfig.of(**chosen)


def of_spout_by_shard(positions: dict[str, Any]) -> StartPositions:
    return spout(initial_position=positions).start


def of_variable_by_shard(positions: dict[str, Any]) -> StartPositions:
    environ = {"KINESIS_SPOUT_INITIAL_POSITION": json.dumps(positions)}
    return SpoutConfig.load(environ=environ, stream="orders", app="billing").start


def of_file_by_shard(positions: dict[str, Any]) -> StartPositions:
    def toml(value: Any) -> str:
        if not isinstance(value, dict):
            return json.dumps(value)
        return "{" + ", ".join(f"{key} = {toml(part)}" for key, part in value.items()) + "}"

    with TemporaryDirectory() as directory:
        file = Path(directory) / "settings.toml"
        lines = (f"{shard_id} = {toml(place)}" for shard_id, place in positions.items())
        file.write_text("\n".join(('stream = "orders"', 'app = "billing"', "[initial_position]", *lines)))
        return SpoutConfig.load(file, {}).start


def of_stream_by_shard(positions: dict[str, Any]) -> StartPositions:
    return StreamReadOptions.of({"streamName": "orders", "initialPosition": json.dumps(positions)}).start


DOORS: Final = {
    "initial_position: ": of_spout,
    "initial_position (from KINESIS_SPOUT_INITIAL_POSITION): ": of_variable,
    "option initialPosition: ": of_stream_read,
    "option endingPosition: ": of_batch_read,
    "to: ": of_reset,
}
"""By what their messages call the position."""


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("latest", Position.at_timestamp(NOW)),
        ("Latest", Position.at_timestamp(NOW)),
        ("2026-01-31T12:00:00Z", Position.at_timestamp(NOON)),
        ("2026-01-31T14:00:00+02:00", Position.at_timestamp(NOON)),
        ("2026-01-31 12:00:00.5+00:00", Position.at_timestamp(NOON + 0.5)),
        ("at_timestamp 2026-01-31T12:00:00Z", Position.at_timestamp(NOON)),
        ("1767225600", Position.at_timestamp(1767225600)),
        ("1767225600.25", Position.at_timestamp(1767225600.25)),
        ("AT_TIMESTAMP 1767225600", Position.at_timestamp(1767225600)),
        ("0", Position.at_timestamp(0)),
        ("20260131", Position.at_timestamp(20260131)),
    ],
)
def test_a_text_means_the_same_at_every_door(
    door: Callable[[str], Position], text: str, position: Position
) -> None:
    assert door(text) == position


@pytest.mark.parametrize("door", [of_spout, of_variable, of_stream_read, of_reset])
@pytest.mark.parametrize("text", ["trim_horizon", "TRIM_HORIZON", "earliest"])
def test_the_oldest_record_has_two_names(door: Callable[[str], Position], text: str) -> None:
    assert door(text) == Position.trim_horizon()


@pytest.mark.parametrize("called", DOORS)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("yesterday", "seconds since the epoch"),
        ("2026-01-31T12:00:00", "choose 2026-01-31T12:00:00Z, which is UTC, or another zone"),
        ("2026-01-31", "choose 2026-01-31T00:00:00Z"),
        ("at_timestamp 2026-01-31T12:00:00", "choose 2026-01-31T12:00:00Z"),
        ("at_timestamp", "seconds since the epoch"),
        ("at_timestamp noon", "a time in ISO 8601"),
        ("1969-12-31T23:59:59Z", "between 1970 and 9999"),
        ("-1", "seconds since the epoch"),
        ("1767225600000", "this looks like milliseconds"),
        (NUMBER, "keyword before it: at_sequence_number"),
        ("٣", "seconds since the epoch"),
        ("1e9", "seconds since the epoch"),
        ("at_sequence_number SHARD_END", "a sequence number"),
        ("after_sequence_number " + "9" * 200, "a sequence number"),
    ],
)
def test_what_names_no_position_is_refused_at_every_door_in_its_words(
    called: str, text: str, expected: str
) -> None:
    with pytest.raises(InvalidConfig) as refused:
        DOORS[called](text)
    assert called in str(refused.value)
    assert "expected " in str(refused.value)
    assert expected in str(refused.value)


@pytest.mark.parametrize("called", [name for name in DOORS if name != "to: "])
def test_a_sequence_number_is_refused_for_all_shards(called: str) -> None:
    with pytest.raises(InvalidConfig, match="a record of one shard"):
        DOORS[called](f"at_sequence_number {NUMBER}")


@pytest.mark.parametrize(
    ("text", "position", "base"),
    [
        ("at_sequence_number 7", Position.at(SequenceNumber(7)), SHARD_START),
        ("AFTER_SEQUENCE_NUMBER 7", Position.after(SequenceNumber(7)), SHARD_START),
        ("at_sequence_number 7:0", Position.at(SequenceNumber(7)), SHARD_START),
        ("at_sequence_number 7:3", Position.at(SequenceNumber(7)), SequenceNumber(7, 2)),
        ("after_sequence_number 7:3", Position.at(SequenceNumber(7)), SequenceNumber(7, 3)),
    ],
)
def test_a_reset_of_one_shard_goes_to_a_sequence_number(
    text: str, position: Position, base: SequenceNumber
) -> None:
    target = parse_target(text, NOW)
    stored = Checkpoint.beginning_at(target, parents=())
    assert (stored.start, stored.base) == (position, base)
    assert target.sequence_number is not None


def test_a_read_shard_by_shard_takes_sequence_numbers() -> None:
    given = {"streamName": "orders", "initialPosition": f'{{"shardId-1": "after_sequence_number {NUMBER}"}}'}
    start = StreamReadOptions.of(given).start
    assert start.of_shard("shardId-1") == Position.after(SequenceNumber(int(NUMBER)))


@pytest.mark.parametrize("door", [of_stream_read, of_batch_read])
@pytest.mark.parametrize(
    "place", ["at_sequence_number 7:3", {"iteratorType": "AT_SEQUENCE_NUMBER", "iteratorPosition": "7:3"}]
)
def test_a_read_takes_no_part_of_an_aggregated_record(
    door: Callable[[str], Position], place: str | dict[str, str]
) -> None:
    with pytest.raises(
        InvalidConfig, match="shardId-1: expected a whole sequence number, as in 7, got '7:3'"
    ):
        door(json.dumps({"shardId-1": place}))


@pytest.mark.parametrize(
    "door", [of_spout_by_shard, of_variable_by_shard, of_file_by_shard, of_stream_by_shard]
)
@pytest.mark.parametrize(
    ("place", "position"),
    [
        (f"at_sequence_number {NUMBER}", Position.at(SequenceNumber(int(NUMBER)))),
        (
            {"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": NUMBER},
            Position.after(SequenceNumber(int(NUMBER))),
        ),
        ({"at_timestamp": "2026-01-31T12:00:00Z"}, Position.at_timestamp(NOON)),
        ("2026-01-31T12:00:00Z", Position.at_timestamp(NOON)),
        ("latest", Position.latest()),
    ],
)
def test_positions_of_shards_are_written_alike_at_every_door(
    door: Callable[[dict[str, Any]], StartPositions], place: Any, position: Position
) -> None:
    found = door({"shardId-1": place})
    assert found == StartPositions(default=Position.trim_horizon(), shards={"shardId-1": position})


@pytest.mark.parametrize("setting", ["initial_position", "start_again", "until"])
def test_a_spout_takes_parts_of_aggregated_records(setting: str) -> None:
    config = spout(**{setting: {"shardId-1": "at_sequence_number 7:3"}})
    part = Position.at(SequenceNumber(7, 3))
    found = {
        "initial_position": config.start,
        "start_again": config.again and config.again[1],
        "until": config.run_end,
    }[setting]
    assert found is not None
    assert found.shards == {"shardId-1": part}


@pytest.mark.parametrize("setting", ["initial_position", "start_again", "until"])
@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        ({}, "at least one shard"),
        ({"orders": "latest"}, "shard ids"),
        ({7: "latest"}, "shard ids"),
        ({"shardId-1": b"latest"}, "JSON with a position per shard"),
        ({"shardId-1": {("a", "b"): 7}}, "JSON with a position per shard"),
        ({"shardId-1": "at_sequence_number SHARD_END"}, "a sequence number, as in 123"),
        ({"shardId-1": 7}, "a word or an object"),
    ],
)
def test_what_gives_no_positions_of_shards_is_refused_by_the_name_of_the_setting(
    setting: str, positions: Any, expected: str
) -> None:
    with pytest.raises(InvalidConfig) as refused:
        spout(**{setting: positions})
    assert str(refused.value).startswith(f"{setting}: ")
    assert expected in str(refused.value)


@pytest.mark.parametrize("setting", ["initial_position", "start_again", "until"])
def test_several_streams_have_no_positions_of_shards(setting: str) -> None:
    with pytest.raises(InvalidConfig, match=f"^{setting}: expected one position for all shards"):
        spout(stream="orders,refunds", **{setting: {"shardId-1": "latest"}})
