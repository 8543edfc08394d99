"""Records of one shard that were handed out together, each with an outcome of its own.

To the tracker the open ones among them are in-flight spans: one at first, and more where records between them have
ended. So a run of which the first hundred are acked, in whatever order, costs little more than one ack.
"""

from collections.abc import Callable, Sequence

from shard_state.sequence_number import SequenceNumber


class Run:
    """Consecutive fresh records, by their index in the run. Mutable: the tracker notes in it which have ended.

    Args:
        count: how many records, 1 or more.
        sequence_of: tells the sequence number of a record by its index. It is asked of open records only, and of
            those that end now.
    """

    __slots__ = ("count", "ended", "open", "sequence_of")

    def __init__(self, count: int, sequence_of: Callable[[int], SequenceNumber]) -> None:
        self.count = count
        self.sequence_of = sequence_of
        self.ended = bytearray(count)
        """1 for each record that is finished, or tracked by itself."""
        self.open = count
        """How many are neither."""

    def open_around(self, first: int, end: int) -> tuple[int, int]:
        """Give the first and the end of the open records that ``first`` to ``end - 1``, open ones, are among."""
        until = self.ended.find(1, end)
        return self.ended.rfind(1, 0, first) + 1, self.count if until < 0 else until

    def end(self, first: int, end: int) -> None:
        """Note that open records have ended."""
        self.ended[first:end] = b"\1" * (end - first)
        self.open -= end - first

    def open_records(self) -> list[int]:
        return [index for index, has_ended in enumerate(self.ended) if not has_ended]


def ranges(indices: Sequence[int]) -> list[tuple[int, int]]:
    """Join indices that follow one another, as (first, end). Each is there once."""
    if indices and (end := max(indices) + 1) - (first := min(indices)) == len(indices):
        return [(first, end)]  # nearly always: records are acked in the order they were handed out
    joined: list[tuple[int, int]] = []
    first = end = -1
    for index in sorted(indices):
        if index == end:
            end += 1
            continue
        if first >= 0:
            joined.append((first, end))
        first, end = index, index + 1
    if first >= 0:
        joined.append((first, end))
    return joined
