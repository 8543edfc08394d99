"""Every row of the table is complete, and says what the typed values of its doors need."""

import re
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest

from kinesis_spout.kinesis import ReadSettings
from kinesis_spout.settings.option import Option, Use
from kinesis_spout.settings.setting_messages import respelled
from kinesis_spout.settings.source_options import BatchReadOptions, StreamReadOptions, WriteOptions
from kinesis_spout.settings.table import OPTIONS, SETTINGS
from kinesis_spout.settings.table.spelling import as_option

KINDS = {
    Use.STREAM_READ: StreamReadOptions,
    Use.BATCH_READ: BatchReadOptions,
    Use.WRITE: WriteOptions,
}
ELSEWHERE = {
    "initial_position": "start",
    "ending_position": "end",
    "aggregation": "aggregate_bytes",
    "consumer_mode": "fan_out_consumer",
    "consumer_name": "fan_out_consumer",
}
"""Options that become another field than that of their name."""
DERIVED = {
    "streams",
    "order",
    "log_level",
    "extra_columns",
    "aggregate_bytes",
    "max_fetch_bytes_per_second",
}
"""Fields that are made from the value of their option, and from others."""


def typed_options(use: Use) -> dict[str, Any]:
    """The types of the fields, those of how shards are read among them."""
    hints = get_type_hints(KINDS[use])
    return hints | (get_type_hints(ReadSettings) if hints.pop("read", None) else {})


def bare(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


@pytest.mark.parametrize("use", Use)
def test_every_option_of_a_use_becomes_a_field_of_its_typed_options(use: Use) -> None:
    client = {option.setting for option in SETTINGS.values() if option.uses == frozenset(Use)}
    known = typed_options(use).keys()
    named = {ELSEWHERE.get(option.setting, option.setting) for option in OPTIONS if use in option.uses}
    assert named - client == known - {"client", "tracing"}  # which records alone have


@pytest.mark.parametrize("use", Use)
def test_a_typed_option_has_the_type_of_its_row(use: Use) -> None:
    hints = typed_options(use)
    for option in OPTIONS:
        if use in option.uses and option.setting in hints.keys() - DERIVED:
            wanted = bare(option.type.annotation)
            assert hints[option.setting] == (wanted | None if option.default is None else wanted), option.name


@pytest.mark.parametrize("option", [*SETTINGS.values(), *OPTIONS], ids=lambda option: option.setting)
def test_a_row_says_what_it_means_in_the_words_of_its_doors(option: Option) -> None:
    marked = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", option.doc))
    if option.name:
        assert all(as_option(name, None) for name in marked)
        assert not re.search(r"`[a-z]+_[a-z_]+`", respelled(option.doc, as_option))
    if option.is_setting:
        assert marked <= SETTINGS.keys()
    assert option.doc.rstrip("`").endswith(".") or option.doc.endswith("`.")


@pytest.mark.parametrize("option", [*SETTINGS.values(), *OPTIONS], ids=lambda option: option.setting)
def test_a_default_is_what_its_row_allows(option: Option) -> None:
    if option.is_setting and option.default is not None:
        assert option.type.of(option.default) == option.default
    if option.name and option.default_text is not None:
        read = option.type.of_text(option.default_text)
        assert isinstance(option.default, str) or read == option.default
