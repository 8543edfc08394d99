"""What Kinesis never takes has a fault that says what was expected, and neither data nor key."""

import pytest

from kinesis_spout.kinesis.write.put_records import MAX_RECORD_BYTES
from kinesis_spout.structured.write.row_putter import fault_of
from kinesis_spout.structured.write.written_columns import RowValues

ARN = "arn:aws-cn:kinesis:cn-north-1:123456789012:stream/orders"


@pytest.mark.parametrize(
    "values",
    [
        RowValues("orders", "k", None, b"x"),
        RowValues("orders", "k", None, b""),
        RowValues("orders", "k" * 256, "0", b"x"),
        RowValues("orders", "\u043a" * 256, str((1 << 128) - 1), b"x"),
        RowValues(ARN, "k", None, bytes(MAX_RECORD_BYTES - 1)),
    ],
)
def test_what_kinesis_takes_has_no_fault(values: RowValues) -> None:
    assert fault_of(values) is None


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        (RowValues("orders", "secret", None, None), "data: expected binary or string, got null"),
        (RowValues("orders", None, None, b"secret"), "partitionKey: expected a key, got null"),
        (RowValues("orders", "", None, b"secret"), "partitionKey: expected a key, got an empty one"),
        (
            RowValues("orders", "secret" * 50, None, b"secret"),
            "partitionKey: expected 1 to 256 characters, got 300",
        ),
        (
            RowValues("orders", "secret", None, bytes(MAX_RECORD_BYTES)),
            "data: expected at most 10485760 bytes together with the key, got 10485766",
        ),
        (
            RowValues("orders", "secret", str(1 << 128), b"secret"),
            f"explicitHashKey: expected null or a decimal number below 2^128, got '{1 << 128}'",
        ),
        (RowValues(None, "secret", None, b"secret"), "stream: expected a stream's name or ARN, got null"),
        (RowValues("a b", "secret", None, b"secret"), "stream: expected a stream's name or ARN, got 'a b'"),
    ],
)
def test_what_kinesis_never_takes_has_a_fault(values: RowValues, fault: str) -> None:
    assert fault_of(values) == fault


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.0", "0x10", " 1", "01", "1\n", "\u0661"])
def test_a_hash_key_is_a_plain_decimal_number(text: str) -> None:
    fault = fault_of(RowValues("orders", "k", text, b"x"))
    assert fault is not None
    assert fault.startswith("explicitHashKey: ")
