"""Settings reach a command from options, assignments, the environment and a file, in this order."""

from pathlib import Path

import pytest

from kinesis_spout.cli.shared_options import load
from kinesis_spout.model.errors import InvalidConfig
from shard_state import Position, SequenceNumber

NAMES = {"stream": "orders", "app": "billing"}


def test_an_option_is_text_that_becomes_what_the_setting_is() -> None:
    config = load(
        None, NAMES | {"retry_limit": "7"}, ["poll-interval-seconds=0.5", "fail_on_data_loss=false"]
    )
    assert (config.retry_limit, config.poll_interval_seconds) == (7, 0.5)
    assert config.fail_on_data_loss is False


def test_an_assignment_may_have_a_unit() -> None:
    config = load(None, NAMES, ["max-buffered-bytes=1g", "stop_timeout_seconds=1m"])
    assert (config.max_buffered_bytes, config.stop_timeout_seconds) == (1 << 30, 60.0)


def test_none_and_digits_mean_what_the_setting_can_be() -> None:
    config = load(None, NAMES | {"app": "42"}, ["retry_limit=none", "initial_position=1700000000"])
    assert (config.app, config.retry_limit) == ("42", None)
    assert config.start.default.timestamp == 1_700_000_000


def test_a_position_per_shard_is_json_in_an_option_and_in_an_assignment() -> None:
    text = '{"shardId-000000000000": "after_sequence_number 7:2"}'
    place = {"shardId-000000000000": Position.after(SequenceNumber(7, 2))}
    assert load(None, NAMES | {"initial_position": text}, []).start.shards == place
    assert load(None, NAMES, [f"initial_position={text}"]).start.shards == place
    with pytest.raises(InvalidConfig, match=r"^initial_position: shardId-1: expected .*'tomorrow'"):
        load(None, NAMES | {"initial_position": '{"shardId-1": "tomorrow"}'}, [])


def test_an_option_wins_over_an_assignment_over_the_environment_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "spout.toml"
    file.write_text('stream = "file"\napp = "file"\nregion = "file"\norder = "key"\n')
    monkeypatch.setenv("KINESIS_SPOUT_STREAM", "environment")
    monkeypatch.setenv("KINESIS_SPOUT_APP", "environment")
    monkeypatch.setenv("KINESIS_SPOUT_REGION", "environment")
    config = load(file, {"stream": "option", "app": None}, ["stream=assigned", "app=assigned"])
    assert (config.stream, config.app, config.region, config.order) == (
        "option", "assigned", "environment", "key",
    )  # fmt: skip


def test_a_wrong_value_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(InvalidConfig, match=r"^retry_limit: expected int >= 0, or none, got 'some'"):
        load(None, NAMES | {"retry_limit": "some"}, [])


def test_a_wrong_assignment_is_refused_as_one_and_units_are_offered() -> None:
    with pytest.raises(InvalidConfig, match=r"^--set retry_limit: expected int >= 0, or none, got 'x'$"):
        load(None, NAMES, ["retry_limit=x"])
    units = r"expected float >= 0, or a duration such as 200ms, 10s, 5m or 1h, at least 0s, got '5x'$"
    with pytest.raises(InvalidConfig, match=units):
        load(None, NAMES, ["max_batch_seconds=5x"])
    with pytest.raises(InvalidConfig, match=r"or a size such as 500k, 8m or 1g, or a number of bytes"):
        load(None, NAMES, ["max_buffered_bytes=lots"])


def test_the_end_of_a_run_is_not_offered_the_beginning_of_the_stream() -> None:
    with pytest.raises(InvalidConfig, match=r"^until: expected latest, an ISO 8601 time") as refused:
        load(None, NAMES | {"until": "tomorrow"}, [])
    assert "trim_horizon" not in str(refused.value)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("retyr_limit=3", "did you mean retry_limit"),
        ("RETRY_LIMIT=3", r"did you mean retry_limit\?"),
        ("KINESIS_SPOUT_RETRY_LIMIT=3", r"did you mean retry_limit\?"),
        ("timeout=3", "did you mean session_timeout_seconds or hand_over_timeout_seconds or record_timeout"),
        ("retry_limit", "=VALUE"),
        ("x=1", "unknown setting 'x'$"),
    ],
)
def test_an_assignment_that_is_none_is_refused(assignment: str, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        load(None, NAMES, [assignment])


def test_an_unknown_name_does_not_show_its_value() -> None:
    with pytest.raises(InvalidConfig) as refused:
        load(None, NAMES, ["aws_secret_acces_key=hush"])
    assert "hush" not in str(refused.value)
