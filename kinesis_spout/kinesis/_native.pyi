from collections.abc import Sequence
from typing import Any, TypeAlias

_Body: TypeAlias = bytes | bytearray | memoryview
_Texts: TypeAlias = tuple[bytes | None, bytes, bytes]

def records(
    body: _Body, record_type: type[Any], stream: str, shard_id: str
) -> tuple[list[Any], int, bool, bytes] | None: ...
def columns(
    body: _Body,
) -> tuple[int, _Texts, _Texts, _Texts, _Texts, tuple[bytes | None, bytes], bool, bytes] | None: ...
def use_avx2(wanted: bool) -> bool: ...
def columns_of(
    records: list[Any], longest_key: int, most_bytes: int
) -> tuple[list[bytes], list[str], int] | None: ...
def by_range(
    keys: Sequence[str], data: Sequence[bytes], firsts: bytes, lasts: bytes
) -> list[tuple[int, bytes, tuple[str, ...], tuple[bytes, ...]]] | None: ...
def fill(
    keys: Sequence[str],
    data: Sequence[bytes],
    at: int,
    seen: dict[str, None],
    room: int,
    record_bytes: int,
    key_bytes: int,
) -> tuple[int, int, int]: ...
def aggregates(columns: list[tuple[Sequence[str], Sequence[bytes]]]) -> list[bytes] | None: ...
def put_records(start: bytes, records: list[dict[str, Any]]) -> bytes | None: ...
