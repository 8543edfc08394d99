"""Finding the record that kills its worker, without blaming its neighbours.

When a job dies, any of its slices may be the cause. So each of them is planned again *alone*, in a job of its
own: the innocent ones pass and are trusted again. One that dies alone is halved, and halved again, until it is
a single record; when that dies alone, the record is convicted. It is failed like any other, and retried alone,
so that it can never take others down again. After a success the limit doubles, up to the size that was first
suspected; then the shard is trusted again.
"""

from shard_state.sequence_number import SequenceNumber


class Isolation:
    """The suspicion against the slices of one kind, fresh or retried, of one shard. Mutable."""

    def __init__(self) -> None:
        self._suspected: int | None = None
        """The size of the slice that fell under suspicion; None: all is well."""
        self._limit = 0
        self._convicts: set[SequenceNumber] = set()

    @property
    def alone(self) -> bool:
        """Whether the next slice must have a job of its own."""
        return self._suspected is not None

    def limit(self, wished: int) -> int:
        """Bound the size of the next slice."""
        return wished if self._suspected is None else min(wished, self._limit)

    def died(self, count: int, *, alone: bool) -> bool:
        """Note that a job died with a slice of at most ``count`` records in it.

        Returns:
            Whether that convicts the slice's one record.
        """
        if not alone:
            self._suspected, self._limit = max(count, self._suspected or 0), count
            return False
        if self._suspected is None:
            self._suspected = count
        self._limit = max(1, count // 2)
        return count == 1

    def survived(self, *, alone: bool) -> None:
        """Note that a slice ended well."""
        if not alone or self._suspected is None:
            return
        self._limit *= 2
        if self._limit > self._suspected:
            self._suspected = None

    def convict(self, sequence: SequenceNumber) -> None:
        """Remember a record that killed its worker."""
        self._convicts.add(sequence)

    def acquit(self, sequence: SequenceNumber) -> None:
        """Forget a record that is finished."""
        self._convicts.discard(sequence)

    def is_convict(self, sequence: SequenceNumber) -> bool:
        """Tell whether a record killed its worker before."""
        return sequence in self._convicts
