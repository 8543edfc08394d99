"""What goes wrong now and then with readers and producers, each kind at its share of a rate."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from tests.support.kinesis.unkind.behaviours import Behaviour
from tests.support.kinesis.unkind.endpoint import UnkindEndpoint

READS: Final = ("GetRecords",)
ITERATORS: Final = ("GetRecords", "GetShardIterator", "SubscribeToShard")
LISTS: Final = ("ListShards", "DescribeStreamSummary", "GetShardIterator", "SubscribeToShard")
READER: Final = READS + LISTS
PUTS: Final = ("PutRecords",)

THROTTLED: Final = "ProvisionedThroughputExceededException"
FAILED: Final = {"code": "InternalFailure", "status": 500}


class Kind(NamedTuple):
    """A behaviour as calls meet it."""

    behaviour: Behaviour
    operations: tuple[str, ...]
    how: Mapping[str, Any] = {}
    rate: float = 1.0
    """Of calls, where it comes alone."""

    def switch_on(self, endpoint: UnkindEndpoint, rate: float, seed: str, stream: str = "") -> None:
        endpoint.switch_on(
            self.behaviour, rate=rate, operations=self.operations, stream=stream, seed=seed, **self.how
        )


def _between(operations: tuple[str, ...]) -> list[Kind]:
    """Return what stands between these operations' callers and AWS, and does what it likes."""
    pages = [Kind(Behaviour.HTML, operations, {"status": status}, rate=0.5) for status in STATUSES]
    bodies = [
        Kind(Behaviour.REPLY, operations, {"status": status, "body": body}, rate=0.5)
        for status, body in BODIES
    ]
    return [
        *pages,
        *bodies,
        Kind(Behaviour.REDIRECT, operations),
        Kind(Behaviour.CUT, operations, rate=0.5),
        Kind(Behaviour.RESET, operations, rate=0.5),
        Kind(Behaviour.SLOW, operations, {"seconds": 0.05, "parts": 5}),
        Kind(Behaviour.OVERSIZED, operations, rate=0.5),
        Kind(Behaviour.UNASKED_408, operations, rate=0.5),
    ]


STATUSES: Final = (302, 403, 404, 407, 408, 413, 502)
BODIES: Final = ((503, b""), (400, b""), (400, b"null"), (400, b"[]"), (500, b"nonsense"), (200, b""))

_READER: Final = (
    Kind(Behaviour.ERROR, READS, {"code": THROTTLED}),
    Kind(Behaviour.ERROR, READER, FAILED),
    Kind(Behaviour.EXPIRED_ITERATORS, READS),
    Kind(Behaviour.EMPTY_PAGES, READS),
    Kind(Behaviour.NO_NEXT_ITERATOR, READS),
    Kind(Behaviour.SURPLUS, READS),
    *_between(READER),
)
_PRODUCER: Final = (
    Kind(Behaviour.PARTLY_REFUSED, PUTS),
    Kind(Behaviour.ERROR, PUTS, {"code": THROTTLED}),
    Kind(Behaviour.ERROR, PUTS, FAILED),
    *_between(PUTS),
)

FAULTS: Final[Mapping[str, tuple[Kind, ...]]] = {
    "answers 500": (Kind(Behaviour.ERROR, READER, FAILED, 0.5),),
    "answers 503": (Kind(Behaviour.ERROR, READER, {"code": "ServiceUnavailable", "status": 503}),),
    "throughput exceeded": (Kind(Behaviour.ERROR, READS, {"code": THROTTLED}, 0.25),),
    "limit exceeded": (Kind(Behaviour.ERROR, LISTS, {"code": "LimitExceededException"}, 0.5),),
    "iterators expired": (Kind(Behaviour.EXPIRED_ITERATORS, READS),),
    # A list that does not find the stream says that the stream is gone, and so it would be.
    "not found": (Kind(Behaviour.ERROR, ITERATORS, {"code": "ResourceNotFoundException"}, 0.3),),
    "slow bodies": (Kind(Behaviour.SLOW, READS, {"seconds": 1.5}, 0.3),),
    "cut-off bodies": (Kind(Behaviour.CUT, READS, {}, 0.5),),
    "connections reset": (Kind(Behaviour.RESET, READER, {}, 0.5),),
    "no answers": (Kind(Behaviour.SILENT, READS, {"seconds": 2}, 0.2),),
    "endless bodies": (Kind(Behaviour.ENDLESS, READS, {"seconds": 2}, 0.2),),
    "oversized bodies": (Kind(Behaviour.OVERSIZED, READS, {}, 0.3),),
    "surplus answers": (Kind(Behaviour.SURPLUS, READS, {}, 0.3),),
    "unasked 408": (Kind(Behaviour.UNASKED_408, READER, {}, 0.3),),
    "pages of a proxy": tuple(Kind(Behaviour.HTML, READER, {"status": status}, 0.1) for status in STATUSES),
    "redirects": (Kind(Behaviour.REDIRECT, READER, {}, 0.5),),
    "bodies of nobody": tuple(
        Kind(Behaviour.REPLY, READER, {"status": status, "body": body}, 0.1) for status, body in BODIES
    ),
    "false ends": (Kind(Behaviour.NO_NEXT_ITERATOR, READS, {}, 0.3),),
    "empty pages a day behind": (Kind(Behaviour.EMPTY_PAGES, READS, {}, 0.5),),
    "short pages": (Kind(Behaviour.FEWER_RECORDS, READS, {}, 0.7),),
    "old listings": (Kind(Behaviour.OLD_LISTS, LISTS),),
}
"""What one of the events of the fault suite does, by its name."""


def reader_weather(endpoint: UnkindEndpoint, rate: float, seed: str, *, stream: str = "") -> None:
    """Have so many of a reader's calls go wrong, in every way."""
    _share(endpoint, _READER, rate, seed, stream)


def producer_weather(endpoint: UnkindEndpoint, rate: float, seed: str, *, stream: str = "") -> None:
    """The same for a producer's."""
    _share(endpoint, _PRODUCER, rate, seed, stream)


def _share(endpoint: UnkindEndpoint, kinds: Sequence[Kind], rate: float, seed: str, stream: str) -> None:
    for number, kind in enumerate(kinds):
        kind.switch_on(endpoint, rate / len(kinds), f"{seed}/{number}", stream)
