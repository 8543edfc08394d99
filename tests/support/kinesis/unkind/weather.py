"""What goes wrong now and then with readers and producers, each kind at its share of a rate."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from tests.support.kinesis.unkind.behaviours import Behaviour
from tests.support.kinesis.unkind.endpoint import UnkindEndpoint

READS: Final = ("GetRecords",)
LISTS: Final = ("ListShards", "DescribeStreamSummary", "GetShardIterator", "SubscribeToShard")
READER: Final = READS + LISTS
PUTS: Final = ("PutRecords",)

THROTTLED: Final = {"code": "ProvisionedThroughputExceededException"}
FAILED: Final = {"code": "InternalFailure", "status": 500}


class Kind(NamedTuple):
    """A behaviour as it is met."""

    behaviour: Behaviour
    operations: tuple[str, ...]
    how: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it


def between(operations: tuple[str, ...]) -> list[Kind]:
    """What stands between these operations' callers and AWS, and does what it likes."""
    pages = [
        Kind(Behaviour.HTML, operations, {"status": status}) for status in (302, 403, 404, 407, 408, 413, 502)
    ]
    bodies = [
        Kind(Behaviour.REPLY, operations, {"status": status, "body": body})
        for status, body in (
            (503, b""),
            (400, b""),
            (400, b"null"),
            (400, b"[]"),
            (500, b"nonsense"),
            (200, b""),
        )
    ]
    return [
        *pages,
        *bodies,
        Kind(Behaviour.REDIRECT, operations),
        Kind(Behaviour.CUT, operations),
        Kind(Behaviour.RESET, operations),
        Kind(Behaviour.SLOW, operations, {"seconds": 0.05, "parts": 5}),
        Kind(Behaviour.OVERSIZED, operations),
        Kind(Behaviour.UNASKED_408, operations),
    ]


_READER: Final = [
    Kind(Behaviour.ERROR, READS, THROTTLED),
    Kind(Behaviour.ERROR, READER, FAILED),
    Kind(Behaviour.EXPIRED_ITERATORS, READS),
    Kind(Behaviour.EMPTY_PAGES, READS),
    Kind(Behaviour.NO_NEXT_ITERATOR, READS),
    Kind(Behaviour.SURPLUS, READS),
    *between(READER),
]
_PRODUCER: Final = [
    Kind(Behaviour.PARTLY_REFUSED, PUTS),
    Kind(Behaviour.ERROR, PUTS, THROTTLED),
    Kind(Behaviour.ERROR, PUTS, FAILED),
    *between(PUTS),
]


def reader_weather(endpoint: UnkindEndpoint, rate: float, seed: str, *, stream: str = "") -> None:
    """Have so many of a reader's calls go wrong, in every way."""
    _switch_on(endpoint, _READER, rate, seed, stream)


def producer_weather(endpoint: UnkindEndpoint, rate: float, seed: str, *, stream: str = "") -> None:
    """The same for a producer's."""
    _switch_on(endpoint, _PRODUCER, rate, seed, stream)


def _switch_on(endpoint: UnkindEndpoint, kinds: Sequence[Kind], rate: float, seed: str, stream: str) -> None:
    for number, (behaviour, operations, how) in enumerate(kinds):
        endpoint.switch_on(
            behaviour,
            rate=rate / len(kinds),
            operations=operations,
            stream=stream,
            seed=f"{seed}/{number}",
            **how,
        )
