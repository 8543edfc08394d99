"""A scheme turns records into values; what it raises is its record's failure."""

import pickle
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kinesis_spout import scheme
from kinesis_spout.errors import InvalidConfig
from kinesis_spout.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable


def record(data: bytes) -> Record:
    return Record(data=data, sequence_number="1")


def test_raw_gives_the_record_itself() -> None:
    given = record(b"\xff")
    assert scheme.resolve("raw")(given) is given


def test_text_gives_utf_8() -> None:
    assert scheme.resolve("text")(record("Grüße".encode())) == "Grüße"


def test_json_gives_what_was_encoded() -> None:
    assert scheme.resolve("json")(record(b'{"a": [1, null]}')) == {"a": [1, None]}


@pytest.mark.parametrize(("name", "error"), [("text", UnicodeDecodeError), ("json", msgspec.DecodeError)])
def test_data_of_another_form_raises(name: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        scheme.resolve(name)(record(b"\xff\xfe{"))


def test_a_callable_is_its_own_scheme() -> None:
    assert scheme.resolve(lambda given: len(given.data))(record(b"abc")) == 3


def test_a_scheme_is_found_by_module_and_name() -> None:
    assert scheme.resolve("kinesis_spout.scheme:json") is scheme.json
    assert scheme.resolve("kinesis_spout.record:Record.__repr__") is Record.__repr__


@pytest.mark.parametrize("name", ["raw", "text", "json", "kinesis_spout.scheme:text"])
def test_a_named_scheme_travels_to_executors(name: str) -> None:
    found: Callable[[Record], Any] = pickle.loads(pickle.dumps(scheme.resolve(name)))
    assert found is scheme.resolve(name)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("jsn", "one of raw, text, json, a callable, or 'module:callable', got 'jsn'"),
        (":json", "got ':json'"),
        ("kinesis_spout.scheme:", "got 'kinesis_spout.scheme:'"),
        ("no_such_module:f", "No module named 'no_such_module'"),
        ("kinesis_spout.scheme:nothing", "has no attribute 'nothing'"),
        ("kinesis_spout.scheme:BUILT_IN", "to be callable, got a dict"),
        (3, "got 3"),
    ],
)
def test_what_is_no_scheme_is_refused(given: Any, message: str) -> None:
    with pytest.raises(InvalidConfig, match=f"^scheme: expected .*{message}"):
        scheme.resolve(given)
