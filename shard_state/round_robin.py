"""Fair turns for shards that come and go.

Whoever was served goes to the back of the queue, whoever joins too. So a shard that joins or leaves neither
gains nor costs anybody a turn (invariant 15).
"""

from collections.abc import Iterator


class RoundRobin:
    """A ring of names. Mutable; not thread-safe."""

    def __init__(self) -> None:
        self._turns: dict[str, None] = {}
        """In the order of whose turn is next: whoever is served goes to the back."""

    def __len__(self) -> int:
        return len(self._turns)

    def __contains__(self, member: str) -> bool:
        return member in self._turns

    def add(self, member: str) -> None:
        """Let a member take part, last in the present round; one that does already keeps its turn."""
        self._turns.setdefault(member)

    def remove(self, member: str) -> None:
        """Let a member take part no more; unknown ones are passed over."""
        self._turns.pop(member, None)

    def served(self, member: str) -> None:
        """Note that a member had its turn: everybody else comes first now."""
        if member in self._turns:
            del self._turns[member]
            self._turns[member] = None

    def round(self) -> Iterator[str]:
        """Name every member once, in turn. Members may be served, added and removed meanwhile."""
        return iter(list(self._turns))
