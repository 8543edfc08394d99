"""The streams of the canned endpoint that have a backlog: shards full of pages, each made from one template.

A page's records have the same data each time; only the part of their sequence numbers that names the page
differs, so an answer costs one ``bytes.replace``. The name of a stream says what is in it:

    backlog-8-10000-1024-2-name   8 shards with 2 pages of 10,000 records of 1,024 random bytes each
    orders-8-10000-1024-2-name    the same, but the data is JSON: orders with so many items as fit
    words-8-10000-100-2-name      the same, but the data is text: sentences of 16 words

``extend`` adds pages to the shards, so that a client can be warmed up first and measured then. The shards stay
open: past their last page the answers are empty, and 0 ms behind.
"""

import base64
import functools
import json
import random
from collections.abc import Callable
from typing import Any, Final, NamedTuple

_PREFIX: Final = "495903382714902566085596925383615710"
"""Of the sequence numbers; ten digits for the page and ten for the record in it follow."""
_PART: Final = "##########"
"""Stands for the page in a template. No base64 and no other text of a page has this sign."""
_HASH_KEYS: Final = 1 << 128
_MILLIS_OF_A_PAGE: Final = 1000
WORDS: Final = 16
"""Of a sentence."""
VOCABULARY: Final = 1_000
_ITEM: Final = '{"sku":"%08d","count":2,"price":17.5,"gift":false,"text":"' + "as described " * 8 + '"}'
_ITEM_BYTES: Final = len(_ITEM % 0)

Document = dict[str, Any]


class Backlog(NamedTuple):
    """What the name of a stream says."""

    kind: str
    """One of ``_KINDS``, which make the data."""
    shards: int
    records: int
    """Of a page."""
    size_bytes: int
    """Of a record's data."""
    pages: int
    """Of a shard, at first."""

    @classmethod
    def named(cls, stream: str) -> "Backlog | None":
        """Read a name; None if it is not one of these."""
        kind, *numbers = stream.split("-")
        return cls(kind, *map(int, numbers[:4])) if kind in _KINDS else None


class Backlogs:
    """Answers for these streams. Mutable: pages can be added."""

    def __init__(self) -> None:
        self._added: dict[str, int] = {}

    def extend(self, stream: str, pages: int) -> None:
        """Add pages to each shard of a stream."""
        self._added[stream] = self._added.get(stream, 0) + pages

    def shards(self, backlog: Backlog) -> list[Document]:
        """List the shards, which share the hash keys evenly."""
        step = _HASH_KEYS // backlog.shards
        return [
            {
                "ShardId": f"shardId-{number:012}",
                "HashKeyRange": {
                    "StartingHashKey": str(number * step),
                    "EndingHashKey": str(
                        (_HASH_KEYS if number + 1 == backlog.shards else (number + 1) * step) - 1
                    ),
                },
                "SequenceNumberRange": {"StartingSequenceNumber": _sequence_number(0, 0)},
            }
            for number in range(backlog.shards)
        ]

    def iterator(self, stream: str, backlog: Backlog, shard_id: str, kind: str, number: str) -> Document:
        """Answer GetShardIterator; a time stands for the oldest record."""
        at = 0
        if kind.endswith("SEQUENCE_NUMBER") and number != _PREFIX:
            page, record = int(number[len(_PREFIX) : -len(_PART)]), int(number[-len(_PART) :])
            at = page * backlog.records + record + (kind == "AFTER_SEQUENCE_NUMBER")
        return {"ShardIterator": f"{stream}/{shard_id}/{at}"}

    def records(self, stream: str, backlog: Backlog, place: str, at: int, limit: int) -> bytes:
        """Answer GetRecords: what is left of the page at ``at``, at most ``limit`` records."""
        pages = backlog.pages + self._added.get(stream, 0)
        page, first = divmod(at, backlog.records)
        if page >= pages:
            return _reply(0, f"{place}/{at}", b"[]")
        last = min(backlog.records, first + limit)
        template = _template(backlog.kind, backlog.records, backlog.size_bytes, first, last)
        records = template.replace(_PART.encode(), b"%010d" % page)
        left = pages - page - (last == backlog.records)
        return _reply(left * _MILLIS_OF_A_PAGE, f"{place}/{at + last - first}", records)


def _reply(millis: int, iterator: str, records: bytes) -> bytes:
    head = f'{{"MillisBehindLatest":{millis},"NextShardIterator":"{iterator}","Records":'
    return b"".join((head.encode(), records, b"}"))


@functools.lru_cache(maxsize=8)
def _template(kind: str, records: int, size_bytes: int, first: int, last: int) -> bytes:
    source = random.Random(records * size_bytes)
    made = _KINDS[kind]
    data = [made(source, size_bytes) for _ in range(records)]
    shown = [
        {
            "ApproximateArrivalTimestamp": round(1_700_000_000.123 + at / 1000, 3),
            "Data": base64.b64encode(data[at]).decode(),
            "EncryptionType": "NONE",
            "PartitionKey": f"customer-{at % 997}",
            "SequenceNumber": f"{_PREFIX}{_PART}{at:010}",
        }
        for at in range(first, last)
    ]
    return json.dumps(shown, separators=(",", ":")).encode()


def _order(source: random.Random, size_bytes: int) -> bytes:
    """Make an order of just this size, 100 bytes or more: some fields, the items that fit, and a note."""
    head = f'{{"order":{source.randrange(10**9)},"amount":{source.randrange(10**6) / 100},"items":['
    middle, end = '],"note":"', '"}'
    left = size_bytes - len(head) - len(middle) - len(end)
    items = [_ITEM % source.randrange(10**8) for _ in range(left // (_ITEM_BYTES + 1))]
    body = head + ",".join(items) + middle
    return f"{body}{'x' * (size_bytes - len(body) - len(end))}{end}".encode()


def sentence(source: random.Random, size_bytes: int) -> bytes:
    """Make a sentence of just this size, 100 bytes or more: words of one length, and a longer last one."""
    length = (size_bytes + 1) // WORDS - 1
    words = " ".join(f"{source.randrange(VOCABULARY):0{length}}" for _ in range(WORDS))
    return words.ljust(size_bytes, "x").encode()


_KINDS: Final[dict[str, Callable[[random.Random, int], bytes]]] = {
    "backlog": random.Random.randbytes,
    "orders": _order,
    "words": sentence,
}


def _sequence_number(page: int, record: int) -> str:
    return f"{_PREFIX}{page:010}{record:010}"
