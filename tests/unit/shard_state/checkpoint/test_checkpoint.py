"""The stored form. The golden files are what earlier releases wrote: they stay readable for ever."""

import base64
import json
import zlib
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from shard_state import SHARD_END, SHARD_START, Checkpoint, Position, PositionType, SequenceNumber
from shard_state.checkpoint.checkpoint import next_ownership
from shard_state.errors import InvalidCheckpoint

pytestmark = pytest.mark.no_second_run

GOLDEN = Path(__file__).parents[3] / "golden"
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


def large(holes: int = 2_000) -> Checkpoint:
    """Every twentieth record failed once; numbers as Kinesis gives them, a counter and a time of 56 digits."""
    random = Random(1)
    counter, seconds, numbers = 0x67648A17, 0xC181EEA, []
    for _ in range(20 * holes + 1):
        counter += random.choice((1, 1, 1, 2, 3, 5, 9, 17))
        seconds += random.random() < 0.02
        numbers.append(n((0x205BF4E5C26 << 144) + (counter << 80) + (5 << 72) + (seconds << 44) + 0x62))
    return Checkpoint(
        start=Position.trim_horizon(),
        base=numbers[0],
        anchor=numbers[1],
        holes=tuple((numbers[20 * at + 1], numbers[20 * at + 20]) for at in range(holes)),
        attempts=tuple((numbers[20 * at + 1], 1) for at in range(holes)),
        parents=("shardId-000000000000",),
    )


FORMS |= {
    "parents": Checkpoint(
        start=Position.trim_horizon(), parents=("shardId-000000000000", "shardId-1"), epoch=1
    ),
    "nothing_finished_yet": Checkpoint(
        start=Position.trim_horizon(),
        anchor=n(10**55),
        holes=((n(10**55 + 64), n(10**55 + 128)),),
        attempts=((n(10**55), 1), (n(10**55 + 192), 36)),
    ),
    "packed": large(200),
}


def test_every_golden_file_is_tried() -> None:
    assert {path.name for path in GOLDEN.glob("checkpoint_*")} == {
        f"checkpoint_v3_{form}.json" for form in FORMS
    }


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_what_is_written_and_read(form: str) -> None:
    golden = (GOLDEN / f"checkpoint_v3_{form}.json").read_bytes().rstrip(b"\n")
    assert Checkpoint.decode(golden) == FORMS[form]
    written = FORMS[form].encode()
    if form == "packed":  # another zlib may compress to other bytes
        assert Checkpoint.decode(written) == FORMS[form]
    else:
        assert written == golden


def test_a_field_that_is_not_known_is_ignored() -> None:
    assert Checkpoint.decode(sealed(something="else")) == FORMS["holes_and_attempts"]


@pytest.mark.parametrize(
    ("version", "said"), [(4, "got version 4: it was written by a newer"), (2, "got version 2")]
)
def test_another_version_is_refused_and_never_a_fresh_start(version: int, said: str) -> None:
    with pytest.raises(InvalidCheckpoint, match=said):
        Checkpoint.decode(sealed(version=version))


def test_what_is_stored_of_an_owned_shard_gets_the_next_epoch() -> None:
    fresh = Checkpoint(start=Position.trim_horizon(), parents=("a", "b"))
    assert next_ownership(None, fresh) == replace(fresh, epoch=1)
    known = replace(FORMS["holes_and_attempts"], parents=("c",))
    assert next_ownership(known, fresh) == replace(known, epoch=8)


def sealed(*without: str, **changes: Any) -> bytes:
    """A form, changed, with a checksum that holds."""
    document = json.loads(FORMS["holes_and_attempts"].encode()) | changes
    for field in ("crc32", *without):
        del document[field]
    body = json.dumps(document)[:-1].encode()
    return body + b',"crc32":"%08x"}' % zlib.crc32(body)


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
        b"[" * 100_000,
        b'{"version":3,"start":' + b'{"type":' * 100_000,
        FORMS["fresh"].encode() + b"\n",
        sealed("version"),
        sealed("base"),
        sealed("start"),
        sealed("epoch"),
        sealed("app_instance"),
        sealed(base="latest"),
        sealed(base=None),
        sealed(start={"type": "SOMEWHERE"}),
        sealed(start={"type": "AT_TIMESTAMP"}),
        sealed(start={"type": "AT_SEQUENCE_NUMBER"}),
        sealed(start={"type": "LATEST"}),
        sealed(start={"type": "AT_TIMESTAMP", "timestamp": float("inf")}),
        sealed(start={"type": "AT_TIMESTAMP", "timestamp": float("nan")}),
        sealed(start={"type": "AT_TIMESTAMP", "timestamp": 10**400}),
        sealed(start={"type": "AT_TIMESTAMP", "timestamp": True}),
        sealed(start={"type": "AT_TIMESTAMP", "timestamp": "1700000000"}),
        sealed(anchor="?"),
        sealed(version=True),
        sealed(version=1.0),
        sealed(version=0),
        sealed(version=-1),
        sealed(version="3"),
        sealed(epoch="seven"),
        sealed(epoch=7.5),
        sealed(epoch=True),
        sealed(epoch=None),
        sealed(app_instance=None),
        sealed(app_instance=7),
        sealed(epoch=-1),
        sealed(parents="ab"),
        sealed(parents=[1]),
        sealed(parents={"a": 1}),
        sealed(map=7),
        sealed(map="+"),
        sealed(map="+5 -1"),
        sealed(map="+5-0"),
        sealed(map="-5:0"),
        sealed(map="-5:1:1"),
        sealed(map="+5:1"),
        sealed(map="+" + "z" * 200),
        sealed(map="+5.zzzzzzzzzzzzzzzz"),
        sealed(map="+5", unit="-1"),
        sealed(map="+5", unit="0"),
        sealed(map="+5", unit="all"),
        sealed(map="+5", base="SHARD_END"),
        sealed(map="+g"),
        sealed(packed="?"),
        sealed(packed="AAAA"),
        sealed(packed=base64.b64encode(zlib.compress(b"+")).decode()),
        sealed(packed=base64.b64encode(zlib.compress(b"\xff")).decode()),
        sealed(packed=base64.b64encode(zlib.compress(b"+5")[:-1]).decode()),
        sealed(packed=base64.b64encode(zlib.compress(b"+5") + b"x").decode()),
        sealed(packed=7),
    ],
)
def test_what_cannot_be_read_is_an_error_that_says_what_to_do(stored: bytes) -> None:
    with pytest.raises(InvalidCheckpoint, match="checkpoints reset"):
        Checkpoint.decode(stored)


def test_a_form_whose_seal_was_made_anew_is_read() -> None:
    """Or the forms above would prove nothing."""
    assert Checkpoint.decode(sealed()) == FORMS["holes_and_attempts"]


def test_a_damaged_node_is_said_to_be_damaged() -> None:
    stored = FORMS["holes_and_attempts"].encode().replace(b'"base":"100"', b'"base":"900"')
    with pytest.raises(InvalidCheckpoint, match="does not match the checksum"):
        Checkpoint.decode(stored)


@pytest.mark.parametrize(
    "changes",
    [
        {"holes": ((n(250), n(101)),)},
        {"holes": ((n(50), n(120)),)},
        {"holes": ((n(101), n(250)), (n(200), n(300)))},
        {"attempts": ((n(100), 1),)},
        {"attempts": ((n(200), 1),)},
        {"attempts": ((n(101), 0),)},
        {"attempts": ((n(260), 1), (n(255), 1))},
        {"base": SHARD_END},
    ],
    ids=repr,
)
def test_what_could_not_be_read_again_is_not_stored(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidCheckpoint, match="cannot store"):
        replace(FORMS["holes_and_attempts"], **changes).encode()


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


def test_two_thousand_holes_with_their_attempts_take_a_fortieth_of_the_cap() -> None:
    whole = large()
    encoded = whole.encode()
    assert len(encoded) < 12_000
    assert Checkpoint.decode(encoded) == whole


def test_numbers_that_are_near_each_other_take_a_few_bytes_a_hole() -> None:
    near = Checkpoint(
        start=Position.trim_horizon(),
        base=n(10**55),
        holes=tuple((n(10**55 + 20 * at + 1), n(10**55 + 20 * at + 20)) for at in range(2_000)),
    )
    assert len(near.encode()) < 10_000


@pytest.mark.parametrize("max_bytes", [300, 1_000, 3_000, 10_000])
def test_a_form_over_the_cap_keeps_what_is_nearest_to_the_base_holes_and_attempts_alike(
    max_bytes: int,
) -> None:
    whole = large()
    encoded = whole.encode(max_bytes)
    assert 0.9 * max_bytes < len(encoded) <= max_bytes
    kept = Checkpoint.decode(encoded)
    holes, attempts = len(kept.holes), len(kept.attempts)
    assert kept == replace(whole, holes=whole.holes[:holes], attempts=whole.attempts[:attempts])
    assert attempts - 1 <= holes <= attempts


def test_the_base_and_the_parents_are_stored_whatever_the_cap() -> None:
    assert Checkpoint.decode(large().encode(1)) == replace(large(), holes=(), attempts=())


def test_a_person_can_read_where_a_shard_stands() -> None:
    document = json.loads(FORMS["holes_and_attempts"].encode())
    assert (document["base"], document["anchor"]) == ("100", "101")
    assert (document["unit"], document["map"]) == ("1", "-1:2+95-1:4+1")
