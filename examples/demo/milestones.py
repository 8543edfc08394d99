"""How long the changes of the consumers took: from what their handler wrote down, and from what they say.

Times are monotonic, the same for all processes. A consumer says ten times a second which shards it owns; when a
record was handled is exact.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from examples.demo.consumers.settings import ConsumerStatus
from examples.demo.ledger import Delivery


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A consumer that joined another one. Its seconds count from when it was about to consume."""

    pid: int
    first_record_seconds: float | None = None
    """Until its handler was done with a record; None if it never was."""
    share_seconds: float | None = None
    """Until it owned half of the open shards; None if it never did."""
    owned: int = 0
    """How many shards that were."""
    open_shards: int = 0
    """Of how many."""

    @property
    def is_complete(self) -> bool:
        """Whether it has come to all of that."""
        return self.first_record_seconds is not None and self.share_seconds is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One SIGKILL of the consumer on Spark, and what came after. Its seconds count from the kill."""

    run: int
    """Which start of a consumer it hit."""
    pid: int
    unfinished: int
    """Records on the stream that had no end yet."""
    repeated: int = 0
    """Records that it had handled and not committed: they were handled again."""
    taken_over_seconds: float | None = None
    """Until the other consumer's handler was done with a record of the dead one's shards; None if it never was."""
    resumed_seconds: float | None = None
    """Until the handler of the consumer that was started again was done with a record; None if it never was."""
    spark_seconds: float | None = None
    """How much of that Spark took to start."""
    again: Join | None = None
    """How the consumer that was started again joined; None if it did not."""


class Milestones:
    """What has happened so far. Mutable."""

    def __init__(self) -> None:
        self.joins: dict[int, Join] = {}
        """Of each consumer that was to join another one, by its run, and that was not killed."""
        self.kills: list[Kill] = []
        self._killed_at = 0.0
        self._orphaned: frozenset[str] = frozenset()
        """The shards of the one that was killed last."""
        self._again: int | None = None
        """The run that was started in its place."""

    def started(self, run: int, pid: int) -> None:
        """Take in that a consumer was started to join another one; after a kill in place of the one it hit."""
        self.joins[run] = Join(pid=pid)
        if self.kills:
            self._again = run

    def killed(self, run: int, pid: int, at: float, *, shards: Iterable[str], unfinished: int) -> None:
        """Take in that a consumer was killed that owned ``shards``."""
        self.joins.pop(run, None)
        self.kills.append(Kill(run=run, pid=pid, unfinished=unfinished))
        self._killed_at, self._orphaned, self._again = at, frozenset(shards), None

    def is_shared(self) -> bool:
        """Whether all who were to join have joined, and have had half of the shards."""
        return bool(self.joins) and all(join.share_seconds is not None for join in self.joins.values())

    def look(
        self,
        now: float,
        deliveries: Collection[Delivery],
        statuses: Mapping[int, ConsumerStatus],
        open_shards: int,
    ) -> Iterator[str]:
        """Take in what is new, and say what it means.

        Args:
            now: when ``statuses`` were read.
            deliveries: those that were added since, in order of time.
            statuses: of the living consumers, by run.
            open_shards: how many the stream has.
        """
        yield from self._take_over(deliveries)
        for run, before in self.joins.items():
            if before.is_complete or (joined_at := statuses[run].joined_at) is None:
                continue
            join, owned = before, len(statuses[run].owned)
            first_at = next((delivery.at for delivery in deliveries if delivery.run == run), None)
            if join.first_record_seconds is None and first_at is not None:
                join = replace(join, first_record_seconds=_rounded(first_at - joined_at))
            if join.share_seconds is None and owned >= max(1, open_shards // 2):
                seconds = _rounded(now - joined_at)
                join = replace(join, share_seconds=seconds, owned=owned, open_shards=open_shards)
            self.joins[run] = join
            yield from self._news(run, join, statuses[run], first_at)

    def _take_over(self, deliveries: Iterable[Delivery]) -> Iterator[str]:
        if not self.kills or self.kills[-1].taken_over_seconds is not None:
            return
        for delivery in deliveries:
            if (
                delivery.run not in (self.kills[-1].run, self._again)
                and delivery.at > self._killed_at
                and delivery.shard_id in self._orphaned
            ):
                seconds = _rounded(delivery.at - self._killed_at)
                self.kills[-1] = replace(self.kills[-1], taken_over_seconds=seconds)
                yield f"the other one went on with the dead one's shards {seconds:.1f} s after the kill"
                return

    def _news(self, run: int, join: Join, status: ConsumerStatus, first_at: float | None) -> Iterator[str]:
        if run == self._again:
            kill = self.kills[-1]
            if kill.resumed_seconds is None and first_at is not None:
                seconds = _rounded(first_at - self._killed_at)
                kill = replace(
                    kill, resumed_seconds=seconds, spark_seconds=_rounded(status.spark_seconds or 0.0)
                )
                yield f"resumed {seconds:.1f} s after the kill"
            self.kills[-1] = replace(kill, again=join)
        if join.is_complete:
            yield (
                f"{'the one on Spark' if run == self._again else 'the second consumer'} shares: first record "
                f"{join.first_record_seconds:.1f} s after it joined, "
                f"{join.owned} of {join.open_shards} shards after {join.share_seconds:.1f} s"
            )


def _rounded(seconds: float) -> float:
    return round(seconds, 2)
