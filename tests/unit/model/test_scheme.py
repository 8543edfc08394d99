"""A scheme turns records into values; what it raises is its record's failure."""

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kinesis_spout.model import scheme
from kinesis_spout.model.errors import InvalidConfig
from kinesis_spout.model.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable


def record(data: bytes) -> Record:
    return Record(data=data, sequence_number="1")


def itself(given: Record) -> Record:
    return given


def test_raw_gives_the_record() -> None:
    given = record(b"\xff")
    assert scheme.resolve("raw")(given) == given


@pytest.mark.parametrize(
    "chosen", ["raw", "kinesis_spout.model.scheme:raw", itself], ids=["raw", "a path", "a function"]
)
def test_what_a_handler_does_to_its_record_stays_with_the_handler(
    chosen: "str | Callable[[Record], Any]",
) -> None:
    given = record(b"\xff")
    values = scheme.resolve(chosen)(given)
    values.data = None
    values.partition_key = "another"

    assert given == record(b"\xff")


def test_a_scheme_may_change_its_record_too() -> None:
    def unwrapped(given: Record) -> Record:
        given.data = given.data[1:]
        return given

    given = record(b"_payload")

    assert scheme.resolve(unwrapped)(given).data == b"payload"
    assert given == record(b"_payload")


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
    assert scheme.resolve("kinesis_spout.model.scheme:json") is scheme.json
    assert scheme.resolve("kinesis_spout.model.record:Record.__repr__")(record(b"x")) == repr(record(b"x"))


def test_the_module_of_a_scheme_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my-scheme.py").write_text("def size(record): return len(record.data)")
    monkeypatch.syspath_prepend(tmp_path)
    assert scheme.resolve("my-scheme:size")(record(b"abc")) == 3


def test_an_error_of_the_module_of_a_scheme_passes_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_scheme.py").write_text("int('no number')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="invalid literal"):
        scheme.resolve("broken_scheme:size")


@pytest.mark.parametrize("name", ["raw", "text", "json", "kinesis_spout.model.scheme:text"])
def test_a_named_scheme_travels_to_executors(name: str) -> None:
    found: Callable[[Record], Any] = pickle.loads(pickle.dumps(scheme.resolve(name)))
    assert found is scheme.resolve(name)


def test_a_scheme_of_a_user_travels_to_executors() -> None:
    found: Callable[[Record], Any] = pickle.loads(pickle.dumps(scheme.resolve(itself)))
    assert found(record(b"x")) == record(b"x")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("jsn", "one of raw, text, json, a callable, or 'module:callable', got 'jsn'"),
        (":json", "got ':json'"),
        ("kinesis_spout.model.scheme:", "got 'kinesis_spout.model.scheme:'"),
        ("no_such_module:f", "No module named 'no_such_module'"),
        ("kinesis_spout.model.scheme:nothing", "has no attribute 'nothing'"),
        ("kinesis_spout.model.scheme:BUILT_IN", "to be callable, got a dict"),
        (3, "got 3"),
    ],
)
def test_what_is_no_scheme_is_refused(given: Any, message: str) -> None:
    with pytest.raises(InvalidConfig, match=f"^scheme: expected .*{message}"):
        scheme.resolve(given)
