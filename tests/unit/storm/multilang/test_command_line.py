"""Where the settings of the spout's component come from."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.settings import SpoutConfig
from kinesis_spout.settings.table import SETTINGS
from kinesis_spout.storm.multilang.__main__ import add_options, configuring

NAMES = {"kinesis.spout.stream": "orders", "kinesis.spout.app": "billing"}


def configured(conf: dict[str, Any], *options: str) -> SpoutConfig:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return configuring(parser.parse_args(options))(conf)


def test_every_setting_has_an_option() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    options = parser.format_help()
    assert [name for name in SETTINGS if f"--{name.replace('_', '-')} TEXT" not in options] == []


def test_the_command_line_is_over_the_topology_over_the_environment_over_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("retry_limit = 1\nmax_pending = 1\nweight = 1\nmax_holes = 1001\n")
    for name in ("retry_limit", "max_pending", "weight"):
        monkeypatch.setenv(f"KINESIS_SPOUT_{name.upper()}", "2")
    conf = {**NAMES, "kinesis.spout.retry_limit": 3, "kinesis.spout.max_pending": 3, "topology.name": "x"}
    config = configured(conf, "--config", str(file), "--retry-limit", "4")
    assert (config.retry_limit, config.max_pending, config.weight, config.max_holes) == (4, 3, 2, 1001)


@pytest.mark.parametrize("value", [5, "5", 5.0])
def test_a_topologys_number_may_be_text(value: object) -> None:
    assert configured({**NAMES, "kinesis.spout.retry_limit": value}).retry_limit == 5


def test_a_setting_may_be_none() -> None:
    assert configured({**NAMES, "kinesis.spout.retry_limit": None}).retry_limit is None
    assert configured(NAMES, "--retry-limit", "none").retry_limit is None


def test_a_key_that_is_no_setting_is_refused_with_the_one_that_is_meant() -> None:
    with pytest.raises(InvalidConfig, match=r"did you mean kinesis\.spout\.retry_limit"):
        configured({**NAMES, "kinesis.spout.retry_limits": 3})


def test_a_required_setting_that_is_missing_names_every_place_for_it() -> None:
    with pytest.raises(
        InvalidConfig, match=r"as --app, as kinesis\.spout\.app in the .*, or as KINESIS_SPOUT_APP in"
    ):
        configured({"kinesis.spout.stream": "orders"})


def test_a_secret_of_the_topology_is_not_shown() -> None:
    with pytest.raises(InvalidConfig) as caught:
        configured({**NAMES, "kinesis.spout.aws_secret_access_key": ["secret"]})
    assert "['secret']" not in str(caught.value)
