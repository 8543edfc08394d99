"""The stored form. The golden files are what earlier releases wrote: they stay readable for ever."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shard_state import SHARD_END, SHARD_START, Checkpoint, Position, PositionType, SequenceNumber
from shard_state.errors import InvalidCheckpoint

GOLDEN = Path(__file__).parents[2] / "golden"
LONGEST = SequenceNumber(10**129 - 1)


def n(number: int) -> SequenceNumber:
    return SequenceNumber(number)


FORMS = {
    "fresh": Checkpoint(start=Position.trim_horizon()),
    "resolved_latest": Checkpoint(
        start=Position.at_timestamp(1_700_000_000.25), epoch=1, app_instance="billing/2024-01-01T00:00:00Z"
    ),
    "at_sequence_number": Checkpoint(start=Position.at(SequenceNumber(123, 4)), epoch=2),
    "after_sequence_number": Checkpoint(start=Position.after(LONGEST), base=LONGEST, epoch=2),
    "holes_and_attempts": Checkpoint(
        start=Position.trim_horizon(),
        base=n(100),
        holes=((n(101), n(250)), (n(251), n(252))),
        anchor=n(101),
        attempts=((n(101), 2), (n(251), 4)),
        epoch=7,
        app_instance="billing",
    ),
    "inside_an_aggregate": Checkpoint(
        start=Position.trim_horizon(),
        base=SequenceNumber(100, 4),
        holes=((SequenceNumber(100, 5), SequenceNumber(100, 9)),),
        anchor=SequenceNumber(100, 5),
        attempts=((SequenceNumber(100, 5), 1),),
        epoch=3,
    ),
    "shard_end": Checkpoint(start=Position.trim_horizon(), base=SHARD_END, epoch=9, app_instance="billing"),
}


@pytest.mark.parametrize("form", FORMS)
def test_version_1_stays_readable(form: str) -> None:
    assert Checkpoint.decode((GOLDEN / f"checkpoint_v1_{form}.json").read_bytes()) == FORMS[form]


@pytest.mark.parametrize("form", FORMS)
def test_version_1_is_what_is_written(form: str) -> None:
    assert FORMS[form].encode() == (GOLDEN / f"checkpoint_v1_{form}.json").read_bytes().rstrip(b"\n")


def test_every_golden_file_is_tried() -> None:
    assert {path.stem.removeprefix("checkpoint_v1_") for path in GOLDEN.glob("checkpoint_*")} == set(FORMS)


def test_a_newer_version_is_refused_and_never_a_fresh_start() -> None:
    document = json.loads(FORMS["holes_and_attempts"].encode())
    document["version"] = 2
    with pytest.raises(InvalidCheckpoint, match="got version 2: it was written by a newer"):
        Checkpoint.decode(json.dumps(document).encode())


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in written().items() if key != name}


def written(**changes: Any) -> dict[str, Any]:
    return {**json.loads(FORMS["holes_and_attempts"].encode()), **changes}


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b"123",
        FORMS["holes_and_attempts"].encode()[:-5],
        *(
            json.dumps(document).encode()
            for document in (
                without("version"),
                without("base"),
                without("start"),
                without("epoch"),
                without("app_instance"),
                written(base="latest"),
                written(base=None),
                written(start={"type": "SOMEWHERE"}),
                written(start={"type": "AT_TIMESTAMP"}),
                written(start={"type": "AT_SEQUENCE_NUMBER"}),
                written(start={"type": "LATEST"}),
                written(epoch="seven"),
                written(anchor="?"),
                written(attempts=[1]),
                written(attempts={"101": "often"}),
                written(holes=[["101"]]),
                written(holes=[["250", "101"]]),  # backwards
                written(holes=[["251", "252"], ["101", "250"]]),  # out of order
                written(holes=[["101", "250"], ["200", "300"]]),  # overlapping
                written(holes=[["50", "120"]]),  # before the base
            )
        ),
    ],
)
def test_what_cannot_be_read_is_an_error_that_says_what_to_do(stored: bytes) -> None:
    with pytest.raises(InvalidCheckpoint, match="checkpoints reset"):
        Checkpoint.decode(stored)


def test_latest_is_never_stored_for_it_would_be_resolved_again() -> None:
    with pytest.raises(InvalidCheckpoint, match="resolved"):
        Checkpoint(start=Position.latest()).encode()


def test_an_owner_reads_on_after_the_base_and_from_the_start_before_any() -> None:
    assert FORMS["resolved_latest"].read_from == Position.at_timestamp(1_700_000_000.25)
    assert FORMS["holes_and_attempts"].read_from == Position.after(n(100))
    assert FORMS["inside_an_aggregate"].read_from.type is PositionType.AT_SEQUENCE_NUMBER


def test_only_shard_end_is_the_end() -> None:
    assert FORMS["shard_end"].is_shard_end
    assert not replace(FORMS["shard_end"], base=LONGEST).is_shard_end
    assert not replace(FORMS["shard_end"], base=SHARD_START).is_shard_end


def large() -> Checkpoint:
    return Checkpoint(
        start=Position.trim_horizon(),
        base=n(10**55),
        anchor=n(10**55 + 1),
        holes=tuple((n(10**55 + 10 * at), n(10**55 + 10 * at + 3)) for at in range(1, 2_000)),
        attempts=tuple((n(10**55 + 10 * at + 4), 2) for at in range(1, 500)),
    )


def test_a_form_over_the_cap_leaves_out_the_furthest_holes_and_stays_readable() -> None:
    whole = large()
    encoded = whole.encode(100_000)
    assert len(encoded) <= 100_000 < len(whole.encode())
    decoded = Checkpoint.decode(encoded)
    kept = len(decoded.holes)
    assert 0 < kept < len(whole.holes)
    assert decoded == replace(whole, holes=whole.holes[:kept])


def test_a_form_over_the_cap_keeps_close_to_it() -> None:
    assert len(large().encode(100_000)) > 60_000


def test_attempts_are_left_out_only_when_no_hole_is_left() -> None:
    whole = large()
    decoded = Checkpoint.decode(whole.encode(10_000))
    kept = len(decoded.attempts)
    assert not decoded.holes
    assert 0 < kept < len(whole.attempts)
    assert decoded == replace(whole, holes=(), attempts=whole.attempts[:kept])


def test_the_base_is_stored_whatever_the_cap() -> None:
    decoded = Checkpoint.decode(large().encode(1))
    assert decoded == replace(large(), holes=(), attempts=())
