"""What the native decoder takes from a reply is what Python takes, or it refuses the reply."""

import base64
import gc
import importlib
import itertools
import json
import runpy
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.kinesis import ReadSettings, native
from kinesis_spout.kinesis.read.arrow import ArrowForm, ArrowPage
from kinesis_spout.kinesis.read.page import GetRecordsReply, decode_reply
from kinesis_spout.model.record import Record
from tests.fuzz_native import check_damaged
from tests.support.alone import in_a_process_of_its_own
from tests.support.waiting import wait_until

FORM = ArrowForm(
    stream="orders",
    shard_id="shard-1",
    settings=ReadSettings(extra_columns=("encryptionType", "millisBehindLatest")),
)
NUMBER = 49_680_427_482_694_328_467_366_729_337_512_435_546_436_086_034_247_712_770

any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
any_number = st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False)
any_value = st.recursive(
    st.none() | st.booleans() | any_number | any_text,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(any_text, inside, max_size=3),
    max_leaves=5,
)
_steps = st.lists(st.integers(1, 10**57), min_size=8, max_size=8)
milliseconds = st.integers(1, 4_000_000_000_000)
unknown_members = st.dictionaries(st.sampled_from(["New", "newer", "Datum"]), any_value, max_size=2)


pytestmark = pytest.mark.usefixtures("native_decoder")


@pytest.fixture(params=["avx2", "table"])
def base64_by(request: pytest.FixtureRequest, native_decoder: Any) -> Iterator[None]:
    if native_decoder.use_avx2(request.param == "avx2") is not (request.param == "avx2"):
        pytest.skip("this processor has no AVX2")
    yield
    native_decoder.use_avx2(True)


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    members: dict[str, Any] = {
        "Data": draw(st.binary(max_size=200)),
        "SequenceNumber": "",
    }
    optional = {
        "PartitionKey": st.none() | any_text,
        "EncryptionType": st.sampled_from(["NONE", "KMS", None]),
        "ApproximateArrivalTimestamp": st.none() | milliseconds,
    }
    for name, values in optional.items():
        if draw(st.booleans()):
            members[name] = draw(values)
    members |= draw(unknown_members)
    return {name: members[name] for name in draw(st.permutations(sorted(members)))}


@st.composite
def replies(draw: st.DrawFn) -> dict[str, Any]:
    wire = draw(st.lists(records(), max_size=8))
    for record, number in zip(wire, itertools.accumulate(draw(_steps)), strict=False):
        record["SequenceNumber"] = str(number)
    members: dict[str, Any] = {
        "Records": wire,
        "NextShardIterator": draw(st.none() | st.text(st.characters(max_codepoint=127))),
        "MillisBehindLatest": draw(st.integers(0, 10**12)),
        **draw(unknown_members),
    }
    return {name: members[name] for name in draw(st.permutations(sorted(members)))}


def wire_record(number: int, data: bytes, **others: Any) -> dict[str, Any]:
    return {
        "ApproximateArrivalTimestamp": 1_795_260_005_277 + number,
        "Data": data,
        "EncryptionType": "NONE",
        "PartitionKey": f"key-{number}",
        "SequenceNumber": str(NUMBER + number),
        **others,
    }


def wire_reply(wire: list[dict[str, Any]], **others: Any) -> dict[str, Any]:
    return {"MillisBehindLatest": 7, "Records": wire, "NextShardIterator": "AAAA/+==", **others}


def as_json(reply: dict[str, Any], **how: Any) -> bytes:
    wire = [
        {
            name: base64.b64encode(value).decode()
            if name == "Data" and isinstance(value, bytes)
            else value / 1000
            if name == "ApproximateArrivalTimestamp" and isinstance(value, int)
            else value
            for name, value in record.items()
        }
        for record in reply["Records"]
    ]
    return json.dumps({**reply, "Records": wire}, **how).encode()


def by_python(body: bytes) -> tuple[GetRecordsReply, ArrowPage]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "decoder", None)
        reply = decode_reply(body, stream="orders", shard_id="shard-1")
        return reply, FORM.decode(body)


def taken(body: bytes) -> GetRecordsReply:
    """Decode natively, and make sure that Python gives the same."""
    assert native.decoder.records(body, Record, "orders", "shard-1") is not None
    assert native.decoder.columns(body) is not None
    reply = decode_reply(body, stream="orders", shard_id="shard-1")
    page = FORM.decode(body)
    expected_reply, expected_page = by_python(body)
    assert reply == expected_reply
    assert reply.size_bytes == expected_reply.size_bytes
    assert page == expected_page
    page.batch.validate(full=True)
    return reply


def is_refused(body: bytes) -> bool:
    refused = native.decoder.records(body, Record, "orders", "shard-1") is None
    assert (native.decoder.columns(body) is None) is refused
    return refused


@given(
    reply=replies(),
    ensure_ascii=st.booleans(),
    separators=st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t: ")]),
)
def test_any_reply_in_json_gives_what_python_gives(
    reply: dict[str, Any], separators: tuple[str, str], *, ensure_ascii: bool
) -> None:
    body = as_json(reply, ensure_ascii=ensure_ascii, separators=separators)

    assert [record.data for record in taken(body).records] == [record["Data"] for record in reply["Records"]]


@pytest.mark.usefixtures("base64_by")
def test_records_of_all_sizes() -> None:
    wire = [wire_record(size, bytes(at % 256 for at in range(size))) for size in range(200)]
    wire += [wire_record(500, bytes(1_500_000)), wire_record(501, b"")]

    assert len(taken(as_json(wire_reply(wire))).records) == 202


@pytest.mark.usefixtures("base64_by")
def test_every_character_is_decoded_or_refused() -> None:
    """Both in the part that is decoded 32 at a time and in the rest."""
    digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    body = as_json(wire_reply([wire_record(1, bytes(120)), wire_record(2, b"x")]))
    start = body.index(b"AAAA")
    for at in (start, start + 37, start + 150):
        for character in range(256):
            changed = body[:at] + bytes([character]) + body[at + 1 :]
            assert is_refused(changed) is (character not in digits)
            if character in digits:
                taken(changed)


@pytest.mark.usefixtures("base64_by")
@pytest.mark.parametrize(
    "text",
    [
        "AA==AAAA",
        "AAA=AAAA",
        "A===",
        "====",
        "AA=A",
        "AA!A",
        "AA",
        "A",
        "=",
        "AB==",
        "AAB=",
        "AA\\/A",
        "AA A",
        "AA\nA",
    ],
)
@pytest.mark.parametrize("before", ["", "A" * 12_000])
def test_what_no_encoder_writes_is_no_base64(text: str, before: str) -> None:
    body = as_json(wire_reply([wire_record(1, b"x"), wire_record(2, b"", Data=before + text)]))

    assert is_refused(body)


def test_members_after_the_records_are_kept() -> None:
    child = {
        "ShardId": "shard-2",
        "ParentShards": ["shard-0"],
        "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"},
    }
    reply = wire_reply([wire_record(1, b"x")], NextShardIterator=None, ChildShards=[child])

    assert taken(as_json(reply)).child_shards[0].shard_id == "shard-2"


@pytest.mark.parametrize(
    "key", ['"', "\\", "/", "\b\f\n\r\t", "\u00e9", "\u20ac", "\U0001f600", "a\u0000b", "é\\" * 20]
)
def test_escapes_are_undone(key: str) -> None:
    for ensure_ascii in (False, True):
        body = as_json(wire_reply([wire_record(1, b"x", PartitionKey=key)]), ensure_ascii=ensure_ascii)
        assert taken(body).records[0].partition_key == key


@pytest.mark.parametrize(
    "arrival", ["1795260005.277", "1.795260005277E9", "1795260005", "0", "0.001", "17952600.5e2"]
)
def test_an_arrival_may_be_written_in_any_way(arrival: str) -> None:
    body = as_json(wire_reply([wire_record(1, b"x", ApproximateArrivalTimestamp="here")]))

    found = taken(body.replace(b'"here"', arrival.encode())).records

    assert found[0].arrival_timestamp == float(arrival)


@pytest.mark.parametrize(
    "arrival",
    [
        "-1.5",
        "1795260005.27700012345",
        "9007199254740993",
        "1e23",
        "01",
        "1.",
        ".5",
        "1e",
        "true",
        '"1"',
        "1e400",
    ],
)
def test_an_arrival_that_may_not_be_exact_is_refused(arrival: str) -> None:
    body = as_json(wire_reply([wire_record(1, b"x", ApproximateArrivalTimestamp="here")]))

    assert is_refused(body.replace(b'"here"', arrival.encode()))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"<html>busy</html>",
        b'{"Records":null}',
        b'{"Records":[{}]}',
        b'{"Records":[{"Data":"',
        b'{"Records":[{"Data":"eA==","SequenceNumber":null}]}',
        b'{"Records":[{"Data":"eA==","Data":"eA==","SequenceNumber":"1"}]}',
        b'{"Records":[{"Data":"eA==","SequenceNumber":"1",}]}',
        b'{"Records":[{"Data":"eA==","SequenceNumber":"1"},]}',
        b'{"Records":[{"Data":"eA==","SequenceNumber":"\xff"}]}',
        b'{"Records":[{"Data":"eA==","SequenceNumber":"\xed\xa0\x80"}]}',
        b'{"Records":[{"Data":"eA==","SequenceNumber":"\\ud800"}]}',
        b'{"Records":[{"Data":"eA==","SequenceNumber":"\\ude00"}]}',
        b'{"Records":[{"Data":"eA==","SequenceNumber":"\\u12"}]}',
        b'{"Records":[{"Data":"eA==","SequenceNumber":"\x01"}]}',
        b'{"Records":[{"Data":"eA==","SequenceNumber":1}]}',
        b'{"Records":[{"Data":"eA==","SequenceNumber":"1x"}]}',
        b'{"Records":[{"Data":"eA==","SequenceNumber":"7"},{"Data":"eA==","SequenceNumber":"7"}]}',
        b'{"Records":[{"Data":"eA==","SequenceNumber":"10"},{"Data":"eA==","SequenceNumber":"9"}]}',
        b'{"New":' + b"[" * 100 + b"]" * 100 + b',"Records":[]}',
    ],
)
def test_what_is_no_reply_is_refused(body: bytes) -> None:
    assert is_refused(body)


def test_every_beginning_of_a_reply_is_refused() -> None:
    reply = wire_reply([wire_record(1, b"data"), wire_record(2, b"more")])
    body = as_json(reply)
    for length in range(len(body)):
        assert is_refused(body[:length])
    taken(body)


@pytest.mark.parametrize("second", ["Records", "Record\\u0073"])
@pytest.mark.parametrize("lists", [("[]", "[{}]"), ("[{}]", "[]")])
def test_records_named_twice_are_pythons_to_judge(second: str, lists: tuple[str, str]) -> None:
    record = json.dumps({"Data": "eA==", "SequenceNumber": "1"})
    first, last = (each.replace("{}", record) for each in lists)
    body = f'{{"Records":{first},"{second}":{last}}}'.encode()

    assert is_refused(body)
    assert decode_reply(body) == by_python(body)[0].placed("", "")


def test_a_body_may_be_any_buffer_and_change_afterwards() -> None:
    body = bytearray(as_json(wire_reply([wire_record(1, b"data")])))
    reply = decode_reply(memoryview(body))
    page = FORM.decode(memoryview(body))
    body[:] = bytes(len(body))

    assert reply.records[0].data == b"data"
    assert page.batch.column("data").to_pylist() == [b"data"]


def test_damaged_replies_are_refused_or_decoded_as_python_does() -> None:
    outcome = check_damaged(seed=10_000_000, count=2_000)

    assert min(outcome) > 200


def test_other_threads_run_while_a_large_reply_is_decoded() -> None:
    body = as_json(wire_reply([wire_record(number, bytes(1_000_000)) for number in range(10)]))
    ran, has_ended = 0, False

    def run() -> None:
        nonlocal ran
        while not has_ended:
            ran += 1
            time.sleep(0)  # gives the interpreter up; else nobody does, for the interval below

    def runs_meanwhile() -> bool:
        before = ran
        native.decoder.columns(body)
        return ran > before

    interval = sys.getswitchinterval()
    sys.setswitchinterval(100)
    thread = threading.Thread(target=run)
    try:
        thread.start()
        wait_until(runs_meanwhile, "the other thread to run")
    finally:
        has_ended = True
        sys.setswitchinterval(interval)
        thread.join()


_IMMORTAL = 1 << 30
"""Beyond it a count means nothing: newer Pythons do not count the references to None and True."""


def test_nothing_is_kept_of_replies() -> None:
    good = wire_reply([wire_record(number, bytes(3_000), PartitionKey='"é') for number in range(100)])
    late = wire_reply([*good["Records"], wire_record(1, b"", Data="AAA!")])
    bodies = [
        as_json(good),
        as_json(late),
        as_json(good)[:-500],
    ]

    def refuse(*_: object) -> None:
        raise RuntimeError

    def decode(times: int) -> None:
        for _ in range(times):
            for body in bodies:
                native.decoder.records(body, Record, "s", "x")
                native.decoder.columns(body)
            with pytest.raises(RuntimeError):
                native.decoder.records(bodies[0], refuse, "s", "x")

    decode(20)
    gc.collect()
    stream = "a stream"
    references = [sys.getrefcount(kept) for kept in (None, Record, True, bodies[0])]
    before = _resident_bytes()
    decode(200)
    native.decoder.records(bodies[0], Record, stream, stream)
    gc.collect()

    assert _resident_bytes() - before < 200 * 100 * 3_000 // 10
    after = [sys.getrefcount(kept) for kept in (None, Record, True, bodies[0])]
    assert all(
        abs(now - then) < 50 or min(now, then) > _IMMORTAL
        for now, then in zip(after, references, strict=True)
    )
    assert sys.getrefcount(stream) < 5


@pytest.mark.parametrize("count", [3, 90])
def test_whichever_allocation_fails_it_says_so_and_keeps_nothing(count: int) -> None:
    pytest.importorskip("_testcapi", reason="this Python was built without its own tests")
    in_a_process_of_its_own(_fail_each_allocation, count)


def _fail_each_allocation(count: int) -> None:
    """In a process of its own: an allocation fails in whichever thread makes it."""
    fails = importlib.import_module("_testcapi")

    record = {"Data": base64.b64encode(b"x" * 1_000).decode(), "PartitionKey": "\n"}
    kinds = [{**record, "EncryptionType": "KMS"}, record] * count
    body = as_json({"Records": [{**each, "SequenceNumber": str(at)} for at, each in enumerate(kinds)]})
    stream = "a stream"

    def decode(*, fail_at: int, columns: bool) -> bool:
        fails.set_nomemory(fail_at, fail_at + 1)
        try:
            if columns:
                return native.decoder.columns(body) is not None
            return native.decoder.records(body, Record, stream, stream) is not None
        except MemoryError:
            return False
        finally:
            fails.remove_mem_hooks()

    for columns in (False, True):
        references = [sys.getrefcount(kept) for kept in (Record, stream, body)]
        made = [decode(fail_at=fail_at, columns=columns) for fail_at in range(1, 20 * count)]

        assert made.index(True) >= 10, "each of these failed"
        assert made[-1], "all of it was made in the end"
        assert [sys.getrefcount(kept) for kept in (Record, stream, body)] == references, "nothing is kept"


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize(("value", "is_off"), [("1", True), ("0", False), ("", False)])
def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch, value: str, *, is_off: bool) -> None:
    monkeypatch.setenv("KINESIS_SPOUT_PURE_PYTHON", value)

    assert (runpy.run_path(native.__file__)["decoder"] is None) is is_off
