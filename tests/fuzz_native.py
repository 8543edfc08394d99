"""Gives the native decoder damaged replies: it must refuse each, or take from it what Python takes.

``make fuzz`` builds it with AddressSanitizer and UndefinedBehaviorSanitizer and gives it a million replies; a
failure prints its seed. The unit tests take few.
"""

import argparse
import array
import base64
import functools
import importlib.util
import json
import os
import random
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from kinesis_spout.kinesis import native
from kinesis_spout.kinesis.read.arrow import ArrowForm
from kinesis_spout.kinesis.read.page import decode_reply
from kinesis_spout.kinesis.read.read_settings import ReadSettings
from kinesis_spout.model.errors import KinesisSpoutError
from kinesis_spout.model.record import Record

_KEYS: Final = ("key", "", "ключ", 'with "quotes"', "back\\slash\n", "\U0001f600", "x" * 256)
_TOKENS: Final = (
    b'"', b"\\", b"{", b"}", b"[", b"]", b":", b",", b"null", b"=", b"==", b"\\ud83d\\ude00", b"\\u00e9", b"\\",
    b"\xff", b"\x00", b"1e5", b"-0.0", b'"Records":[', b'"Records":[],', b'"Data":"AA=="',
)  # fmt: skip
_DAMAGED_EACH: Final = 32
"""How many damaged ones each whole reply gives."""
_FORM: Final = ArrowForm(
    stream="s", shard_id="x", settings=ReadSettings(extra_columns=("encryptionType",), deaggregate=False)
)


class Outcome(NamedTuple):
    accepted: int
    refused: int


def seed_of_the_day() -> int:
    """Return a seed that no other day begins with, nor comes to in a million replies."""
    return datetime.now(UTC).toordinal() * 1_000_000


def check_damaged(seed: int, count: int) -> Outcome:
    """Check ``count`` replies that follow from a seed. Raises AssertionError, with the seed of the reply."""
    accepted = 0
    for number in range(seed, seed + count):
        whole = _whole_reply(number // _DAMAGED_EACH)
        source = random.Random(number)
        body = _damaged(whole, source)
        # An array's memory ends where the body does: one of bytes has a zero after it.
        exact = memoryview(array.array("B", body))
        native.decoder.use_avx2(source.random() < 0.8)
        try:
            accepted += _is_accepted(exact, body)
        except Exception as error:
            raise AssertionError(f"seed {number}: {body!r}") from error
    return Outcome(accepted, count - accepted)


def _is_accepted(exact: memoryview, body: bytes) -> bool:
    as_records = native.decoder.records(exact, Record, "s", "x")
    as_columns = native.decoder.columns(exact)
    if as_records is None:
        # Columns hold fewer arrivals, and never more.
        assert as_columns is None
        return False
    records = _by(lambda: decode_reply(body, stream="s", shard_id="x"))
    columns = _by(lambda: _FORM.decode(body))
    kept, native.decoder = native.decoder, None
    try:
        wanted = _by(lambda: decode_reply(body, stream="s", shard_id="x"))
        assert records == wanted, (records, wanted)
        if not isinstance(wanted, str):
            assert records.size_bytes == wanted.size_bytes
        wanted_columns = _by(lambda: _FORM.decode(body))
        assert columns == wanted_columns, (columns, wanted_columns)
    finally:
        native.decoder = kept
    return True


def _by(decode: Callable[[], Any]) -> Any:
    try:
        return decode()
    except (KinesisSpoutError, ValueError) as error:  # ValueError: an arrival beyond Arrow's range
        return type(error).__name__


@functools.lru_cache(maxsize=1)
def _whole_reply(seed: int) -> bytes:
    source = random.Random(f"reply {seed}")
    records = [_record(source, at) for at in range(source.randrange(5))]
    reply: dict[str, Any] = {"MillisBehindLatest": 7, "NextShardIterator": "AA/+==", "Records": records}
    if source.random() < 0.2:
        reply = {"New": {"a": [1, None, "b", {}], "c": -1.5e3}, **reply, "ChildShards": None}
    separators = source.choice([(",", ":"), (" , ", " : ")])
    return json.dumps(reply, ensure_ascii=source.random() < 0.5, separators=separators).encode()


def _record(source: random.Random, at: int) -> dict[str, Any]:
    data = source.randbytes(source.choice((0, 1, 2, 3, 33, 34, 35, 100, 400)))
    milliseconds = 1_795_260_005_277 + source.randrange(1_000)
    record: dict[str, Any] = {
        "ApproximateArrivalTimestamp": milliseconds / 1000,
        "Data": base64.b64encode(data).decode(),
        "EncryptionType": source.choice(("NONE", "KMS", None)),
        "PartitionKey": source.choice(_KEYS),
        "SequenceNumber": str(at * 10**55 + source.randrange(10**55)),
    }
    if source.random() < 0.2:
        del record[source.choice(sorted(record))]
    if source.random() < 0.1:
        record["New"] = source.choice(("text", 1, [True, {"a": None}]))
    members = list(record.items())
    source.shuffle(members)
    return dict(members)


def _damaged(body: bytes, source: random.Random) -> bytes:
    damaged = bytearray(body)
    for _ in range(source.randrange(4)):
        at = source.randrange(len(damaged) + 1)
        match source.randrange(6):
            case 0:
                damaged[at : at + 1] = source.randbytes(1)
            case 1:
                damaged[at:at] = source.choice(_TOKENS)
            case 2:
                token = source.choice(_TOKENS)
                damaged[at : at + len(token)] = token
            case 3:
                del damaged[at : at + source.randrange(1, 40)]
            case 4:
                del damaged[at:]
            case _:
                start = source.randrange(len(damaged) + 1)
                damaged[at:at] = damaged[start : start + source.randrange(1, 40)]
    return bytes(damaged)


def main() -> None:
    """Check as many replies as were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replies", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=seed_of_the_day())
    parser.add_argument("--sanitize", action="store_true", help="build it with sanitizers first, by gcc")
    parser.add_argument("--module", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.sanitize:
        _run_sanitized(["--replies", str(arguments.replies), "--seed", str(arguments.seed)])
        return
    if arguments.module is not None:
        native.decoder = _loaded(arguments.module)
    if native.decoder is None:
        sys.exit("expected the native decoder, but it was not built, or KINESIS_SPOUT_PURE_PYTHON is set")
    outcome = check_damaged(arguments.seed, arguments.replies)
    print(f"{outcome.accepted:,} replies decoded as Python does, {outcome.refused:,} refused")


def _run_sanitized(arguments: list[str]) -> None:
    """Run this program with a decoder that ends it at the first error of memory or of arithmetic."""
    sources = sorted(Path(native.__file__).parent.glob("*.c"))
    with tempfile.TemporaryDirectory() as folder:
        module = Path(folder, "_native.abi3.so")
        flags = ["-g", "-O1", "-fPIC", "-shared", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
        include = sysconfig.get_paths()["include"]
        subprocess.run(
            ["gcc", *flags, f"-I{include}", *map(str, sources), "-o", str(module), "-lm"], check=True
        )
        library = subprocess.run(
            ["gcc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True
        ).stdout.strip()
        # Python's own allocator would hide what is written beyond an object; Python itself leaks at its end.
        environment = {"LD_PRELOAD": library, "PYTHONMALLOC": "malloc", "ASAN_OPTIONS": "detect_leaks=0"}
        subprocess.run(
            [sys.executable, "-m", "tests.fuzz_native", "--module", str(module), *arguments],
            check=True,
            env={**os.environ, **environment},
        )


def _loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("kinesis_spout.kinesis._native", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
