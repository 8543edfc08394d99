"""Finding the record that kills its worker where nobody saw which one it was.

Mostly a task has noted which record was under way, and its death blames that one only; several at the same
time come again one at a time (``ShardSlices``). This is for the other deaths: a whole DataFrame whose handler
raised, a machine that is gone with its notes.

When such a job dies, any of its slices may be the cause. So each of them is planned again *alone*, in a job
of its own: the innocent ones pass and are trusted again. One that dies alone is halved. If a half passes, the
other half is suspected. Each job halves the rest, and the killer among n records is alone after about log2(n)
jobs. When it dies alone it is isolated: failed like any other, and retried alone, so that it can never take
others down again.
"""

from shard_state.sequence_number import SequenceNumber

_PORTIONS = 100


class Isolation:
    """The suspicion against the slices of one kind, fresh or retried, of one shard. Mutable."""

    def __init__(self) -> None:
        self._among = 0
        """The killer is among so many of the next records; 0: all is well."""
        self._limit = 0
        self._isolated: set[SequenceNumber] = set()

    @property
    def alone(self) -> bool:
        return self._among > 0

    def limit(self, wished: int) -> int:
        return self._limit if self.alone else wished

    @property
    def portion(self) -> int | None:
        """The most records to give a handler that takes several at a time; None: as many as there are.

        A task notes one portion at a time as under way. The next death names a hundredth of 10,000 records,
        and the one after it the record: three deliveries for each of the others.
        """
        return max(1, self._limit // _PORTIONS) if self.alone else None

    def suspect(self, count: int) -> None:
        """Note that the worker died with the next ``count`` records in its hands, or may have."""
        self._among = self._limit = count

    def died(self, count: int, *, alone: bool) -> bool:
        """Note that a job died with a slice of at most ``count`` records in it, and nobody saw at which.

        Returns:
            True if that isolates the slice's one record.
        """
        if alone and count == 1:
            self.trust()
            return True
        self.suspect(count)
        if alone:
            self._limit = count // 2
        return False

    def at_most(self, count: int) -> None:
        """Note that the killer is among the next ``count`` records at the latest: no more can have been read."""
        self._among = min(self._among, count)

    def survived(self, count: int, *, alone: bool) -> None:
        if alone:
            self._among = max(0, self._among - count)
            self._limit = max(1, min(self._limit, (self._among + 1) // 2))

    def trust(self) -> None:
        self._among = 0

    def isolate(self, sequence: SequenceNumber) -> None:
        self._isolated.add(sequence)

    def acquit(self, sequence: SequenceNumber) -> None:
        self._isolated.discard(sequence)

    def is_isolated(self, sequence: SequenceNumber) -> bool:
        return sequence in self._isolated
