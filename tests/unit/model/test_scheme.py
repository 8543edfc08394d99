"""A scheme turns records into values; what it raises is its record's failure."""

import gzip
import math
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{"name": "abcd\\ud83d"}', {"name": "abcd\ud83d"}),
        (b'{"name": "abcd\\ud83d", "n": 1}', {"name": "abcd\ud83d", "n": 1}),
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        ('{"a": 1}'.encode("utf-16"), {"a": 1}),
        (b"[-Infinity, 1e400]", [-math.inf, math.inf]),
    ],
    ids=["half a character at the end", "half a character", "a BOM", "UTF-16", "numbers that are infinite"],
)
def test_json_is_read_as_leniently_as_python_reads_it(data: bytes, value: object) -> None:
    assert scheme.resolve("json")(record(data)) == value


@pytest.mark.parametrize("name", ["text", "json"])
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff\xfe{", r"got something else: .*codec can't decode"),
        (gzip.compress(b"{}"), r"got gzip, as subscriptions of CloudWatch Logs put it: decompress it first"),
    ],
    ids=["not UTF-8", "gzip"],
)
def test_data_of_another_form_is_refused_with_what_it_is(name: str, data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=f"expected (text in UTF-8|JSON), {reason}"):
        scheme.resolve(name)(record(data))


@pytest.mark.parametrize(
    ("data", "reason"), [(b"", "got no data$"), (b'{"a": }', r"Expecting value: line 1 column 7 \(char 6\)")]
)
def test_what_is_not_json_says_where(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=f"expected JSON, .*{reason}"):
        scheme.resolve("json")(record(data))


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
