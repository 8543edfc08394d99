"""The stored form for any progress, any damage and any bytes."""

import json
import zlib
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shard_state import SHARD_START, Checkpoint, Position, SequenceNumber
from shard_state.checkpoint.hole_map import within
from shard_state.errors import InvalidCheckpoint

pytestmark = pytest.mark.no_second_run

NUMBERS = st.one_of(
    st.integers(0, 200),
    st.integers(0, 300).map(lambda at: (2 << 184) + (at << 80) + ((1_700_000_000 + at // 7) << 36) + 0x32),
    st.integers(0, 10**129 - 1),
)
PLACES = st.one_of(
    NUMBERS.map(SequenceNumber), st.builds(SequenceNumber, st.integers(0, 9), st.integers(0, (1 << 62) - 1))
)
STARTS = st.one_of(
    st.just(Position.trim_horizon()),
    st.floats(allow_nan=False, allow_infinity=False).map(Position.at_timestamp),
    PLACES.map(Position.at),
    PLACES.map(Position.after),
)


@st.composite
def checkpoints(draw: st.DrawFn) -> Checkpoint:
    """Any progress: between neighbouring places there is a hole, a failed record, both or neither."""
    places = sorted(draw(st.sets(PLACES, max_size=30)))
    base = draw(st.sampled_from([SHARD_START, *places[:1]]))
    holes: list[tuple[SequenceNumber, SequenceNumber]] = []
    attempts: list[tuple[SequenceNumber, int]] = []
    for before, place in pairwise([base, *(place for place in places if place > base)]):
        if draw(st.booleans()):
            holes.append((before, place))
        elif draw(st.booleans()):
            attempts.append((place, draw(st.integers(1, 10**6))))
    return Checkpoint(
        start=draw(STARTS),
        base=base,
        holes=tuple(holes),
        attempts=tuple(attempts),
        anchor=draw(st.none() | PLACES),
        parents=tuple(draw(st.lists(st.text(), max_size=2))),
        epoch=draw(st.integers(0, 2**70)),
        app_instance=draw(st.text()),
    )


@given(checkpoints())
def test_what_is_stored_is_read_back(checkpoint: Checkpoint) -> None:
    assert Checkpoint.decode(checkpoint.encode()) == checkpoint


@given(checkpoints(), st.integers(0, 1_500))
def test_a_form_over_its_cap_says_less_and_nothing_else(checkpoint: Checkpoint, max_bytes: int) -> None:
    encoded = checkpoint.encode(max_bytes)
    kept = Checkpoint.decode(encoded)
    assert len(encoded) <= max_bytes or not (kept.holes or kept.attempts)
    assert kept.base == checkpoint.base
    assert kept.holes == checkpoint.holes[: len(kept.holes)]
    assert kept.attempts == checkpoint.attempts[: len(kept.attempts)]
    if kept.holes and len(kept.attempts) < len(checkpoint.attempts):
        assert checkpoint.attempts[len(kept.attempts)][0] > kept.holes[-1][1], "what is nearest is kept"


@given(checkpoints(), st.data())
@settings(max_examples=400)
def test_a_byte_that_changed_is_an_error_and_never_another_place(
    checkpoint: Checkpoint, data: st.DataObject
) -> None:
    stored = bytearray(checkpoint.encode())
    at = data.draw(st.integers(0, len(stored) - 1))
    stored[at] ^= data.draw(st.integers(1, 255))
    try:
        read = Checkpoint.decode(bytes(stored))
    except InvalidCheckpoint:
        return
    assert read == checkpoint


def test_no_byte_of_a_form_can_be_changed_unnoticed() -> None:
    stored = Checkpoint(
        start=Position.trim_horizon(), base=SequenceNumber(5), holes=((SequenceNumber(6), SequenceNumber(9)),)
    ).encode()
    unnoticed = []
    for at in range(len(stored)):
        for byte in range(256):
            changed = stored[:at] + bytes([byte]) + stored[at + 1 :]
            try:
                Checkpoint.decode(changed)
            except InvalidCheckpoint:
                continue
            unnoticed.append(changed)
    assert set(unnoticed) == {stored}


@given(checkpoints(), st.data())
def test_a_form_that_was_cut_off_is_an_error(checkpoint: Checkpoint, data: st.DataObject) -> None:
    stored = checkpoint.encode()
    try:
        Checkpoint.decode(stored[: data.draw(st.integers(0, len(stored) - 1))])
    except InvalidCheckpoint:
        return
    raise AssertionError("what is left of a form was read")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(
        ["SHARD_START", "SHARD_END", "AT_TIMESTAMP", "TRIM_HORIZON", "12", "12:3", "+5-1:2", ""]
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "timestamp", "7"]), inner)
    ),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    [
        "base",
        "start",
        "epoch",
        "app_instance",
        "holes",
        "attempts",
        "anchor",
        "parents",
        "map",
        "unit",
        "origin",
    ]
)


@given(st.just(3) | JSON, st.dictionaries(FIELDS, JSON))
def test_whatever_else_is_stored_is_an_error_that_says_so(version: object, fields: dict[str, object]) -> None:
    valid = {
        "version": version,
        "base": "5",
        "start": {"type": "TRIM_HORIZON"},
        "epoch": 1,
        "app_instance": "",
    }
    body = json.dumps({**valid, **fields})[:-1].encode()
    try:
        read = Checkpoint.decode(body + b',"crc32":"%08x"}' % zlib.crc32(body))
    except InvalidCheckpoint:
        return
    assert Checkpoint.decode(read.encode()) == read
    assert not any(within(read.holes, sequence) for sequence, _ in read.attempts)


@given(st.binary())
def test_any_bytes_are_no_checkpoint(stored: bytes) -> None:
    try:
        Checkpoint.decode(stored)
    except InvalidCheckpoint:
        return
    raise AssertionError("read as a checkpoint")
