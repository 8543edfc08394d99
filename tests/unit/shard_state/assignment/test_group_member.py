"""What a member says of itself. The golden files are what earlier releases wrote: they stay readable for ever."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shard_state import GroupMember, MemberMode
from shard_state.errors import InvalidStoredForm

GOLDEN = Path(__file__).parents[3] / "golden"

FORMS = {
    "fresh": GroupMember(name="a"),
    "standby": GroupMember(name="a", mode=MemberMode.STANDBY),
    "busy": GroupMember(
        name="a",
        weight=2.5,
        rates={"shardId-000000000001": 0.0, "shardId-000000000002": 1_200_000.0},
        ended=frozenset({"shardId-000000000003", "shardId-000000000000"}),
    ),
    "watched": GroupMember(name="a", http="worker-3:9464"),
    "of_a_later_release": GroupMember(name="a", reads=2),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_what_is_written_and_read(form: str) -> None:
    golden = (GOLDEN / f"member_v1_{form}.json").read_bytes().rstrip(b"\n")
    assert FORMS[form].encode() == golden
    assert GroupMember.decode(golden, name="a") == FORMS[form]


def test_every_golden_file_is_tried() -> None:
    assert {path.name for path in GOLDEN.glob("member_*")} == {f"member_v1_{form}.json" for form in FORMS}


def test_what_others_know_of_a_member_is_not_stored_but_given() -> None:
    whole = replace(FORMS["busy"], name="b", joined=7, draining=True)
    assert whole.encode() == FORMS["busy"].encode()
    assert GroupMember.decode(whole.encode(), name="b", joined=7, draining=True) == whole


@pytest.mark.parametrize(
    ("observed", "stored"), [(0.4, 0), (99.4, 99), (123_456.0, 120_000), (1_249_999.9, 1_200_000)]
)
def test_a_rate_keeps_two_digits_so_that_a_small_change_changes_nothing(observed: float, stored: int) -> None:
    member = GroupMember(name="a", rates={"s": observed})
    assert GroupMember.decode(member.encode(), name="a").rates == {"s": stored}


def test_the_order_of_rates_does_not_change_the_form() -> None:
    one, other = ({"s": 1.0, "t": 2.0}, {"t": 2.0, "s": 1.0})
    assert GroupMember(name="a", rates=one).encode() == GroupMember(name="a", rates=other).encode()


def written(**changes: Any) -> dict[str, Any]:
    return {**json.loads(FORMS["busy"].encode()), **changes}


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
        FORMS["busy"].encode()[:-5],
        b"[" * 100_000,
        *(
            json.dumps(document).encode()
            for document in (
                *(without(name) for name in written()),
                written(version=0),
                written(version=True),
                written(version="1"),
                written(mode="leader"),
                written(weight=0),
                written(weight=-1),
                written(weight=True),
                written(weight="heavy"),
                written(weight=float("inf")),
                written(weight=10**400),
                written(rates=["s"]),
                written(rates={"s": -1}),
                written(rates={"s": None}),
                written(rates={"s": float("nan")}),
                written(ended="s"),
                written(ended=[1]),
            )
        ),
    ],
)
def test_what_cannot_be_read_is_an_error_that_says_what_to_do(stored: bytes) -> None:
    with pytest.raises(InvalidStoredForm, match=r"stored member .* of host-1, got .* restart that one"):
        GroupMember.decode(stored, name="host-1")


def test_a_newer_version_is_refused() -> None:
    with pytest.raises(InvalidStoredForm, match="got version 2: it was written by a newer"):
        GroupMember.decode(json.dumps(written(version=2)).encode(), name="a")


def test_a_field_that_is_not_known_is_ignored() -> None:
    stored = json.dumps(written(something="else")).encode()
    assert GroupMember.decode(stored, name="a") == FORMS["busy"]
