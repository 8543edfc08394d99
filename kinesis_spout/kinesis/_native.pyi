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
