"""What the native packer makes is what Python makes, or it refuses what it was given."""

import importlib
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from hashlib import md5
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kinesis_spout.kinesis import native
from kinesis_spout.kinesis.aggregated_record import KEY_BYTES, RECORD_BYTES, aggregate_columns
from kinesis_spout.kinesis.wire.calls import _put_encoded
from kinesis_spout.kinesis.write.put_records import _filled
from kinesis_spout.producer.batch import BatchTicket, batch_of
from tests.fuzz_native import check_packed
from tests.support.alone import in_a_process_of_its_own

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=80)
ascii_texts = st.text(st.characters(max_codepoint=127), min_size=1, max_size=80)
any_hash_keys = st.lists(st.integers(0, 2**128 - 1), unique=True, min_size=1, max_size=9)


def columns_with(keys: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[list[str], list[bytes]]]:
    pairs = st.lists(st.tuples(keys, st.binary(max_size=200)), max_size=30)
    return pairs.map(lambda records: ([key for key, _ in records], [data for _, data in records]))


columns = columns_with(texts)

pytestmark = pytest.mark.usefixtures("native_decoder", "work_by")
each_way = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Color(StrEnum):
    RED = "red"


class Pair(NamedTuple):
    data: bytes
    partition_key: str


@pytest.fixture(params=["avx2", "portable"])
def work_by(request: pytest.FixtureRequest, native_decoder: Any) -> Iterator[str]:
    if native_decoder.use_avx2(request.param == "avx2") is not (request.param == "avx2"):
        pytest.skip("this processor has no AVX2")
    yield request.param
    native_decoder.use_avx2(True)


@each_way
@given(st.lists(columns, max_size=10))
def test_aggregates_are_the_bytes_that_python_makes(several: list[tuple[list[str], list[bytes]]]) -> None:
    assert native.packer.aggregates(several) == [aggregate_columns(*each) for each in several]


@pytest.mark.parametrize("length", [*range(50, 70), *range(114, 130), 5_000])
def test_digests_are_right_at_every_length_of_the_last_block(length: int) -> None:
    several = [(["k"], [bytes(length + more)]) for more in range(11)]
    assert native.packer.aggregates(several) == [aggregate_columns(*each) for each in several]


def test_many_keys_and_long_data_are_numbered_as_python_numbers_them() -> None:
    keys = [f"key-{number % 20_000}" for number in range(40_000)]
    data = [bytes(number % 300) for number in range(40_000)]
    data[7] = bytes(3_000_000)
    assert native.packer.aggregates([(keys, data)]) == [aggregate_columns(keys, data)]


@each_way
@given(columns, any_hash_keys, st.sampled_from([0, 2**100]))
def test_records_are_sorted_into_the_ranges_of_their_hash_keys(
    both: tuple[list[str], list[bytes]], firsts: list[int], hole: int
) -> None:
    keys, data = both
    firsts.sort()
    following = [*firsts[1:], 2**128]
    lasts = [max(first, behind - 1 - hole) for first, behind in zip(firsts, following, strict=True)]

    made = native.packer.by_range(keys, data, _joined(firsts), _joined(lasts))

    wanted: dict[int, list[int]] = {}
    for place, key in enumerate(keys):
        hash_key = int.from_bytes(md5(key.encode(), usedforsecurity=False).digest())
        ranges = enumerate(zip(firsts, lasts, strict=True))
        number = next((at for at, (first, last) in ranges if first <= hash_key <= last), len(firsts))
        wanted.setdefault(number, []).append(place)
    assert {number: list(memoryview(places).cast("I")) for number, places, _, _ in made} == wanted
    for number, _, some_keys, some_data in made:
        assert list(some_keys) == [keys[place] for place in wanted[number]]
        assert list(some_data) == [data[place] for place in wanted[number]]


@each_way
@given(columns_with(ascii_texts), st.integers(0, 3_000), st.data())
def test_as_many_records_fit_as_python_counts(
    both: tuple[list[str], list[bytes]], room: int, draw: st.DataObject
) -> None:
    keys, data = both
    at = draw.draw(st.integers(0, len(keys)))
    seen, seen_by_python = dict.fromkeys(keys[:3]), dict.fromkeys(keys[:3])

    made = native.packer.fill(keys, data, at, seen, room, RECORD_BYTES, KEY_BYTES)

    assert made == _filled(keys, data, at, seen_by_python, room)
    assert seen == seen_by_python


awkward = st.text(st.sampled_from(" a\x7f/\xe9\u2028\U0001f600"), max_size=9)


@each_way
@given(
    st.lists(st.tuples(st.binary(max_size=100), awkward, st.none() | awkward), min_size=1, max_size=9),
    awkward,
)
def test_the_body_of_a_request_is_the_one_that_msgspec_writes(
    records: list[tuple[bytes, str, str | None]], stream: str
) -> None:
    request = {
        "StreamName": stream,
        "Records": [
            {"Data": data, "PartitionKey": key} | ({} if hash_key is None else {"ExplicitHashKey": hash_key})
            for data, key, hash_key in records
        ],
    }
    body = native.packer.put_records(msgspec.json.encode({"StreamName": stream}), request["Records"])
    assert body == msgspec.json.encode(request)


@pytest.mark.parametrize(
    "record",
    [
        {"Data": b"x"},
        {"Data": b"x", "PartitionKey": Color.RED},
        {"Data": bytearray(b"x"), "PartitionKey": "k"},
        {"Data": b"x", "PartitionKey": "k", "Other": 1},
        {"Data": b"x", "PartitionKey": "k", "ExplicitHashKey": 1},
        *({"Data": b"x", "PartitionKey": f"k{escaped}"} for escaped in '"\\\x00\x1f\n'),
    ],
)
def test_an_unusual_record_is_left_to_msgspec(record: dict[str, Any]) -> None:
    records = [{"Data": b"x", "PartitionKey": "k"}, record]
    assert native.packer.put_records(b'{"StreamName":"s"}', records) is None
    body = msgspec.json.decode(_put_encoded({"StreamName": "s", "Records": records}))
    assert [each.get("PartitionKey") for each in body["Records"]] == ["k", record.get("PartitionKey")]


def test_records_are_held_as_columns_as_by_python(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [(bytes(number), f"key-{number}") for number in range(100)]
    natively = batch_of(records)
    monkeypatch.setattr(native, "packer", None)
    by_python = batch_of(iter(records))
    assert _held(natively) == _held(by_python)
    assert natively.is_in_columns


@pytest.mark.parametrize(
    "record",
    [
        (b"x", "ключ"),
        (bytearray(b"x"), "k"),
        (b"x", Color.RED),
        (b"x", "k", 7),
        (bytes(1024 * 1024), "k"),
    ],
)
def test_unusual_records_are_held_one_by_one(record: Any) -> None:
    batch = batch_of([(b"x", "k"), record])
    assert not batch.is_in_columns
    assert batch.count == 2


@pytest.mark.parametrize("pair", [[b"x", "k"], Pair(b"x", "k")])
def test_pairs_of_other_types_are_held_as_columns_too(pair: Any) -> None:
    """Each as a ticket would cost three times as much."""
    batch = batch_of([pair] * 3)
    assert batch.is_in_columns
    assert _held(batch) == ([b"x"] * 3, ["k"] * 3, 6, 3)


@pytest.mark.parametrize("count", [3, 90])
def test_whichever_allocation_fails_it_says_so_and_keeps_nothing(count: int, work_by: str) -> None:
    pytest.importorskip("_testcapi", reason="this Python was built without its own tests")
    in_a_process_of_its_own(_fail_each_allocation, count, work_by)


def _fail_each_allocation(count: int, work_by: str) -> None:
    """In a process of its own: an allocation fails in whichever thread makes it."""
    fails = importlib.import_module("_testcapi")

    native.decoder.use_avx2(work_by == "avx2")
    keys, data = [f"key-{number}-é" for number in range(count)], [bytes(300)] * count
    puts = [{"Data": data[0], "PartitionKey": key, "ExplicitHashKey": "7"} for key in keys]
    pairs = [(data[0], f"key-{number}") for number in range(count)]
    packer, ends = native.packer, (b"\0" * 16 + b"\x70" * 16, b"\x6f" * 16 + b"\xff" * 16)
    works: tuple[Callable[[], Any], ...] = (
        lambda: packer.columns_of(pairs, 256, 300),
        lambda: packer.by_range(keys, data, *ends),
        lambda: packer.fill(keys, data, 0, {}, 1_000_000, 20, 3),
        lambda: packer.aggregates([(keys, data)] * 9),
        lambda: packer.put_records(b'{"StreamName":"s"}', puts),
    )
    for work in works:
        good = work()
        references = [sys.getrefcount(kept) for kept in (keys[0], data[0], data, pairs[0][1])]
        made = [_made(work, fails, fail_at) for fail_at in range(1, 12 * count + 60)]

        assert made[-1] == good, "all of it was made in the end"
        assert made.count(None) >= 1, "some of these failed"
        assert all(each in (None, good) for each in made), "what is made is whole"
        del made
        assert [sys.getrefcount(kept) for kept in (keys[0], data[0], data, pairs[0][1])] == references


def _made(work: Callable[[], Any], fails: Any, fail_at: int) -> Any:
    fails.set_nomemory(fail_at, fail_at + 1)
    try:
        return work()
    except MemoryError:
        return None
    finally:
        fails.remove_mem_hooks()


@pytest.mark.parametrize(
    "wrong", [None, [1], [(["k"], [1])], [(["k"], [])], [(["\ud800"], [b""])], [([1], [b""])]]
)
def test_columns_of_other_things_are_refused(wrong: Any) -> None:
    assert native.packer.aggregates(wrong) is None


def test_damaged_columns_never_give_other_bytes() -> None:
    assert check_packed(0, 300) > 100


def _joined(hash_keys: list[int]) -> bytes:
    return b"".join([each.to_bytes(16) for each in hash_keys])


def _held(batch: BatchTicket) -> tuple[Any, ...]:
    return list(batch.data), list(batch.partition_keys), batch.size_bytes, batch.count
