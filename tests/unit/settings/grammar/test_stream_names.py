"""Which streams a spout reads: names, ARNs and patterns in one setting."""

from pathlib import Path
from typing import Any

import pytest

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.grammar.stream_names import is_pattern, matching

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/returns"


def config(stream: Any, **settings: Any) -> SpoutConfig:
    return SpoutConfig.of(stream=stream, app="billing", **settings)


def refusal(stream: Any, **settings: Any) -> str:
    with pytest.raises(InvalidConfig) as caught:
        config(stream, **settings)
    return str(caught.value)


def test_a_list_and_text_with_commas_are_the_same() -> None:
    assert config(["orders", "refunds-*", ARN]) == config(f"orders, refunds-*,{ARN}")
    assert config(["orders"]) == config("orders")


def test_a_file_and_the_environment_may_name_several(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('stream = ["orders", "refunds"]\napp = "billing"\n')
    assert SpoutConfig.load(file, {}).streams == ("orders", "refunds")
    made = SpoutConfig.load(
        environ={"KINESIS_SPOUT_STREAM": "orders,refunds", "KINESIS_SPOUT_APP": "billing"}
    )
    assert made.streams == ("orders", "refunds")


@pytest.mark.parametrize(
    ("stream", "several"), [("orders", False), (ARN, False), ("orders,refunds", True), ("orders-?", True)]
)
def test_a_pattern_may_mean_several(stream: str, several: bool) -> None:  # noqa: FBT001 - a column of the table
    assert config(stream).is_several is several


def test_each_stream_has_the_region_of_its_arn_or_else_the_one_that_is_set() -> None:
    made = config(["orders", ARN], region="us-east-1")
    assert [made.of_stream(stream).stream_region for stream in made.streams] == ["us-east-1", "eu-west-1"]


def test_one_refusal_names_everything_that_is_wrong() -> None:
    assert refusal(["or ders", "fine", "re/funds"]).endswith("got 'or ders, re/funds'")
    message = refusal(
        ["a", ARN], endpoint_url="https://kinesis.eu-west-3.amazonaws.com", dead_letters="kinesis://a"
    )
    assert "dead_letters: expected another stream" in message
    assert "endpoint_url: expected one in region 'eu-west-1'" in message


@pytest.mark.parametrize("stream", [[], "orders,", ",", ["a,b"], [1], {"orders"}, "orders,.."])
def test_what_names_no_streams_is_refused(stream: Any) -> None:
    assert refusal(stream).startswith("stream: expected ")


def test_two_streams_of_one_name_are_refused_for_progress_is_kept_by_name() -> None:
    assert "each stream name once" in refusal(["returns", ARN])


def test_only_latest_gives_way_to_the_beginning() -> None:
    for position, begins in (("latest", "trim_horizon"), ("1700000000", "1700000000")):
        made = config("orders-*", initial_position=position).of_stream("orders-de", begins_at_its_start=True)
        assert made.initial_position == begins
        assert made.start_again is None


def test_a_glob_is_of_the_whole_name_and_knows_case() -> None:
    names = ["orders", "orders-de", "Orders-de", "my-orders-de", "orders-d"]
    assert matching("orders-??", names) == ["orders-de"]
    assert matching("*", names) == names
    before = "arn:aws:kinesis:eu-west-1:123456789012:stream/"
    assert matching(f"{before}orders-*", names) == [f"{before}orders-de", f"{before}orders-d"]
    assert is_pattern(f"{before}orders-*")
