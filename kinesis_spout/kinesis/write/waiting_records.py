"""The records that wait for one stream: what goes into the next call, and what an answer means. No I/O.

PutRecords answers for each record of a call. What is refused is put again, at the pace that its shard takes
records, or after a wait that grows where it takes none. The records of that shard queue up here, and those of
others go on. Which shard a record goes to follows from its key and the stream's shards, which are listed at the
first refusal, and again when an answer names a shard that is not among them. A list that is out of date, or may
not be had, only makes the waiting coarser.

**Order.** Records of one partition key are given out in the order in which they were held. Within one call
Kinesis may refuse a record and take a later one of the same key; the first then comes behind. So it does with
calls that are under way at once. With `PutOrder.KEY` a record is given out when the one before it of its key
has ended, so that this cannot happen.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from kinesis_spout.kinesis.errors import ERRORS_BY_CODE
from kinesis_spout.kinesis.patience import Patience
from kinesis_spout.kinesis.write.hash_key_ranges import HashKeyRanges
from kinesis_spout.kinesis.write.put_records import CallLimits, PutOrder, Puttable
from kinesis_spout.kinesis.write.shard_queues import GivenUp, ShardQueues
from kinesis_spout.model.errors import KinesisError, Unavailable

if TYPE_CHECKING:
    from mypy_boto3_kinesis.type_defs import PutRecordsResultEntryTypeDef as Result


class Settled(NamedTuple):
    """What the answers to a call mean."""

    taken: "list[tuple[Puttable, Result]]"
    """What is on the stream now, each with its answer."""
    given_up: list[GivenUp]
    """What is not to be put again: of shards that took nothing until the patience's deadline, or that time does
    not mend. The rest waits again."""


class WaitingOptions(TypedDict):
    """What holds records is told, whether it aggregates or not."""

    patience: Patience
    limits: CallLimits | None
    order: PutOrder


class WaitingRecords:
    """The records on their way to one stream. Mutable; for one thread at a time.

    Its owner takes a batch, makes the call, and says how it went: `settle` for answers, `done` for records that
    are given up, and nothing yet for a call that is made again. Several calls may be under way. Before it
    settles answers, it asks whether it `must_list` first.

    Args:
        work: what is done, for errors: "PutRecords on orders".
        patience: for each shard that refuses.
        limits: of one call.
        order: what of the records' order holds.
    """

    def __init__(
        self,
        work: str,
        *,
        patience: Patience,
        limits: CallLimits | None = None,
        order: PutOrder = PutOrder.UNORDERED,
    ) -> None:
        self._queues = ShardQueues(limits or CallLimits(), patience, work, order)
        self._clock = patience.clock
        self.ranges: HashKeyRanges | None = None
        """The shards as they were last listed; None if they were not yet."""
        self._was_in_vain = False
        """Whether they were listed again, and had not changed."""

    @property
    def waiting(self) -> int:
        """How many records of Kinesis are held, those in calls left out."""
        return self._queues.records

    @property
    def waiting_bytes(self) -> int:
        """What they weigh."""
        return self._queues.size_bytes

    @property
    def ready_at(self) -> float:
        """When a batch can be taken, as monotonic time: minus infinity for now, infinity if nothing is held.

        Infinity also if all that is held waits, for its order, for records in calls.
        """
        return -inf if self._queues.has_open else self.paced_at

    @property
    def paced_at(self) -> float:
        """When a shard that refused may be given what waits for it, as monotonic time: infinity if none waits."""
        return self._queues.paced_at(self._clock.monotonic())

    def backlogs(self) -> Iterator[tuple[str, int, int]]:
        """Give how many (user) records and bytes wait for each shard that refused of late, apart."""
        return self._queues.backlogs()

    @property
    def has_a_full_call(self) -> bool:
        """Whether what may go now fills a call."""
        return self._queues.has_a_full_call

    @property
    def has_ready(self) -> bool:
        """Whether ``take`` may give something although no shard that refused is due."""
        return self._queues.has_open

    @property
    def must_list_first(self) -> bool:
        """Whether the shards are needed before anything is held: never."""
        return False

    def hold(self, entry: Puttable) -> None:
        """Take a record over."""
        self._queues.add(entry)

    def hold_all(self, entries: Sequence[Puttable]) -> None:
        """Take records over, in their order."""
        self._queues.add_all(entries)

    @property
    def is_packing(self) -> bool:
        """Whether some of what is held may be taken only after ``finish_packing``: never."""
        return False

    def finish_packing(self) -> None:
        """Let all that is held go, full or not: it does already."""

    def take(self) -> list[Puttable]:
        """Give what goes into the next call; empty if nothing may go now."""
        return self._queues.take(self._clock.monotonic())

    def take_back(self) -> list[Puttable]:
        """Give back everything that waits, each shard's in order."""
        return self._queues.take_all()

    def go_by(self, ranges: HashKeyRanges) -> None:
        """Go by these shards from now on."""
        self._was_in_vain = self.ranges is not None and self.ranges == ranges
        self.ranges = ranges
        self._queues.regroup(ranges)

    def must_list(self, results: "Sequence[Result]") -> bool:
        """Say whether the shards must be listed before these answers are settled."""
        if any(result.get("ErrorCode") for result in results):
            return self.ranges is None or self.names_a_new_shard(results)
        # A shard that was split would be held to the pace of its parent.
        return self._queues.has_refusing and self.names_a_new_shard(results) and not self._was_in_vain

    def names_a_new_shard(self, results: "Sequence[Result]") -> bool:
        """Say whether an answer names a shard that was made since the shards were listed."""
        ranges = self.ranges
        named = {result.get("ShardId") for result in results}
        return ranges is not None and any(map(ranges.are_older_than, filter(None, named)))

    def settle(self, batch: Sequence[Puttable], results: "Sequence[Result]") -> Settled:
        """Learn what was answered for the records of a call."""
        taken: list[tuple[Puttable, Result]] = []
        refused: list[tuple[Puttable, Result]] = []
        for pair in zip(batch, results, strict=True):
            (refused if pair[1].get("ErrorCode") else taken).append(pair)
        failure = None
        if refused:
            failure = refusal_error(refused[0][1], f"{len(refused)} of {len(results)} records refused")
        given_up = self._queues.settle(
            taken, [entry for entry, _ in refused], failure, self._clock.monotonic()
        )
        return Settled(taken, given_up)

    def done(self, batch: Iterable[Puttable]) -> None:
        """Learn that records of a call are given up: what they held back may go."""
        self._queues.done(batch)


def refusal_error(refusal: "Result", what: str) -> KinesisError:
    """Give the error that an answer for a record says."""
    code = refusal.get("ErrorCode", "")
    # Others of the call were taken: a code that nobody knows may pass, too.
    return ERRORS_BY_CODE.get(code, Unavailable)(f"{what}, {code}: {refusal.get('ErrorMessage')}")
