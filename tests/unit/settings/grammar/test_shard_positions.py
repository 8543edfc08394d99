import json
from typing import Any

import pytest
from hypothesis import example
from hypothesis import given as for_all
from hypothesis import strategies as st

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.settings.grammar.shard_positions import EndPositions
from kinesis_spout.settings.source_options import BatchReadOptions, StreamReadOptions
from shard_state import Position, SequenceNumber, StartPositions

SHARD = "shardId-000000000000"
OTHER_SHARD = "shardId-000000000001"
NOON = 1769860800.0  # 2026-01-31T12:00:00Z
NUMBER = "49590338271490256608559692538361571095921575989136588898"


def started(text: str) -> StartPositions:
    return StreamReadOptions.of({"streamName": "orders", "initialPosition": text}).start


def ended(text: str) -> EndPositions:
    return BatchReadOptions.of({"streamName": "orders", "endingPosition": text}).end


def iterator(type_: str, position: Any) -> dict[str, Any]:
    return {"iteratorType": type_, "iteratorPosition": position}


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("latest", Position.latest()),
        ("LATEST", Position.latest()),
        ("trim_horizon", Position.trim_horizon()),
        ("Earliest", Position.trim_horizon()),
        ('{"at_timestamp": "2026-01-31T12:00:00Z"}', Position.at_timestamp(NOON)),
        ('{"at_timestamp": "2026-01-31T13:00:00+01:00"}', Position.at_timestamp(NOON)),
        ('{"AT_TIMESTAMP": 1769860800}', Position.at_timestamp(NOON)),
        ('{"at_timestamp": 1769860800.25}', Position.at_timestamp(NOON + 0.25)),
        ('{"at_timestamp": "1769860800"}', Position.at_timestamp(NOON)),
        ("AT_TIMESTAMP 2026-01-31T12:00:00Z", Position.at_timestamp(NOON)),
        ("2026-01-31T12:00:00Z", Position.at_timestamp(NOON)),
    ],
)
def test_a_start_for_all_shards_is_a_word_or_a_time(text: str, position: Position) -> None:
    assert started(text) == StartPositions(default=position)
    assert started(text).of_shard(SHARD) == position


def test_a_start_may_be_said_shard_by_shard() -> None:
    number = SequenceNumber(int(NUMBER))
    wanted = {
        "shardId-1": (iterator("AT_SEQUENCE_NUMBER", NUMBER), Position.at(number)),
        "shardId-2": (iterator("after_sequence_number", NUMBER), Position.after(number)),
        "shardId-3": (iterator("AT_TIMESTAMP", "2026-01-31T12:00:00Z"), Position.at_timestamp(NOON)),
        "shardId-4": ({"iteratorType": "TRIM_HORIZON", "iteratorPosition": ""}, Position.trim_horizon()),
        "shardId-5": ({"iteratorType": "LATEST"}, Position.latest()),
        "shardId-6": ("latest", Position.latest()),
        "shardId-7": ({"at_timestamp": NOON}, Position.at_timestamp(NOON)),
    }

    start = started(json.dumps({shard_id: text for shard_id, (text, _) in wanted.items()}))

    assert {shard_id: start.of_shard(shard_id) for shard_id in wanted} == {
        shard_id: position for shard_id, (_, position) in wanted.items()
    }
    assert start.of_shard("shardId-8") == Position.trim_horizon()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("yesterday", "latest, trim_horizon"),
        ("2026-01-31", "with its zone"),
        ("{", "JSON"),
        ("{}", "at least one shard"),
        ('{"at_timestamp": "2026-01-31T12:00:00"}', "zone"),
        ('{"at_timestamp": "31.1.2026"}', "ISO 8601"),
        ('{"at_timestamp": 1769860800000}', "not milliseconds"),
        ('{"at_timestamp": -1}', "1970"),
        ('{"at_timestamp": NaN}', "1970"),
        ('{"at_timestamp": true}', "a time"),
        ('{"at_timestamp": null}', "a time"),
        ('{"at_timestamp": "01/31/2026 PDT", "format": "MM/dd/yyyy ZZZ"}', "ISO 8601"),
        ('{"at_timestamp": 1, "shardId-1": "latest"}', "shardId-1"),
        ('{"timestamp": 1}', "at_timestamp"),
        ('{"shardId-1": 7}', "shardId-1: expected"),
        ('{"shardId-1": "tomorrow"}', "shardId-1: expected"),
        ('{"shardId-1": {}}', "iteratorType"),
        ('{"shardId-1": "latest", "shardId-1": "latest"}', "twice"),
        ('{"shardId-1": {"iteratorType": "NEXT"}}', "AT_SEQUENCE_NUMBER"),
        ('{"shardId-1": {"iteratorType": "SHARD_END"}}', "AT_SEQUENCE_NUMBER"),
        ('{"shardId-1": {"iteratorType": "AT_SEQUENCE_NUMBER"}}', "in quotes"),
        ('{"shardId-1": {"iteratorType": "AT_SEQUENCE_NUMBER", "iteratorPosition": 7}}', "in quotes"),
        ('{"shardId-1": {"iteratorType": "AT_SEQUENCE_NUMBER", "iteratorPosition": "-7"}}', "in quotes"),
        ('{"shardId-1": {"iteratorType": "LATEST", "iteratorPosition": "7"}}', "no iteratorPosition"),
        ('{"shardId-1": {"iteratorType": "LATEST", "position": "7"}}', "position"),
    ],
)
def test_a_start_that_says_nothing_is_refused(text: str, expected: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        started(text)

    assert str(refused.value).startswith("option initialPosition: ")
    assert expected in str(refused.value)


@for_all(st.text() | st.text().map(lambda text: "{" + text) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.dictionaries(
        st.sampled_from([SHARD, "at_timestamp", "iteratorType", "iteratorPosition"]) | st.text(), inner
    ),
).map(json.dumps))  # fmt: skip
@example('{"at_timestamp": ' + "9" * 5000 + "}")
@example('{"a":' * 100_000)
@example('{"at_timestamp": "0001-01-01T00:00:00+23:59"}')
@example('{"at_timestamp": "9999-12-31T23:59:59-23:59"}')
@example('{"shardId-1": {"iteratorType": "AT_SEQUENCE_NUMBER", "iteratorPosition": "' + "9" * 200 + '"}}')
def test_any_text_is_a_start_or_refused(text: str) -> None:
    try:
        assert isinstance(started(text), StartPositions)
    except InvalidConfig as error:
        assert str(error).startswith("option initialPosition: ")  # noqa: PT017 - either outcome is right


def test_an_end_is_where_a_later_read_would_go_on() -> None:
    number = SequenceNumber(int(NUMBER))

    assert ended("latest") == EndPositions(default=Position.latest())
    assert ended('{"at_timestamp": 1769860800}') == EndPositions(default=Position.at_timestamp(NOON))
    by_shard = ended(
        json.dumps(
            {
                SHARD: iterator("AT_SEQUENCE_NUMBER", NUMBER),
                OTHER_SHARD: iterator("AFTER_SEQUENCE_NUMBER", NUMBER),
            }
        )
    )
    assert by_shard.of_shard(SHARD) == Position.at(number)
    assert by_shard.of_shard(OTHER_SHARD) == Position.after(number)
    assert by_shard.of_shard("shardId-000000000002") == Position.latest()


@pytest.mark.parametrize("text", ["trim_horizon", "earliest", f'{{"{SHARD}": "trim_horizon"}}'])
def test_an_end_before_the_first_record_is_refused(text: str) -> None:
    with pytest.raises(
        InvalidConfig, match=r"option endingPosition: .*expected an end behind the first record"
    ):
        ended(text)


def test_latest_becomes_the_time_it_is_resolved_at_and_nothing_else_changes() -> None:
    text = json.dumps({SHARD: "latest", OTHER_SHARD: {"at_timestamp": 1}})

    assert started("latest").resolved(NOON).default == Position.at_timestamp(NOON)
    assert started(text).resolved(NOON) == StartPositions(
        default=Position.trim_horizon(),
        shards={SHARD: Position.at_timestamp(NOON), OTHER_SHARD: Position.at_timestamp(1)},
    )
    assert ended(text).resolved(NOON) == EndPositions(
        default=Position.at_timestamp(NOON),
        shards={SHARD: Position.at_timestamp(NOON), OTHER_SHARD: Position.at_timestamp(1)},
    )


@pytest.mark.parametrize("start", ["latest", f'{{"{SHARD}": "latest"}}'])
def test_a_batch_read_from_the_tip_is_refused(start: str) -> None:
    with pytest.raises(InvalidConfig, match=r"option startingPosition: .*would read nothing"):
        BatchReadOptions.of({"streamName": "orders", "startingPosition": start})


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ({"at_timestamp": 20}, {"at_timestamp": 19}),
        ({SHARD: iterator("AT_SEQUENCE_NUMBER", "10")}, {SHARD: iterator("AFTER_SEQUENCE_NUMBER", "9")}),
        ({SHARD: iterator("AFTER_SEQUENCE_NUMBER", "10")}, {SHARD: iterator("AT_SEQUENCE_NUMBER", "10")}),
        ({SHARD: {"at_timestamp": 20}}, {"at_timestamp": 19}),
    ],
)
def test_an_end_before_the_start_is_refused(start: dict[str, Any], end: dict[str, Any]) -> None:
    options = {"startingPosition": json.dumps(start), "endingPosition": json.dumps(end)}

    with pytest.raises(InvalidConfig, match=r"option endingPosition: .* is before its start"):
        BatchReadOptions.of({"streamName": "orders"} | options)


def test_a_range_of_one_record_is_fine() -> None:
    options = BatchReadOptions.of(
        {
            "streamName": "orders",
            "initialPosition": json.dumps({SHARD: iterator("AT_SEQUENCE_NUMBER", "10")}),
            "endingPosition": json.dumps({SHARD: iterator("AFTER_SEQUENCE_NUMBER", "10")}),
        }
    )

    assert options.start.of_shard(SHARD) == Position.at(SequenceNumber(10))
    assert options.end.of_shard(SHARD) == Position.after(SequenceNumber(10))


@pytest.mark.parametrize("option", ["startingPosition", "endingPosition"])
def test_positions_per_shard_are_of_one_stream(option: str) -> None:
    text = json.dumps({SHARD: iterator("AT_SEQUENCE_NUMBER", "10")})

    with pytest.raises(InvalidConfig, match=f"option {option}: expected one stream"):
        BatchReadOptions.of({"streamName": "orders,bills", option: text})
