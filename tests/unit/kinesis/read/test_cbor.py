import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.kinesis.read.cbor import decode
from tests.support.kinesis.cbor_writer import Milliseconds, cbor

any_value = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary(max_size=300),
    lambda inside: (
        st.lists(inside) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inside)
    ),
)


@given(value=any_value, until_break=st.booleans())
def test_what_was_encoded_is_decoded(value: Any, *, until_break: bool) -> None:
    assert decode(cbor(value, until_break=until_break)) == value


def test_a_tag_is_passed_over() -> None:
    assert decode(cbor([Milliseconds(1_795_260_005_277)])) == [1_795_260_005_277]


def test_short_floats_are_decoded() -> None:
    assert decode(b"\xf9" + struct.pack(">e", 1.5)) == 1.5
    assert decode(b"\xfa" + struct.pack(">f", -0.25)) == -0.25
    assert math.isnan(decode(b"\xf9\x7e\x00"))


def test_text_may_come_in_pieces() -> None:
    assert decode(b"\x7f\x62ab\x61c\xff") == "abc"
    assert decode(b"\x5f\x42ab\x41c\xff") == b"abc"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x61",
        b"\x1b\x00",
        b"\x9f\x01",
        b"\xa1\x01\x02",  # a number for a name
        b"\x7f\x41a\xff",  # bytes inside of text
        b"\x1f",
        b"\x1c",
        b"\xff",
        b"\xe0",
        b"\x61\xff",  # no UTF-8
        b"\x01\x02",
        b"\x81" * 200 + b"\x01",
        b"\xbb\xff\xff\xff\xff\xff\xff\xff\xff",
    ],
)
def test_what_is_not_one_value_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(body)


def test_every_beginning_of_a_value_is_refused() -> None:
    body = cbor({"a": [1, -2, "text", b"bytes", 1.5, None], "b": {"c": 70_000}})

    for length in range(len(body)):
        with pytest.raises(ValueError, match=r"."):
            decode(body[:length])
