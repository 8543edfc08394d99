"""The assignment's node. The golden files are what earlier releases wrote: they stay readable for ever."""

import json
from pathlib import Path
from typing import Any

import pytest

from shard_state import Assignment
from shard_state.errors import InvalidStoredForm

GOLDEN = Path(__file__).parents[3] / "golden"


def shard(number: int) -> str:
    return f"shardId-{number:012}"


FORMS = {
    "fresh": Assignment(),
    "one_shard": Assignment(epoch=1, members=frozenset("a"), owners={shard(0): "a"}, parents={shard(0): ()}),
    "two_members": Assignment(
        epoch=17,
        members=frozenset({"host-1", "host-2", "idle"}),
        owners={shard(7): "host-2", shard(8): "host-1", shard(12): "host-1", shard(13): "host-2"},
        parents={shard(7): (), shard(8): (), shard(12): (shard(3),), shard(13): (shard(4), shard(5))},
    ),
    "all_over": Assignment(epoch=18, members=frozenset("a"), all_over=True),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_what_is_written_and_read(form: str) -> None:
    golden = (GOLDEN / f"assignment_v1_{form}.json").read_bytes().rstrip(b"\n")
    assert FORMS[form].encode() == golden
    assert Assignment.decode(golden) == FORMS[form]


def test_every_golden_file_is_tried() -> None:
    assert {path.name for path in GOLDEN.glob("assignment_*")} == {
        f"assignment_v1_{form}.json" for form in FORMS
    }


def test_a_member_finds_its_shards() -> None:
    assert FORMS["two_members"].of("host-1") == {shard(8), shard(12)}
    assert FORMS["two_members"].of("host-3") == frozenset()


def large(shards: int, members: int = 100) -> Assignment:
    """Every shard is the child of a split."""
    numbers = range(shards, 2 * shards)
    return Assignment(
        epoch=1_000,
        members=frozenset(f"ip-10-0-0-{member}.eu-west-1" for member in range(members)),
        owners={shard(number): f"ip-10-0-0-{number % members}.eu-west-1" for number in numbers},
        parents={shard(number): (shard(number // 2),) for number in numbers},
    )


def test_a_thousand_shards_stay_far_below_what_zookeeper_takes_in_one_request() -> None:
    assert len(large(1_000).encode()) < 20_000
    assert len(large(10_000).encode()) < 200_000


@pytest.mark.parametrize(
    "ids", [("a",), ("a", "ab"), ("ab", "ac"), ("ab", "ab0", "b"), ("s", "t", "")], ids=repr
)
def test_whatever_ids_have_in_common_they_are_read_as_they_were(ids: tuple[str, ...]) -> None:
    whole = Assignment(
        epoch=1,
        members=frozenset("m"),
        owners=dict.fromkeys(ids, "m"),
        parents=dict.fromkeys(ids, (ids[0],)),
    )
    assert Assignment.decode(whole.encode()) == whole


def written(**changes: Any) -> dict[str, Any]:
    return {**json.loads(FORMS["two_members"].encode()), **changes}


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in written().items() if key != name}


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff\xfe",
        FORMS["two_members"].encode()[:-5],
        b"[" * 100_000,
        *(
            json.dumps(document).encode()
            for document in (
                *(without(name) for name in written()),
                written(version=0),
                written(version=None),
                written(epoch=-1),
                written(epoch=1.0),
                written(all_over=0),
                written(prefix=None),
                written(members=["a"]),
                written(members={"a": ["0"]}),
                written(members={"a": {"0": "parent"}}),
                written(members={"a": {"0": [7]}}),
            )
        ),
    ],
)
def test_what_cannot_be_read_is_an_error_that_says_what_to_do(stored: bytes) -> None:
    with pytest.raises(InvalidStoredForm, match=r"expected a stored assignment .* delete its node"):
        Assignment.decode(stored)


def test_one_shard_of_two_members_is_refused() -> None:
    stored = json.dumps(written(members={"a": {"07": []}, "b": {"07": []}})).encode()
    with pytest.raises(InvalidStoredForm, match=f"expected one member of {shard(7)}, got a and b"):
        Assignment.decode(stored)


def test_a_newer_version_is_refused() -> None:
    with pytest.raises(InvalidStoredForm, match="got version 2: it was written by a newer"):
        Assignment.decode(json.dumps(written(version=2)).encode())


def test_a_field_that_is_not_known_is_ignored() -> None:
    stored = json.dumps(written(something="else")).encode()
    assert Assignment.decode(stored) == FORMS["two_members"]
