import pickle
from typing import Any

import pytest
from pyspark import cloudpickle

from kinesis_spout.kinesis import KinesisClientSettings
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.model.record import Record
from kinesis_spout.spark.per_record.each_record import each_record


def ignore(record: Record) -> None:
    del record


def test_the_function_travels_to_where_foreach_batch_runs() -> None:
    function = each_record(ignore, dead_letters="/dead", app="billing", on_progress=print)

    assert callable(pickle.loads(cloudpickle.dumps(function)))  # type: ignore[no-untyped-call]


def test_the_credentials_of_the_dead_letter_stream_stay_out_of_the_functions_text() -> None:
    function = each_record(
        ignore,
        dead_letters="kinesis://letters",
        app="billing",
        dead_letter_client=KinesisClientSettings(aws_access_key_id="AKIA-me", aws_secret_access_key="sesame"),
    )

    assert "sesame" not in repr(function)
    assert "AKIA-me" not in repr(function)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"handler": "charge"}, "handler: expected a callable, got 'charge'"),
        ({"app": ""}, "app: expected the application's name, got ''"),
        ({"dead_letters": ""}, "dead_letters: expected a directory or a URL, got ''"),
        ({"scheme": "yaml"}, "scheme: expected one of raw, text, json"),
        ({"retry_limit": -1}, "expected limit to be None or at least 0, got -1"),
        ({"retry_backoff_seconds": -1.0}, "expected backoff_seconds to be at least 0"),
        ({"retry_backoff_seconds": 9, "retry_backoff_cap_seconds": 5}, "expected cap_seconds to be at least"),
        (
            {"maximum_record_age_seconds": 0},
            "maximum_record_age_seconds: expected None or more than 0, got 0",
        ),
        ({"max_failed_bytes_per_task": 0}, "max_failed_bytes_per_task: expected more than 0, got 0"),
    ],
)
def test_an_argument_out_of_its_range_is_named(arguments: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"handler": ignore, "dead_letters": "/dead", "app": "billing"}

    with pytest.raises(InvalidConfig, match=message):
        each_record(**good | arguments)
